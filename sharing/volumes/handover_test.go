package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/workload"
)

// cluster is an API server with claims and volumes of one namespace, and what others than the agent do
// about them.
type cluster struct {
	version  int
	claims   map[string]*corev1.PersistentVolumeClaim
	volumes  map[string]*corev1.PersistentVolume
	deleting map[string]bool      // the volumes that their provisioner deletes
	written  map[string]types.UID // the volumes in which pods wrote something, for the claim with that UID
	policy   corev1.PersistentVolumeReclaimPolicy
	now      time.Time
	kill     int      // the agent is killed after so many writes; negative: never
	wrong    []string // what must not happen
}

// touch gives an object the next version.
func (c *cluster) touch(o metav1.Object) {
	c.version++
	o.SetResourceVersion(strconv.Itoa(c.version))
}

func (c *cluster) uid() types.UID {
	c.version++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", c.version))
}

// add makes a claim.
func (c *cluster) add(claim *corev1.PersistentVolumeClaim) {
	claim.UID, claim.Status.Phase = c.uid(), corev1.ClaimPending
	c.touch(claim)
	c.claims[claim.Name] = claim
}

// claimFor returns the claim that a volume is for.
func (c *cluster) claimFor(v *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	if claim := c.claims[v.Spec.ClaimRef.Name]; claim != nil && refersTo(v, claim) {
		return claim
	}
	return nil
}

// provision makes the volumes of claims that wait for one, as their provisioner.
func (c *cluster) provision() {
	for _, claim := range c.claims {
		name := "pvc-" + string(claim.UID)
		if *claim.Spec.StorageClassName != "disk" || claim.Spec.VolumeName != "" || claim.Annotations[annotationSelected] == "" || c.volumes[name] != nil {
			continue
		}
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: c.uid(), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "disks"}}}
		v.Spec.Capacity, v.Spec.PersistentVolumeReclaimPolicy = claim.Spec.Resources.Requests, c.policy
		v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
		c.touch(v)
		c.volumes[name] = v
	}
}

// bind takes one step for each volume, as the controller of Kubernetes.
func (c *cluster) bind() {
	for _, v := range c.volumes {
		claim := c.claimFor(v)
		switch {
		case claim == nil && v.Status.Phase != corev1.VolumeReleased:
			v.Status.Phase = corev1.VolumeReleased
			c.touch(v)
		case claim == nil:
		case claim.Spec.VolumeName == "" && v.Status.Phase != corev1.VolumeBound:
			v.Status.Phase = corev1.VolumeBound
			c.touch(v)
		case claim.Spec.VolumeName == "":
			claim.Spec.VolumeName = v.Name
			c.touch(claim)
		case claim.Spec.VolumeName == v.Name && claim.Status.Phase != corev1.ClaimBound:
			claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, v.Spec.Capacity
			c.touch(claim)
		case claim.Spec.VolumeName != v.Name && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && v.Status.Phase != corev1.VolumeReleased:
			v.Status.Phase = corev1.VolumeReleased
			c.touch(v)
		}
	}
}

// reclaim deletes volumes, as their provisioner. It goes by the phase, and does not look at the claim; and
// what it has begun to delete goes, whatever becomes of the volume meanwhile.
func (c *cluster) reclaim() {
	for name, v := range c.volumes {
		if !c.deleting[name] {
			c.deleting[name] = v.Status.Phase == corev1.VolumeReleased && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
			continue
		}
		if uid, data := c.written[name]; data && c.claims["data"] != nil && c.claims["data"].UID == uid {
			c.wrong = append(c.wrong, "the data of a claim was deleted")
		}
		delete(c.volumes, name)
	}
}

// collect deletes what the claim that it belongs to has left, as the garbage collector.
func (c *cluster) collect() {
	for name, claim := range c.claims {
		for _, ref := range claim.OwnerReferences {
			if o := c.claims[ref.Name]; o == nil || o.UID != ref.UID {
				delete(c.claims, name)
			}
		}
	}
}

