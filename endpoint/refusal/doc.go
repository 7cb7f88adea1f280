// Package refusal is how the endpoint says no: why a connection or a request was not
// served, as it is counted, as the caller's program reads it, and as a person does.
//
// A refusal about a request for the API server is never NotFound: that would mean that
// something is gone.
package refusal
