package peering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	endpointclient "liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/foreign"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/remote"
)

// diary is a Decisions that notes what it is told, and fails when it is to.
type diary struct {
	mu     sync.Mutex
	policy plan.Policy
	told   []string
	fails  error
}

func (d *diary) Policy(peer.ClusterID) plan.Policy {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.policy
}

func (d *diary) note(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, fmt.Sprintf(format, args...))
	return d.fails
}

func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	told := d.told
	d.told = nil
	return told
}

func (d *diary) JoinEdited(_ context.Context, _ peer.ClusterID, join bool, by, stamp string) error {
	return d.note("join %v %s %s", join, by, stamp)
}

func (d *diary) TrustEdited(_ context.Context, _ peer.ClusterID, mode api.TrustMode, shown peer.Fingerprint, by, stamp string) error {
	return d.note("trust %s %s %s %s", mode, shown, by, stamp)
}

func (d *diary) HungUp(_ context.Context, _ peer.ClusterID, by string) error {
	return d.note("hung up %s", by)
}

func (d *diary) Decided(_ context.Context, _ peer.ClusterID, accept bool, shown peer.Fingerprint, by string) error {
	return d.note("decided %v %s %s", accept, shown, by)
}

func (d *diary) Forgot(context.Context, peer.ClusterID) error { return d.note("forgot") }

func (d *diary) EndedByProvider(_ context.Context, _ peer.ClusterID, _ uint64, reason string) error {
	return d.note("ended by provider %s", reason)
}

func (d *diary) EndedHere(_ context.Context, _ peer.ClusterID, reason string) error {
	return d.note("ended here %s", reason)
}

func (d *diary) Replaced(_ context.Context, _ peer.ClusterID, object string) error {
	return d.note("replaced by %s", object)
}

func (d *diary) Joined(_ context.Context, _ peer.ClusterID, joined bool, why string) error {
	return d.note("joined %v %s", joined, why)
}

func (d *diary) Served(_ context.Context, _ peer.ClusterID, served bool, why string) error {
	return d.note("served %v %s", served, why)
}

func (d *diary) Requested(_ context.Context, _ peer.ClusterID, phase api.RequestPhase, reason string) error {
	return d.note("requested %s %s", phase, reason)
}

// neighbours is a Registry of one peer.
type neighbours struct{ known *peer.Peer }

func (n neighbours) Peer(peer.ClusterID) (peer.Peer, bool) {
	if n.known == nil {
		return peer.Peer{}, false
	}
	return *n.known, true
}
func (n neighbours) IDs() []peer.ClusterID     { return nil }
func (n neighbours) Settled() bool             { return true }
func (n neighbours) Hold(peer.ClusterID, bool) {}

// silence is a remote.Caller that reaches nobody.
type silence struct{}

func (silence) Exchange(context.Context, peer.Target, endpointclient.Request) (endpointclient.Response, error) {
	return endpointclient.Response{}, errors.New("nobody is there")
}

var _ remote.Caller = silence{}

// server is an API server that says what a test wants.
type server struct {
	*kubetest.Server
	said strings.Builder // the log
}

// connected returns a Controller with a session, without anything running, for an
// API server that answers as said.
func connected(t *testing.T, decisions Decisions, answer func(r *http.Request, body string) (int, string)) (*Controller, *session, *server) {
	t.Helper()
	fake := &server{Server: kubetest.New(answer)}
	identity := peer.Identity{ClusterID: "self", ClusterName: "self", GuestNamespace: "liqo"}
	c := New(Config{
		Kubeconfig: func() string { return conn.KubeconfigNone }, Registry: neighbours{barn()}, Identity: func() peer.Identity { return identity },
		OnClusterID: func(peer.ClusterID) {}, Namespace: "liqo", Decisions: decisions, Peers: silence{},
		Greeting:  func() wire.Greeting { return wire.Greeting{Identity: identity} },
		LostAfter: func() time.Duration { return time.Minute }, Logger: slog.New(slog.NewTextHandler(&fake.said, nil)),
	})
	connection, err := c.link.Open(fake.Config())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kube.New(connection.Observed())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s := c.newSession(connection, client)
	c.attach(s, gateway.Upstream{})
	return c, s, fake
}

