//go:build linux

package bed

import (
	"context"
	"fmt"
	"strings"
)

const (
	// LocalPathClass is the storage class that [Kube.StartLocalPath] provisions.
	LocalPathClass = "local-path"
	// LocalPathDir is the directory of a host with the volumes of that class: <volume>_<namespace>_<claim>.
	LocalPathDir = "/var/lib/rancher/k3s/storage"

	localPathAccount = "local-path-provisioner-service-account"
)

// StartLocalPath starts rancher's local-path-provisioner, and makes its class the default one, as K3s does. It is a process of
// the host, with the administrator's kubeconfig; the pods by which it makes and removes directories need the real kubelet
// ([Kube.StartKubelet]). It returns when claims are provisioned.
func (k *Kube) StartLocalPath(ctx context.Context) (*Process, error) {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	h := k.Host
	binary := Binary(h.bed.t, "local-path-provisioner")
	if err := k.Apply(ctx, strings.NewReplacer("ACCOUNT", localPathAccount, "CLASS", LocalPathClass, "VOLUMES", LocalPathDir, "IMAGE", Image).Replace(localPathManifests)); err != nil {
		return nil, fmt.Errorf("host %s: local-path-provisioner: %w", h.Name, err)
	}
	process, err := h.start(Cmd{Name: "local-path-provisioner", Args: []string{binary, "start", "--kubeconfig=" + Kubeconfig,
		"--namespace=kube-system", "--helper-image=" + Image, "--service-account-name=" + localPathAccount}})
	if err != nil {
		return nil, err
	}
	if err := process.WaitLog(ctx, "Started provisioner controller"); err != nil {
		return nil, fmt.Errorf("local-path-provisioner on %s: %w", h.Name, err)
	}
	return process, nil
}

// localPathManifests are what matters of those of K3s to a provisioner outside of the cluster.
const localPathManifests = `apiVersion: v1
kind: ServiceAccount
metadata: {name: ACCOUNT, namespace: kube-system}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: CLASS
  annotations: {defaultVolumeType: local, storageclass.kubernetes.io/is-default-class: "true"}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
---
apiVersion: v1
kind: ConfigMap
metadata: {name: local-path-config, namespace: kube-system}
data:
  config.json: '{"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["VOLUMES"]}]}'
  setup: |
    set -eu
    mkdir -m 0777 -p "${VOL_DIR}"
    chmod 700 "${VOL_DIR}/.."
  teardown: |
    set -eu
    rm -rf "${VOL_DIR}"
  helperPod.yaml: |
    apiVersion: v1
    kind: Pod
    metadata: {name: helper-pod}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: helper-pod, image: IMAGE, imagePullPolicy: IfNotPresent}
`
