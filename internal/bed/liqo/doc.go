// Package liqo is the module that builds Liqo's own controllers for the test bed: its controller manager, its CRD replicator and
// its webhook as they are, and package chart, which renders its Helm chart. It has no code of its own, and knows nothing of the
// bed: [liqo.io/agent/internal/bed] starts what is built.
//
// They are three programs, because one of them is made of an internal package of Liqo's. Its virtual kubelet cannot be built
// here: it needs a fork that is not available as a Go module.
package liqo