// TestEachAction checks what each kind of action sends, and to whom.
func TestEachAction(t *testing.T) {
	yes, trusted := true, api.TrustTrusted
	fp := peer.FingerprintOf([]byte("key"))
	ref := &api.ObjectReference{Kind: api.KindPeeringRequest, Name: string(testID), UID: "u"}
	const (
		fcs  = "/apis/discovery.liqo.io/v1alpha1/foreignclusters/fc"
		own  = "?fieldManager=" + fields.ManagerForeignCluster + "&force=true "
		kind = `{"kind":"ForeignCluster","apiVersion":"discovery.liqo.io/v1alpha1","metadata":{"name":"fc","uid":"u1"`
		req  = "/apis/discovery.liqo.io/v1alpha1/peeringrequests/" + string(testID)
		adv  = "/apis/sharing.liqo.io/v1alpha1/advertisements/" + string(testID)
	)
	for _, tc := range []struct {
		name string
		a    plan.Action
		sent string // what is to be sent, or begin so
		told string
	}{
		{"intent", plan.Action{Kind: plan.ApplyIntent, Intent: &plan.Intent{Join: &yes, TrustMode: &trusted}},
			"PATCH " + fcs + "?fieldManager=" + fields.ManagerIntent + "&force=true " + kind + `},"spec":{"join":true,"trustMode":"Trusted"}}`, ""},
		{"intent given up", plan.Action{Kind: plan.ApplyIntent, Intent: &plan.Intent{}}, "PATCH " + fcs + "?fieldManager=" + fields.ManagerIntent + "&force=true " + kind + `},"spec":{}}`, ""},
		{"add finalizer", plan.Action{Kind: plan.AddFinalizer}, "PATCH " + fcs + own + kind + `,"finalizers":["discovery.liqo.io/peering"]}}`, ""},
		{"remove finalizer", plan.Action{Kind: plan.RemoveFinalizer},
			"PATCH " + fcs + "?fieldManager=" + fields.ManagerForeignCluster + ` {"metadata":{"finalizers":["other"],"resourceVersion":"5","uid":"u1"}}`, ""},
		{"status", plan.Action{Kind: plan.UpdatePeering, Peering: &plan.PeeringStatus{Role: api.RoleProvider}}, "PATCH " + fcs + "/status" + own + kind + `},"status":{"role":"Provider",`, ""},
		{"request ref", plan.Action{Kind: plan.RequestRef, Ref: ref}, "PATCH " + fcs + "/status?fieldManager=" + fields.ManagerPeeringRequest + "&force=true " + kind +
			`},"status":{"incoming":{"peeringRequest":{"kind":"PeeringRequest","name":"` + string(testID) + `","uid":"u"}}}}`, ""},
		{"no request ref", plan.Action{Kind: plan.RequestRef}, "PATCH " + fcs + "/status?fieldManager=" + fields.ManagerPeeringRequest + "&force=true " + kind + `}}`, ""},
		{"advertisement ref", plan.Action{Kind: plan.AdvertisementRef, Ref: ref}, "PATCH " + fcs + "/status?fieldManager=" + fields.ManagerAdvertisement + "&force=true " + kind +
			`},"status":{"outgoing":{"advertisement":{`, ""},
		{"versioned", plan.Action{Kind: plan.UpdatePeering, ResourceVersion: "5", Peering: &plan.PeeringStatus{}}, "PATCH " + fcs + "/status" + own + kind + `,"resourceVersion":"5"}`, ""},
		{"request status", plan.Action{Kind: plan.SetRequestStatus, UID: "r1", Request: &api.PeeringRequestStatus{Phase: api.RequestAccepted, Reason: "r", Message: "m"}},
			"PATCH " + req + "/status?fieldManager=" + fields.ManagerPeeringRequest + "&force=true " +
				`{"kind":"PeeringRequest","apiVersion":"discovery.liqo.io/v1alpha1","metadata":{"name":"` + string(testID) + `","uid":"r1"},"status":{"phase":"Accepted","reason":"r","message":"m"}}`, ""},
		{"advertisement status", plan.Action{Kind: plan.SetAdvertisementStatus, UID: "a1", Advertisement: &api.AdvertisementState{AdvertisementStatus: api.AdvertisementAccepted}},
			"PATCH " + adv + "/status?fieldManager=" + fields.ManagerAdvertisement + "&force=true " +
				`{"kind":"Advertisement","apiVersion":"sharing.liqo.io/v1alpha1","metadata":{"name":"` + string(testID) + `","uid":"a1"},"status":{"advertisementStatus":"Accepted"}}`, ""},
		{"delete request", plan.Action{Kind: plan.DeleteRequest, UID: "r1"}, "DELETE " + req + ` {"preconditions":{"uid":"r1"}}`, ""},
		{"delete advertisement", plan.Action{Kind: plan.DeleteAdvertisement, UID: "a1", ResourceVersion: "9"}, "DELETE " + adv + ` {"preconditions":{"uid":"a1","resourceVersion":"9"}}`, ""},
		{"delete", plan.Action{Kind: plan.Delete, ResourceVersion: "5"}, "DELETE " + fcs + ` {"preconditions":{"uid":"u1","resourceVersion":"5"}}`, ""},
		{"delete what is not there", plan.Action{Kind: plan.DeleteSecret}, "", ""},
		{"delete no access", plan.Action{Kind: plan.DeleteAccess}, "", ""},
		{"begin", plan.Action{Kind: plan.ObserveGeneration, Generation: 7}, "", ""},

		{"join edited", plan.Action{Kind: plan.RecordJoinEdited, Record: &plan.Record{On: true, By: "kubectl", Stamp: "s"}}, "", "join true kubectl s"},
		{"trust edited", plan.Action{Kind: plan.RecordTrustEdited, Record: &plan.Record{Mode: trusted, Shown: fp, By: "kubectl", Stamp: "s"}}, "", "trust Trusted " + fp.String() + " kubectl s"},
		{"decided", plan.Action{Kind: plan.RecordDecided, Record: &plan.Record{On: true, Shown: fp, By: "kubectl"}}, "", "decided true " + fp.String() + " kubectl"},
		{"hung up", plan.Action{Kind: plan.RecordHungUp, Record: &plan.Record{By: "kubectl"}}, "", "hung up kubectl"},
		{"forgot", plan.Action{Kind: plan.RecordForgot, Record: &plan.Record{}}, "", "forgot"},
		{"ended by provider", plan.Action{Kind: plan.RecordEndedByProvider, Record: &plan.Record{Reason: "r"}}, "", "ended by provider r"},
		{"ended here", plan.Action{Kind: plan.RecordEndedHere, Record: &plan.Record{Reason: "r"}}, "", "ended here r"},
		{"joined", plan.Action{Kind: plan.RecordJoined, Record: &plan.Record{On: true, Reason: "r"}}, "", "joined true r"},
		{"served", plan.Action{Kind: plan.RecordServed, Record: &plan.Record{Reason: "r"}}, "", "served false r"},
		{"requested", plan.Action{Kind: plan.RecordRequested, Record: &plan.Record{Phase: api.RequestPending, Reason: "r"}}, "", "requested Pending r"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			decisions := &diary{}
			_, s, fake := connected(t, decisions, func(r *http.Request, _ string) (int, string) {
				return http.StatusOK, `{"metadata":{"name":"fc","uid":"u1","resourceVersion":"6"}}`
			})
			fc := &foreign.Cluster{}
			fc.Name, fc.UID, fc.ResourceVersion, fc.Finalizers = "fc", "u1", "5", []string{api.FinalizerPeering, "other"}
			s.foreign.Wrote(fc)
			if tc.a.UID == "" {
				tc.a.UID = "u1"
			}
			if tc.a.Name = "fc"; tc.a.Kind == plan.Delete {
				fc.Finalizers = nil
			}
			if err := s.act(t.Context(), testID, []plan.Action{tc.a}); err != nil {
				t.Fatal(err)
			}
			sent := fake.Take()
			if want := min(1, len(tc.sent)); len(sent) != want || want > 0 && !strings.HasPrefix(sent[0], tc.sent) {
				t.Errorf("sent\n%q, want\n%q", sent, tc.sent)
			}
			if told := strings.Join(decisions.take(), "\n"); told != tc.told {
				t.Errorf("told %q, want %q", told, tc.told)
			}
			if tc.a.Kind == plan.Delete && s.foreign.Len() != 0 {
				t.Error("it is still in the store")
			}
		})
	}
}

