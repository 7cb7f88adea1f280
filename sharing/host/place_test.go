package host

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/workload"
)

// TestPlaceClaims: the agent chooses the node of a new claim of a guest if there is one node and the class waits, once, and of
// no other claim.
func TestPlaceClaims(t *testing.T) {
	const fresh = `{"metadata":{"name":"c"},"spec":{"storageClassName":"waits"}}`
	ours := map[string]string{labelManagedBy: managedBy, workload.LabelOriginCluster: string(barn)}
	for name, tc := range map[string]struct {
		claim, nowhere string // in JSON; nowhere: there is no only node, because
		foreign        bool   // the namespace is none of the consumer's
		answer         int    // of the API server
		places         bool
	}{
		"new":                       {claim: fresh, places: true},
		"several nodes":             {claim: fresh, nowhere: "there are two"},
		"not a guest's namespace":   {claim: fresh, foreign: true},
		"it changed meanwhile":      {claim: fresh, answer: http.StatusConflict, places: true},
		"it is gone":                {claim: fresh, answer: http.StatusNotFound, places: true},
		"bound":                     {claim: `{"metadata":{"name":"c"},"spec":{"storageClassName":"waits","volumeName":"pv"}}`},
		"being deleted":             {claim: `{"metadata":{"name":"c","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"storageClassName":"waits"}}`},
		"placed":                    {claim: `{"metadata":{"name":"c","annotations":{"volume.kubernetes.io/selected-node":"other"}},"spec":{"storageClassName":"waits"}}`},
		"given up by a provisioner": {claim: `{"metadata":{"name":"c","annotations":{"volume.kubernetes.io/storage-provisioner":"disks"}},"spec":{"storageClassName":"waits"}}`},
		"of a class at once":        {claim: `{"metadata":{"name":"c"},"spec":{"storageClassName":"at-once"}}`},
		"of a class by hand":        {claim: `{"metadata":{"name":"c"},"spec":{"storageClassName":"by-hand"}}`},
		"of a class for some nodes": {claim: `{"metadata":{"name":"c"},"spec":{"storageClassName":"some"}}`},
		"of no known class":         {claim: `{"metadata":{"name":"c"},"spec":{"storageClassName":"gone"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			claim := new(guestClaim)
			if err := json.Unmarshal([]byte(tc.claim), claim); err != nil {
				t.Fatal(err)
			}
			claim.Namespace, claim.UID, claim.ResourceVersion = "ns", "uid", "7"
			claim.Labels = map[string]string{workload.LabelOriginCluster: string(barn)}
			api := kubetest.New(func(r *http.Request, body string) (int, string) {
				if tc.answer != 0 {
					return kubetest.Failure(tc.answer, map[int]metav1.StatusReason{http.StatusConflict: metav1.StatusReasonConflict, http.StatusNotFound: metav1.StatusReasonNotFound}[tc.answer])
				}
				now := claim.DeepCopyObject().(*guestClaim)
				if err := json.Unmarshal([]byte(body), now); err != nil {
					t.Error(err)
				}
				now.ResourceVersion = "8"
				text, _ := json.Marshal(now)
				return http.StatusOK, string(text)
			})
			cfg := configOf(func() Settings { return Settings{} })
			if tc.nowhere == "" {
				cfg.OnlyNode = func() string { return "birch" }
			}
			h := New(cfg)
			s := newSession(h, api.Client(t))
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", ResourceVersion: "1", Labels: ours}}
			if tc.foreign {
				namespace.Labels = nil
			}
			s.namespaces.Wrote(namespace)
			waits := &storageclass.Class{Provisioner: "disks", VolumeBindingMode: storageclass.WaitForFirstConsumer}
			var classes []any
			for class, change := range map[string]func(*storageclass.Class){
				"waits": func(*storageclass.Class) {}, "at-once": func(c *storageclass.Class) { c.VolumeBindingMode = "Immediate" },
				"by-hand": func(c *storageclass.Class) { c.Provisioner = storageclass.NoProvisioner },
				"some":    func(c *storageclass.Class) { c.AllowedTopologies = []corev1.TopologySelectorTerm{{}} },
			} {
				c := waits.DeepCopyObject().(*storageclass.Class)
				c.Name, c.ResourceVersion = class, "1"
				change(c)
				classes = append(classes, c)
			}
			if err := s.classes.Told().Replace(classes, "1"); err != nil {
				t.Fatal(err)
			}
			if err := s.claims.Told().Replace([]any{claim}, "7"); err != nil {
				t.Fatal(err)
			}
			if err := s.placeClaims(t.Context(), barn); err != nil {
				t.Error(err)
			}
			var want []string
			if tc.places {
				want = []string{`PATCH /api/v1/namespaces/ns/persistentvolumeclaims/c?fieldManager=` + Manager +
					` {"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"birch"},"resourceVersion":"7","uid":"uid"}}`}
			}
			if got := api.Take(); !slices.Equal(got, want) {
				t.Errorf("sent is %q, want %q", got, want)
			}
			if tc.answer != 0 {
				return
			}
			if err := s.placeClaims(t.Context(), barn); err != nil || len(api.Take()) > 0 {
				t.Errorf("again it is written (%v)", err)
			}
		})
	}
}
