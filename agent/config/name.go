package config

import (
	"os"

	"liqo.io/agent/peer"
)

// NameOf returns what the cluster with an ID is called: the configured name, else the
// host's, else one made from the ID.
func (c Cluster) NameOf(id peer.ClusterID) string {
	if c.Name != "" {
		return c.Name
	}
	if host, err := os.Hostname(); err == nil {
		if name, err := peer.ParseClusterName(host); err == nil && host != "localhost" {
			return name
		}
	}
	return "cluster-" + id.Short()
}
