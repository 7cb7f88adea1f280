package control

import "time"

// The states of GuestStorage.
const (
	StorageInUse    = "InUse"
	StorageRetained = "Retained"
)

// Storage is what claims keep where their pods run, and what claims of other clusters keep here.
type Storage struct {
	Class        string         `json:"class"`        // whose claims are kept where their pods run
	OfferedBytes int64          `json:"offeredBytes"` // to all consumers together
	Problem      string         `json:"problem"`      // why claims of consumers cannot be kept here; "" if they can
	Own          []OwnStorage   `json:"own"`          // of this cluster
	Guests       []GuestStorage `json:"guests"`       // of consumers, in this cluster
}

// OwnStorage is a claim of this cluster, of that class.
type OwnStorage struct {
	ID        string    `json:"id"`   // of the provider; "" if the data is in this cluster
	Name      string    `json:"name"` // as in Advert; "" if the data is in this cluster
	Namespace string    `json:"namespace"`
	Claim     string    `json:"claim"`
	Bytes     int64     `json:"bytes"`   // that it asks for
	State     string    `json:"state"`   // Home, Pending, Bound, Unknown, Parted, Missing, Deleting, Released
	Message   string    `json:"message"` // more about the state, in a sentence, or empty
	Since     time.Time `json:"since,omitzero"`
}

// GuestStorage are the claims of a consumer in this cluster.
type GuestStorage struct {
	ID     string `json:"id"`   // of the consumer
	Name   string `json:"name"` // as in Advert
	Claims int    `json:"claims"`
	Bytes  int64  `json:"bytes"` // that they ask for
	State  string `json:"state"` // StorageInUse, or StorageRetained
	// Since is since when they are only kept, and Until how long.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Reclaimed is what a consumer's claims were that are being removed.
type Reclaimed struct {
	Claims int   `json:"claims"`
	Bytes  int64 `json:"bytes"`
}
