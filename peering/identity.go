package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
)

// ErrNoClusterID: the API server answers and has no ID for this cluster.
var ErrNoClusterID = errors.New("the API server knows no ID for this cluster")

// identityTimeout bounds ClusterIDFromAPI: an agent that starts must not wait
// long for an API server that may come hours later.
const identityTimeout = 5 * time.Second

// ClusterIDFromAPI asks the API server for the ID of this cluster: the one in
// ConfigMap cluster-id in the namespace, else the UID of the oldest
// control-plane node. origin says for people where it comes from. kubeconfig is
// the setting as in Config.Kubeconfig. It takes five seconds at most.
//
// The error wraps ErrNoKubeconfig or ErrSwitchedOff when there is no API server
// to ask, and ErrNoClusterID when it has no answer; every other error says that
// it could not be asked.
func ClusterIDFromAPI(ctx context.Context, kubeconfig, namespace string) (id peer.ClusterID, origin string, err error) {
	found, err := newLocator().load(kubeconfig)
	if err != nil {
		return "", "", err
	}
	c, err := newClient(found.config, nil)
	if err != nil {
		return "", "", err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	id, err = readClusterID(ctx, c, namespace)
	switch {
	case errors.Is(err, errBadConfigMap):
		// It says something, only not what it should: a new ID would contradict it.
		return "", "", err
	case err != nil:
		return "", "", fmt.Errorf("cluster ID from the API server: %w", err)
	case id != "":
		return id, fmt.Sprintf("ConfigMap %s/%s", namespace, ClusterIDConfigMap), nil
	}
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		var nodes struct {
			Items []struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
			} `json:"items"`
		}
		if err := c.getJSON(ctx, "/api/v1/nodes", map[string]string{"labelSelector": label}, &nodes); err != nil {
			return "", "", fmt.Errorf("cluster ID from the API server: %w", err)
		}
		if len(nodes.Items) == 0 {
			continue
		}
		first := slices.MinFunc(nodes.Items, func(a, b struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}) int {
			return cmp.Or(a.Metadata.CreationTimestamp.Compare(b.Metadata.CreationTimestamp.Time), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
		}).Metadata
		id, err := peer.ParseClusterID(string(first.UID))
		if err != nil {
			return "", "", fmt.Errorf("UID of node %s: %w", first.Name, err)
		}
		return id, "UID of node " + first.Name, nil
	}
	return "", "", fmt.Errorf("%w: no ConfigMap %s/%s and no control-plane node", ErrNoClusterID, namespace, ClusterIDConfigMap)
}
