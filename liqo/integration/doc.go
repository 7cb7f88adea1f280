// Package integration tests package liqo with real API servers, a small partner in place of the
// other agent, and a stand-in for Liqo's controllers that can be stopped between any two steps.
// What Liqo's own controllers do is tested with these, in internal/bed/liqo.
package integration
