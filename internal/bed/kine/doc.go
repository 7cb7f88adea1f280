// Package kine is the module that builds kine for the test bed: what K3s keeps its objects in, with SQLite below. It has no code
// of its own, and knows nothing of the bed: [liqo.io/agent/internal/bed] starts what is built.
package kine
