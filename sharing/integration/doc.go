// Package integration tests sharing against real API servers, with controllers and
// scheduler where they matter, one part of it at a time:
//
//   - host_*: package host, in whose place consumers try everything that they should
//     not be able to do.
//   - kubelet_*: the kubelet API of virtual nodes, with kubectl on the consumer. kwok
//     is the provider's kubelet: it speaks the real protocols and runs commands of the
//     host instead of containers.
//   - offload_*: package offload between two clusters. The endpoint between them is a
//     double: the way to the provider is an ordinary transport with impersonation.
//   - vnode_*: package vnode and the admission of pods to virtual nodes.
//   - workload_*: package workload. One API server stands for both clusters.
//
// It holds no code but these tests. They are one package because control planes are
// shared by the tests of a package.
package integration
