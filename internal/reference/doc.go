// Package reference writes what is generated from the command tree and from the
// table of settings: docs/commands.md, and the manual pages of the packages.
//
// It adds no facts of its own beyond a few sentences that hold a page together, so
// that none can be wrong while the program is right. The same input gives the same
// bytes. It is no part of the program, has no state and starts no goroutine.
package reference
