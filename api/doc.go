// Package api holds the custom resources of the Liqo discovery protocol as Go
// types, and their CustomResourceDefinitions as YAML embedded in the binary.
//
// The manifests under crds are generated from the types: field names and types
// come from the structs, descriptions from the doc comments, and validation
// from "+kubebuilder:" marker lines in the syntax that controller-gen reads (but
// "items:" is also about the values of a map, and "groupName" is about one type).
// "go test ./api -update" writes them, and the plain test fails while they
// differ from the types.
//
// The package performs no I/O, starts no goroutine, and keeps no state. It
// depends on k8s.io/apimachinery only: the typed Kubernetes API would add
// megabytes to the binary for nothing that is used here.
package api
