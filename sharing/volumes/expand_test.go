package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/kubetest"
)

// grown is a claim of 2Gi that asks for more, and its volume.
func grown(asks string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	class := "liqo"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "6f2b1c1e-2a52-4b0c-9a55-0d6f0a3c9b11", ResourceVersion: "7"}}
	claim.Spec.StorageClassName, claim.Spec.AccessModes = &class, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	volume := volumeFor(claim, providerThere, "liqo-shop", "data-x")
	volume.UID, volume.ResourceVersion = "v", "8"
	claim.Spec.VolumeName, claim.Status.Phase = volume.Name, corev1.ClaimBound
	claim.Status.Capacity = claim.Spec.Resources.Requests.DeepCopy()
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(asks)
	return claim, volume
}

// TestExpand: whatever a provider says, a claim has never more than it asks for, never less than before,
// and nothing before the provider counted it.
func TestExpand(t *testing.T) {
	for _, test := range []struct {
		name, remote string
		sends, has   string // to the provider, and the capacity that is written here
		growing      bool
	}{
		{"not asked yet", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"2Gi"}}}`, `"storage":"5Gi"`, "", true},
		{"more than it was asked for", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"9Gi"}}}`, `"storage":"5Gi"`, "", true},
		{"not done", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"2Gi"}}}`, "", "", true},
		{"half", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"3Gi"}}}`, "", "3Gi", true},
		{"done", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"5Gi"}}}`, "", "5Gi", false},
		{"more", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"900Ti"}}}`, "", "5Gi", false},
		{"less", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`, "", "", true},
		{"negative", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"-9Gi"}}}`, "", "", true},
		{"huge", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"9e999999999"}}}`, "", "", true},
		{"no amount", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"much"}}}`, "", "", true},
		{"nothing", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound"}}`, "", "", true},
		{"asked for no amount", `{"spec":{"resources":{"requests":{"storage":"1e-999999999"}}},"status":{"phase":"Bound","capacity":{"storage":"5Gi"}}}`, `"storage":"5Gi"`, "", true},
		{"without a volume", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Pending","capacity":{"storage":"5Gi"}}}`, "", "", false},
		{"lost", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Lost","capacity":{"storage":"5Gi"}}}`, "", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			claim, volume := grown("5Gi")
			c := &cluster{version: 10, volumes: map[string]*corev1.PersistentVolume{volume.Name: volume}, claims: map[string]*corev1.PersistentVolumeClaim{"data": claim}, kill: -1}
			s := c.agent(t)
			there := kubetest.New(func(*http.Request, string) (int, string) { return http.StatusOK, "{}" })
			var found remoteClaim
			if err := json.Unmarshal([]byte(test.remote), &found); err != nil {
				t.Fatal(err)
			}
			var st state
			now, err := s.expand(t.Context(), there.Client(t), volume, claim, &found, &st)
			if err != nil || st.growing != test.growing {
				t.Errorf("growing %t, error %v", st.growing, err)
			}
			sent := strings.Join(there.Take(), "\n")
			if (sent != "") != (test.sends != "") || !strings.Contains(sent, test.sends) {
				t.Errorf("sent %q, want %q", sent, test.sends)
			}
			has := "2Gi"
			if test.has != "" {
				has = test.has
			}
			for _, v := range []*corev1.PersistentVolume{now, c.volumes[volume.Name]} {
				if got := v.Spec.Capacity.Storage().String(); got != has {
					t.Errorf("the volume has %s, want %s", got, has)
				}
			}
			if err := s.showSize(t.Context(), now, claim, st.growing); err != nil {
				t.Error(err)
			}
			shown := c.claims["data"].Status
			if got := shown.Capacity.Storage().String(); got != has || (len(shown.Conditions) == 1) != test.growing {
				t.Errorf("the claim shows %s, and %+v", got, shown.Conditions)
			}
			before := c.version
			if err := s.showSize(t.Context(), now, c.claims["data"], st.growing); err != nil || c.version != before {
				t.Errorf("written again: %v", err)
			}
		})
	}
}

