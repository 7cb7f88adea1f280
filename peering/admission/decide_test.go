package admission

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

const barn = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"

// asked is a request of barn's, changed by each of changes.
func asked(changes ...func(*api.PeeringRequest)) *api.PeeringRequest {
	r := &api.PeeringRequest{Spec: api.PeeringRequestSpec{
		ClusterIdentity: api.ClusterIdentity{ClusterID: barn, ClusterName: "barn"}, Namespace: "liqo", AuthURL: "https://10.0.0.2:6447",
	}}
	r.Name = barn
	for _, change := range changes {
		change(r)
	}
	return r
}

func moved(r *api.PeeringRequest)     { r.Spec.AuthURL = "https://10.0.0.3:6447" }
func finalized(r *api.PeeringRequest) { r.Finalizers = []string{"example.com/hold"} }
func owned(r *api.PeeringRequest) {
	r.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n", Controller: new(bool)}}
}

func labelled(key string) func(*api.PeeringRequest) {
	return func(r *api.PeeringRequest) { r.Labels = map[string]string{key: "x"} }
}

func annotated(key string) func(*api.PeeringRequest) {
	return func(r *api.PeeringRequest) { r.Annotations = map[string]string{key: "x"} }
}

func named(name string) func(*api.PeeringRequest) {
	return func(r *api.PeeringRequest) { r.Name = name }
}

func withID(id string) func(*api.PeeringRequest) {
	return func(r *api.PeeringRequest) { r.Spec.ClusterIdentity.ClusterID = id }
}

