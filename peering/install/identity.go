package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
)

// clusterIDKey is the key of the cluster ID in its ConfigMap, as Liqo has it.
const clusterIDKey = "CLUSTER_ID"

// ErrNoClusterID: the API server answers and has no ID for this cluster.
var ErrNoClusterID = errors.New("the API server knows no ID for this cluster")

// identityTimeout bounds ClusterIDFromAPI: an agent that starts must not wait
// long for an API server that may come hours later.
const identityTimeout = 5 * time.Second

// ClusterIDFromAPI asks the API server for the ID of this cluster: the one in
// ConfigMap cluster-id in the namespace, else the UID of the oldest
// control-plane node. origin says for people where it comes from. kubeconfig is
// the setting as in conn.Config. It takes five seconds at most.
//
// The error wraps conn.ErrNoKubeconfig or conn.ErrSwitchedOff when there is no API server
// to ask, and ErrNoClusterID when it has no answer; every other error says that
// it could not be asked.
func ClusterIDFromAPI(ctx context.Context, kubeconfig, namespace string) (id peer.ClusterID, origin string, err error) {
	c, err := open(kubeconfig)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
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
		return id, fmt.Sprintf("ConfigMap %s/%s", namespace, api.ClusterIDConfigMap), nil
	}
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		nodes, err := kube.List(ctx, c, kube.Query{Path: "/api/v1/nodes", Labels: label}, kube.Kind[*metav1.PartialObjectMetadata]{
			Fresh: func() *metav1.PartialObjectMetadata { return &metav1.PartialObjectMetadata{} },
		})
		if err != nil {
			return "", "", fmt.Errorf("cluster ID from the API server: %w", err)
		}
		if len(nodes) == 0 {
			continue
		}
		first := slices.MinFunc(nodes, func(a, b *metav1.PartialObjectMetadata) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		id, err := peer.ParseClusterID(string(first.UID))
		if err != nil {
			return "", "", fmt.Errorf("UID of node %s: %w", first.Name, err)
		}
		return id, "UID of node " + first.Name, nil
	}
	return "", "", fmt.Errorf("%w: no ConfigMap %s/%s and no control-plane node", ErrNoClusterID, namespace, api.ClusterIDConfigMap)
}

// ClaimClusterID has the ConfigMap with the cluster ID say id, whatever it says now.
// It is for a cluster that got its identity from elsewhere: after a restore or a
// reset. Without a ConfigMap there is nothing to do: a Keeper makes one. The
// errors are those of ClusterIDFromAPI.
func ClaimClusterID(ctx context.Context, kubeconfig, namespace string, id peer.ClusterID) (before peer.ClusterID, err error) {
	c, err := open(kubeconfig)
	if err != nil {
		return "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	if before, err = readClusterID(ctx, c, namespace); err != nil {
		return "", fmt.Errorf("cluster ID from the API server: %w", err)
	}
	if before == "" || before == id {
		return before, nil
	}
	return before, c.Apply(ctx, configMapPath(namespace), ManagerIdentity, true, configMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		Metadata: metav1.ObjectMeta{Name: api.ClusterIDConfigMap, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		Data:     map[string]string{clusterIDKey: string(id)},
	}, nil)
}

// open returns a client by the kubeconfig for a setting as in conn.Config.
func open(kubeconfig string) (*kube.Client, error) {
	config, _, err := conn.LoadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return kube.New(config)
}

// configMap is as much of a ConfigMap as is of interest.
type configMap struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Data            map[string]string `json:"data,omitempty"`
}

// errBadConfigMap: the ConfigMap's content is no cluster ID.
var errBadConfigMap = errors.New("not a cluster ID")

// readClusterID returns the cluster ID that the ConfigMap holds, "" when it does
// not exist or has no such key.
func readClusterID(ctx context.Context, c *kube.Client, namespace string) (peer.ClusterID, error) {
	var found configMap
	err := c.Get(ctx, configMapPath(namespace), &found)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, ok := found.Data[clusterIDKey]
	if !ok {
		return "", nil
	}
	id, err := peer.ParseClusterID(text)
	if err != nil {
		return "", fmt.Errorf("%w: ConfigMap %s/%s, key %s: %w; correct it or delete the ConfigMap",
			errBadConfigMap, namespace, api.ClusterIDConfigMap, clusterIDKey, err)
	}
	return id, nil
}

func configMapPath(namespace string) string {
	return namespacePath + namespace + "/configmaps/" + api.ClusterIDConfigMap
}

// ensureIdentity publishes the cluster's ID, in a namespace that it creates when
// there is none. It never overwrites another ID: it returns it.
func ensureIdentity(ctx context.Context, c *kube.Client, namespace string, id peer.ClusterID) (other peer.ClusterID, err error) {
	found, err := readClusterID(ctx, c, namespace)
	if err != nil || found == id {
		return "", err
	}
	if found != "" {
		return found, nil
	}
	labels := map[string]string{api.LabelManagedBy: api.ManagedByAgent}
	err = c.Get(ctx, namespacePath+namespace, &struct{}{})
	if apierrors.IsNotFound(err) {
		err = c.Apply(ctx, namespacePath+namespace, ManagerIdentity, false, configMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			Metadata: metav1.ObjectMeta{Name: namespace, Labels: labels},
		}, nil)
	}
	if err != nil {
		return "", err
	}
	return "", c.Apply(ctx, configMapPath(namespace), ManagerIdentity, false, configMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		Metadata: metav1.ObjectMeta{Name: api.ClusterIDConfigMap, Labels: labels},
		Data:     map[string]string{clusterIDKey: string(id)},
	}, nil)
}
