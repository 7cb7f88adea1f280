//go:build linux

package bed

import (
	"context"
	"fmt"
	"path/filepath"
)

// kwokStages tell kwok what becomes of pods: they run at once and for ever, but those of Jobs end, and one
// that is deleted is gone. Without a stage for nodes kwok takes charge of none; the one here fits none.
const kwokStages = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: run}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: In, values: [Pending]}
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      startTime: {{ $now | Quote }}
      conditions:
      {{ range (list "Initialized" "ContainersReady" "Ready") }}
      - {type: {{ . }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
      {{ end }}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        ready: true
        started: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
      initContainerStatuses:
      {{ range .spec.initContainers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        ready: true
        restartCount: 0
        state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
      {{ end }}
      {{ $ips := PodIPsWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
      {{ with $ips }}
      podIP: {{ index . 0 | Quote }}
      podIPs:
      {{ range . }}
      - ip: {{ . | Quote }}
      {{ end }}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: complete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: In, values: [Running]}
    - {key: '.metadata.ownerReferences.[].kind', operator: In, values: [Job]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Succeeded
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        ready: false
        restartCount: 0
        state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: Exists}
  next: {delete: true}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchLabels: {bed.invalid/never: "true"}
  next: {}
`

// StartKwok starts kwok as the kubelet of the host's node: pods that are bound to it run without containers.
// It is to be there before the first of them.
func (k *Kube) StartKwok(ctx context.Context) error {
	kwok := Binary(k.Host.bed.t, "kwok")
	stages := filepath.Join(kubeDir, "kwok.yaml")
	if err := k.Host.Do(func() error { return writeFile(stages, kwokStages) }); err != nil {
		return err
	}
	process, err := k.Host.start(Cmd{Name: "kwok", Args: []string{kwok, "--kubeconfig=" + Kubeconfig, "--config=" + stages,
		"--manage-single-node=" + k.Host.Name, "--cidr=" + k.Host.Pods.Node()[0].String(), "--node-ip=" + k.Host.addresses()[0]}})
	if err != nil {
		return err
	}
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	if err := process.WaitLog(ctx, "Watch single node"); err != nil {
		return fmt.Errorf("kwok on %s: %w", k.Host.Name, err)
	}
	return nil
}
