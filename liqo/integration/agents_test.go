package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/internal/bed/liqotest"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peering/reason"
)

// site is a cluster with Liqo's own controllers and the built agent, which has the account of rbac --apply --engine liqo.
type site struct {
	t     *testing.T
	k     *bed.Kube
	liqo  *bed.Liqo
	agent *bed.Process
	id    string // by which agents know it

	audited int // so many requests of the agent were looked at
}

// newSites makes two clusters with Liqo and agents, which see each other.
func newSites(t *testing.T) (barn, mill *site) {
	t.Helper()
	b := bed.New(t)
	kubes := b.AddClusters(t.Context(), bed.HostSpec{Name: "barn", Prefix: "10.77.0.1/24"}, bed.HostSpec{Name: "mill", Prefix: "10.77.0.2/24"})
	sites := []*site{{t: t, k: kubes[0]}, {t: t, k: kubes[1]}}
	errs := make([]error, len(sites))
	var group sync.WaitGroup
	for i, s := range sites {
		group.Go(func() { s.liqo, errs[i] = s.k.StartLiqo(t.Context(), s.k.Host.Name) })
	}
	group.Wait()
	must(t, errors.Join(errs...))
	for _, s := range sites {
		s.k.Host.WriteFile("/etc/liqo-agent/liqo-agent.toml", "[discovery]\ncheck_interval = \"1s\"\n[peering]\nengine = \"auto\"\n[cluster]\nnamespace = \"liqo-agent\"\n")
		s.mustCLI("rbac", "--apply", "--engine", "liqo")
		s.start()
		t.Cleanup(s.audit)
	}
	barn, mill = sites[0], sites[1]
	barn.sees(mill, "that it is there", func(control.Peer) error { return nil })
	mill.sees(barn, "that it is there", func(control.Peer) error { return nil })
	return barn, mill
}

// start starts the agent, and waits until it knows what Liqo is here.
func (s *site) start() {
	s.t.Helper()
	s.agent = s.k.Host.Start(bed.Cmd{Name: "liqo-agent", Args: []string{bed.Binary(s.t, "liqo-agent"), "run"}})
	bedtest.Within(s.t, "the agent with Liqo", func() error {
		st, err := show[control.Status](s, "status")
		if err == nil && (st.Liqo == nil || st.Liqo.ID != s.liqo.ID || st.Liqo.Version != s.liqo.Version || st.Liqo.Problem != "") {
			err = fmt.Errorf("%+v", st.Liqo)
		}
		s.id = st.Identity.ClusterID
		return err
	})
}

