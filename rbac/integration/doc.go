// Package integration tests what package rbac does to a real API server.
package integration
