// Package remote keeps our objects at the peers as they are to be.
package remote
