// Package adverts is the commands about what other clusters offer, and how shared
// resources are shown.
package adverts
