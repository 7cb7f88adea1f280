// Package storage is the commands about claims whose data is at other clusters, and those of
// others here.
package storage