// write has a pod write into the volume of the claim.
func (c *cluster) write() {
	claim := c.claims["data"]
	if claim == nil || claim.Status.Phase != corev1.ClaimBound {
		return
	}
	if c.volumes[claim.Spec.VolumeName] == nil {
		c.wrong = append(c.wrong, "a claim has lost its volume")
		return
	}
	c.written[claim.Spec.VolumeName] = claim.UID
}

// answer is the API server.
func (c *cluster) answer(r *http.Request, body string) (int, string) {
	name := path.Base(strings.TrimSuffix(r.URL.Path, "/status"))
	encode := func(o any) (int, string) {
		text, _ := json.Marshal(o)
		return http.StatusOK, string(text)
	}
	if r.Method != http.MethodGet {
		if c.kill == 0 {
			return kubetest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		}
		c.kill--
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/events"):
		return encode(corev1.Event{})
	case r.Method == http.MethodPost:
		claim := &corev1.PersistentVolumeClaim{}
		if err := json.Unmarshal([]byte(body), claim); err != nil {
			c.wrong = append(c.wrong, err.Error())
		}
		if c.claims[claim.Name] != nil {
			return kubetest.Failure(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		}
		c.add(claim)
		return encode(claim)
	case strings.HasPrefix(r.URL.Path, volumesPath):
		v := c.volumes[name]
		if v == nil {
			return kubetest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
		}
		now := merged(v, body)
		if now.ResourceVersion != v.ResourceVersion || now.UID != v.UID {
			return kubetest.Failure(http.StatusConflict, metav1.StatusReasonConflict)
		}
		c.touch(now)
		c.volumes[name] = now
		return encode(now)
	}
	claim := c.claims[name]
	if claim == nil {
		return kubetest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodDelete:
		var options metav1.DeleteOptions
		if err := json.Unmarshal([]byte(body), &options); err != nil || options.Preconditions == nil || *options.Preconditions.UID != claim.UID {
			return kubetest.Failure(http.StatusConflict, metav1.StatusReasonConflict)
		}
		delete(c.claims, name)
	default:
		now := merged(claim, body)
		if now.ResourceVersion != claim.ResourceVersion || now.UID != claim.UID {
			return kubetest.Failure(http.StatusConflict, metav1.StatusReasonConflict)
		}
		c.touch(now)
		claim, c.claims[name] = now, now
	}
	return encode(claim)
}

// merged is an object after a merge patch (RFC 7386).
func merged[T any](o *T, patch string) *T {
	var into, change map[string]any
	text, _ := json.Marshal(o)
	if err := errors.Join(json.Unmarshal(text, &into), json.Unmarshal([]byte(patch), &change)); err != nil {
		panic(err)
	}
	var merge func(into, change map[string]any)
	merge = func(into, change map[string]any) {
		for k, v := range change {
			part, is := v.(map[string]any)
			before, was := into[k].(map[string]any)
			switch {
			case v == nil:
				delete(into, k)
			case is && was:
				merge(before, part)
			case is:
				before = make(map[string]any)
				merge(before, part)
				into[k] = before
			default:
				into[k] = v
			}
		}
	}
	merge(into, change)
	out := new(T)
	text, _ = json.Marshal(into)
	if err := json.Unmarshal(text, out); err != nil {
		panic(err)
	}
	return out
}

// see has the caches of an agent show what there is.
func (c *cluster) see(t *testing.T, s *session) {
	version := strconv.Itoa(c.version)
	var claims, volumes []any
	for _, claim := range c.claims {
		if _, behind := owner(claim); behind || s.ofClass(claim) {
			claims = append(claims, claim.DeepCopy())
		}
	}
	for _, v := range c.volumes {
		if ofVolumes(v) {
			volumes = append(volumes, v.DeepCopy())
		}
	}
	if err := errors.Join(s.claims.Told().Replace(claims, version), s.volumes.Told().Replace(volumes, version)); err != nil {
		t.Fatal(err)
	}
}

// agent returns the session of an agent that was just started.
func (c *cluster) agent(t *testing.T) *session {
	client, err := kube.New(kubetest.New(c.answer).Config())
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(New(Config{
		Self: func() peer.ClusterID { return "self" }, Class: func() string { return "liqo" }, HomeClass: func() string { return "" },
		Changed: func(string) {}, Used: func() {}, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return c.now },
	}), client)
	s.classes = classesOf(t, `[{"metadata":{"name":"disk","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"disks"}]`)
	var nodes []any
	for _, name := range []string{"one", "two", "virtual"} {
		n := &node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1", Labels: map[string]string{corev1.LabelHostname: name}}}
		if name == "virtual" {
			n.Spec.ProviderID = "liqo://" + string(providerThere)
		}
		nodes = append(nodes, n)
	}
	if err := s.nodes.Told().Replace(nodes, "1"); err != nil {
		t.Fatal(err)
	}
	c.see(t, s)
	return s
}