// audit fails the test if the agent was refused something.
func (s *site) audit() {
	events, err := s.k.Audit()
	if err != nil || len(events) == 0 {
		s.t.Errorf("%s: %d requests of the agent, %v", s.liqo.ID, len(events), err)
	}
	for _, e := range events[min(s.audited, len(events)):] {
		if e.ResponseStatus.Code == http.StatusForbidden && e.ImpersonatedUser == nil && !strings.HasSuffix(e.ResponseStatus.Message, "because it is being terminated") {
			s.t.Errorf("%s: %s %s: %s", s.liqo.ID, e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
	}
}

// restart kills the agent and starts it again.
func (s *site) restart() {
	s.t.Helper()
	must(s.t, s.agent.Kill())
	s.start()
}

func (s *site) cli(args ...string) (string, error) { return s.run(s.t.Context(), args...) }

func (s *site) run(ctx context.Context, args ...string) (string, error) {
	return s.k.Host.Run(ctx, append([]string{bed.Binary(s.t, "liqo-agent")}, args...)...)
}

func (s *site) mustCLI(args ...string) string {
	s.t.Helper()
	out, err := s.cli(args...)
	if err != nil {
		s.t.Fatalf("%s: liqo-agent %s: %v\n%s", s.liqo.ID, strings.Join(args, " "), err, out)
	}
	return out
}

// show returns what a command says for programs.
func show[T any](s *site, args ...string) (out T, err error) {
	text, err := s.cli(append(args, "-o", "json")...)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal([]byte(text), &out)
}

// sees waits until the agent shows the other cluster as wanted, which says what is missing.
func (s *site) sees(other *site, what string, wanted func(control.Peer) error) {
	s.t.Helper()
	bedtest.Within(s.t, s.liqo.ID+": "+what, func() error {
		p, err := show[control.Peer](s, "peers", "show", other.id)
		if err == nil {
			err = wanted(p)
		}
		if err != nil {
			err = fmt.Errorf("%w; %+v, %+v", err, p.Outgoing, p.Incoming)
		}
		return err
	})
}

func role(want string) func(control.Peer) error {
	return func(p control.Peer) error {
		if p.Role != want {
			return fmt.Errorf("it is %s", p.Role)
		}
		return nil
	}
}

// accept waits for a request of the other cluster, and accepts it.
func (s *site) accept(other *site) {
	s.t.Helper()
	s.sees(other, "a request", func(p control.Peer) error {
		if p.Request == nil {
			return errors.New("it has none")
		}
		return nil
	})
	s.mustCLI("peers", "accept", other.id, "--yes")
}

// peered waits until Liqo has peered the two.
func peered(consumer, provider *site) {
	consumer.t.Helper()
	consumer.sees(provider, "a provider", role("Provider"))
	provider.sees(consumer, "a consumer", role("Consumer"))
}

// none returns an error if there is something at a path.
func (s *site) none(path string) error {
	text, err := s.k.Request(s.t.Context(), http.MethodGet, path, "", nil)
	if err == nil && strings.Contains(string(text), `"uid"`) {
		err = fmt.Errorf("%s: there is %.1000s", s.liqo.ID, text)
	}
	return err
}

// byLiqoAlone returns an error if something is there with which the agents themselves share.
func byLiqoAlone(consumer, provider *site) error {
	return errors.Join(
		consumer.none("/apis/sharing.liqo.io/v1alpha1/advertisements"), consumer.none("/api/v1/nodes?labelSelector=liqo.io/type=virtual-node"),
		provider.none("/api/v1/namespaces?labelSelector=liqo.io/origin-cluster-id"),
	)
}

// nothingLeft waits until neither cluster has anything of the other one in Liqo.
func nothingLeft(sites ...*site) {
	sites[0].t.Helper()
	bedtest.Within(sites[0].t, "nothing is left", func() error {
		var errs []error
		for _, s := range sites {
			for plural, group := range kinds {
				path := group + "/" + plural
				if plural == "secrets" {
					path += "?labelSelector=liqo.io/remote-cluster-id"
				}
				errs = append(errs, s.none(path))
			}
			errs = append(errs, s.none("/api/v1/namespaces?labelSelector=liqo.io/tenant-namespace"))
		}
		return errors.Join(errs...)
	})
}

// TestAgents: strangers are peered by Liqo and by nothing else, step by step in the words of
// liqoctl, and parted from either side. An agent that is killed changes nothing of it, and nothing
// is left of it in the end.
func TestAgents(t *testing.T) {
	barn, mill := newSites(t)
	identity, tenant := path("identities", "liqo-tenant-mill", "controlplane-mill"), path("tenants", "liqo-tenant-barn", "barn")

	began := time.Now()
	connected := make(chan string, 1)
	go func() {
		out, err := barn.run(t.Context(), "peers", "connect", mill.id, "--yes", "--timeout", "5m", "--cpu", "2", "--memory", "1Gi")
		if err != nil {
			t.Errorf("%v", err)
		}
		connected <- out
	}()
	mill.accept(barn)
	accepted := time.Now()
	out := <-connected
	t.Logf("connected after %v, %v since it was accepted:\n%s", time.Since(began), time.Since(accepted), out)
	at := 0
	for _, step := range []string{
		"(remote) the PeeringRequest is accepted", "(local) Tenant namespace correctly ensured", "(remote) Nonce retrieved", "(local) Nonce is signed", "(remote) Tenant status is filled",
		"(local) Identity correctly applied on consumer cluster", "(local) Identity status is filled", "(local) ResourceSlice created",
		"(local) ResourceSlice authentication: Accepted", "(local) ResourceSlice resources: Accepted",
	} {
		next := strings.Index(out[at:], step)
		if next < 0 {
			t.Errorf("%q is not shown in its place in:\n%s", step, out)
			continue
		}
		at += next
	}
	barn.sees(mill, "a provider by Liqo", func(p control.Peer) error {
		if !strings.HasPrefix(p.Engine, "Liqo peers the two clusters.") || !p.Outgoing.Joined {
			return errors.New(p.Engine)
		}
		return nil
	})
	if o := get(t, barn.k, identity); o.Spec["authParams"].(map[string]any)["apiServer"] != "https://10.77.0.2:6443" {
		t.Errorf("the provider is not called where its agent is: %+v", o.Spec)
	}
	barn.gets("2", "1Gi")
	must(t, byLiqoAlone(barn, mill))
	bedtest.Within(t, "why the networks are not connected", func() error {
		var list struct{ Items []item }
		text, err := barn.k.Request(t.Context(), http.MethodGet, "/apis/discovery.liqo.io/v1alpha1/foreignclusters", "", nil)
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err == nil && (len(list.Items) != 1 || !strings.Contains(fmt.Sprint(list.Items[0].Status["conditions"]), "Liqo was installed without its networking.")) {
			err = fmt.Errorf("%s", text)
		}
		return err
	})

	// What is asked for may change. What a person asks for besides stays.
	slice := path("resourceslices", "liqo-tenant-mill", "mill")
	_, err := barn.k.Request(t.Context(), http.MethodPatch, slice, "application/merge-patch+json", []byte(`{"spec":{"resources":{"pods":"7"}}}`))
	must(t, err)
	barn.mustCLI("peers", "set", mill.id, "--cpu", "3")
	barn.gets("3", "1Gi")
	barn.mustCLI("peers", "set", mill.id, "--memory", "default")
	bedtest.Within(t, "a ResourceSlice without memory", func() error {
		if asked := fmt.Sprint(get(t, barn.k, slice).Spec["resources"]); asked != "map[cpu:3 pods:7]" {
			return errors.New(asked)
		}
		return nil
	})

	barn.thief()

	// Agents that are killed find what there is, and write none of it again.
	before := []*item{get(t, barn.k, identity), get(t, mill.k, tenant)}
	barn.restart()
	mill.restart()
	peered(barn, mill)
	for i, o := range []*item{get(t, barn.k, identity), get(t, mill.k, tenant)} {
		if o.ResourceVersion != before[i].ResourceVersion {
			t.Errorf("written after a restart: %+v, was %+v", o, before[i])
		}
	}
	must(t, byLiqoAlone(barn, mill))

	// The provider has another address. Nothing is deleted, and all of Liqo's parts follow.
	began = time.Now()
	const server = "https://10.77.0.22:6443"
	kubelets := "/api/v1/namespaces/liqo-tenant-mill/pods"
	kubelet := names(t, barn, kubelets)
	mill.k.Host.Link("eth0").SetAddress("10.77.0.22/24")
	must(t, mill.k.Readdress(t.Context()))
	bedtest.Within(t, "what calls the provider at its new address", func() error {
		for _, name := range []string{"controlplane-mill", "resourceslice-mill"} {
			o := get(t, barn.k, path("identities", "liqo-tenant-mill", name))
			if at := o.Spec["authParams"].(map[string]any)["apiServer"]; at != server {
				return fmt.Errorf("%s is for %v", name, at)
			}
			ref, _ := o.Status["kubeconfigSecretRef"].(map[string]any)
			secret := get(t, barn.k, path("secrets", "liqo-tenant-mill", fmt.Sprint(ref["name"])))
			if !strings.Contains(string(secret.Data["kubeconfig"]), server) {
				return fmt.Errorf("Secret %s is for another server", secret.Name)
			}
		}
		if now := names(t, barn, kubelets); now == kubelet || now == "" {
			return fmt.Errorf("the virtual kubelet is still %s", now)
		}
		return nil
	})
	t.Logf("all that calls the provider follows a new address after %v", time.Since(began))
	bedtest.Within(t, "that Liqo shows the new address", func() error { // after a check of its own
		if fc := get(t, barn.k, path("foreignclusters", "", "mill")).Status; !strings.Contains(fmt.Sprint(fc["conditions"]), "Established") || fc["apiServerUrl"] != server {
			return fmt.Errorf("Liqo sees %v", fc)
		}
		return nil
	})
	t.Logf("Liqo shows it after %v", time.Since(began))
	if o := get(t, barn.k, identity); o.UID != before[0].UID {
		t.Error("the Identity was made anew")
	}
	peered(barn, mill)

	// The consumer ends it.
	began = time.Now()
	barn.mustCLI("peers", "disconnect", mill.id)
	nothingLeft(barn, mill)
	t.Logf("nothing is left %v after the consumer disconnected", time.Since(began))

	// Both agents are killed on the way, and one more time on the way back, which the provider begins.
	barn.mustCLI("peers", "connect", mill.id, "--no-wait")
	bedtest.Within(t, "the consumer's part", func() error { return there(barn, path("secrets", "liqo-tenant-mill", "liqo-signed-nonce")) })
	barn.restart()
	bedtest.Within(t, "the provider's part", func() error { return there(mill, tenant) })
	mill.restart()
	peered(barn, mill)
	must(t, byLiqoAlone(barn, mill))
	began = time.Now()
	ended := make(chan error, 1)
	go func() {
		_, err := mill.run(t.Context(), "peers", "disconnect", barn.id, "--incoming", "--timeout", "5m")
		ended <- err
	}()
	barn.sees(mill, "that it was ended", func(p control.Peer) error {
		if p.Outgoing.Reason != reason.EndedByProvider && p.Outgoing.Reason != reason.Draining {
			return errors.New("it does not say so")
		}
		return nil
	})
	barn.restart()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	nothingLeft(barn, mill)
	t.Logf("nothing is left %v after the provider disconnected", time.Since(began))
	barn.sees(mill, "that it was ended by the provider", func(p control.Peer) error {
		if p.Outgoing.Reason != reason.EndedByProvider {
			return errors.New("it does not say so")
		}
		return nil
	})
}

// connecting are the kinds by which networks are connected, with those that Liqo makes of them.
var connecting = map[string]string{
	"configurations": networking, "gatewayservers": networking, "gatewayclients": networking, "publickeies": networking, "wggatewayservers": networking, "wggatewayclients": networking,
}

const networking = "/apis/networking.liqo.io/v1beta1"

// connects is the path of an object by which the network is connected with the one of another cluster.
func connects(plural string, other *site) string {
	return networking + "/namespaces/liqo-tenant-" + other.liqo.ID + "/" + plural + "/" + other.liqo.ID
}

// connectedTo returns an error unless all is there that connects the network of this cluster, which has the GatewayClient,
// with the one of a provider at an address. The gateways themselves are not in the bed.
func (s *site) connectedTo(provider *site, address string) error {
	var errs []error
	look := func(s *site, path string) *item {
		o := &item{}
		text, err := s.k.Request(s.t.Context(), http.MethodGet, path, "", nil)
		if err == nil {
			err = json.Unmarshal(text, o)
		}
		errs = append(errs, err)
		return o
	}
	at, _ := look(provider, connects("gatewayservers", s)).Status["endpoint"].(map[string]any)
	calls := look(s, connects("gatewayclients", provider)).Spec["endpoint"]
	if at["port"] == nil || !reflect.DeepEqual(calls, map[string]any{"addresses": []any{address}, "port": at["port"], "protocol": "UDP"}) {
		errs = append(errs, fmt.Errorf("the client calls %v, the server is at %v", calls, at))
	}
	for _, of := range []struct{ here, other *site }{{s, provider}, {provider, s}} {
		key := base64.StdEncoding.EncodeToString(look(of.other, path("secrets", "liqo-tenant-"+of.here.liqo.ID, "gw-"+of.here.liqo.ID)).Data["publicKey"])
		if have := look(of.here, connects("publickeies", of.other)).Spec["publicKey"]; have != key || key == "" {
			errs = append(errs, fmt.Errorf("%s has key %v of the other gateway, which is %s", of.here.liqo.ID, have, key))
		}
		if remote, _ := look(of.here, connects("configurations", of.other)).Status["remote"].(map[string]any); !strings.Contains(fmt.Sprint(remote), "pod:[10.42.0.0/16]") {
			errs = append(errs, fmt.Errorf("%s: Liqo has the network %v of the other cluster", of.here.liqo.ID, remote))
		}
		if fc := look(of.here, path("foreignclusters", "", of.other.liqo.ID)).Status; !strings.Contains(fmt.Sprint(fc["modules"]), "NetworkGateway") {
			errs = append(errs, fmt.Errorf("%s: Liqo sees %v", of.here.liqo.ID, fc))
		}
	}
	return errors.Join(errs...)
}

// TestNetworks: where both clusters have Liqo's networking, all is made that connects their networks, up to what the gateways do
// themselves; it follows a new address, and is taken away in the end.
func TestNetworks(t *testing.T) {
	barn, mill := newSites(t)
	for _, s := range []*site{barn, mill} {
		must(t, s.liqo.EnableNetworking(t.Context()))
	}
	connected := make(chan string, 1)
	go func() {
		out, err := barn.run(t.Context(), "peers", "connect", mill.id, "--yes", "--timeout", "5m")
		if err != nil {
			t.Errorf("%v", err)
		}
		connected <- out
	}()
	mill.accept(barn)
	accepted := time.Now()
	bedtest.Within(t, "what connects the networks", func() error { return barn.connectedTo(mill, "10.77.0.2") })
	t.Logf("all is there to connect the networks %v after it was accepted", time.Since(accepted))
	out := <-connected
	t.Logf("%s", out)
	for _, step := range []string{
		"(local) ResourceSlice resources: Accepted", "(remote) Network configuration correctly retrieved", "(local) Configuration applied successfully",
		"(remote) Gateway server correctly set up", "(local) Gateway client correctly set up", "(local) Public key correctly created",
	} {
		if !strings.Contains(out, step) {
			t.Errorf("%q is not shown in:\n%s", step, out)
		}
	}
	barn.thief()

	// Agents that are killed find what there is, and write none of it again.
	all := func() (generations []string) {
		for _, of := range []struct{ here, other *site }{{barn, mill}, {mill, barn}} {
			for _, plural := range []string{"configurations", "publickeies", map[*site]string{barn: "gatewayclients", mill: "gatewayservers"}[of.here]} {
				o := get(t, of.here.k, connects(plural, of.other))
				written := fmt.Sprint(o.Generation)
				if at, _ := o.Spec["endpoint"].(map[string]any); plural == "gatewayclients" { // a new Service of Liqo's may have another port, at any time
					written = fmt.Sprint(at["addresses"], o.Spec["mtu"])
				}
				generations = append(generations, fmt.Sprint(plural, o.UID, written))
			}
		}
		return generations
	}
	before := all()
	barn.restart()
	mill.restart()
	peered(barn, mill)
	if now := all(); !slices.Equal(now, before) {
		t.Errorf("written after a restart: %q, was %q", now, before)
	}

	// The provider has another address.
	began := time.Now()
	client := get(t, barn.k, connects("gatewayclients", mill))
	mill.k.Host.Link("eth0").SetAddress("10.77.0.22/24")
	must(t, mill.k.Readdress(t.Context()))
	bedtest.Within(t, "the gateway at its new address", func() error { return barn.connectedTo(mill, "10.77.0.22") })
	t.Logf("the GatewayClient follows after %v", time.Since(began))
	if now := get(t, barn.k, connects("gatewayclients", mill)); now.UID != client.UID {
		t.Error("the GatewayClient was made anew")
	}

	// What somebody deletes comes back, and the other cluster has its new port and key.
	_, err := mill.k.Request(t.Context(), http.MethodDelete, connects("gatewayservers", barn), "", nil)
	must(t, err)
	bedtest.Within(t, "another gateway", func() error { return barn.connectedTo(mill, "10.77.0.22") })

	// The other direction has the same connection, until neither consumes the other one.
	before = all()
	mill.mustCLI("peers", "connect", barn.id, "--yes", "--no-wait")
	barn.accept(mill)
	barn.sees(mill, "both", role("ConsumerAndProvider"))
	mill.sees(barn, "both", role("ConsumerAndProvider"))
	barn.mustCLI("peers", "disconnect", mill.id)
	peered(mill, barn)
	if now := all(); !slices.Equal(now, before) {
		t.Errorf("of both directions: %q, was %q", now, before)
	}
	must(t, errors.Join(barn.none(networking+"/gatewayservers"), mill.none(networking+"/gatewayclients"), barn.connectedTo(mill, "10.77.0.22")))

	began = time.Now()
	mill.mustCLI("peers", "disconnect", barn.id)
	nothingLeft(barn, mill)
	bedtest.Within(t, "nothing that connects networks", func() error {
		var errs []error
		for _, s := range []*site{barn, mill} {
			for plural, group := range connecting {
				errs = append(errs, s.none(group+"/"+plural))
			}
			errs = append(errs, s.none("/apis/ipam.liqo.io/v1alpha1/networks?labelSelector=liqo.io/remote-cluster-id"))
		}
		return errors.Join(errs...)
	})
	t.Logf("nothing is left %v after neither consumes the other", time.Since(began))
}

// TestRightsTakenAway: without the rights to drive Liqo, a peering ends all the same, and what it
// left is removed when they are back.
func TestRightsTakenAway(t *testing.T) {
	barn, mill := newSites(t)
	barn.mustCLI("peers", "connect", mill.id, "--yes", "--no-wait")
	mill.accept(barn)
	peered(barn, mill)
	barn.audit()
	_, err := barn.k.Request(t.Context(), http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/liqo-agent-liqo", "", nil)
	must(t, err)
	began := time.Now()
	barn.mustCLI("peers", "disconnect", mill.id, "--timeout", "5m")
	t.Logf("disconnected without the rights in %v", time.Since(began))
	if st, err := show[control.Status](barn, "status"); err != nil || st.Liqo == nil || !strings.Contains(st.Liqo.Problem, "rbac --apply --engine liqo") {
		t.Errorf("%+v, %v", st.Liqo, err)
	}
	must(t, there(barn, path("identities", "liqo-tenant-mill", "controlplane-mill")))
	barn.mustCLI("rbac", "--apply", "--engine", "liqo")
	events, err := barn.k.Audit()
	must(t, err)
	barn.audited = len(events)
	barn.mustCLI("config", "reload")
	nothingLeft(barn, mill)
	t.Logf("nothing is left %v after it was disconnected", time.Since(began))
}

// TestAdopted: a pair that liqoctl has peered is not touched until its namespaces are put into the
// agents' care. Nothing of it is made again then, and the agents part it.
func TestAdopted(t *testing.T) {
	barn, mill := newSites(t)
	liqotest.ByHand(t, barn.liqo, mill.liqo)
	node := path("virtualnodes", "liqo-tenant-mill", "mill")
	made := func() (uids, versions []string) {
		for _, of := range []struct {
			k    *bed.Kube
			path string
		}{
			{barn.k, path("identities", "liqo-tenant-mill", "controlplane-mill")}, {barn.k, path("resourceslices", "liqo-tenant-mill", "mill")},
			{barn.k, node}, {mill.k, path("tenants", "liqo-tenant-barn", "barn")},
			{barn.k, path("secrets", "liqo-tenant-mill", "liqo-signed-nonce")}, {mill.k, path("secrets", "liqo-tenant-barn", "liqo-nonce")},
		} {
			o := get(t, of.k, of.path)
			uids = append(uids, string(o.UID))
			if of.path != node { // Liqo goes on to write its status
				versions = append(versions, o.ResourceVersion)
			}
		}
		return uids, versions
	}
	before, versions := made()

	barn.mustCLI("peers", "connect", mill.id, "--yes", "--no-wait")
	mill.accept(barn)
	barn.sees(mill, "that somebody else has peered the two", func(p control.Peer) error {
		if p.Outgoing.Joined || p.Outgoing.Reason != exchange.ReasonNotOurs || !strings.Contains(p.Outgoing.Message, "kubectl label namespace liqo-tenant-mill") {
			return errors.New("it does not say so")
		}
		return nil
	})
	if _, now := made(); !slices.Equal(now, versions) {
		t.Errorf("what liqoctl has made was changed: %q, was %q", now, versions)
	}
	for _, of := range []struct{ here, other *site }{{barn, mill}, {mill, barn}} {
		_, err := of.here.k.Kubectl(t.Context(), "label", "namespace", "liqo-tenant-"+of.other.liqo.ID, "discovery.liqo.io/cluster-id="+of.other.id)
		must(t, err)
	}
	peered(barn, mill)
	if now, _ := made(); !slices.Equal(now, before) {
		t.Errorf("made again: %q, was %q", now, before)
	}
	must(t, byLiqoAlone(barn, mill))

	barn.mustCLI("peers", "disconnect", mill.id)
	bedtest.Within(t, "an end of all but the namespaces", func() error {
		var errs []error
		for _, s := range []*site{barn, mill} {
			for _, plural := range []string{"identities", "resourceslices", "virtualnodes", "tenants"} {
				errs = append(errs, s.none(kinds[plural]+"/"+plural))
			}
		}
		return errors.Join(errs...)
	})
	for _, of := range []struct{ here, other *site }{{barn, mill}, {mill, barn}} {
		must(t, there(of.here, "/api/v1/namespaces/liqo-tenant-"+of.other.liqo.ID))
	}
}

// thief tries with the agent's credential what the policy refuses, although the account has the
// rights to drive Liqo.
func (s *site) thief() {
	s.t.Helper()
	s.audit()
	const care = `"liqo.io/tenant-namespace": "true", "discovery.liqo.io/cluster-id": "x"`
	for what, body := range map[string]string{
		"make a namespace for a peer of Liqo's under another name": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "liqo-tenant-y", "labels": {"liqo.io/remote-cluster-id": "x", ` + care + `}}}`,
		"make one with a label that means something to others":     `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "liqo-tenant-x", "labels": {"liqo.io/remote-cluster-id": "x", "liqo.io/tokens": "true", ` + care + `}}}`,
		"make one that is in nobody's care":                        `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "liqo-tenant-x", "labels": {"liqo.io/remote-cluster-id": "x", "liqo.io/tenant-namespace": "true"}}}`,
		"write another Secret beside those of the exchange":        `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "liqo-other", "namespace": "liqo-tenant-mill"}}`,
		"have a nonce signed outside of such a namespace":          `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "liqo-signed-nonce", "namespace": "default", "labels": {"liqo.io/signed-nonce": "true"}}}`,
		"let a consumer in without proof of its key":               `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "Tenant", "metadata": {"name": "mill", "namespace": "liqo-tenant-mill"}, "spec": {"clusterID": "mill", "authzPolicy": "TolerateNoHandshake"}}`,
		"connect the network outside of such a namespace":          `{"apiVersion": "networking.liqo.io/v1beta1", "kind": "PublicKey", "metadata": {"name": "mill", "namespace": "default", "labels": {"discovery.liqo.io/cluster-id": "x"}}, "spec": {"publicKey": "AA=="}}`,
		"send the packets of this cluster to a gateway": `{"apiVersion": "networking.liqo.io/v1beta1", "kind": "Configuration", "metadata": {"name": "x", "namespace": "liqo-tenant-mill", "labels": {"discovery.liqo.io/cluster-id": "x"}},
			"spec": {"remote": {"cidr": {"pod": ["0.0.0.0/1"], "external": ["10.70.0.0/16"]}}}}`,
		"say what Liqo's network is here": `{"apiVersion": "networking.liqo.io/v1beta1", "kind": "Configuration", "metadata": {"name": "x", "namespace": "liqo-tenant-mill", "labels": {"discovery.liqo.io/cluster-id": "x"}},
			"spec": {"local": {"cidr": {"pod": ["10.1.0.0/16"]}}}}`,
		"have Liqo make what another template says": `{"apiVersion": "networking.liqo.io/v1beta1", "kind": "GatewayServer", "metadata": {"name": "x", "namespace": "liqo-tenant-mill", "labels": {"discovery.liqo.io/cluster-id": "x"}},
			"spec": {"endpoint": {"port": 1, "serviceType": "NodePort"}, "serverTemplateRef": {"apiVersion": "networking.liqo.io/v1beta1", "kind": "WgGatewayServerTemplate", "name": "other", "namespace": "default"}}}`,
		"have a gateway at a load balancer": `{"apiVersion": "networking.liqo.io/v1beta1", "kind": "GatewayServer", "metadata": {"name": "x", "namespace": "liqo-tenant-mill", "labels": {"discovery.liqo.io/cluster-id": "x"}},
			"spec": {"endpoint": {"port": 1, "serviceType": "LoadBalancer"}, "serverTemplateRef": {"apiVersion": "networking.liqo.io/v1beta1", "kind": "WgGatewayServerTemplate", "name": "wireguard-server", "namespace": "liqo"}}}`,
		"give a gateway the keys of another Secret": `{"apiVersion": "networking.liqo.io/v1beta1", "kind": "GatewayClient", "metadata": {"name": "x", "namespace": "liqo-tenant-mill", "labels": {"discovery.liqo.io/cluster-id": "x"}},
			"spec": {"secretRef": {"name": "x"}, "endpoint": {"addresses": ["10.0.0.1"], "port": 1, "protocol": "UDP"}, "clientTemplateRef": {"apiVersion": "networking.liqo.io/v1beta1", "kind": "WgGatewayClientTemplate", "name": "wireguard-client", "namespace": "liqo"}}}`,
		"give a gateway a key with which it ends":       `{"apiVersion": "networking.liqo.io/v1beta1", "kind": "PublicKey", "metadata": {"name": "x", "namespace": "liqo-tenant-mill", "labels": {"discovery.liqo.io/cluster-id": "x"}}, "spec": {"publicKey": "AA=="}}`,
		"make what looks like a person's":               `{"apiVersion": "networking.liqo.io/v1beta1", "kind": "PublicKey", "metadata": {"name": "x", "namespace": "liqo-tenant-mill"}, "spec": {"publicKey": "AA=="}}`,
		"let a consumer in outside of such a namespace": `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "Tenant", "metadata": {"name": "mill", "namespace": "default"}, "spec": {"clusterID": "mill"}}`,
	} {
		if _, err := s.k.Host.RunInput(s.t.Context(), body, "kubectl", "--kubeconfig", conn.AgentKubeconfig, "create", "--validate=false", "-f", "-"); err == nil || !strings.Contains(err.Error(), "denied request: ") {
			s.t.Errorf("%s: %v", what, err)
		}
	}
	const others = "liqo-tenant-zen"
	_, err := s.k.Kubectl(s.t.Context(), "create", "namespace", others)
	must(s.t, err)
	_, err = s.k.Kubectl(s.t.Context(), "label", "namespace", others, "liqo.io/tenant-namespace=true", "liqo.io/remote-cluster-id=zen")
	must(s.t, err)
	for _, label := range []string{"discovery.liqo.io/cluster-id=x", "app.kubernetes.io/managed-by=liqo-agent"} {
		if _, err := s.k.Host.Run(s.t.Context(), "kubectl", "--kubeconfig", conn.AgentKubeconfig, "label", "namespace", others, label); err == nil || !strings.Contains(err.Error(), "denied request: ") {
			s.t.Errorf("take a pair of liqoctl's: %v", err)
		}
	}
	_, err = s.k.Kubectl(s.t.Context(), "delete", "namespace", others)
	must(s.t, err)
	events, err := s.k.Audit()
	must(s.t, err)
	s.audited = len(events)
}

// gets waits until Liqo's node of the provider is of that size.
func (s *site) gets(cpu, memory string) {
	s.t.Helper()
	bedtest.Within(s.t, "a VirtualNode with cpu "+cpu+", memory "+memory, func() error {
		node := path("virtualnodes", "liqo-tenant-mill", "mill")
		if err := there(s, node); err != nil {
			return err
		}
		quota, _ := get(s.t, s.k, node).Spec["resourceQuota"].(map[string]any)
		if hard, _ := quota["hard"].(map[string]any); hard["cpu"] != cpu || hard["memory"] != memory {
			return fmt.Errorf("it has %v", quota)
		}
		return nil
	})
}

// names are those of the objects at a path that are not being deleted.
func names(t *testing.T, s *site, path string) string {
	t.Helper()
	text, err := s.k.Request(t.Context(), http.MethodGet, path, "", nil)
	must(t, err)
	var list struct{ Items []item }
	must(t, json.Unmarshal(text, &list))
	var out []string
	for _, o := range list.Items {
		if o.DeletionTimestamp == nil {
			out = append(out, o.Name)
		}
	}
	return strings.Join(out, " ")
}

// there returns an error unless there is something at a path.
func there(s *site, path string) error {
	_, err := s.k.Request(s.t.Context(), http.MethodGet, path, "", nil)
	return err
}