// TestActionsInOrder: each action sees what the ones before it made, and none is
// done after one that failed.
func TestActionsInOrder(t *testing.T) {
	decisions := &diary{}
	version := 10
	_, s, fake := connected(t, decisions, func(r *http.Request, _ string) (int, string) {
		version++
		return http.StatusOK, fmt.Sprintf(`{"metadata":{"name":"fc","uid":"made","resourceVersion":"%d"}}`, version)
	})
	create, _ := creation(barn())
	spec := *create.Spec
	plan := []plan.Action{
		{Kind: plan.Create, Name: "fc", Spec: &spec},
		{Kind: plan.UpdateStatus, Name: "fc", Status: &discovered.Status{}},
		{Kind: plan.RecordJoined, Record: &plan.Record{}},
		{Kind: plan.Delete, Name: "fc", UID: "made", ResourceVersion: "3"},
	}
	if err := s.act(t.Context(), testID, plan); err != nil {
		t.Fatal(err)
	}
	sent := fake.Take()
	if len(sent) != 3 || !strings.Contains(sent[1], `"uid":"made"`) || !strings.Contains(sent[2], `"resourceVersion":"12"`) {
		t.Errorf("sent %q", sent)
	}

	decisions.fails = errors.New("the disk is full")
	if err := s.act(t.Context(), testID, plan); !errors.Is(err, decisions.fails) {
		t.Errorf("error %v", err)
	}
	if sent := fake.Take(); len(sent) != 2 {
		t.Errorf("after a failure it sent %q", sent)
	}
	decisions.fails = nil
	fake.Say(func(*http.Request, string) (int, string) {
		return kubetest.Failure(http.StatusConflict, metav1.StatusReasonConflict)
	})
	decisions.take()
	if err := s.act(t.Context(), testID, plan); !apierrors.IsConflict(err) || len(fake.Take()) != 1 || len(decisions.take()) != 0 {
		t.Errorf("error %v", err)
	}
}

