package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/endpoint/tunnel"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/volumes"
	"liqo.io/agent/sharing/workload"
)

const (
	gibi      = int64(1) << 30
	diskNode  = "liqo-disk"
	liqoClass = "/apis/storage.k8s.io/v1/storageclasses/liqo"
)

// storing is a consumer (A) whose claims are kept at a provider (B).
type storing struct {
	*pair
	host *runningHost
	link *tunnel.Link
	// told is what the agent of the provider is told when it starts, if it dies with that of the consumer.
	told *spec.Tenant
}

// startStoring returns a consumer, with namespace shop, and a provider that offers 10Gi.
func startStoring(t *testing.T) *storing {
	t.Helper()
	p := startPair(t)
	s := &storing{pair: p, host: startHost(t, p.kubeB)}
	s.host.set(func(settings *host.Settings) { settings.Storage, settings.StorageKeep = 10*gibi, time.Hour })
	s.admit()
	s.link = startEndpoint(t, p, s.host)
	p.must(p.a.Create(t.Context(), "/api/v1/nodes", object{
		"metadata": object{"name": diskNode, "labels": object{
			workload.LabelType: workload.VirtualNode, workload.LabelClusterID: string(providerID), corev1.LabelHostname: diskNode,
		}},
		"spec": object{"providerID": "liqo://" + string(providerID)},
	}, nil))
	p.must(p.a.Patch(t.Context(), nodesPath+diskNode+"/status", "", types.MergePatchType, marshal(t, map[string]any{"status": virtualNode().Status}), nil))
	// A provider's class as K3s has it, with volumes that are there already.
	p.must(p.b.Create(t.Context(), "/apis/storage.k8s.io/v1/storageclasses", object{
		"metadata":    object{"name": "local-path", "annotations": object{"storageclass.kubernetes.io/is-default-class": "true"}},
		"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
	}, nil))
	for i := range 4 {
		p.must(p.b.Create(t.Context(), "/api/v1/persistentvolumes", object{
			"metadata": object{"name": fmt.Sprint("disk-", i)},
			"spec": object{"storageClassName": "local-path", "capacity": object{"storage": "10Gi"}, "accessModes": []string{"ReadWriteOnce"},
				"hostPath": object{"path": fmt.Sprint("/disks/", i)}, "persistentVolumeReclaimPolicy": "Retain"},
		}, nil))
	}
	s.namespace("shop", enabled())
	return s
}

// sub is s for a subtest.
func (s *storing) sub(t *testing.T) *storing {
	out := *s
	out.pair = s.with(t)
	return &out
}

// admit has the provider let the consumer in.
func (s *storing) admit() {
	s.host.Set(storingTenancy())
}

// storingTenancy lets the consumer in, with storage.
func storingTenancy() spec.Tenant {
	offer := smallOffer()
	offer["storage"] = "10Gi"
	return tenancy(consumerID, offer)
}

// claim makes a claim at home.
func (s *storing) claim(namespace, name, size string) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	out := &corev1.PersistentVolumeClaim{}
	s.must(s.a.Create(s.t.Context(), namespaces+namespace+"/persistentvolumeclaims", object{
		"metadata": object{"name": name},
		"spec":     object{"storageClassName": "liqo", "accessModes": []string{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": size}}},
	}, out))
	return out
}

// mount makes a pod at home that mounts a claim, for the scheduler.
func (s *storing) mount(namespace, name, claim string) {
	s.t.Helper()
	s.create(virtualPod(namespace, name, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.Containers[0].Image = "", "web:1"
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}))
}

// boundClaim waits until a claim is bound.
func boundClaim(t *testing.T, c *kube.Client, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	var claim *corev1.PersistentVolumeClaim
	bedtest.Within(t, "bound claim "+namespace+"/"+name, func() error {
		claim = &corev1.PersistentVolumeClaim{}
		if err := c.Get(t.Context(), namespaces+namespace+"/persistentvolumeclaims/"+name, claim); err != nil {
			return err
		}
		if claim.Status.Phase != corev1.ClaimBound || len(claim.Finalizers) != 1 {
			return fmt.Errorf("phase %s, volume %q, finalizers %v", claim.Status.Phase, claim.Spec.VolumeName, claim.Finalizers)
		}
		return nil
	})
	return claim
}

// keep starts Volumes, through a transport.
func (s *storing) keep(wrap func(http.RoundTripper) http.RoundTripper, changed func(string)) (*volumes.Volumes, func()) {
	s.t.Helper()
	log := &bedtest.Log{}
	v := volumes.New(volumes.Config{
		Self: func() peer.ClusterID { return consumerID }, Class: func() string { return "liqo" }, HomeClass: func() string { return "" },
		Changed: changed, Used: func() {}, Logger: log.Logger(),
	})
	v.Set(s.volumes())
	config := s.kubeA.RESTConfig()
	if wrap != nil {
		config.Wrap(wrap)
	}
	return v, bedtest.Run(s.t, log, nil, func(ctx context.Context) error { return v.Run(ctx, config) })
}

