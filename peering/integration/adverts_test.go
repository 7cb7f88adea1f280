package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// nodes is a peering.Sharing that makes nodes at once, and removes them once no
// pods are held there.
type nodes struct {
	mu   sync.Mutex
	use  map[peer.ClusterID]spec.NodeStatus
	pods bool
	last spec.Node
}

func (n *nodes) Provide(p spec.Node, _ peer.Target) spec.NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = p
	use := n.use[p.ID]
	switch {
	case p.Wanted && p.Offer != nil:
		use = spec.NodeStatus{Name: string(p.ID), Busy: true, Ready: p.Reachable, Reason: "ProviderReady"}
	case use.Name != "" && n.pods && !p.Gone:
		use.Ready, use.Reason, use.Message = false, "Draining", "1 pod is left."
	case use.Name != "":
		use = spec.NodeStatus{}
	}
	n.use[p.ID] = use
	return use
}

func (*nodes) Network(peer.ClusterID) spec.Network { return spec.Network{} }

func (n *nodes) Host(spec.Tenant) spec.TenantStatus { return spec.TenantStatus{} }

func (n *nodes) hold(pods bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = pods
}

// TestConsumer has people decide about what a provider offers, with kubectl and the
// command line, and end the peering while pods run there.
func TestConsumer(t *testing.T) {
	var settings atomic.Pointer[plan.SharingSettings]
	settings.Store(&plan.SharingSettings{
		Enable: true, Percentage: 100, Overcommit: 100, Hysteresis: 10, Use: true, AcceptManually: true, MaxAccepted: 10,
		KeepaliveThreshold: 3, KeepaliveRetry: time.Second, DrainTimeout: time.Hour,
	})
	t.Parallel()
	kubes := bed.New(t).AddClusters(t.Context(), bed.HostSpec{Name: "consumer", Prefix: "10.77.0.1/24"}, bed.HostSpec{Name: "provider", Prefix: "10.77.0.2/24"})
	a := newSite(t, "consumer", "aaaaaaaa-097b-4b7d-ba04-6bd2a0f9d24f", kubes[0], direct(t, kubes[0]))
	b := newSite(t, "provider", "bbbbbbbb-097b-4b7d-ba04-6bd2a0f9d24f", kubes[1], direct(t, kubes[1]))
	here := &nodes{use: map[peer.ClusterID]spec.NodeStatus{}}
	a.settings, a.sharing = func() plan.SharingSettings { return *settings.Load() }, here
	a.find(b)
	b.find(a)
	a.begin()
	b.begin()
	set := func(change func(*plan.SharingSettings)) {
		next := *settings.Load()
		change(&next)
		settings.Store(&next)
		a.SharingChanged()
	}
	// stands reports whether the offer and the direction are as they are to be.
	stands := func(status api.AdvertisementStatus, reason, by, verdict string, node bool) func() error {
		return func() error {
			adv, err := a.offer(b)
			if err != nil {
				return err
			}
			fc, err := a.foreign(b)
			if err != nil {
				return err
			}
			c := fc.Condition(api.ConditionOutgoingPeering)
			module := fc.Status.Modules.Offloading
			switch s := adv.Status; {
			case s.AdvertisementStatus != status || s.Reason != reason || (s.VnodeReference != nil) != node:
				return fmt.Errorf("the offer is %+v", s)
			case c == nil || c.Reason != verdict:
				return fmt.Errorf("it shows %+v", c)
			case module.Enabled != node || len(module.Conditions) != 1 || module.Conditions[0].Type != plan.ConditionVirtualNode:
				return fmt.Errorf("module offloading is %+v", module)
			}
			offers, err := a.Offers()
			if err != nil || len(offers) != 1 || offers[0].By != by {
				return fmt.Errorf("offers: %+v, %w", offers, err)
			}
			return nil
		}
	}
	kubectl := func(value string) {
		t.Helper()
		a.do("PATCH", advPath+"/"+string(b.id)+"/status?fieldManager=kubectl-edit", merge, `{"status":{"advertisementStatus":`+value+`}}`)
	}
	const yes, no = api.AdvertisementAccepted, api.AdvertisementRefused

	a.trusts(b, func(s *plan.Policy) { s.Connect = plan.Yes })
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	within(t, "an offer that waits", stands(api.AdvertisementPending, reason.AwaitingDecision, "", reason.AwaitingDecision, false))
	fc, err := a.foreign(b)
	if c := fc.Condition(api.ConditionOutgoingPeering); err != nil || !strings.Contains(c.Message, "liqo-agent adverts accept provider") || !strings.Contains(c.Message, "cpu 4") {
		t.Errorf("it is not said what to do: %+v, %v", c, err)
	}

	kubectl(`"Refused"`)
	within(t, "refused with kubectl", stands(no, reason.RefusedByPerson, "kubectl-edit", reason.Offered, false))
	set(func(s *plan.SharingSettings) { s.AcceptManually = false })
	looked(t, a, b)
	if err := stands(no, reason.RefusedByPerson, "kubectl-edit", reason.Offered, false)(); err != nil {
		t.Errorf("the policy undid it: %v", err)
	}
	if err := a.DecideOffer(t.Context(), b.id, true, "user alice (command line)"); err != nil {
		t.Fatal(err)
	}
	within(t, "accepted by the command line", stands(yes, reason.AcceptedByPerson, fields.ManagerIntent, reason.Joined, true))
	if adv, err := a.offer(b); err != nil || adv.Status.Message != "Accepted by user alice (command line)." {
		t.Errorf("%+v, %v", adv.Status, err)
	}

	// It outlives the agent, and costs nothing.
	set(func(s *plan.SharingSettings) { s.AcceptManually = true })
	var before map[string]string
	within(t, "calm", func() error {
		before = versions(t, a, b)
		looked(t, a, b)
		looked(t, a, b)
		if after := versions(t, a, b); fmt.Sprint(after) != fmt.Sprint(before) {
			return errors.New("still writing")
		}
		return nil
	})
	usual := untilTold(t, b, a) // it would see, and write, that the other one is down
	a.stop()
	a.begin()
	within(t, "the agent is back", func() error { _, err := a.Offers(); return err })
	usual()
	looked(t, a, b)
	looked(t, a, b)
	if after := versions(t, a, b); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("written without a change:\n%v\n%v", before, after)
	}
	if err := stands(yes, reason.AcceptedByPerson, fields.ManagerIntent, reason.Joined, true)(); err != nil {
		t.Error(err)
	}

	// Taken back, it is the policy's again.
	here.hold(true)
	kubectl("null")
	within(t, "taken back", stands(api.AdvertisementPending, reason.AwaitingDecision, "", reason.AwaitingDecision, true))
	if _, err := b.request(a); err != nil {
		t.Errorf("the peering does not stay: %v", err)
	}
	set(func(s *plan.SharingSettings) { s.AcceptManually = false })
	within(t, "accepted by policy", stands(yes, reason.Joined, "", reason.Joined, true))
	if owners := decidedBy(t, a, b); owners != "liqo-agent-advertisement" {
		t.Errorf("the decision belongs to %s", owners)
	}

	// Nothing is taken back at the provider while pods leave, whoever is restarted.
	draining := func() error {
		if _, err := b.request(a); err != nil {
			return err
		}
		back, err := b.foreign(a)
		if err != nil {
			return err
		}
		fc, err := a.foreign(b)
		if err != nil {
			return err
		}
		c := fc.Condition(api.ConditionOutgoingPeering)
		if c == nil || c.Reason != reason.Draining || !strings.Contains(c.Message, "1 pod is left.") || !back.Status.Incoming.Joined || len(fc.Finalizers) == 0 || fc.Status.Outgoing.Joined {
			return fmt.Errorf("%+v, %+v, finalizers %v", c, back.Status.Incoming, fc.Finalizers)
		}
		return nil
	}
	a.join(b, false)
	within(t, "draining", draining)
	a.stop()
	a.begin()
	within(t, "the agent is back", func() error { _, err := a.Offers(); return err })
	looked(t, a, b)
	looked(t, a, b)
	if err := draining(); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	here.hold(false)
	a.Enqueue(b.id)
	within(t, "parted", func() error { return parted(a, b) })

	// kubectl delete waits for it, too.
	a.join(b, true)
	within(t, "joined again", func() error { return joined(a, b) })
	fc, err = a.foreign(b)
	if err != nil {
		t.Fatal(err)
	}
	here.hold(true)
	a.do("DELETE", fcPath+"/"+string(b.id), jsonMIME, "")
	within(t, "deleted, and draining", draining)
	if now, err := a.foreign(b); err != nil || now.UID != fc.UID || now.DeletionTimestamp == nil {
		t.Errorf("%+v, %v", now, err)
	}
	here.hold(false)
	a.Enqueue(b.id)
	within(t, "gone", func() error {
		now, err := a.foreign(b)
		switch {
		case err != nil && !strings.Contains(err.Error(), "404"):
			return err
		case err == nil && now.UID == fc.UID:
			return errors.New("it is still there")
		}
		return b.missing(prPath + "/" + string(a.id))
	})
}

