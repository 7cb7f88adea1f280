// Package workload says what a pod of one cluster is in another one. It has no
// I/O and no goroutines: everything here is a function of its arguments.
//
// On the consumer, [Translate] makes the pod that is sent to the provider out of
// the one that is bound to the virtual node, or says why that cannot be, [Config] and
// [SecretOf] what it names, and [Mirror] makes the consumer's status out of the
// provider's, which is read as a [Copy]. On the provider, [Admit], [AdmitPatch] and
// [AdmitObject] take what a consumer sent for what it is, an untrusted document, and
// return what may be created.
package workload
