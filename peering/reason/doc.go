// Package reason has the reasons that objects about peers show in their conditions and
// states: one word each, for programs, which never changes. Each is explained in
// docs/troubleshooting.md. Package vnode has those of nodes, and package wire those of
// refusals.
package reason
