// Package netpol tests what the NetworkPolicies of guests let through: real packets meet
// kube-network-policies, an engine that enforces policies, with those that sharing/host
// keeps in its testdata.
//
// It is in this module because the engine is built on what is compiled for kubebox anyway.
// There is nothing but tests in it. That the agent makes these policies and keeps them as
// they are, sharing/integration shows.
package netpol
