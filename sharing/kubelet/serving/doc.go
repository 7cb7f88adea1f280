// Package serving keeps the certificate that the kubelet API is served with.
//
// An API server that is started with --kubelet-certificate-authority, as K3s does
// it, talks to kubelets with a certificate of that authority only. Kubernetes has
// a signer for them, kubernetes.io/kubelet-serving, which the controller-manager
// implements: a CertificateSigningRequest is made, approved (by the agent, which
// asks for nobody else's addresses) and signed. Where nobody signs, a certificate
// signed by itself takes its place, which other API servers accept.
//
// Key and signed certificate are kept in one file of mode 0600 and used again
// after a restart as long as they name the right address. They are renewed after
// 70 to 90 % of their life.
//
// What it must not do: approve anything but its own request, or delete any other.
//
// Run owns the only goroutine that follows a request; it ends with Run.
package serving