// TestExpandRefused: what the provider says is told once, and the claim stays as it was.
func TestExpandRefused(t *testing.T) {
	claim, volume := grown("5Gi")
	local := kubetest.New(func(*http.Request, string) (int, string) { return http.StatusCreated, "{}" })
	c := &cluster{version: 10}
	s := c.agent(t)
	s.client = local.Client(t)
	there := kubetest.New(func(*http.Request, string) (int, string) {
		return http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"the offer is used up","code":403}`
	})
	var found remoteClaim
	found.Status.Phase = corev1.ClaimBound
	var st state
	for range 2 {
		if _, err := s.expand(t.Context(), there.Client(t), volume, claim, &found, &st); err != nil || st.growing {
			t.Fatal(err, st)
		}
	}
	if sent := local.Take(); len(sent) != 1 || !strings.Contains(sent[0], reasonResize) || !strings.Contains(sent[0], "the offer is used up") {
		t.Errorf("told %q", sent)
	}
	there.Say(func(*http.Request, string) (int, string) {
		return kubetest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	})
	if _, err := s.expand(t.Context(), there.Client(t), volume, claim, &found, &st); err == nil {
		t.Error("a provider that cannot answer now has refused")
	}
}

// TestHomeClass: claims at home get a class that makes volumes, and is not the agent's own.
func TestHomeClass(t *testing.T) {
	for _, test := range []struct {
		setting, classes, want, says string
	}{
		{"", `[]`, "", "make another class the default one"},
		{"", `[{"metadata":{"name":"a"},"provisioner":"p"}]`, "", "make another class the default one"},
		{"", `[{"metadata":{"name":"a","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"p"}]`, "a", ""},
		{"", `[{"metadata":{"name":"liqo","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"storage.liqo.io"}]`, "", "no other storage class"},
		{"", `[{"metadata":{"name":"liqo","creationTimestamp":"2026-01-02T00:00:00Z","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"storage.liqo.io"},
			{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"p"}]`, "a", ""},
		{"", `[{"metadata":{"name":"a","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"kubernetes.io/no-provisioner"}]`, "", "makes no volumes"},
		{"b", `[{"metadata":{"name":"a","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"p"}]`, "", "no storage class b"},
		{"b", `[{"metadata":{"name":"b"},"provisioner":"p"}]`, "b", ""},
		{"liqo", `[{"metadata":{"name":"liqo"},"provisioner":"storage.liqo.io"}]`, "", "is the agent's"},
	} {
		s := (&cluster{version: 1}).agent(t)
		s.v.cfg.HomeClass = func() string { return test.setting }
		s.classes = classesOf(t, test.classes)
		class, why := s.homeClass()
		got := ""
		if class != nil {
			got = class.Name
		}
		if got != test.want || (why == "") != (test.says == "") || !strings.Contains(why, test.says) {
			t.Errorf("%q of %s: %q, %q", test.setting, test.classes, got, why)
		}
		if nodes := fmt.Sprint(s.topologies(nil)); strings.Contains(nodes, "one") != (test.want != "") {
			t.Errorf("%q of %s: the class is for %s", test.setting, test.classes, nodes)
		}
	}
}

// disk is a provider that answers as a test says.
type disk struct{ *kubetest.Server }

func (disk) Namespace(context.Context, string) (string, error) { return "liqo-shop", nil }

// TestLook: a claim that has no volume at its provider is looked at again when its pod gets on there, and not before.
func TestLook(t *testing.T) {
	claim, volume := grown("2Gi")
	c := &cluster{version: 10, volumes: map[string]*corev1.PersistentVolume{volume.Name: volume}, claims: map[string]*corev1.PersistentVolumeClaim{"data": claim}, now: time.Now(), kill: -1}
	s := c.agent(t)
	s.v.session = s
	phase := corev1.ClaimPending
	meanwhile := func() {}
	there := disk{kubetest.New(func(*http.Request, string) (int, string) {
		meanwhile()
		return http.StatusOK, fmt.Sprintf(`{"status":{"phase":%q}}`, phase)
	})}
	s.v.Set(Provider{ID: providerThere, Remote: there, Storage: 1, Reachable: true})
	looked := func(when string, asked int, pending bool) {
		t.Helper()
		if _, err := s.reconcileVolume(t.Context(), volume.Name); err != nil {
			t.Fatal(err)
		}
		if n, shown := len(there.Take()), s.v.List(); n != asked || len(shown) != 1 || shown[0].State != StateBound || (shown[0].Message != "") != pending {
			t.Errorf("%s: %d requests, and %+v", when, n, shown)
		}
	}
	looked("at first", 1, true)
	looked("again", 0, true)
	s.v.Look("shop", []string{"other"})
	looked("for another claim", 0, true)
	s.v.Look("shop", []string{"data"})
	meanwhile = func() { s.v.Look("shop", []string{"data"}) }
	looked("with its pod, which gets on once more", 1, true)
	meanwhile = func() {}
	looked("as it did while the provider was asked", 1, true)
	looked("after that", 0, true)
	phase = corev1.ClaimBound
	s.v.Look("shop", []string{"other", "data"})
	looked("with its pod", 1, false)
	s.v.Look("shop", []string{"data"})
	looked("when it is bound", 0, false)
}