// classesOf returns a cache with classes, which are JSON.
func classesOf(t *testing.T, text string) *kube.Cache[*storageclass.Class] {
	t.Helper()
	var classes []*storageclass.Class
	if err := json.Unmarshal([]byte(text), &classes); err != nil {
		t.Fatal(err)
	}
	out := kube.NewCache(kube.Kind[*storageclass.Class]{Fresh: func() *storageclass.Class { return &storageclass.Class{} }})
	for _, c := range classes {
		c.ResourceVersion = "1"
		out.Wrote(c)
	}
	return out
}

const providerThere peer.ClusterID = "22222222-2222-4222-8222-222222222222"

// person makes a claim of the class.
func (c *cluster) person() {
	if c.claims["data"] != nil {
		return
	}
	class := "liqo"
	c.add(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Annotations: map[string]string{annotationFor: workload.Provisioner}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	})
}

// schedule has the scheduler choose a node for the claim.
func (c *cluster) schedule(node string) {
	claim := c.claims["data"]
	if claim == nil || claim.Spec.VolumeName != "" {
		return
	}
	if node == "" {
		delete(claim.Annotations, annotationSelected)
	} else {
		claim.Annotations[annotationSelected] = node
	}
	c.touch(claim)
}

// behind returns the claim behind another one, nil if there is none.
func (c *cluster) behind() *corev1.PersistentVolumeClaim {
	for _, claim := range c.claims {
		if _, is := owner(claim); is {
			return claim
		}
	}
	return nil
}

