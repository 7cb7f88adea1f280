// Package workload translates pods between clusters. It is pure: every function depends on
// its arguments only, does no I/O and starts no goroutine.
//
// On the consumer, [Translate] turns the pod that is bound to the virtual node into the pod
// for the provider, or says why it cannot run there; [Config] and [SecretOf] do the same for
// its ConfigMaps and Secrets, and [TokenBody] makes the Secret with its service account tokens.
// [Mirror] turns the status of the provider's pod, read as a
// [Copy], into the status of the consumer's. On the provider, [Admit], [AdmitPatch] and
// [AdmitObject] check what a consumer sent, which is untrusted, and return what may be
// created.
//
// The package is larger than others because both sides share one definition of what is
// portable, field by field: what a consumer sends and what a provider accepts must agree.
package workload
