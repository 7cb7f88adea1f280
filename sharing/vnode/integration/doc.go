// Package integration tests sharing/vnode against a real API server, controller
// manager and scheduler.
package integration