func (s *storing) volumes() volumes.Provider {
	return volumes.Provider{ID: providerID, Remote: s.link, Storage: 10 * gibi, Reachable: true}
}

// copies returns the claims of the consumer at the provider.
func (s *storing) copies(namespace string) []corev1.PersistentVolumeClaim {
	s.t.Helper()
	var list corev1.PersistentVolumeClaimList
	s.must(s.b.Get(s.t.Context(), namespaces+guestNamespace(namespace)+"/persistentvolumeclaims", &list))
	return list.Items
}

// TestVolumes goes through what becomes of claims at a provider, and then of those whose first pod runs in this cluster, on one
// pair of clusters. Each leaves no claims to the next.
func TestVolumes(t *testing.T) {
	t.Parallel()
	s := startStoring(t)
	t.Run("kept", func(t *testing.T) { keptClaims(s.sub(t)) })
	t.Run("grow", func(t *testing.T) { growingClaims(s.sub(t)) })
	t.Run("liar", func(t *testing.T) { claimsOfALiar(s.sub(t)) })
	t.Run("killed", func(t *testing.T) { killedClaims(s.sub(t)) })
	d := s.startDisks()
	t.Run("at home", func(t *testing.T) { claimsAtHome(s.sub(t), d) })
	d.refuses.Store(false)
	t.Run("killed at home", func(t *testing.T) { killedAtHome(s.sub(t), d) })
}

