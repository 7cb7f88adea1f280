// Package document is what two clusters that run Liqo 1.x say to each other to be peered by
// Liqo: the nonce, the Tenant and the Identity, what a ResourceSlice says about the last step, and
// the Network: addresses, gateway and its key. It makes the documents of this cluster, and reads those of others.
//
// Everything that a peer says is hostile. The Parse functions bound it, read each field, and
// check it against what is known without the document: whose it is, which key it belongs to,
// which nonce it answers. What they return is safe to be applied. A document with a field
// that is not known here is not read: it would mean something that was not checked.
//
// A document has no name, namespace, label or kind of a Kubernetes object, so it cannot
// choose one: who applies it writes these.
//
// The kinds, labels and formats are those of github.com/liqotech/liqo, v1.0 to v1.2. Its
// module is not imported, because it would bring the typed clientset and more into the
// binary; names.go says where each of them comes from.
//
// # What this package must not do
//
// It does no I/O and knows no time but the one it is given.
//
// # Goroutines
//
// None.
package document
