//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
)

const (
	prPath     = "/apis/discovery.liqo.io/v1alpha1/peeringrequests"
	advPath    = "/apis/sharing.liqo.io/v1alpha1/advertisements"
	secretPath = "/api/v1/namespaces/liqo/secrets"
	rolePath   = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
)

// pair is two boxes with API servers and agents that see each other: the
// consumer A and the provider B of most tests.
type pair struct {
	bed      *bed.Bed
	a, b     *box
	aID, bID string
}

// newPair starts two boxes and waits until each has a ForeignCluster of the
// other.
func newPair(t *testing.T, more string) *pair { return newPairOf(t, more, nil, nil) }

// newPairOf is newPair with these ranges of pods, nil for those of K3s without options.
func newPairOf(t *testing.T, more string, ofA, ofB bed.Ranges) *pair {
	t.Helper()
	b := bed.New(t)
	return meet(b, newClustersOf(t, b, bed.HostSpec{Name: "alder", Pods: ofA}, bed.HostSpec{Name: "birch", Pods: ofB}), more)
}

// meet starts the agents of two boxes, and waits until each has a ForeignCluster of the other.
func meet(b *bed.Bed, boxes []*box, more string) *pair {
	boxes[0].t.Helper()
	p := &pair{bed: b, a: boxes[0], b: boxes[1]}
	for _, x := range boxes {
		x.configure(more)
		x.start()
	}
	p.aID, p.bID = p.a.id(), p.b.id()
	p.a.awaitFC("appears", p.bID, reachable)
	p.b.awaitFC("appears", p.aID, reachable)
	return p
}

// get reads an object from a box's API server; found is false when there is
// none.
func get[T any](x *box, path string) (object T, found bool, err error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	body, err := x.kube.Request(ctx, "GET", path, "", nil)
	if err != nil {
		if strings.Contains(err.Error(), " 404 ") {
			return object, false, nil
		}
		return object, false, err
	}
	return object, true, json.Unmarshal(body, &object)
}

// full is a ForeignCluster as the API server has it.
func (x *box) full(id string) (*api.ForeignCluster, error) {
	fc, found, err := get[api.ForeignCluster](x, fcPath+"/"+id)
	if err == nil && !found {
		err = errGone
	}
	return &fc, err
}

// awaitStatus waits for a ForeignCluster that satisfies want, which says why it
// does not.
func (x *box) awaitStatus(what, id string, want func(*api.ForeignCluster) error) *api.ForeignCluster {
	x.t.Helper()
	var fc *api.ForeignCluster
	x.eventually(""+what, func() (err error) {
		if fc, err = x.full(id); err != nil {
			return err
		}
		return want(fc)
	})
	return fc
}

// condition checks a condition of a ForeignCluster.
func condition(fc *api.ForeignCluster, kind string, status api.ConditionStatus, reason string) error {
	c := fc.Condition(kind)
	switch {
	case c == nil:
		return fmt.Errorf("there is no condition %s; status %+v", kind, fc.Status)
	case c.Status != status || reason != "" && c.Reason != reason:
		return fmt.Errorf("condition %s is %s/%s: %s", kind, c.Status, c.Reason, c.Message)
	case c.Message == "":
		return fmt.Errorf("condition %s has no message", kind)
	}
	return nil
}

func outgoing(joined bool) func(*api.ForeignCluster) error {
	return func(fc *api.ForeignCluster) error {
		if fc.Status.Outgoing.Joined != joined {
			return fmt.Errorf("outgoing.joined is %v: %+v", !joined, fc.Condition(api.ConditionOutgoingPeering))
		}
		return nil
	}
}

func incoming(joined bool) func(*api.ForeignCluster) error {
	return func(fc *api.ForeignCluster) error {
		if fc.Status.Incoming.Joined != joined {
			return fmt.Errorf("incoming.joined is %v: %+v", !joined, fc.Condition(api.ConditionIncomingPeering))
		}
		return nil
	}
}

// gone waits until an object does not exist any more.
func (x *box) gone(path string) {
	x.t.Helper()
	x.eventually(""+path+" is gone", func() error {
		object, found, err := get[map[string]any](x, path)
		if found {
			return fmt.Errorf("it is there: %v", object)
		}
		return err
	})
}

// uidOf waits for an object and returns its UID.
func (x *box) uidOf(path string) string {
	x.t.Helper()
	var uid string
	x.eventually(""+path+" is there", func() error {
		object, found, err := get[struct{ Metadata struct{ UID string } }](x, path)
		if err == nil && !found {
			err = errors.New("there is none")
		}
		uid = object.Metadata.UID
		return err
	})
	return uid
}

// mustCLI runs a command of the agent's that has to work.
func (x *box) mustCLI(args ...string) string {
	x.t.Helper()
	out, err := x.cli(args...)
	if err != nil {
		x.t.Fatalf("%s: liqo-agent %s: %v\n%s", x.host.Name, strings.Join(args, " "), err, out)
	}
	return out
}

// kubectl runs kubectl on the box; it has to work.
func (x *box) kubectl(args ...string) string {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	out, err := x.kube.Kubectl(ctx, args...)
	if err != nil {
		x.t.Fatalf("%s: kubectl %s: %v\n%s", x.host.Name, strings.Join(args, " "), err, out)
	}
	return out
}