// TestDeletionsAreNoted: whoever deletes something is known before it is gone, and
// who did not manage to is not blamed.
func TestDeletionsAreNoted(t *testing.T) {
	status := http.StatusOK
	var atDelete plan.Deleter
	var c *Controller
	c, s, _ := connected(t, &diary{}, func(r *http.Request, _ string) (int, string) {
		c.peers.with(testID, func(m *peerState) { atDelete = m.request.By })
		if status == http.StatusOK {
			return status, `{}`
		}
		return kubetest.Failure(status, metav1.StatusReasonConflict)
	})
	put := func(uid types.UID) {
		r := &api.PeeringRequest{}
		r.Name, r.UID, r.ResourceVersion = string(testID), uid, "1"
		if err := kubetest.Tell(s.requests).Replace("1", r); err != nil {
			t.Fatal(err)
		}
	}
	put("1")
	status = http.StatusConflict
	if err := s.act(t.Context(), testID, []plan.Action{{Kind: plan.DeleteRequest, UID: "1"}}); err == nil || atDelete != plan.DeletedByUs {
		t.Errorf("error %v, deleted by %v", err, atDelete)
	}
	// A person was quicker with another object of that name, and then deletes that.
	if err := kubetest.Tell(s.requests).Delete(s.requests.Get(string(testID))); err != nil {
		t.Fatal(err)
	}
	if obs := c.observe(s, testID); obs.Request != nil || obs.RequestDeleted != plan.DeletedByPerson {
		t.Errorf("deleted by %v", obs.RequestDeleted)
	}
	put("2")
	status = http.StatusOK
	if err := s.act(t.Context(), testID, []plan.Action{{Kind: plan.DeleteRequest, UID: "2"}}); err != nil {
		t.Fatal(err)
	}
	if obs := c.observe(s, testID); obs.Request != nil || obs.RequestDeleted != plan.DeletedByUs {
		t.Errorf("deleted by %v", obs.RequestDeleted)
	}
}

func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// refused is a session whose every request is refused, without a network.
func refused(t *testing.T, c *Controller, status int, reason metav1.StatusReason) *session {
	t.Helper()
	fake := kubetest.New(func(*http.Request, string) (int, string) { return kubetest.Failure(status, reason) })
	connection, err := c.link.Open(fake.Config())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kube.New(connection.Observed())
	if err != nil {
		t.Fatal(err)
	}
	return c.newSession(connection, client)
}