func TestDecide(t *testing.T) {
	byPeer := func(op string, now, old *api.PeeringRequest) Question {
		return Question{Operation: op, User: api.PeerUserPrefix("liqo") + barn, Groups: []string{api.PeerGroup, "system:authenticated"}, Name: now.Name, Request: now, Old: old}
	}
	byAdmin := func(op string, now, old *api.PeeringRequest) Question {
		q := byPeer(op, now, old)
		q.User, q.Groups = "system:admin", []string{"system:masters", "system:authenticated"}
		return q
	}
	as := func(q Question, user string, groups ...string) Question {
		q.User, q.Groups = user, groups
		return q
	}
	var (
		in       = Policy{Pinned: true, Accept: api.RequestAccepted}
		held     = Policy{Pinned: true, Accept: api.RequestPending}
		rejected = Policy{Pinned: true, Accept: api.RequestRefused, Message: "Anna rejected it."}
		never    = Policy{Pinned: true, Never: true, Accept: api.RequestRefused}
		blocked  = Policy{Pinned: true, Blocked: true, Accept: api.RequestRefused}
		unknown  = Policy{Accept: api.RequestAccepted}
	)
	for _, tc := range []struct {
		name    string
		q       Question
		s       Policy
		cause   Cause  // "" = allowed
		message string // in the message, or in the warning
	}{
		// What is decided about the cluster.
		{"peer, let in", byPeer("CREATE", asked(), nil), in, "", ""},
		{"peer, held", byPeer("CREATE", asked(), nil), held, "", "the request waits for a person: `liqo-agent peers accept " + barn + "` on the provider lets it in"},
		{"peer, nothing said", byPeer("CREATE", asked(), nil), Policy{Pinned: true}, "", "waits for a person"},
		{"peer, rejected by a person", byPeer("CREATE", asked(), nil), rejected, "", "the request is stored as refused: Anna rejected it."},
		{"peer, rejected without a word", byPeer("CREATE", asked(), nil), Policy{Pinned: true, Accept: api.RequestRefused}, "", "refused: `liqo-agent peers accept " + barn + "` on the provider lets it in"},
		{"peer, held, told why", byPeer("CREATE", asked(), nil), Policy{Pinned: true, Message: "Ask Anna."}, "", "the request waits for a person: Ask Anna."},
		{"peer, never", byPeer("CREATE", asked(), nil), never, CauseNever, `does not let cluster ` + barn + ` in: its configuration has trust.accept = "none"`},
		{"peer, never, told why", byPeer("CREATE", asked(), nil), Policy{Pinned: true, Never: true, Message: "Nobody is let in."}, CauseNever, `in: Nobody is let in.`},
		{"peer, blocked", byPeer("CREATE", asked(), nil), blocked, CauseBlocked, "`liqo-agent peers unblock " + barn + "`"},
		{"peer, blocked and unknown", byPeer("CREATE", asked(), nil), Policy{Blocked: true}, CauseBlocked, "has blocked cluster"},
		{"peer, unknown key", byPeer("CREATE", asked(), nil), unknown, CauseNotTrusted, "`liqo-agent peers accept " + barn + "`"},
		{"peer moves", byPeer("UPDATE", asked(moved), asked()), in, "", ""},
		{"peer moves, held", byPeer("UPDATE", asked(moved), asked()), held, "", "waits"},
		{"peer moves, blocked", byPeer("UPDATE", asked(moved), asked()), blocked, CauseBlocked, ""},
		{"peer changes nothing, blocked", byPeer("UPDATE", asked(), asked()), blocked, CauseBlocked, ""},
		{"peer changes nothing, unknown", byPeer("UPDATE", asked(), asked()), unknown, CauseNotTrusted, ""},
		{"peer changes nothing, never", byPeer("UPDATE", asked(), asked()), never, CauseNever, ""},
		{"admin, let in", byAdmin("CREATE", asked(), nil), in, "", ""},
		{"admin, held", byAdmin("CREATE", asked(), nil), held, "", "waits"},
		{"admin, unknown key", byAdmin("CREATE", asked(), nil), unknown, CauseNotTrusted, "trusts no key"},
		{"admin, blocked", byAdmin("CREATE", asked(), nil), blocked, CauseBlocked, ""},
		{"admin, never", byAdmin("CREATE", asked(), nil), never, CauseNever, ""},
		{"admin changes it, unknown key", byAdmin("UPDATE", asked(moved), asked()), unknown, CauseNotTrusted, ""},
		{"admin changes it, blocked", byAdmin("UPDATE", asked(moved), asked()), blocked, CauseBlocked, ""},

		// Metadata is anybody's but the peer's.
		{"admin labels, unknown key", byAdmin("UPDATE", asked(labelled("liqo.io/x")), asked()), unknown, "", ""},
		{"admin finalizes, blocked", byAdmin("UPDATE", asked(finalized), asked()), blocked, "", ""},
		{"finalizer comes off, blocked", byAdmin("UPDATE", asked(), asked(finalized)), blocked, "", ""},
		{"admin creates with finalizer", byAdmin("CREATE", asked(finalized, owned, labelled("liqo.io/x")), nil), in, "", ""},
		{"peer finalizes", byPeer("CREATE", asked(finalized), nil), in, CauseBadMetadata, "finalizers"},
		{"peer finalizes later", byPeer("UPDATE", asked(finalized), asked()), in, CauseBadMetadata, "finalizers"},
		{"peer takes a finalizer off", byPeer("UPDATE", asked(), asked(finalized)), in, CauseBadMetadata, "finalizers"},
		{"peer leaves a finalizer", byPeer("UPDATE", asked(finalized, moved), asked(finalized)), in, "", ""},
		{"peer sets an owner", byPeer("CREATE", asked(owned), nil), in, CauseBadMetadata, "owner references"},
		{"peer removes an owner", byPeer("UPDATE", asked(), asked(owned)), in, CauseBadMetadata, "owner references"},
		{"peer leaves an owner", byPeer("UPDATE", asked(owned), asked(owned)), in, "", ""},
		{"peer labels as agent", byPeer("CREATE", asked(labelled("app.kubernetes.io/managed-by")), nil), in, CauseBadMetadata, `"app.kubernetes.io/managed-by"`},
		{"peer labels for liqo", byPeer("CREATE", asked(labelled("liqo.io/type")), nil), in, CauseBadMetadata, `"liqo.io/type"`},
		{"peer annotates for kubectl", byPeer("CREATE", asked(annotated("kubectl.kubernetes.io/last-applied-configuration")), nil), in, CauseBadMetadata, ""},
		{"peer annotates for k8s", byPeer("CREATE", asked(annotated("x.k8s.io/y")), nil), in, CauseBadMetadata, ""},
		{"peer removes a label", byPeer("UPDATE", asked(), asked(labelled("discovery.liqo.io/x"))), in, CauseBadMetadata, ""},
		{"peer leaves a label", byPeer("UPDATE", asked(moved, labelled("liqo.io/x")), asked(labelled("liqo.io/x"))), in, "", ""},
		{"label of a mutating webhook", byPeer("CREATE", asked(labelled("policies.kyverno.io/x"), annotated("note")), nil), in, "", ""},
		{"similar domains", byPeer("CREATE", asked(labelled("myliqo.io/x"), annotated("liqo.io.example.com/x")), nil), in, "", ""},

		// Who is who.
		{"other peer's name", as(byPeer("CREATE", asked(), nil), api.PeerUserPrefix("liqo")+"mallory", api.PeerGroup), in, CauseOtherName, "cluster mallory may write"},
		{"other peer's name, no group", as(byPeer("CREATE", asked(), nil), api.PeerUserPrefix("liqo")+"mallory"), in, CauseOtherName, ""},
		{"own name, other's ID", byPeer("CREATE", asked(withID("other")), nil), in, CauseOtherID, `has the spec.clusterIdentity.clusterID "other"`},
		{"own name, no ID", byPeer("CREATE", asked(withID("")), nil), in, CauseOtherID, ""},
		{"other name, own ID", byPeer("CREATE", asked(named("other")), nil), in, CauseOtherName, ""},
		{"admin, other's ID", byAdmin("CREATE", asked(withID("other")), nil), in, CauseOtherID, ""},
		{"admin changes the ID", byAdmin("UPDATE", asked(withID("other")), asked()), in, CauseOtherID, ""},
		{"peer changes the ID", byPeer("UPDATE", asked(withID("other")), asked()), in, CauseOtherID, ""},
		{"peer without an ID", as(byPeer("CREATE", asked(), nil), api.PeerUserPrefix("liqo"), api.PeerGroup), in, CauseBadUser, "is no peer"},
		{"peer with a bad ID", as(byPeer("CREATE", asked(), nil), api.PeerUserPrefix("liqo")+"a/b", api.PeerGroup), in, CauseBadUser, ""},
		{"only the group", as(byPeer("CREATE", asked(), nil), "someone", "x", api.PeerGroup), in, CauseBadUser, ""},
		{"only the group, no change", as(byPeer("UPDATE", asked(), asked()), "someone", api.PeerGroup), in, CauseBadUser, ""},
		{"name for terminals", byPeer("CREATE", asked(func(r *api.PeeringRequest) { r.Spec.ClusterIdentity.ClusterName = "a\x1b[2J" }), nil), in, CauseBadSpec, "clusterName"},

		// Questions without an answer.
		{"no object", Question{Operation: "CREATE", Name: barn}, in, CauseBadReview, "without being shown"},
		{"no old object", byPeer("UPDATE", asked(), nil), in, CauseBadReview, "what was there before"},
		{"old object at creation", byPeer("CREATE", asked(), asked()), in, CauseBadReview, "there already"},
		{"no name", byPeer("CREATE", asked(named("")), nil), in, CauseBadReview, "needs a name"},
		{"renamed", byPeer("UPDATE", asked(), asked(named("other"))), in, CauseBadReview, ""},
		{"CONNECT", byPeer("CONNECT", asked(), nil), in, CauseBadReview, `"CONNECT"`},
		{"no operation", byPeer("", asked(), nil), in, CauseBadReview, ""},
		{"DELETE is not ours to refuse", Question{Operation: "DELETE", Name: barn, Old: asked()}, blocked, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := Decide(tc.q, tc.s)
			if v.Allowed != (tc.cause == "") || v.Cause != tc.cause {
				t.Fatalf("%+v", v)
			}
			if v.Allowed {
				if got := strings.Join(v.Warnings, "\n"); !strings.Contains(got, tc.message) || tc.message == "" && got != "" {
					t.Errorf("warnings %q", got)
				}
				return
			}
			if v.Code < 400 || v.Reason == "" || v.Message == "" || !strings.Contains(v.Message, tc.message) || v.Warnings != nil {
				t.Errorf("%+v", v)
			}
			if want := map[Cause]int32{CauseBadReview: http.StatusBadRequest, CauseOtherID: http.StatusUnprocessableEntity}[tc.cause]; want != 0 && v.Code != want || want == 0 && v.Code != http.StatusForbidden {
				t.Errorf("code %d", v.Code)
			}
		})
	}
}

