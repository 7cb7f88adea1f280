// Package rules tests what an API server takes as one of our custom resources, with
// the API server's own code and without an API server: its decoder's defaulting and
// pruning, its schemas, and its rules in CEL, on the manifests in api/crds.
//
// It is in this module because everything it needs is compiled for kubebox anyway. There
// is nothing but tests in it. What only a running API server and kubectl can show is in
// peering/integration.
package rules
