package statedir

import (
	"path/filepath"

	"liqo.io/agent/peer"
)

// claim is the cluster ID that goes with the key in the directory, whatever else
// says who this cluster is.
type claim struct {
	ID     peer.ClusterID `json:"id"`
	Origin string         `json:"origin"` // where it comes from, for people
}

// Claim returns the cluster ID that this cluster claims after a restore or a reset,
// "" when it claims none. A key and an ID belong together: peers take another pair
// for somebody else in our name. So, until Claimed is called, what the API server
// says about the ID follows the claim, and not the other way round.
func Claim(dir string) (id peer.ClusterID, origin string, err error) {
	var c claim
	found, err := readJSON(filepath.Join(dir, claimFile), &c)
	if err != nil || !found {
		return "", "", err
	}
	if _, err := peer.ParseClusterID(string(c.ID)); err != nil {
		return "", "", err
	}
	return c.ID, c.Origin, nil
}

// Claimed ends the claim: what the API server says is that ID now.
func Claimed(dir string) error {
	if err := removeIfThere(filepath.Join(dir, claimFile)); err != nil {
		return err
	}
	return syncPath(dir)
}
