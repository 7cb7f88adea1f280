// Package network is the commands about the network between the pods of joined clusters.
package network