// setJoin sets spec.join as a person does with kubectl.
func (x *box) setJoin(id string, join bool) {
	x.t.Helper()
	x.kubectl("patch", "fc", id, "--type", "merge", "-p", fmt.Sprintf(`{"spec":{"join":%v}}`, join))
}

// peerJSON is a peer as `peers show -o json` shows it.
func (x *box) peerJSON(id string) control.Peer {
	x.t.Helper()
	p, err := cliJSON[control.Peer](x, "peers", "show", id)
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

// trust has both boxes trust each other, without peering them.
func (p *pair) trust() {
	p.a.t.Helper()
	p.a.mustCLI("peers", "trust", p.bID, "--yes")
	p.b.mustCLI("peers", "trust", p.aID, "--yes")
}

// join peers A with B by both people's command lines, and waits.
func (p *pair) join(options ...string) {
	p.a.t.Helper()
	p.b.mustCLI("peers", "accept", p.aID, "--yes")
	p.a.mustCLI(append([]string{"peers", "connect", p.bID, "--yes", "--timeout", soon.String()}, options...)...)
	p.a.awaitStatus("is joined", p.bID, outgoing(true))
	p.b.awaitStatus("serves", p.aID, incoming(true))
}

// objects are the UIDs of everything that a joined pair is made of.
func (p *pair) objects() map[string]string {
	p.a.t.Helper()
	return map[string]string{
		"A's ForeignCluster":  p.a.uidOf(fcPath + "/" + p.bID),
		"B's ForeignCluster":  p.b.uidOf(fcPath + "/" + p.aID),
		"the PeeringRequest":  p.b.uidOf(prPath + "/" + p.aID),
		"the Advertisement":   p.a.uidOf(advPath + "/" + p.bID),
		"A's identity Secret": p.a.uidOf(secretPath + "/liqo-peer-" + p.bID),
	}
}

// same fails the test unless every object is the one that it was.
func (p *pair) same(before map[string]string) {
	p.a.t.Helper()
	for name, uid := range p.objects() {
		if before[name] != uid {
			p.a.t.Errorf("%s is not the one that it was", name)
		}
	}
}

// works waits until the peering is established and proven in both directions of
// the wire: a change at B shows in its offer at A, which B wrote with a call to A.
func (p *pair) works() {
	p.a.t.Helper()
	p.a.awaitStatus("is joined and reachable", p.bID, func(fc *api.ForeignCluster) error {
		return errors.Join(outgoing(true)(fc), condition(fc, api.ConditionReachable, api.ConditionTrue, ""))
	})
	p.b.awaitStatus("serves and is reachable", p.aID, func(fc *api.ForeignCluster) error {
		return errors.Join(incoming(true)(fc), condition(fc, api.ConditionReachable, api.ConditionTrue, ""))
	})
	ctx, cancel := context.WithTimeout(p.a.t.Context(), soon)
	defer cancel()
	if err := p.wire(ctx); err != nil {
		p.a.t.Fatal(err)
	}
}

// wire has both objects edited behind their owners' backs: they are put right
// only if the calls of both boxes get through.
func (p *pair) wire(ctx context.Context) error {
	offerPath, requestPath := advPath+"/"+p.bID, prPath+"/"+p.aID
	// Agents that were killed may not have noticed yet that it was deleted meanwhile.
	if err := bed.Poll(ctx, func() error {
		offer, found, err := get[api.Advertisement](p.a, offerPath)
		if err == nil && (!found || offer.DeletionTimestamp != nil) {
			err = errors.New("there is no offer")
		}
		return err
	}); err != nil {
		return err
	}
	const merge = "application/merge-patch+json"
	if _, err := p.a.kube.Request(ctx, "PATCH", offerPath, merge, []byte(`{"spec":{"resourceQuota":{"hard":{"cpu":"1m"}}}}`)); err != nil {
		return err
	}
	if _, err := p.b.kube.Request(ctx, "PATCH", requestPath, merge, []byte(`{"spec":{"namespace":"elsewhere"}}`)); err != nil {
		return err
	}
	return bed.Poll(ctx, func() error {
		// What B offers may change meanwhile, with its pods and its other consumers.
		consumer, err := p.b.peer(p.aID)
		if err == nil && consumer.Sharing.Consumer == nil {
			err = errors.New("B offers nothing")
		}
		if err != nil {
			return err
		}
		offer, _, err := get[api.Advertisement](p.a, offerPath)
		if cpu := consumer.Sharing.Consumer.Promised["cpu"]; err == nil && (cpu == "" || offer.Spec.ResourceQuota.Hard["cpu"] != cpu) {
			err = fmt.Errorf("the offer is not put right: %v", offer.Spec.ResourceQuota.Hard)
		}
		request, _, err2 := get[api.PeeringRequest](p.b, requestPath)
		if err2 == nil && request.Spec.Namespace != "liqo" {
			err2 = fmt.Errorf("the request is not put right: namespace %s", request.Spec.Namespace)
		}
		return errors.Join(err, err2)
	})
}
