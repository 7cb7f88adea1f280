package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

const testID = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")

var (
	testKey  = peer.FingerprintOf([]byte("key"))
	otherKey = peer.FingerprintOf([]byte("other key"))
	t0       = time.Unix(1_800_000_000, 0)
)

func barn() *peer.Peer {
	return &peer.Peer{
		ID: testID, Name: "barn", Namespace: "liqo", Fingerprint: testKey, Phase: peer.PhasePresent, Source: peer.LAN,
		URL: "https://192.0.2.1:6447", TTL: 2 * time.Minute, LastSeen: t0,
	}
}

func with(p *peer.Peer, change func(*peer.Peer)) *peer.Peer {
	change(p)
	return p
}

// applyTo carries out a plan on a model of the API server.
func applyTo(objects map[string]*api.ForeignCluster, plan []Action, uid func() types.UID) {
	for _, a := range plan {
		fc := objects[a.Name]
		switch {
		case a.Kind == Create && fc == nil:
			fc = &api.ForeignCluster{}
			fc.Name, fc.UID = a.Name, uid()
			fc.Spec.TrustMode = api.TrustUnknown
		case fc == nil || a.UID != "" && fc.UID != a.UID:
			panic("an action on an object that is not there")
		default:
			fc = fc.DeepCopy()
		}
		if a.Kind == Delete {
			delete(objects, a.Name)
			continue
		}
		if s := a.Spec; s != nil {
			if fc.Labels == nil {
				fc.Labels = map[string]string{}
			}
			for k, v := range s.Labels {
				fc.Labels[k] = v
			}
			identity := s.ClusterIdentity
			fc.Spec.ClusterIdentity = &identity
			fc.Spec.Namespace, fc.Spec.DiscoveryType, fc.Spec.AuthURL = s.Namespace, s.DiscoveryType, s.AuthURL
		}
		if s := a.Status; s != nil {
			fc.Status.Fingerprint, fc.Status.TTL = s.Fingerprint, s.TTL
			// A list map: what other managers own stays.
			kept := slices.DeleteFunc(slices.Clone(fc.Status.Conditions), func(c api.Condition) bool {
				return c.Type == api.ConditionReachable || c.Type == api.ConditionVerified || c.Type == api.ConditionConflict || c.Type == api.ConditionAuthURL
			})
			fc.Status.Conditions = append(kept, s.Conditions...)
		}
		objects[a.Name] = fc
	}
}

// object returns the ForeignCluster that the agent makes for p.
func made(p *peer.Peer) *api.ForeignCluster {
	objects := map[string]*api.ForeignCluster{}
	applyTo(objects, Plan(Observed{ID: p.ID, Peer: p}, t0).Actions, func() types.UID { return "uid-made" })
	return objects[string(p.ID)]
}

func changed(fc *api.ForeignCluster, change func(*api.ForeignCluster)) *api.ForeignCluster {
	fc = fc.DeepCopy()
	change(fc)
	return fc
}

func manual(name string, id peer.ClusterID) *api.ForeignCluster {
	fc := &api.ForeignCluster{}
	fc.Name, fc.UID = name, types.UID("uid-"+name)
	fc.Spec.DiscoveryType = api.DiscoveryManual
	fc.Spec.AuthURL = "https://barn.example:6447"
	if id != "" {
		fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: string(id)}
	}
	return fc
}

