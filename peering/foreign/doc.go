// Package foreign reads and writes the ForeignClusters of the local API server: a kind for
// the caches of package objects that keeps who owns which field, and the writes, one field
// manager per owner of fields.
//
// It does not decide what is written: that is said by the actions of a plan. It starts no
// goroutine.
package foreign
