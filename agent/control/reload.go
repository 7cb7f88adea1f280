package control

// Reload is the result of reloading the configuration, and the answer to POST /v1/reload.
type Reload struct {
	Path    string   `json:"path"`    // the file that was read; "" = none
	Changed []string `json:"changed"` // keys that have another value than before
	Restart []string `json:"restart"` // keys whose value in the file waits for a restart of the agent, also from earlier
	// Rebuilding: the agent rebuilds its parts with the new settings. These are in effect, and the socket answers
	// again, when Generation is greater than here.
	Rebuilding bool `json:"rebuilding"`
	// Generation counts how often the parts were built since the agent started.
	Generation int64 `json:"generation"`
}

// Generation is the answer to GET /v1/reload.
type Generation struct {
	Generation int64 `json:"generation"`
}
