// Package kwok is here only so that the version of kwok, which plays the kubelet of
// boxes in the test bed, is pinned apart from the agent's own dependencies.
package kwok
