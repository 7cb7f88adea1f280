// Package spec holds what the peering controller and the packages of sharing hand each
// other: desired state (Node, Tenant) and observed state (NodeStatus, TenantStatus).
//
// It has types only. It must not know of objects in an API server: what a consumer may
// use is given in amounts, and only a provider's node is made from an Advertisement.
package spec
