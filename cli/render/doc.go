// Package render writes what commands say: tables, fields, paragraphs, JSON, YAML
// and errors. Text that came from the network is never written to a terminal as it
// is: whatever could control one becomes visible.
//
// It knows no command and nothing of the agent.
package render
