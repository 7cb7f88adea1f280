// Package registry says from where guests may have their images: it reads the names
// of images as kubelets and container runtimes do, and compares the registry in them
// with those of a provider's list.
//
// It has no I/O: whether a registry exists, and to which address its name leads, is
// not asked. It must not know of pods or consumers.
package registry
