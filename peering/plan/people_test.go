package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// This file adds to the model of two boxes the people who write ForeignClusters of
// their own.

// The URLs that people write in the model.
const (
	urlOther  = "https://other.example:6447"
	urlSelf   = "https://self.example:6447"
	urlNobody = "https://nobody.example:6447"
)

// mine returns the objects about the other box that people wrote and do not
// delete, the oldest first.
func (s *box) mine() []*api.ForeignCluster {
	var out []*api.ForeignCluster
	for _, fc := range s.kube.FCs {
		if fc.ClusterID() == string(s.other.id) && !fc.CreatedByAgent() && fc.DeletionTimestamp == nil {
			out = append(out, fc)
		}
	}
	slices.SortFunc(out, func(a, b *api.ForeignCluster) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return out
}

// kubectlCreate writes an object with only a URL, unless there is one with that
// name.
func (s *box) kubectlCreate(name string, says ...func(fc *api.ForeignCluster, owners *fields.Owners)) {
	if s.kube.FCs[name] != nil {
		return
	}
	fc, owners := manual(name, ""), fields.Owners{}
	fc.UID, fc.CreationTimestamp = s.w.uid(), metav1.Time{Time: s.w.now}
	fc.Spec.AuthURL, fc.Spec.TrustMode = urlOther, api.TrustUnknown
	for _, say := range says {
		say(fc, &owners)
	}
	s.w.rvs++
	fc.ResourceVersion = fmt.Sprint(s.w.rvs)
	s.kube.FCs[name], s.kube.Owners[name] = fc, owners
}

func (s *box) saysJoin(join bool) func(*api.ForeignCluster, *fields.Owners) {
	return func(fc *api.ForeignCluster, owners *fields.Owners) {
		fc.Spec.Join, owners.Join = join, fields.Owner{Manager: "kubectl-create", Stamp: string(s.w.uid())}
	}
}

func (s *box) saysID() func(*api.ForeignCluster, *fields.Owners) {
	return func(fc *api.ForeignCluster, owners *fields.Owners) {
		fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: string(s.other.id), ClusterName: "my name for it"}
		owners.Identity.Name = true
	}
}

func (s *box) saysURL(url string) func(*api.ForeignCluster, *fields.Owners) {
	return func(fc *api.ForeignCluster, _ *fields.Owners) { fc.Spec.AuthURL = url }
}

// kubectlDeleteNamed deletes one object.
func (s *box) kubectlDeleteNamed(name string) {
	fc := s.kube.FCs[name]
	switch {
	case fc == nil || fc.DeletionTimestamp != nil:
	case len(fc.Finalizers) == 0:
		delete(s.kube.FCs, name)
		delete(s.kube.Owners, name)
	default:
		s.kube.FCs[name] = changed(fc, func(fc *api.ForeignCluster) { fc.DeletionTimestamp = &metav1.Time{Time: s.w.now} })
	}
}

// lookAround has the URLs in people's objects asked.
func (s *box) lookAround() {
	s.urls = map[string]discovered.Probe{}
	for name, fc := range s.kube.FCs {
		if !discovered.ProbesURL(fc, s.kube.Owners[name].Identity) {
			continue
		}
		found := discovered.Result{URL: fc.Spec.AuthURL, Reason: reason.Unreachable, Message: fmt.Sprintf("attempt %d failed", s.w.rvs)}
		switch {
		case fc.Spec.AuthURL == urlSelf:
			found = discovered.Result{URL: fc.Spec.AuthURL, ID: s.id}
		case fc.Spec.AuthURL == urlOther && s.w.link:
			found = discovered.Result{URL: fc.Spec.AuthURL, ID: s.other.id, ClusterName: "box", Namespace: "liqo", Fingerprint: s.other.key.fingerprint}
		}
		s.urls[name] = discovered.Probe{Known: true, Result: found}
	}
}