func TestPlan(t *testing.T) {
	join := func(fc *api.ForeignCluster) { fc.Spec.Join = true }
	phase := func(ph peer.Phase) *peer.Peer { return with(barn(), func(p *peer.Peer) { p.Phase = ph }) }
	for _, tc := range []struct {
		name string
		obs  Observed
		want string // kinds and names of the actions
	}{
		{"a new peer", Observed{Peer: barn()}, "create ID, update-status ID"},
		{"a peer that is shown", Observed{Peer: barn(), Objects: []*api.ForeignCluster{made(barn())}}, ""},
		{"seen again", Observed{Peer: with(barn(), func(p *peer.Peer) { p.LastSeen = t0.Add(time.Hour); p.Failures = 2 }), Objects: []*api.ForeignCluster{made(barn())}}, ""},
		{"only a rumour", Observed{Peer: phase(peer.PhaseUnverified), Settled: true}, ""},
		{"nothing at all", Observed{Settled: true}, ""},
		{"new address", Observed{Peer: with(barn(), func(p *peer.Peer) { p.URL = "https://192.0.2.2:6447" }), Objects: []*api.ForeignCluster{made(barn())}}, "update-spec ID"},
		{"new name", Observed{Peer: with(barn(), func(p *peer.Peer) { p.Name = "stable" }), Objects: []*api.ForeignCluster{made(barn())}}, "update-spec ID"},
		{"new namespace", Observed{Peer: with(barn(), func(p *peer.Peer) { p.Namespace = "other" }), Objects: []*api.ForeignCluster{made(barn())}}, "update-spec ID"},
		{"new source", Observed{Peer: with(barn(), func(p *peer.Peer) { p.Source = peer.WAN }), Objects: []*api.ForeignCluster{made(barn())}}, "update-spec ID"},
		{"new TTL", Observed{Peer: with(barn(), func(p *peer.Peer) { p.TTL = time.Minute }), Objects: []*api.ForeignCluster{made(barn())}}, "update-status ID"},
		{"address unknown for a moment", Observed{Peer: with(barn(), func(p *peer.Peer) { p.URL, p.Name, p.TTL = "", "", 0 }), Objects: []*api.ForeignCluster{made(barn())}}, ""},
		{"checks failed", Observed{Peer: phase(peer.PhaseUnreachable), Objects: []*api.ForeignCluster{made(barn())}}, "update-status ID"},
		{"checks failed, no object", Observed{Peer: phase(peer.PhaseUnreachable), Settled: true}, ""},
		{"checks failed, remembered address", Observed{Peer: with(phase(peer.PhaseUnreachable), func(p *peer.Peer) { p.URL = "https://192.0.2.9:1" }), Objects: []*api.ForeignCluster{made(phase(peer.PhasePresent))}}, "update-status ID"},
		{"a conflict", Observed{Peer: with(barn(), func(p *peer.Peer) { p.Conflict = &peer.Conflict{Fingerprint: otherKey, Addr: "192.0.2.7:6447"} }), Objects: []*api.ForeignCluster{made(barn())}}, "update-status ID"},
		{"lost", Observed{Peer: phase(peer.PhaseLost), Settled: true, Objects: []*api.ForeignCluster{made(barn())}}, "delete ID"},
		{"lost, joined", Observed{Peer: phase(peer.PhaseLost), Settled: true, Objects: []*api.ForeignCluster{changed(made(barn()), join)}}, "update-status ID"},
		{"lost, not settled", Observed{Peer: phase(peer.PhaseLost), Objects: []*api.ForeignCluster{made(barn())}}, "delete ID"},
		{"unknown after a restart", Observed{Objects: []*api.ForeignCluster{made(barn())}}, ""},
		{"seen again after a restart, not verified", Observed{Peer: phase(peer.PhaseUnverified), Settled: true, Objects: []*api.ForeignCluster{made(barn())}}, ""},
		{"unknown, settled", Observed{Settled: true, Objects: []*api.ForeignCluster{made(barn())}}, "delete ID"},
		{"unknown, settled, joined", Observed{Settled: true, Objects: []*api.ForeignCluster{changed(made(barn()), join)}}, "update-status ID"},
		{"being deleted", Observed{Peer: barn(), Objects: []*api.ForeignCluster{changed(made(barn()), func(fc *api.ForeignCluster) { fc.DeletionTimestamp = &metav1.Time{} })}}, ""},
		{"spec edited by hand", Observed{Peer: barn(), Objects: []*api.ForeignCluster{changed(made(barn()), func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "https://wrong:1" })}}, "update-spec ID"},
		{"made Manual by hand", Observed{Peer: barn(), Objects: []*api.ForeignCluster{changed(made(barn()), func(fc *api.ForeignCluster) { fc.Spec.DiscoveryType = api.DiscoveryManual })}}, "update-spec ID"},
		{"joined by hand", Observed{Peer: barn(), Objects: []*api.ForeignCluster{changed(made(barn()), join)}}, ""},
		{"trusted and labelled by hand", Observed{Peer: barn(), Objects: []*api.ForeignCluster{changed(made(barn()), func(fc *api.ForeignCluster) {
			fc.Spec.TrustMode, fc.Labels["mine"], fc.Annotations = api.TrustTrusted, "x", map[string]string{"a": "b"}
		})}}, ""},
		{"taken over", Observed{Peer: barn(), Objects: []*api.ForeignCluster{changed(made(barn()), func(fc *api.ForeignCluster) {
			delete(fc.Labels, api.LabelManagedBy)
			fc.Spec.AuthURL = "https://mine:1"
		})}}, ""},
		{"taken over, lost", Observed{Peer: phase(peer.PhaseLost), Settled: true, Objects: []*api.ForeignCluster{changed(made(barn()), func(fc *api.ForeignCluster) {
			delete(fc.Labels, api.LabelDiscoveryType)
		})}}, "update-status ID"},
		{"manual object for the peer", Observed{Peer: barn(), Objects: []*api.ForeignCluster{manual("my-barn", testID)}}, "update-status my-barn"},
		{"manual object, lost", Observed{Peer: phase(peer.PhaseLost), Settled: true, Objects: []*api.ForeignCluster{manual("my-barn", testID)}}, "update-status my-barn"},
		{"manual object, never seen", Observed{Settled: true, Objects: []*api.ForeignCluster{manual("my-barn", testID)}}, ""},
		{"manual object beside ours", Observed{Peer: barn(), Objects: []*api.ForeignCluster{made(barn()), manual("my-barn", testID)}}, "update-status my-barn, delete ID"},
		{"manual object beside ours, joined", Observed{Peer: barn(), Objects: []*api.ForeignCluster{changed(made(barn()), join), manual("my-barn", testID)}}, "update-status my-barn"},
		{"manual object that is being deleted", Observed{Peer: barn(), Objects: []*api.ForeignCluster{changed(manual("my-barn", testID), func(fc *api.ForeignCluster) { fc.DeletionTimestamp = &metav1.Time{} })}}, "create ID, update-status ID"},
		{"manual object of another cluster under the name", Observed{Peer: barn(), Objects: []*api.ForeignCluster{manual(string(testID), "someone-else")}}, ""},
		{"manual object of no cluster under the name", Observed{Peer: barn(), Objects: []*api.ForeignCluster{manual(string(testID), "")}}, ""},
		{"a copy of our object under another name", Observed{Peer: phase(peer.PhaseLost), Settled: true, Objects: []*api.ForeignCluster{changed(made(barn()), func(fc *api.ForeignCluster) { fc.Name = "copy" })}}, "update-status copy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.obs.ID = testID
			var got []string
			for _, a := range Plan(tc.obs, t0.Add(time.Hour)).Actions {
				got = append(got, string(a.Kind)+" "+strings.ReplaceAll(a.Name, string(testID), "ID"))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBlocked(t *testing.T) {
	deleting := changed(manual(string(testID), "other"), func(fc *api.ForeignCluster) { fc.DeletionTimestamp = &metav1.Time{} })
	for _, tc := range []struct {
		name string
		obs  Observed
		want bool
	}{
		{"free", Observed{Peer: barn()}, false},
		{"ours", Observed{Peer: barn(), Objects: []*api.ForeignCluster{made(barn())}}, false},
		{"of another cluster", Observed{Peer: barn(), Objects: []*api.ForeignCluster{manual(string(testID), "other")}}, true},
		{"of another cluster, folded", Observed{Peer: barn(), Objects: []*api.ForeignCluster{manual(string(testID), "other"), manual("mine", testID)}}, false},
		{"of another cluster, nobody there", Observed{Objects: []*api.ForeignCluster{manual(string(testID), "other")}}, false},
		{"about to be free", Observed{Peer: barn(), Objects: []*api.ForeignCluster{deleting}}, false},
	} {
		tc.obs.ID = testID
		if got := tc.obs.NameBlocked(); got != tc.want {
			t.Errorf("%s: blocked = %v", tc.name, got)
		}
	}
}

func TestConditionsMoveOnlyOnChange(t *testing.T) {
	fc := made(barn())
	objects := map[string]*api.ForeignCluster{fc.Name: fc}
	step := func(p *peer.Peer, now time.Time) []Action {
		plan := Plan(Observed{ID: testID, Peer: p, Settled: true, Objects: []*api.ForeignCluster{objects[fc.Name]}}, now).Actions
		applyTo(objects, plan, nil)
		return plan
	}
	failing := func(reason string) *peer.Peer {
		return with(barn(), func(p *peer.Peer) { p.Phase, p.Reason = peer.PhaseUnreachable, reason })
	}
	at := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Hour) }
	expect := func(condition string, status api.ConditionStatus, since time.Time, text string) {
		t.Helper()
		c := objects[fc.Name].Condition(condition)
		if c == nil || c.Status != status || !c.LastTransitionTime.Time.Equal(since) || !strings.Contains(c.Message, text) {
			t.Fatalf("condition %s = %+v, want %s since %v with %q", condition, c, status, since, text)
		}
	}
	expect(api.ConditionReachable, api.ConditionTrue, t0, "answers")
	step(failing("i/o timeout"), at(1))
	expect(api.ConditionReachable, api.ConditionFalse, at(1), "i/o timeout")
	expect(api.ConditionVerified, api.ConditionTrue, t0, "")
	if plan := step(failing("no route to host"), at(2)); len(plan) != 0 {
		t.Errorf("another wording of the same failure is written: %+v", plan)
	}
	step(barn(), at(3))
	expect(api.ConditionReachable, api.ConditionTrue, at(3), "answers")

	conflict := func(key peer.Fingerprint, addr string) *peer.Peer {
		return with(barn(), func(p *peer.Peer) { p.Conflict = &peer.Conflict{Fingerprint: key, Addr: addr} })
	}
	step(conflict(otherKey, "192.0.2.7:1"), at(4))
	expect(api.ConditionConflict, api.ConditionTrue, at(4), otherKey.String())
	if plan := step(conflict(otherKey, "192.0.2.8:1"), at(5)); len(plan) != 0 {
		t.Errorf("another address of the same impostor is written: %+v", plan)
	}
	third := peer.FingerprintOf([]byte("third"))
	step(conflict(third, "192.0.2.8:1"), at(6))
	expect(api.ConditionConflict, api.ConditionTrue, at(4), third.String())
	step(barn(), at(7))
	if c := objects[fc.Name].Condition(api.ConditionConflict); c != nil {
		t.Errorf("the conflict is over and still shown: %+v", c)
	}
}

// TestPlanProperties drives the planner through random histories of a peer, of
// users and of the API server, and checks after each step what must always hold.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objects := map[string]*api.ForeignCluster{}
		uids := 0
		uid := func() types.UID { uids++; return types.UID(strings.Repeat("u", uids)) }
		var p *peer.Peer
		settled := false
		now := t0
		edit := func(change func(*api.ForeignCluster)) {
			for name, fc := range objects {
				objects[name] = changed(fc, change)
			}
		}
		pick := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
			switch pick("event", "peer", "phase", "forgotten", "settled", "user-delete", "user-join", "user-edit", "user-label", "manual", "manual-gone", "take-over", "conflict") {
			case "peer":
				p = with(barn(), func(p *peer.Peer) {
					p.Name, p.URL = pick("name", "", "barn", "stable"), pick("url", "", "https://a:1", "https://b:1")
					p.Namespace = pick("namespace", "", "liqo", "other")
					p.Source = peer.Source(pick("source", "", "LAN", "WAN", "Manual"))
					p.TTL = time.Duration(rapid.IntRange(0, 3).Draw(t, "ttl")) * time.Minute
				})
			case "phase":
				if p != nil {
					clone := p.Clone()
					clone.Phase = peer.Phase(pick("phase", "Unverified", "Present", "Unreachable", "Lost"))
					clone.Reason = pick("reason", "", "timeout", "refused")
					p = &clone
				}
			case "conflict":
				if p != nil {
					clone := p.Clone()
					clone.Conflict = nil
					if rapid.Bool().Draw(t, "present") {
						clone.Conflict = &peer.Conflict{Fingerprint: otherKey, Addr: pick("addr", "x:1", "y:1")}
					}
					p = &clone
				}
			case "forgotten":
				p = nil
			case "settled":
				settled = true
			case "user-delete":
				delete(objects, string(testID))
			case "user-join":
				join := rapid.Bool().Draw(t, "join")
				edit(func(fc *api.ForeignCluster) { fc.Spec.Join = join })
			case "user-edit":
				edit(func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "https://edited:1" })
			case "user-label":
				edit(func(fc *api.ForeignCluster) {
					if fc.Labels == nil {
						fc.Labels = map[string]string{}
					}
					fc.Labels["user"] = "was here"
				})
			case "manual":
				objects["my-barn"] = manual("my-barn", testID)
			case "manual-gone":
				delete(objects, "my-barn")
			case "take-over":
				edit(func(fc *api.ForeignCluster) { delete(fc.Labels, api.LabelManagedBy) })
			}

			before := map[string]*api.ForeignCluster{}
			for name, fc := range objects {
				before[name] = fc.DeepCopy()
			}
			observe := func() Observed {
				obs := Observed{ID: testID, Settled: settled}
				if p != nil {
					clone := p.Clone()
					obs.Peer = &clone
				}
				for _, fc := range objects {
					obs.Objects = append(obs.Objects, fc)
				}
				return obs
			}
			obs := observe()
			plan := Plan(obs, now).Actions
			if diff := cmp.Diff(observe(), obs, cmp.Transformer("set", func(l []*api.ForeignCluster) map[string]*api.ForeignCluster {
				m := map[string]*api.ForeignCluster{}
				for _, fc := range l {
					m[fc.Name] = fc
				}
				return m
			})); diff != "" {
				t.Fatalf("the plan changed what it looked at:\n%s", diff)
			}
			for _, a := range plan {
				if a.Kind == Delete {
					fc := before[a.Name]
					replaced := before["my-barn"] != nil
					if fc == nil || fc.Spec.Join || !fc.CreatedByAgent() || a.UID == "" {
						t.Fatalf("deletes %+v", fc)
					}
					if !replaced && (p == nil && !settled || p != nil && p.Phase != peer.PhaseLost) {
						t.Fatalf("deletes without knowing that the peer is gone: settled %v, peer %+v", settled, p)
					}
				}
			}
			applyTo(objects, plan, uid)
			for name, fc := range objects {
				old := before[name]
				if old == nil {
					if fc.Spec.Join {
						t.Fatal("creates a joined object")
					}
					continue
				}
				if old.Spec.Join != fc.Spec.Join || old.Spec.TrustMode != fc.Spec.TrustMode || old.Labels["user"] != fc.Labels["user"] {
					t.Fatalf("touches what is the user's:\n%s", cmp.Diff(old, fc))
				}
				if !old.CreatedByAgent() && cmp.Diff(old.Spec, fc.Spec)+cmp.Diff(old.Labels, fc.Labels) != "" {
					t.Fatalf("touches somebody else's spec:\n%s", cmp.Diff(old, fc))
				}
				if cmp.Diff(old, fc) == "" && slices.ContainsFunc(plan, func(a Action) bool { return a.Name == name }) {
					t.Fatalf("writes without a change: %+v", plan)
				}
			}
			if p != nil && p.Phase == peer.PhasePresent && len(objects) == 0 {
				t.Fatal("a present peer has no ForeignCluster")
			}
			if again := Plan(observe(), now.Add(time.Hour)).Actions; len(again) != 0 {
				t.Fatalf("the plan is not empty after it was applied: %+v", again)
			}
		}
	})
}