// keptClaims: the scheduler places a pod with a claim on a virtual node, the claim is kept at
// the provider and mounted there, survives its pods and the peering, and is deleted with the
// claim at home.
func keptClaims(s *storing) {
	t, ctx := s.t, s.t.Context()
	s.kubelet()
	log := &bedtest.Log{}
	var o *offload.Offload
	v, _ := s.keep(nil, func(namespace string) { o.ClaimsChanged(namespace) })
	o = offload.New(offload.Config{Self: func() peer.ClusterID { return consumerID }, Claim: v.Claim, Holds: v.Holds, Logger: log.Logger()})
	o.Set(offload.Provider{ID: providerID, Node: diskNode, Remote: s.link, Offer: "1", Reachable: true})
	bedtest.Run(t, log, context.Canceled, func(ctx context.Context) error { return o.Run(ctx, s.kubeA.RESTConfig()) })

	bedtest.Within(t, "the storage class", func() error { return s.a.Get(ctx, liqoClass, nil) })
	s.claim("shop", "data", "1Gi")
	s.mount("shop", "db", "data")
	claim := boundClaim(t, s.a, "shop", "data")
	remote := workload.ClaimName("data", string(claim.UID))
	pod := await(t, s.b, guestNamespace("shop"), "db", there)
	if got := pod.Spec.Volumes[0].PersistentVolumeClaim; got == nil || got.ClaimName != remote {
		t.Errorf("the copy mounts %+v, want %s", pod.Spec.Volumes[0], remote)
	}
	bedtest.Within(t, "the provider's volume", func() error {
		copies := s.copies("shop")
		if len(copies) != 1 || copies[0].Name != remote || copies[0].Status.Phase != corev1.ClaimBound || *copies[0].Spec.StorageClassName != "local-path" {
			return fmt.Errorf("%+v", copies)
		}
		return nil
	})
	volume := s.copies("shop")[0].Spec.VolumeName

	// The next pod finds its data.
	s.must(s.a.Delete(ctx, podPath("shop", "db"), metav1.DeleteOptions{}))
	awaitGone(t, s.kubeA, podPath("shop", "db"))
	s.mount("shop", "db", "data")
	await(t, s.b, guestNamespace("shop"), "db", func(p *corev1.Pod) error {
		if p.UID == pod.UID || p.Spec.NodeName == "" {
			return errors.New("it is the old one, or not scheduled")
		}
		return nil
	})
	if list := v.List(); len(list) != 1 || list[0].State != volumes.StateBound || list[0].Storage != gibi || list[0].Name != "data" {
		t.Errorf("listed as %+v", list)
	}

	// More than is offered, and what no provider has.
	s.claim("shop", "huge", "100Gi")
	s.mount("shop", "big", "huge")
	bedtest.Within(t, "an event that says why", func() error {
		var events corev1.EventList
		if err := s.a.Get(ctx, namespaces+"shop/events", &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "huge" && e.Reason == "ProvisioningFailed" && strings.Contains(e.Message, "9Gi of 10Gi left") {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(events.Items))
	})
	s.must(s.a.Delete(ctx, podPath("shop", "big"), metav1.DeleteOptions{}))
	s.must(s.a.Delete(ctx, namespaces+"shop/persistentvolumeclaims/huge", metav1.DeleteOptions{}))
	awaitGone(t, s.kubeA, namespaces+"shop/persistentvolumeclaims/huge")

	// The two part: pods and Secrets go, the claim stays, and is found again.
	const secret = namespaces + "liqo-11111111-shop/secrets/left"
	s.must(s.b.Create(ctx, namespaces+guestNamespace("shop")+"/secrets", object{"metadata": object{"name": "left", "labels": object{workload.LabelOriginCluster: string(consumerID)}}}, nil))
	gone := tenancy(consumerID, nil)
	gone.Admitted = false
	s.host.Set(gone)
	awaitGone(t, s.kubeB, secret)
	bedtest.Within(t, "no pods, and a claim that is kept", func() error {
		status := s.host.Set(gone)
		if status.Busy || status.Claims != 1 || status.RetainedSince.IsZero() || status.Storage != gibi {
			return fmt.Errorf("%+v", status)
		}
		if pods := s.list(s.b, guestNamespace("shop")); len(pods) > 0 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	s.admit()
	bedtest.Within(t, "the claim to be the consumer's again", func() error {
		if status := s.host.Stands(consumerID); !status.RetainedSince.IsZero() {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	if copies := s.copies("shop"); len(copies) != 1 || copies[0].Spec.VolumeName != volume {
		t.Errorf("kept: %+v", copies)
	}

	// Who gives a namespace back does not give the data back.
	s.must(s.link.Release(ctx, "shop"))
	if copies := s.copies("shop"); len(copies) != 1 {
		t.Errorf("after the namespace was given back: %+v", copies)
	}

	// Deleted at home.
	s.must(s.a.Delete(ctx, podPath("shop", "db"), metav1.DeleteOptions{}))
	s.must(s.a.Delete(ctx, namespaces+"shop/persistentvolumeclaims/data", metav1.DeleteOptions{}))
	awaitGone(t, s.kubeB, namespaces+guestNamespace("shop")+"/persistentvolumeclaims/"+remote)
	awaitGone(t, s.kubeA, "/api/v1/persistentvolumes/"+claim.Spec.VolumeName)

	// Nobody offers storage any more.
	v.Settled()
	v.Remove(providerID)
	awaitGone(t, s.kubeA, liqoClass)
}

// dying is a transport that fails after some requests that write.
type dying struct {
	next http.RoundTripper
	left *atomic.Int64
	dead context.CancelFunc
}

func (d dying) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/") && d.left.Add(-1) < 0 {
		d.dead()
		return nil, errors.New("the agent was killed")
	}
	return d.next.RoundTrip(r)
}

// dyingRemote is a Remote that does so too.
type dyingRemote struct {
	dying
	link *tunnel.Link
}

func (d *dyingRemote) Namespace(ctx context.Context, origin string) (string, error) {
	if d.left.Add(-1) < 0 {
		d.dead()
		return "", errors.New("the agent was killed")
	}
	return d.link.Namespace(ctx, origin)
}

// die runs the agent of the consumer, and that of the provider if that was told something, until they were killed after so
// many writes of both, or until done.
func (s *storing) die(writes int64, done func() bool) (killed bool) {
	s.t.Helper()
	var left atomic.Int64
	left.Store(writes)
	dead, kill := context.WithCancel(s.t.Context())
	defer kill()
	through := func(next http.RoundTripper) http.RoundTripper { return dying{next, &left, kill} }
	p := s.volumes()
	if s.told != nil {
		s.host.stop()
		s.host.renew()
		s.host.through = through
		s.host.connect(s.t, s.kubeB)
		s.host.Set(*s.told)
		p.Reachable = s.told.Admitted
	}
	log := &bedtest.Log{}
	v := volumes.New(volumes.Config{
		Self: func() peer.ClusterID { return consumerID }, Class: func() string { return "liqo" }, HomeClass: func() string { return "" },
		Changed: func(string) {}, Used: func() {}, Logger: log.Logger(),
	})
	p.Remote = &dyingRemote{dying{s.link, &left, kill}, s.link}
	v.Set(p)
	config := s.kubeA.RESTConfig()
	config.Wrap(through)
	stop := bedtest.Run(s.t, log, nil, func(ctx context.Context) error { return v.Run(ctx, config) })
	defer stop()
	bedtest.Within(s.t, "the end of an agent", func() error {
		if dead.Err() != nil || done() {
			return nil
		}
		return errors.New("it lives")
	})
	return dead.Err() != nil
}

// killedClaims: whenever the agents of both clusters are killed in the life of a claim, the next ones finish what was
// begun, once: there is one copy of it, which keeps its volume, and none after the claim was deleted.
func killedClaims(s *storing) {
	t, ctx := s.t, s.t.Context()
	s.must(s.b.Create(ctx, classesPath, object{
		"metadata": object{"name": "made"}, "provisioner": diskMaker, "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
	}, nil))
	_, stop := s.keep(nil, func(string) {})
	bedtest.Within(t, "the storage class", func() error { return s.a.Get(ctx, liqoClass, nil) })
	stop()
	s.host.stop()
	s.host.node, s.host.settings.GuestStorageClass = "b", "made"
	guests := guestNamespace("shop")
	rights := rbac + guests + "/rolebindings/" + host.RoleName
	exists := func(c *kube.Client, path string) bool { return c.Get(ctx, path, nil) == nil }
	missing := func(c *kube.Client, path string) bool { return apierrors.IsNotFound(c.Get(ctx, path, nil)) }
	joined, parted := storingTenancy(), storingTenancy()
	parted.Admitted = false
	done := make(map[string]bool) // what was not killed the last time, because it writes less than that
	for writes := int64(0); len(done) < 5; writes++ {
		name := fmt.Sprint("data-", writes)
		claim := s.claim("shop", name, "1Mi")
		path, volume := claimsPath+name, volumesPath+"liqo-"+string(claim.UID)
		bound := func(size string) bool {
			now := &corev1.PersistentVolumeClaim{}
			return s.a.Get(ctx, path, now) == nil && now.Status.Phase == corev1.ClaimBound && len(now.Finalizers) == 1 && now.Status.Capacity.Storage().String() == size && len(now.Status.Conditions) == 0
		}
		disk := "" // of the copy
		step := func(what string, consumer spec.Tenant, settled func() bool) {
			t.Helper()
			s.told = &consumer
			if s.die(writes, settled) {
				s.die(1000, settled)
			} else {
				done[what] = true
			}
			if copies := s.copies("shop"); what != "delete" && (len(copies) != 1 || copies[0].Spec.VolumeName != disk) {
				t.Fatalf("%s, killed after %d writes: the copies are %+v", what, writes, copies)
			}
			if done[what] && writes == 0 {
				t.Errorf("%s: nothing was written", what)
			}
		}
		s.mount("shop", name, name)
		step("make", joined, func() bool {
			copies := s.copies("shop")
			return bound("1Mi") && len(copies) == 1 && copies[0].Annotations["volume.kubernetes.io/selected-node"] == "b"
		})
		// The provisioner of B makes its volume.
		disk = "disk-of-" + name
		s.must(s.b.Create(ctx, strings.TrimSuffix(volumesPath, "/"), object{
			"metadata": object{"name": disk},
			"spec": object{"storageClassName": "made", "capacity": object{"storage": "10Mi"}, "accessModes": []string{"ReadWriteOnce"}, "hostPath": object{"path": "/" + disk},
				"persistentVolumeReclaimPolicy": "Retain", "claimRef": object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": guests, "name": workload.ClaimName(name, string(claim.UID)), "uid": s.copies("shop")[0].UID}},
		}, nil))
		bedtest.Within(t, "the provider's volume", func() error {
			if copies := s.copies("shop"); copies[0].Status.Phase != corev1.ClaimBound {
				return fmt.Errorf("%+v", copies)
			}
			return nil
		})
		if !done["expand"] {
			s.must(s.a.Patch(ctx, path, "", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"2Mi"}}}}`), nil))
			step("expand", joined, func() bool { return bound("2Mi") })
		}
		if !done["part"] || !done["join"] {
			secret := namespaces + guests + "/secrets/" + name
			s.must(s.b.Create(ctx, namespaces+guests+"/secrets", object{"metadata": object{"name": name, "labels": object{workload.LabelOriginCluster: string(consumerID)}}}, nil))
			step("part", parted, func() bool {
				status := s.host.Stands(consumerID)
				return !status.Busy && status.Claims == 1 && !status.RetainedSince.IsZero() && missing(s.b, secret) && missing(s.b, rights)
			})
			step("join", joined, func() bool {
				status := s.host.Stands(consumerID)
				return status.Claims == 1 && status.RetainedSince.IsZero() && exists(s.b, rights)
			})
		}
		s.end(name)
		s.must(s.a.Delete(ctx, path, metav1.DeleteOptions{}))
		step("delete", joined, func() bool { return missing(s.a, path) && missing(s.a, volume) })
		bedtest.Within(t, "no copy", func() error {
			if n := len(s.copies("shop")); n != 0 {
				return fmt.Errorf("killed after %d writes: %d copies", writes, n)
			}
			return nil
		})
	}
}