// decidedBy returns who owns the decision about b's offer at a.
func decidedBy(t *testing.T, a, b *site) string {
	t.Helper()
	adv, err := object[struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}](a, advPath+"/"+string(b.id))
	if err != nil {
		t.Fatal(err)
	}
	var owners []string
	for _, m := range adv.Metadata.ManagedFields {
		var set struct {
			Status map[string]json.RawMessage `json:"f:status"`
		}
		if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &set); err != nil {
			t.Fatal(err)
		}
		if _, owns := set.Status["f:advertisementStatus"]; owns {
			owners = append(owners, m.Manager)
		}
	}
	return strings.Join(owners, " ")
}

// TestNoMoreThanMayBe has many providers offer something at the same moment: the
// oldest are accepted, and when one of them goes the next one is.
func TestNoMoreThanMayBe(t *testing.T) {
	const most, offers = 4, 24
	k := startKube(t)
	reg, led := newRegistry(), newDecisions()
	settings := plan.SharingSettings{Use: true, MaxAccepted: most, KeepaliveThreshold: 3, KeepaliveRetry: time.Second, DrainTimeout: time.Minute}
	for n := range offers {
		p := neighbour(n)
		reg.put(p)
		led.change(p.ID, func(s *plan.Policy) { s.Pin, s.Connect = pinOf(p.ID, p.Fingerprint, "test"), plan.Yes })
	}
	startWith(t, direct(t, k), reg, led, func(c *peering.Config) {
		c.SharingSettings = func() plan.SharingSettings { return settings }
	})
	within(t, "the objects", func() error {
		all, err := list(t, k)
		if err == nil && len(all) != offers {
			err = fmt.Errorf("%d of them", len(all))
		}
		return err
	})
	var providers sync.WaitGroup
	for n := range offers {
		providers.Go(func() {
			id := string(neighbour(n).ID)
			_, err := k.Request(t.Context(), "POST", advPath, jsonMIME, []byte(fmt.Sprintf(`{"apiVersion":"sharing.liqo.io/v1alpha1","kind":"Advertisement","metadata":{"name":%q},
				"spec":{"clusterId":%q,"resourceQuota":{"hard":{"cpu":"1"}},"timestamp":"1990-01-01T00:00:00Z","timeToLive":"1990-01-01T06:00:00Z"}}`, id, id)))
			if err != nil {
				t.Errorf("offer: %v", err)
			}
		})
	}
	providers.Wait()
	count := func() (accepted []string, err error) {
		text, err := k.Request(t.Context(), "GET", advPath, "", nil)
		if err != nil {
			return nil, err
		}
		var all struct{ Items []api.Advertisement }
		if err := json.Unmarshal(text, &all); err != nil {
			return nil, err
		}
		undecided := 0
		for _, adv := range all.Items {
			switch s := adv.Status; {
			case s.AdvertisementStatus == api.AdvertisementAccepted:
				accepted = append(accepted, adv.Name)
			case s.AdvertisementStatus == api.AdvertisementRefused && s.Reason == reason.TooMany:
			default:
				undecided++
			}
		}
		if len(accepted) > most {
			t.Fatalf("%d are accepted", len(accepted))
		}
		if undecided > 0 || len(accepted) < most {
			return accepted, fmt.Errorf("%d are accepted, %d undecided", len(accepted), undecided)
		}
		return accepted, nil
	}
	var accepted []string
	within(t, "as many as may be", func() (err error) { accepted, err = count(); return err })
	request(t, k, "DELETE", advPath+"/"+accepted[0], jsonMIME, "")
	within(t, "the next one", func() error {
		now, err := count()
		if err == nil && fmt.Sprint(now) == fmt.Sprint(accepted) {
			err = errors.New("nothing changed")
		}
		return err
	})
}
