// Package integration tests the doctor on boxes that were broken on purpose: each must
// give exactly the finding that it should.
package integration
