// Command kubebox is the Kubernetes control plane of the test bed: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler in one static binary, which runs one of them per process.
//
// It is a module of its own, built by `make kubebox` with the version stamped in, because kubectl
// cannot parse the version of an unstamped kube-apiserver. It must not be imported, must not
// know anything about liqo-agent, and starts nothing but the program it was asked for.
//
// The module also has kubectl, in a folder of its own, and pins the bed's kubelets: a real one, in a folder of its own with kube-proxy, and kwok, which
// runs pods without containers, CoreDNS, rancher's local-path-provisioner, and metrics-server. They share its versions, and with them what is compiled.
package main
