package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/volumes"
)

const (
	claimsPath  = namespaces + "shop/persistentvolumeclaims/"
	volumesPath = "/api/v1/persistentvolumes/"
	classesPath = "/apis/storage.k8s.io/v1/storageclasses"
	diskMaker   = "disks.test.example.com"
)

// disks is a provisioner of the consumer's cluster. It goes by the rules of the library that those of
// K3s and CSI are made with: a volume that is Released, with the reclaim policy Delete, is deleted.
type disks struct {
	client  *kube.Client
	claims  *kube.Cache[*corev1.PersistentVolumeClaim]
	volumes *kube.Cache[*corev1.PersistentVolume]
	refuses atomic.Bool // it cannot make volumes
	changed chan struct{}

	mu      sync.Mutex // held while it works
	deleted map[string]bool
}

// startDisks makes a default class at the consumer, with a node where pods can run, and its provisioner.
func (s *storing) startDisks() *disks {
	s.t.Helper()
	s.must(s.a.Create(s.t.Context(), classesPath, object{
		"metadata":    object{"name": "disk", "annotations": object{"storageclass.kubernetes.io/is-default-class": "true"}},
		"provisioner": diskMaker, "volumeBindingMode": "WaitForFirstConsumer",
	}, nil))
	s.must(s.a.Patch(s.t.Context(), nodesPath+"a", "", types.MergePatchType, []byte(`{"metadata":{"labels":{"kubernetes.io/hostname":"a"}}}`), nil))
	s.must(s.a.Patch(s.t.Context(), nodesPath+"a/status", "", types.MergePatchType, []byte(`{"status":{"capacity":{"pods":"1000"},"allocatable":{"pods":"1000"}}}`), nil))
	d := &disks{client: s.a, changed: make(chan struct{}, 1), deleted: make(map[string]bool)}
	wake := func() {
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}
	d.claims = kube.NewCache(kube.Kind[*corev1.PersistentVolumeClaim]{
		Fresh: func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} }, Changed: func(_, _ *corev1.PersistentVolumeClaim) { wake() },
	})
	d.volumes = kube.NewCache(kube.Kind[*corev1.PersistentVolume]{
		Fresh: func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} }, Changed: func(_, _ *corev1.PersistentVolume) { wake() },
	})
	bedtest.Run(s.t, &bedtest.Log{}, nil, func(ctx context.Context) error {
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { d.claims.Follow(ctx, s.a, kube.Query{Path: "/api/v1/persistentvolumeclaims"}) })
		running.Go(func() { d.volumes.Follow(ctx, s.a, kube.Query{Path: strings.TrimSuffix(volumesPath, "/")}) })
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-d.changed:
				if err := d.work(ctx); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
	})
	return d
}