// TestDecideNeverLetsIn: whatever is asked, what is stored is a trusted, unblocked
// cluster's own request, and a peer's is its own.
func TestDecideNeverLetsIn(t *testing.T) {
	ids := []string{barn, "other", "", "a/b"}
	request := func(t *rapid.T, label string) *api.PeeringRequest {
		if rapid.Bool().Draw(t, label+" is nil") {
			return nil
		}
		r := asked(named(rapid.SampledFrom(ids).Draw(t, label+" name")), withID(rapid.SampledFrom(ids).Draw(t, label+" ID")))
		if rapid.Bool().Draw(t, label+" finalized") {
			finalized(r)
		}
		if rapid.Bool().Draw(t, label+" labelled") {
			labelled("liqo.io/x")(r)
		}
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		q := Question{
			Operation: rapid.SampledFrom([]string{"CREATE", "UPDATE", "CONNECT", ""}).Draw(t, "operation"),
			User:      rapid.SampledFrom([]string{api.PeerUserPrefix("liqo") + barn, api.PeerUserPrefix("liqo") + "other", api.PeerUserPrefix("liqo"), "admin", ""}).Draw(t, "user"),
			Groups:    rapid.SampledFrom([][]string{nil, {api.PeerGroup}, {"x", api.PeerGroup}}).Draw(t, "groups"),
			Name:      rapid.SampledFrom(ids).Draw(t, "name"),
			Request:   request(t, "request"), Old: request(t, "old"),
		}
		s := Policy{
			Pinned: rapid.Bool().Draw(t, "pinned"), Blocked: rapid.Bool().Draw(t, "blocked"), Never: rapid.Bool().Draw(t, "never"),
			Accept:  rapid.SampledFrom([]api.RequestPhase{"", api.RequestAccepted, api.RequestPending, api.RequestRefused}).Draw(t, "accept"),
			Message: rapid.String().Draw(t, "message"),
		}
		v := Decide(q, s)
		for _, w := range v.Warnings {
			if n := utf8.RuneCountInString(w); n > maxWarning || n == 0 {
				t.Fatalf("a warning of %d characters: %s", n, w)
			}
		}
		if !v.Allowed {
			if v.Code < 400 || v.Cause == "" || v.Reason == "" || v.Message == "" {
				t.Fatalf("a refusal without a reason: %+v", v)
			}
			return
		}
		fromPeer := strings.HasPrefix(q.User, api.PeerUserPrefix("liqo")) || len(q.Groups) > 0
		if q.Request == nil || q.Name != q.Request.Name {
			t.Fatalf("let in without a name: %+v", q)
		}
		untouched := q.Old != nil && q.Old.Spec == q.Request.Spec
		if (fromPeer || !untouched) && (!s.Pinned || s.Blocked || s.Never || q.Request.ClusterID() != q.Name) {
			t.Fatalf("let in: %+v %+v", q, s)
		}
		if fromPeer && (q.User != api.PeerUserPrefix("liqo")+q.Name || q.Old == nil && (len(q.Request.Finalizers) > 0 || len(q.Request.Labels) > 0)) {
			t.Fatalf("let a peer in: %+v", q)
		}
	})
}

// maxWarning is how long a warning may be before API servers cut it off.
const maxWarning = 256

func TestWarningsAreShort(t *testing.T) {
	id := strings.Repeat("a", peer.MaxClusterIDLength)
	for _, accept := range []api.RequestPhase{api.RequestPending, api.RequestRefused} {
		for _, message := range []string{"", strings.Repeat("é", 1000), strings.Repeat("x", 1000)} {
			v := decideByPolicy(id, Policy{Pinned: true, Accept: accept, Message: message})
			w := v.Warnings[0]
			if utf8.RuneCountInString(w) > maxWarning || !utf8.ValidString(w) || message == "" && !strings.Contains(w, fmt.Sprintf("`liqo-agent peers accept %s`", id)) {
				t.Errorf("%d: %q", utf8.RuneCountInString(w), w)
			}
		}
	}
}