// identify looks at the objects that say nothing about who they are about, and says
// what is wrong with how that went; "" when nothing is.
func (s *box) identify() string {
	s.lookAround()
	for name := range s.kube.FCs {
		for range 2 {
			fc := s.kube.FCs[name]
			if fc.ClusterID() != "" || !discovered.ProbesURL(fc, s.kube.Owners[name].Identity) {
				break
			}
			for _, a := range PlanUnidentified(fc, s.kube.Owners[name], s.urls[name], s.id, s.w.now) {
				a.ResourceVersion = s.kube.FCs[name].ResourceVersion // that of the action before
				if !s.apply(a) {
					return fmt.Sprintf("%s %s changes nothing: %+v", a.Kind, a.Name, a)
				}
			}
		}
		if fc := s.kube.FCs[name]; fc.ClusterID() == "" && discovered.ProbesURL(fc, s.kube.Owners[name].Identity) {
			if left := PlanUnidentified(fc, s.kube.Owners[name], s.urls[name], s.id, s.w.now); len(left) != 0 {
				return fmt.Sprintf("there is another plan about %s: %v", name, kinds(left))
			}
		}
	}
	return ""
}

// wrongObjects says what is wrong with the objects of a world at rest.
func (s *box) wrongObjects() string {
	mine, own := s.mine(), s.own()
	if len(mine) > 0 && own != nil && own.CreatedByAgent() {
		return "the agent's own object is still there beside a person's"
	}
	for i, fc := range mine {
		c := fc.Condition(api.ConditionOutgoingPeering)
		if spare := c != nil && c.Reason == reason.AnotherObject; spare != (i > 0) || spare && fc.Status.Outgoing != (api.OutgoingPeering{}) {
			return fmt.Sprintf("object %d shows %+v and %+v", i, c, fc.Status.Outgoing)
		}
	}
	joinedByUs := 0
	for name, fc := range s.kube.FCs {
		if owners := s.kube.Owners[name]; fc.Spec.Join && owners.Join.Manager == fields.ManagerIntent {
			joinedByUs++
		}
		if fc.CreatedByAgent() {
			if fc.Condition(api.ConditionAuthURL) != nil {
				return "the agent's own object shows AuthURL"
			}
			continue
		}
		want := map[string]string{urlOther: reason.Answering, urlSelf: reason.ThisCluster, urlNobody: reason.Unreachable}[fc.Spec.AuthURL]
		if c := fc.Condition(api.ConditionAuthURL); c == nil || c.Reason != want || !strings.HasPrefix(c.Message, fc.Spec.AuthURL+" ") {
			return fmt.Sprintf("%s shows %+v about its URL, and not %s", name, c, want)
		}
		switch id := fc.ClusterID(); {
		case fc.Spec.AuthURL == urlOther && id == "":
			return name + " does not say which cluster it is about"
		case id == "":
			c := fc.Condition(api.ConditionOutgoingPeering)
			if fc.Spec.Join != (c != nil) || c != nil && c.Reason != reason.AwaitingContact {
				return fmt.Sprintf("%s shows %+v about its peering", name, c)
			}
			if c := fc.Condition(api.ConditionReachable); c == nil || c.Status != api.ConditionFalse || c.Reason != want {
				return fmt.Sprintf("%s shows %+v", name, c)
			}
		}
	}
	if joinedByUs > 1 {
		return "the agent joined two objects"
	}
	return ""
}

// mineName draws one of the names that people give.
func mineName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"mine", "second"}).Draw(t, "name")
}

// watch returns a function that fails the test when the peering of the first box
// was disturbed since: something of it was replaced or taken away, the other side
// was asked anew, or the decision store was told of an end.
func (w *world) watch() func(t *testing.T) {
	request, offer, asks := w.b.kube.Request.UID, w.a.kube.Advertisement.UID, w.a.asks
	a, b := w.a.book, w.b.book
	w.a.done, w.b.done = nil, nil
	return func(t *testing.T) {
		t.Helper()
		for _, s := range w.boxes() {
			for _, k := range s.done {
				if s == w.a && (k == ApplyIntent || k == RemoveFinalizer || k == Delete) {
					continue
				}
				if destructive(k) || k == SetRequestStatus || k == SetAdvertisementStatus {
					t.Errorf("%s did %s: %v", s.id[:1], k, s.done)
				}
			}
		}
		if w.b.kube.Request == nil || w.b.kube.Request.UID != request || w.a.kube.Advertisement == nil || w.a.kube.Advertisement.UID != offer {
			t.Error("request or offer was replaced")
		}
		if !w.a.joined() || !w.b.serves() || w.a.asks != asks || w.a.book.JoinedEvents != a.JoinedEvents || w.a.book.EndEvents != a.EndEvents || w.b.book.Ended != b.Ended {
			t.Errorf("the peering was disturbed\n%s\n%s", w.a, w.b)
		}
	}
}