// work makes and deletes volumes.
func (d *disks) work(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.claims.All() {
		node := c.Annotations["volume.kubernetes.io/selected-node"]
		if c.Annotations["volume.kubernetes.io/storage-provisioner"] != diskMaker || c.Spec.VolumeName != "" || node == "" || c.DeletionTimestamp != nil {
			continue
		}
		if d.refuses.Load() {
			err := d.client.Patch(ctx, namespaces+c.Namespace+"/persistentvolumeclaims/"+c.Name, "", types.MergePatchType, []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`), nil)
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			continue
		}
		err := d.client.Create(ctx, strings.TrimSuffix(volumesPath, "/"), object{
			"metadata": object{"name": "pvc-" + string(c.UID), "annotations": object{"pv.kubernetes.io/provisioned-by": diskMaker}},
			"spec": object{
				"capacity": object{"storage": c.Spec.Resources.Requests.Storage()}, "accessModes": c.Spec.AccessModes, "storageClassName": "disk", "persistentVolumeReclaimPolicy": "Delete",
				"claimRef":     object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": c.Namespace, "name": c.Name, "uid": c.UID},
				"hostPath":     object{"path": "/disks/" + string(c.UID)},
				"nodeAffinity": object{"required": object{"nodeSelectorTerms": []any{object{"matchExpressions": []any{object{"key": "kubernetes.io/hostname", "operator": "In", "values": []any{node}}}}}}},
			},
		}, nil)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for _, v := range d.volumes.All() {
		if v.Annotations["pv.kubernetes.io/provisioned-by"] != diskMaker || v.Status.Phase != corev1.VolumeReleased || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || v.DeletionTimestamp != nil {
			continue
		}
		err := d.client.Delete(ctx, volumesPath+v.Name, metav1.DeleteOptions{})
		if err == nil {
			d.deleted[v.Name] = true
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// gone returns how many volumes it has deleted, once it is at the end of what it does.
func (d *disks) gone() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.deleted)
}

// idle waits until only the first claim is left, also as the provisioner sees it, which could still make the volume of one that
// was deleted in that moment, and returns how many volumes that has deleted.
func (s *storing) idle(d *disks) int {
	s.t.Helper()
	bedtest.Within(s.t, "nothing but the first claim", func() error {
		if seen := d.claims.All(); len(seen) != 1 {
			return fmt.Errorf("the provisioner sees %d claims", len(seen))
		}
		d.gone() // what it began when it saw more is done
		return s.left(0, 1)
	})
	return d.gone()
}

// left reports what there is, unless that is so many volumes and claims.
func (s *storing) left(volumes, claims int) error {
	var v corev1.PersistentVolumeList
	var c corev1.PersistentVolumeClaimList
	if err := errors.Join(s.a.Get(s.t.Context(), strings.TrimSuffix(volumesPath, "/"), &v), s.a.Get(s.t.Context(), strings.TrimSuffix(claimsPath, "/"), &c)); err != nil {
		return err
	}
	if len(v.Items) == volumes && len(c.Items) == claims {
		return nil
	}
	var found []string
	for _, v := range v.Items {
		found = append(found, fmt.Sprintf("volume %s (%s, %s, for %s)", v.Name, v.Status.Phase, v.Spec.PersistentVolumeReclaimPolicy, v.Spec.ClaimRef.Name))
	}
	for _, c := range c.Items {
		found = append(found, "claim "+c.Name+" of "+*c.Spec.StorageClassName)
	}
	return fmt.Errorf("there is %q", found)
}

// settledAtHome reports why a claim is not one of an ordinary volume of this cluster.
func (s *storing) settledAtHome(name string) error {
	ctx := s.t.Context()
	claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if err := s.a.Get(ctx, claimsPath+name, claim); err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("phase %s", claim.Status.Phase)
	}
	if err := s.a.Get(ctx, volumesPath+claim.Spec.VolumeName, volume); err != nil {
		return err
	}
	ref := volume.Spec.ClaimRef
	if ref == nil || ref.UID != claim.UID || ref.Name != name || volume.Status.Phase != corev1.VolumeBound || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || len(volume.Annotations) != 1 {
		return fmt.Errorf("phase %s, policy %s, annotations %v, for %+v", volume.Status.Phase, volume.Spec.PersistentVolumeReclaimPolicy, volume.Annotations, ref)
	}
	return nil
}

// event waits for an event about a claim.
func (s *storing) event(claim, reason, says string) {
	s.t.Helper()
	bedtest.Within(s.t, reason+" about "+claim, func() error {
		var events corev1.EventList
		if err := s.a.Get(s.t.Context(), namespaces+"shop/events", &events); err != nil {
			return err
		}
		var all []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name == claim && e.Reason == reason {
				if strings.Contains(e.Message, says) {
					return nil
				}
				all = append(all, e.Message)
			}
		}
		return fmt.Errorf("no event says %q; there is %q", says, all)
	})
}

// mountAtHome makes a pod for node a that mounts a claim.
func (s *storing) mountAtHome(name, claim string) {
	s.t.Helper()
	s.create(virtualPod("shop", name, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.NodeSelector = "", map[string]string{corev1.LabelHostname: "a"}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}))
}

// end deletes a pod that no kubelet ends.
func (s *storing) end(name string) {
	s.t.Helper()
	s.must(endPod(s.t.Context(), s.a, podPath("shop", name)))
}

// claimsAtHome: a claim whose first pod runs in this cluster has an ordinary volume of the default
// class, which pods follow, and which lives and ends without the agent.
func claimsAtHome(s *storing, d *disks) {
	t, ctx := s.t, s.t.Context()
	v, stop := s.keep(nil, func(string) {})
	bedtest.Within(t, "the storage class for this cluster, too", func() error {
		var class struct {
			AllowedTopologies    []corev1.TopologySelectorTerm `json:"allowedTopologies"`
			AllowVolumeExpansion bool                          `json:"allowVolumeExpansion"`
		}
		err := s.a.Get(ctx, liqoClass, &class)
		if err == nil && (!class.AllowVolumeExpansion || fmt.Sprint(class.AllowedTopologies) != "[{[{kubernetes.io/hostname [a "+diskNode+"]}]}]") {
			err = fmt.Errorf("%+v", class)
		}
		return err
	})

	// Its provisioner cannot make a volume: the scheduler chooses again, and then it can.
	d.refuses.Store(true)
	s.claim("shop", "data", "1Gi")
	if !v.Ours(ctx, "shop", []string{"data"}) {
		t.Error("a claim without a volume cannot be at a provider")
	}
	s.mountAtHome("db", "data")
	s.event("data", "ProvisioningFailed", "cannot make the volume on node a")
	d.refuses.Store(false)
	bedtest.Within(t, "the volume", func() error { return s.settledAtHome("data") })
	await(t, s.a, "shop", "db", func(p *corev1.Pod) error {
		if p.Spec.NodeName != "a" {
			return fmt.Errorf("on node %q", p.Spec.NodeName)
		}
		return nil
	})
	bedtest.Within(t, "nothing else", func() error { return s.left(1, 1) })
	if v.Ours(ctx, "shop", []string{"data"}) {
		t.Error("pods with a claim in this cluster are let on virtual nodes")
	}
	if list := v.List(); len(list) != 1 || list[0].State != volumes.StateHome || list[0].Storage != gibi || list[0].Name != "data" || list[0].Provider != "" {
		t.Errorf("listed as %+v", list)
	}

	// Later pods follow.
	s.end("db")
	s.mount("shop", "db", "data")
	await(t, s.a, "shop", "db", func(p *corev1.Pod) error {
		if p.Spec.NodeName != "a" {
			return fmt.Errorf("on node %q", p.Spec.NodeName)
		}
		return nil
	})

	// The class cannot grow.
	s.must(s.a.Patch(ctx, claimsPath+"data", "", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), nil))
	s.event("data", "VolumeResizeFailed", "the storage class disk of this cluster")

	// A claim that is deleted before it has a volume leaves nothing.
	d.refuses.Store(true)
	s.claim("shop", "short", "1Gi")
	s.mountAtHome("short", "short")
	s.event("short", "ProvisioningFailed", "cannot make the volume on node a")
	s.end("short")
	s.must(s.a.Delete(ctx, claimsPath+"short", metav1.DeleteOptions{}))
	bedtest.Within(t, "nothing of it", func() error { return s.left(1, 1) })
	if n := d.gone(); n != 0 {
		t.Errorf("%d volumes were deleted", n)
	}

	// Without the agent and its class, the claim is deleted as any other.
	stop()
	s.must(s.a.Delete(ctx, liqoClass, metav1.DeleteOptions{}))
	s.end("db")
	s.must(s.a.Delete(ctx, claimsPath+"data", metav1.DeleteOptions{}))
	bedtest.Within(t, "nothing", func() error { return s.left(0, 0) })
}

// killedAtHome: whenever the agent is killed, the next one finishes what it began: a claim in this
// cluster has one volume, and nothing is left of it after it was deleted, at whichever step.
func killedAtHome(s *storing, d *disks) {
	t, ctx := s.t, s.t.Context()
	_, stop := s.keep(nil, func(string) {})
	bedtest.Within(t, "the storage class", func() error { return s.a.Get(ctx, liqoClass, nil) })
	stop()
	s.claim("shop", "first", "1Mi") // the class stays
	for writes := int64(0); ; writes++ {
		name, deleted := fmt.Sprint("data-", writes), s.idle(d)
		settled := func() bool { return s.settledAtHome(name) == nil }
		gone := func() bool { return s.left(0, 1) == nil }
		begin := func() {
			s.claim("shop", name, "1Mi")
			s.mountAtHome(name, name)
		}
		begin()
		killed := s.die(writes, settled)
		if killed {
			s.die(1000, settled)
		}
		if err := s.left(1, 2); err != nil || d.gone() != deleted {
			t.Fatalf("killed after %d writes: %d volumes were deleted, %v", writes, d.gone()-deleted, err)
		}
		s.end(name)
		s.must(s.a.Delete(ctx, claimsPath+name, metav1.DeleteOptions{}))
		bedtest.Within(t, "the end of its volume", func() error { return s.left(0, 1) })

		// The claim is deleted while there is no agent.
		name += "-gone"
		begin()
		s.die(writes, settled)
		s.end(name)
		s.must(s.a.Delete(ctx, claimsPath+name, metav1.DeleteOptions{}))
		s.die(1000, gone)
		if !killed {
			if writes < 5 {
				t.Errorf("it was never killed: %d writes", writes)
			}
			return
		}
	}
}
