// Package rbac knows what the agent may do in the API server of its own cluster, and
// gives it that and no more.
//
// [Rules] is the one list of it: data, each rule with the reason why the agent needs
// it. The manifests ([Manifest]), the documentation (docs/security.md), the check
// whether somebody lacks something ([Gaps]) and the end-to-end tests, which run with
// exactly these rights and find unused ones, are made from it. Whoever has the agent
// send a new kind of request adds it here.
//
// [Apply] installs the manifests with an administrator's rights, and [WriteKubeconfig]
// writes a kubeconfig that has the agent's token in their place. [Delete] takes the
// objects away again.
//
// It must not decide what the agent does: it only says what that takes. It speaks to
// the API server when it is called, never by itself, and starts no goroutine that
// outlives a call.
package rbac
