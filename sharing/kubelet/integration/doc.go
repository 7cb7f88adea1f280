// Package integration tests the kubelet API of virtual nodes with real API
// servers, controller-managers and kubectl on the consumer, and an API server with
// kwok on the provider: its kubelet speaks the real protocols and runs commands of
// the host instead of containers.
package integration