// TestHandOver: whatever happens to a claim at home, and whenever the agent is killed, no data is deleted
// of a claim that is there, and in the end a claim has one volume, and nothing else is left.
func TestHandOver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &cluster{
			version: 1, claims: make(map[string]*corev1.PersistentVolumeClaim), volumes: make(map[string]*corev1.PersistentVolume), written: make(map[string]types.UID), deleting: make(map[string]bool),
			policy: corev1.PersistentVolumeReclaimDelete, now: time.Unix(1_700_000_000, 0), kill: -1,
		}
		s := c.agent(t)
		reconcile := func() {
			c.now = c.now.Add(refusedMax)
			_, _, err := s.reconcileHome(context.Background(), "shop", "data", s.claims.Get("shop", "data").DeepCopy())
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsServiceUnavailable(err) {
				rt.Fatal(err)
			}
		}
		goesOn := map[string]func(){
			"provision": c.provision, "bind": c.bind, "reclaim": c.reclaim, "write": c.write,
			"agent": func() { c.see(t, s); reconcile() }, "agent that sees nothing new": reconcile,
			"schedule": func() {
				if claim := c.claims["data"]; claim != nil && claim.Annotations[annotationSelected] == "" {
					c.schedule("one")
				}
			},
		}
		disturbs := map[string]func(){
			"collect": c.collect, "see": func() { c.see(t, s) },
			"schedule two": func() { c.schedule("two") }, "schedule away": func() { c.schedule("virtual") }, "unschedule": func() { c.schedule("") },
			"delete": func() { delete(c.claims, "data") }, "create": c.person,
			"delete behind": func() {
				if b := c.behind(); b != nil {
					delete(c.claims, b.Name)
				}
			},
			"give up": func() {
				if b := c.behind(); b != nil && b.Spec.VolumeName == "" {
					delete(b.Annotations, annotationSelected)
					c.touch(b)
				}
			},
			"kill": func() { c.kill = 0; reconcile(); c.kill = -1; s = c.agent(t) },
		}
		c.person()
		step := rapid.OneOf(rapid.SampledFrom(slices.Sorted(maps.Keys(goesOn))), rapid.SampledFrom(slices.Sorted(maps.Keys(goesOn))), rapid.SampledFrom(slices.Sorted(maps.Keys(goesOn))),
			rapid.SampledFrom(slices.Sorted(maps.Keys(goesOn))), rapid.SampledFrom(slices.Sorted(maps.Keys(goesOn))), rapid.SampledFrom(slices.Sorted(maps.Keys(disturbs))))
		maps.Copy(goesOn, disturbs)
		for _, name := range rapid.SliceOfN(step, 60, 120).Draw(rt, "steps") {
			goesOn[name]()
			if c.wrong != nil {
				rt.Fatalf("after %q: %v", name, c.wrong)
			}
		}
		// What was chosen at the end becomes so.
		last := rapid.SampledFrom([]string{"one", "virtual", "gone"}).Draw(rt, "last")
		if last == "gone" {
			delete(c.claims, "data")
		} else {
			c.person()
		}
		var data string
		for name, uid := range c.written {
			if c.claims["data"] != nil && c.claims["data"].UID == uid {
				data = name
			}
		}
		for range 20 {
			c.schedule(map[string]string{"one": "one", "virtual": "virtual", "gone": ""}[last])
			c.see(t, s)
			reconcile()
			c.provision()
			c.bind()
			c.reclaim()
		}
		claim := c.claims["data"]
		bound := claim != nil && claim.Spec.VolumeName != ""
		switch {
		case c.wrong != nil:
			rt.Fatal(c.wrong)
		case last == "one" && !bound, last == "gone" && claim != nil:
			rt.Fatalf("the claim is %+v", claim)
		case bound:
			v := c.volumes[claim.Spec.VolumeName]
			if v == nil || data != "" && v.Name != data {
				rt.Fatalf("bound to %v, with the data in %q", v, data)
			}
			if _, _, _, noted := handedTo(v); noted || !refersTo(v, claim) || v.Spec.PersistentVolumeReclaimPolicy != c.policy || v.Status.Phase != corev1.VolumeBound {
				rt.Fatalf("the volume is %+v", v)
			}
			if len(c.volumes) != 1 || len(c.claims) != 1 {
				rt.Fatalf("%d volumes and %d claims are left", len(c.volumes), len(c.claims))
			}
		default:
			if len(c.volumes) != 0 || c.behind() != nil {
				rt.Fatalf("left are %v, %v", slices.Collect(maps.Keys(c.volumes)), slices.Collect(maps.Keys(c.claims)))
			}
		}
	})
}

// TestHandOverOfOthers: a volume to which somebody gave another claim, or none, is left to them.
func TestHandOverOfOthers(t *testing.T) {
	const uid = types.UID("01234567-89ab-cdef-0123-456789abcdef")
	behind := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: BehindPrefix + string(uid), UID: "b", Annotations: map[string]string{annotationSelected: "alder"}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: uid}}
	for name, ref := range map[string]*corev1.ObjectReference{
		"none": nil, "another": {Namespace: "shop", Name: "other", UID: "o"},
	} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{AnnotationPolicy: "Delete", AnnotationClaim: "data"}}}
		v.Spec.ClaimRef, v.Spec.PersistentVolumeReclaimPolicy = ref, corev1.PersistentVolumeReclaimRetain
		for _, want := range []choice{home, undecided, elsewhere} {
			if got := (handover{uid: uid, behind: behind, volume: v}).next(claim, want, "alder"); got != wait {
				t.Errorf("%s, %d: step %d", name, want, got)
			}
		}
	}
}
