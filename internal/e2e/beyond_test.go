//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
)

const (
	domainPath = "/apis/discovery.liqo.io/v1alpha1/searchdomains"
	// dark is a box that multicast tells nothing and hears nothing of.
	dark = "[discovery]\nenable_discovery = false\nenable_advertisement = false\n"
	// quick has a search domain looked in often.
	quick = "min_interval = \"1s\"\nmax_interval = \"2s\"\n"
)

// fleetZone is the zone that the documentation gives as an example, with the addresses of boxes
// and a type on the second line, which BIND wants.
func fleetZone(boxes ...*box) bed.Zone {
	return bed.Zone{Name: "example.com", Dynamic: true, Text: fmt.Sprintf(`$TTL 2
example.com.                PTR   liqo-cluster.example.com.
                            PTR   liqo-cluster-2.example.com.
liqo-cluster.example.com.   SRV   0 0 6447 auth.server.example.com.
liqo-cluster-2.example.com. SRV   0 0 6447 auth.server-2.example.com.
auth.server.example.com.    A     %s
auth.server-2.example.com.  A     %s
`, boxes[0].addr, boxes[1].addr)}
}

// tryShell runs lines as a person types them, on the box, with its kubectl and API server.
func (x *box) tryShell(lines string) (string, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	out, err := x.host.Run(ctx, "bash", "-c", "export KUBECONFIG="+bed.Kubeconfig+"\n{\n"+lines+"\n} 2>&1")
	return out, err
}

// shell is tryShell for lines that have to work.
func (x *box) shell(lines string) {
	x.t.Helper()
	if out, err := x.tryShell(lines); err != nil {
		x.t.Fatalf("%s: %s\n%v\n%s", x.host.Name, lines, err, out)
	}
}

func (x *box) domain(name string) (control.Domain, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	all, err := x.asks.Domains(ctx)
	if err != nil {
		return control.Domain{}, err
	}
	for _, d := range all {
		if d.Name == name {
			return d, nil
		}
	}
	return control.Domain{}, fmt.Errorf("%s does not look in %s; it looks in %d others", x.host.Name, name, len(all))
}

// awaitDomain waits for a look at a search domain that satisfies want.
func (x *box) awaitDomain(name, what string, want func(control.Domain) bool) control.Domain {
	x.t.Helper()
	var d control.Domain
	x.eventually(fmt.Sprintf("%s: search domain %s %s", x.host.Name, name, what), func() error {
		var err error
		if d, err = x.domain(name); err == nil && !want(d) {
			err = fmt.Errorf("it is %+v", d)
		}
		return err
	})
	return d
}

// domainStatus waits for a SearchDomain whose status satisfies want.
func (x *box) domainStatus(name, what string, want func(api.SearchDomainStatus) bool) api.SearchDomain {
	x.t.Helper()
	var object api.SearchDomain
	x.eventually(fmt.Sprintf("%s: SearchDomain %s %s", x.host.Name, name, what), func() error {
		var found bool
		var err error
		object, found, err = get[api.SearchDomain](x, domainPath+"/"+name)
		switch {
		case err != nil:
			return err
		case !found:
			return errors.New("there is none")
		case !want(object.Status):
			return fmt.Errorf("it says %+v", object.Status)
		}
		return nil
	})
	return object
}

// useServer makes a DNS server the one that the box's programs ask.
func (x *box) useServer(server *bed.Host, addr string) {
	x.host.WriteFile("/etc/resolv.conf", "nameserver "+addr+"\noptions timeout:1 attempts:2\n")
}

// A domain that the documentation describes leads to peers, with kubectl and without, and who
// leaves it is forgotten; a DNS server that fails changes nothing.
func TestSearchDomain(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := append(newClusters(t, b, "alder"), newBoxes(t, b, "birch", "cedar")...)
	alder, birch, cedar := boxes[0], boxes[1], boxes[2]
	server := b.AddHost("ns", "10.77.0.53/24")
	bind := server.StartBIND(t.Context(), fleetZone(birch, cedar))
	for _, x := range boxes {
		x.configure(dark)
		x.useServer(server, "10.77.0.53")
	}
	alder.start()
	for _, x := range boxes[1:] {
		x.start("--kubeconfig", "none")
	}
	birchID, cedarID := birch.id(), cedar.id()

	alder.connected()
	alder.shell(`cat << "EOF" | kubectl apply -f -
apiVersion: discovery.liqo.io/v1alpha1
kind: SearchDomain
metadata:
  name: example.com
spec:
  domain: example.com
  autojoin: true
EOF`)
	alder.kubectl("patch", "searchdomain", "example.com", "--type", "merge", "-p", `{"spec":{"minIntervalSeconds":1,"maxIntervalSeconds":2}}`)
	for id, name := range map[string]string{birchID: "auth.server.example.com", cedarID: "auth.server-2.example.com"} {
		fc := alder.awaitFC("appears", id, reachable)
		if fc.Spec.DiscoveryType != "WAN" || fc.Spec.AuthURL != "https://"+name+":6447" || fc.Spec.Join {
			t.Errorf("%+v", fc.Spec)
		}
	}
	found := alder.domainStatus("example.com", "lists two clusters", func(s api.SearchDomainStatus) bool {
		return s.Clusters == 2 && s.LastQuery != nil && s.LastQuery.Outcome == "Found"
	})
	if s := found.Status; s.LastQuery.Server != "10.77.0.53:53" || len(s.Found) != 2 || s.Found[0].ClusterID != cedarID {
		t.Errorf("%+v", s)
	}
	// Nobody vouches for them, so that autojoin joins neither, and says so.
	const why = "autojoin is on for the search domain example.com, but nobody vouches for its key"
	for i, id := range []string{cedarID, birchID} {
		alder.awaitStatus("says why it is not joined", id, func(fc *api.ForeignCluster) error {
			return condition(fc, api.ConditionAutojoin, api.ConditionFalse, "KeyNotTrusted")
		})
		alder.domainStatus("example.com", "says why it is not joined", func(s api.SearchDomainStatus) bool {
			return len(s.Found) == 2 && strings.Contains(s.Found[i].Message, why)
		})
	}
	if st := alder.mustStatus(); len(st.Autojoin.NotJoined) != 2 || !strings.Contains(st.Autojoin.NotJoined[0].Message, why) {
		t.Errorf("status says %+v", st.Autojoin)
	}
	if out := alder.mustCLI("status"); !strings.Contains(strings.Join(strings.Fields(out), " "), "birch: "+why) { // it breaks lines
		t.Errorf("%s", out)
	}
	alder.eventually("kubectl shows the domain", func() error { // in which a look-up may fail, on a busy machine
		out, err := alder.tryShell("kubectl get searchdomains")
		if err != nil || !strings.Contains(out, "example.com") || !strings.Contains(out, "Found") {
			return fmt.Errorf("%s: %v", out, err)
		}
		return nil
	})
	alder.kubectl("wait", "--for=condition=Resolved", "searchdomain/example.com")

	// Cedar leaves the domain, and birch gets a record that leads nowhere beside it.
	if err := bind.Update(t.Context(), `update delete example.com PTR liqo-cluster-2.example.com.
update add example.com 2 PTR broken.example.com.`); err != nil {
		t.Fatal(err)
	}
	alder.awaitNoFC(cedarID)
	alder.domainStatus("example.com", "says what is left out", func(s api.SearchDomainStatus) bool {
		return s.Clusters == 1 && len(s.Found) == 2 && s.Found[0].Name == "broken.example.com" && s.Found[0].Reason == "NoSRV"
	})
	if p, err := alder.peer(cedarID); err != nil || !strings.Contains(p.Reason, "no longer in the DNS domain example.com") {
		t.Errorf("%+v %v", p, err)
	}

	// A server that is gone, or fails, is no reason to forget anybody.
	uid := alder.uidOf(fcPath + "/" + birchID)
	staysThere := func() {
		t.Helper()
		if now := alder.uidOf(fcPath + "/" + birchID); now != uid {
			t.Errorf("the ForeignCluster of birch is another one: %s, was %s", now, uid)
		}
		alder.awaitFC("is there", birchID, reachable) // a check may have failed meanwhile, on a machine that stood still
	}
	if err := bind.Stop(); err != nil {
		t.Fatal(err)
	}
	alder.domainStatus("example.com", "says that the server is gone", func(s api.SearchDomainStatus) bool {
		return s.LastQuery.Outcome == "Timeout" || s.LastQuery.Outcome == "Unreachable"
	})
	staysThere()
	refusing := server.StartBIND(t.Context(), bed.Zone{Name: "example.org", Text: "@ TXT nothing"})
	alder.domainStatus("example.com", "says that the server refuses", func(s api.SearchDomainStatus) bool { return s.LastQuery.Outcome == "Refused" })
	if err := refusing.Stop(); err != nil {
		t.Fatal(err)
	}
	bind = server.StartBIND(t.Context(), fleetZone(birch, cedar))
	alder.awaitFC("is back", cedarID, reachable)
	staysThere()

	// Nobody looks in the domain any more.
	alder.kubectl("delete", "searchdomain", "example.com")
	alder.awaitNoFC(birchID)
	alder.awaitNoFC(cedarID)

	// Without an API server: the command line and the file.
	birch.mustCLI("domains", "add", "example.com", "--min-interval", "1s", "--max-interval", "2s")
	birch.awaitPeer(cedarID, "Present")
	d := birch.awaitDomain("example.com", "lists two entries", func(d control.Domain) bool {
		return len(d.Entries) == 2 && d.Entries[0].ClusterID != "" && d.Entries[1].ClusterID != ""
	})
	for _, e := range d.Entries {
		if want := map[string]string{birchID: "ThisCluster", cedarID: ""}[e.ClusterID]; e.Reason != want {
			t.Errorf("%+v", e)
		}
	}
	birch.stop()
	birch.start("--kubeconfig", "none")
	birch.awaitPeer(cedarID, "Present")
	birch.mustCLI("domains", "remove", "example.com")
	birch.awaitPeer(cedarID, "Lost")
	birch.configure(dark + "[[search_domain]]\ndomain = \"example.com\"\nserver = \"10.77.0.53\"\n" + quick)
	birch.reload()
	birch.awaitPeer(cedarID, "Present")
	if out, err := birch.cli("domains", "remove", "example.com"); err == nil || !strings.Contains(out+err.Error(), configPath) {
		t.Errorf("%s %v", out, err)
	}
	birch.configure(dark)
	birch.reload()
	birch.awaitPeer(cedarID, "Lost")

	// It leaves the file while the agent is stopped.
	birch.configure(dark + "[[search_domain]]\ndomain = \"example.com\"\nserver = \"10.77.0.53\"\n" + quick)
	birch.reload()
	birch.awaitPeer(cedarID, "Present")
	birch.stop()
	birch.configure(dark)
	birch.start("--kubeconfig", "none")
	if p := birch.awaitPeer(cedarID, "Lost"); !strings.Contains(p.Reason, "the search domain example.com was removed") {
		t.Errorf("%+v", p)
	}
	if err := bind.Stop(); err != nil {
		t.Error(err)
	}
}

// Domains in the style of RFC 6763, and peers that are joined by one.
func TestServiceDomain(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newClusters(t, b, "alder", "birch")
	p := &pair{bed: b, a: boxes[0], b: boxes[1]}
	server := b.AddHost("ns", "10.77.0.53/24")
	for _, x := range boxes {
		x.configure(dark)
		x.useServer(server, "10.77.0.53")
		x.start()
	}
	p.aID, p.bID = p.a.id(), p.b.id()
	zone := bed.Zone{Name: "example.net", Dynamic: true, Text: fmt.Sprintf(`$TTL 2
b._dns-sd._udp            PTR   site
_liqo._tcp.site           PTR   Birch\032box._liqo._tcp.site
Birch\032box._liqo._tcp.site SRV 10 0 1 gone
                          SRV   0 0 6447 birch
                          TXT   "txtvers=1" "id=%s" "fp=%s" "name=birch"
birch                     CNAME box.example.org.
gone                      A     10.77.0.99
`, p.bID, p.b.mustStatus().Identity.Fingerprint)}
	other := bed.Zone{Name: "example.org", Text: fmt.Sprintf("$TTL 2\nbox A %s\n", p.b.addr)}
	bind := server.StartBIND(t.Context(), zone, other)
	trusted := func(x, of *box, more string) string {
		st := of.mustStatus().Identity
		return dark + more + fmt.Sprintf("[[peer]]\nid = %q\nfingerprint = %q\naccept = \"auto\"\n", st.ClusterID, st.Fingerprint)
	}
	p.b.configure(trusted(p.b, p.a, ""))
	p.b.reload()

	// The configuration trusts birch, and autojoin is on, but the domain says no.
	p.a.configure(trusted(p.a, p.b, "[[search_domain]]\ndomain = \"example.net\"\nautojoin = false\n"+quick))
	p.a.reload()
	p.a.awaitFC("appears", p.bID, func(fc foreignCluster) bool { return reachable(fc) && fc.condition("Trusted") == "True" })
	d := p.a.awaitDomain("example.net", "leads to birch", func(d control.Domain) bool { return len(d.Entries) == 1 && d.Entries[0].ClusterID == p.bID })
	if len(d.Browsed) != 1 || d.Browsed[0] != "site.example.net" {
		t.Errorf("%+v", d)
	}
	if fc, err := p.a.full(p.bID); err != nil || fc.Spec.Join || fc.Spec.DiscoveryType != api.DiscoveryWAN {
		t.Errorf("%+v %v", fc.Spec, err)
	}
	p.a.configure(trusted(p.a, p.b, "autojoin = false\n[[search_domain]]\ndomain = \"example.net\"\nautojoin = true\n"+quick))
	p.a.reload()
	p.works()

	// Birch leaves the domain. Who is joined stays as long as it answers.
	before := p.objects()
	if err := bind.Update(t.Context(), `update delete _liqo._tcp.site.example.net PTR`); err != nil {
		t.Fatal(err)
	}
	p.a.awaitDomain("example.net", "is empty", func(d control.Domain) bool { return len(d.Entries) == 0 })
	p.works()
	p.same(before)
}

// Alder knows the same birch from its LAN, a domain, a person and its calls; as they go, the
// next one takes over and the peering stays.
func TestSourcesAreOnePeer(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newClusters(t, b, "alder", "birch")
	p := &pair{bed: b, a: boxes[0], b: boxes[1]}
	server := b.AddHost("ns", "10.77.0.53/24")
	bind := server.StartBIND(t.Context(), bed.Zone{Name: "example.com", Dynamic: true, Text: fmt.Sprintf(
		"$TTL 2\n@ PTR birch\nbirch SRV 0 0 6447 host\nhost A %s\n", p.b.addr)})
	const domain = "[[search_domain]]\ndomain = \"example.com\"\nserver = \"10.77.0.53\"\n" + quick
	p.a.configure(domain)
	for _, x := range boxes {
		x.start()
	}
	p.aID, p.bID = p.a.id(), p.b.id()
	p.a.eventually("birch is seen by its LAN and the domain", func() error {
		got, err := p.a.peer(p.bID)
		if err == nil && strings.Join(got.Sources, " ") != "LAN WAN" {
			err = fmt.Errorf("seen by %v", got.Sources)
		}
		return err
	})
	p.join()
	p.a.mustCLI("peers", "accept", p.bID, "--yes")
	p.b.mustCLI("peers", "connect", p.aID, "--yes", "--timeout", soon.String()) // so that birch calls, too
	p.works()
	before := p.objects()
	shows := func(what, discovery, url string) {
		t.Helper()
		p.a.awaitStatus(what, p.bID, func(fc *api.ForeignCluster) error {
			if string(fc.Spec.DiscoveryType) != discovery || fc.Spec.AuthURL != url {
				return fmt.Errorf("found by %s at %s", fc.Spec.DiscoveryType, fc.Spec.AuthURL)
			}
			return nil
		})
		p.works()
		p.same(before)
		if all, err := p.a.foreignClusters(); err != nil || len(all) != 1 {
			t.Errorf("%d ForeignClusters, %v", len(all), err)
		}
	}
	p.b.host.WriteFile("/etc/hosts", "127.0.0.1 localhost\n")
	p.a.host.WriteFile("/etc/hosts", fmt.Sprintf("127.0.0.1 localhost\n%s birch.test\n", p.b.addr))
	address := "https://" + p.b.addr.String() + ":6447"
	shows("is on the LAN", "LAN", address)
	p.a.mustCLI("peers", "set", p.bID, "--url", "https://birch.test:6447")
	shows("is where a person said", "Manual", "https://birch.test:6447")
	p.a.mustCLI("peers", "set", p.bID, "--url", "")
	shows("is on the LAN again", "LAN", address)
	p.b.configure("[discovery]\nenable_advertisement = false\n")
	p.b.reload()
	shows("is in the domain", "WAN", "https://host.example.com:6447")
	if err := bind.Update(t.Context(), "update delete example.com PTR"); err != nil {
		t.Fatal(err)
	}
	p.a.awaitDomain("example.com", "is empty", func(d control.Domain) bool { return len(d.Entries) == 0 })
	p.works()
	p.same(before)
	p.b.configure("")
	p.b.reload()
	shows("is on the LAN once more", "LAN", address)
}

// The lines of the documentation that switch discovery on and off, as they stand there.
const (
	switchOn = `kubectl patch clusterconfigs liqo-configuration \
--patch '{"spec":{"discoveryConfig":{"enableDiscovery": true, "enableAdvertisement": true}}}' \
--type 'merge'`
	switchOff = `kubectl patch clusterconfigs liqo-configuration \
--patch '{"spec":{"discoveryConfig":{"enableDiscovery": false, "enableAdvertisement": false}}}' \
--type 'merge'`
	joinOff = `kubectl patch clusterconfigs liqo-configuration \
--patch '{"spec":{"discoveryConfig":{"autojoin": false}}}' \
--type 'merge'`
)

func TestRuntimeSwitches(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := append(newClusters(t, b, "alder", "birch"), newBoxes(t, b, "cedar")...)
	p, c := &pair{bed: b, a: boxes[0], b: boxes[1]}, boxes[2]
	p.a.start()
	p.b.start()
	c.start("--kubeconfig", "none")
	p.aID, p.bID = p.a.id(), p.b.id()
	cID := c.id()
	p.a.awaitFC("appears", p.bID, reachable)
	p.b.awaitFC("appears", p.aID, reachable)
	p.join()
	before := p.objects()
	p.a.awaitFC("appears", cID, reachable)
	enabled := func(want bool, source string) {
		t.Helper()
		p.a.eventually(fmt.Sprintf("discovery is %v", want), func() error {
			st := p.a.mustStatus()
			if st.Discovery.Enabled != want || st.Advertisement.Enabled != want || !strings.Contains(st.Discovery.Source, source) || !strings.Contains(st.Advertisement.Source, source) {
				return fmt.Errorf("%+v %+v", st.Discovery, st.Advertisement)
			}
			return nil
		})
	}
	enabled(true, "default")
	p.a.eventually("there is a ClusterConfig", func() error {
		out, err := p.a.tryShell("kubectl get clusterconfigs liqo-configuration")
		if err != nil {
			return errors.New(out)
		}
		return nil
	})
	p.a.shell(switchOff)
	enabled(false, "ClusterConfig liqo-configuration")
	p.a.awaitNoFC(cID)
	c.awaitPeer(p.aID, "Lost")
	p.works()
	p.same(before)
	if out := p.a.mustCLI("config", "show"); !strings.Contains(out, "enable_discovery = false") || !strings.Contains(out, "ClusterConfig liqo-configuration") {
		t.Errorf("%s", out)
	}

	// The next start knows it before the API server is there.
	if err := p.a.kube.Kill(); err != nil {
		t.Fatal(err)
	}
	p.a.stop()
	p.a.start()
	enabled(false, "ClusterConfig liqo-configuration")
	if err := p.a.kube.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.a.connected()
	enabled(false, "ClusterConfig liqo-configuration")
	p.a.shell(switchOn)
	enabled(true, "ClusterConfig liqo-configuration")
	p.a.awaitFC("is back", cID, reachable)
	c.awaitPeer(p.aID, "Present")

	p.a.shell(joinOff)
	p.a.eventually("autojoin is off", func() error {
		if st := p.a.mustStatus(); st.Autojoin.Enabled || !strings.Contains(st.Autojoin.Source, "ClusterConfig") {
			return fmt.Errorf("%+v", st.Autojoin)
		}
		return nil
	})
	// What the object sets wins over the file; without the object, the file counts.
	p.a.configure("[discovery]\nenable_discovery = false\n")
	p.a.mustCLI("config", "reload") // which returns when it is in effect
	if st := p.a.mustStatus(); !st.Discovery.Enabled {
		t.Errorf("%+v", st.Discovery)
	}
	p.a.configure("")
	p.a.reload()
	p.a.kubectl("delete", "clusterconfigs", "liqo-configuration")
	enabled(true, "default")
	p.a.eventually("it is made anew, and empty", func() error {
		cc, found, err := get[api.ClusterConfig](p.a, "/apis/config.liqo.io/v1alpha1/clusterconfigs/liqo-configuration")
		if err == nil && (!found || cc.Spec != (api.ClusterConfigSpec{})) {
			err = fmt.Errorf("%v %+v", found, cc.Spec)
		}
		return err
	})

	// The name takes effect in place; the service type by new parts.
	p.a.kubectl("patch", "clusterconfigs", "liqo-configuration", "--type", "merge", "-p", `{"spec":{"discoveryConfig":{"clusterName":"orchard","ttl":60}}}`)
	p.b.awaitFC("has another name", p.aID, func(fc foreignCluster) bool { return fc.Spec.ClusterIdentity.ClusterName == "orchard" })
	p.a.kubectl("patch", "clusterconfigs", "liqo-configuration", "--type", "merge", "-p", `{"spec":{"discoveryConfig":{"service":"_orchard._tcp"}}}`)
	c.awaitPeer(p.aID, "Lost")
	p.works()
	p.a.kubectl("patch", "clusterconfigs", "liqo-configuration", "--type", "merge", "-p", `{"spec":{"discoveryConfig":null}}`)
	c.awaitPeer(p.aID, "Present")
	p.works()
	p.same(before)

	for patch, reason := range map[string]string{
		`{"spec":{"discoveryConfig":{"ttl": 5}}}`:                                                "ttl",
		`{"spec":{"discoveryConfig":{"enableDiscovery": "no"}}}`:                                 "boolean",
		`{"spec":{"advertisementConfig":{"outgoingConfig":{"resourceSharingPercentage": 101}}}}`: "100",
		`{"spec":{"advertisementConfig":{"ingoingConfig":{"acceptPolicy": "Perhaps"}}}}`:         "AutoAcceptMax",
	} {
		out, err := p.a.tryShell("kubectl patch clusterconfigs liqo-configuration --type merge --patch '" + patch + "'")
		if err == nil || !strings.Contains(out, reason) {
			t.Errorf("%s: %v %s", patch, err, out)
		}
	}
}

// A person's ForeignCluster needs a URL and nothing else.
func TestManualForeignCluster(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newClusters(t, b, "alder", "birch")
	p := &pair{bed: b, a: boxes[0], b: boxes[1]}
	for _, x := range boxes {
		x.configure(dark)
		x.start()
	}
	p.aID, p.bID = p.a.id(), p.b.id()
	p.a.connected()
	apply := func(url string) (string, error) {
		return p.a.tryShell(fmt.Sprintf(`cat << "EOF" | kubectl apply -f -
apiVersion: discovery.liqo.io/v1alpha1
kind: ForeignCluster
metadata:
  name: my-cluster
spec:
  join: true # optional (defaults to false)
  authUrl: "%s"
EOF`, url))
	}
	for _, bad := range []string{"http://10.77.0.2:6447", "https://10.77.0.2:99999", "10.77.0.2:6447", "https://10.77.0.2/api", "https://:6447"} {
		if out, err := apply(bad); err == nil || !strings.Contains(out, "authUrl") {
			t.Errorf("%s: %v %s", bad, err, out)
		}
	}
	mustApply := func(url string) {
		t.Helper()
		if out, err := apply(url); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	says := func(status api.ConditionStatus, reason string) {
		t.Helper()
		p.a.eventually("my-cluster says "+reason, func() error {
			fc, found, err := get[*api.ForeignCluster](p.a, fcPath+"/my-cluster")
			if err != nil || !found {
				return errors.Join(errors.New("there is none"), err)
			}
			return condition(fc, api.ConditionAuthURL, status, reason)
		})
	}
	mustApply("https://10.77.0.2:1")
	says(api.ConditionFalse, "Unreachable")
	mustApply("https://10.77.0.1:6447")
	says(api.ConditionFalse, "ThisCluster")
	mustApply("https://10.77.0.2:6447")
	says(api.ConditionTrue, "")
	fc := p.a.awaitFC("is identified", "my-cluster", func(fc foreignCluster) bool {
		return fc.Spec.ClusterIdentity.ClusterID == p.bID && reachable(fc)
	})
	if fc.Spec.DiscoveryType != "Manual" || fc.Spec.Namespace != "liqo" || fc.Spec.AuthURL != "https://10.77.0.2:6447" || fc.Spec.ClusterIdentity.ClusterName != "birch" {
		t.Errorf("%+v", fc.Spec)
	}
	p.a.kubectl("patch", "fc", "my-cluster", "--type", "merge", "-p", `{"spec":{"trustMode":"Trusted"}}`)
	// Birch never saw alder. That it asks is to be seen with kubectl, and answered there.
	asks := p.b.awaitStatus("shows who asks", p.aID, func(fc *api.ForeignCluster) error {
		return condition(fc, api.ConditionAccessRequested, api.ConditionTrue, "Pending")
	})
	message, code := asks.Condition(api.ConditionAccessRequested).Message, p.a.peerJSON(p.bID).Code
	if !strings.Contains(message, code) || asks.Spec.DiscoveryType != api.DiscoveryIncomingPeering || asks.Spec.ClusterIdentity.ClusterName != "alder" || asks.Spec.Join {
		t.Errorf("code %s: %+v: %s", code, asks.Spec, message)
	}
	if out := p.b.kubectl("get", "foreignclusters"); !strings.Contains(out, "Pending") {
		t.Errorf("%s", out)
	}
	p.b.kubectl("patch", "foreigncluster", p.aID, "--type", "merge", "-p", `{"spec":{"trustMode":"Trusted"}}`)
	joined := func(name string) {
		t.Helper()
		p.a.eventually(name+" is joined", func() error {
			fc, found, err := get[*api.ForeignCluster](p.a, fcPath+"/"+name)
			if err != nil || !found {
				return errors.Join(errors.New("there is none"), err)
			}
			return outgoing(true)(fc)
		})
	}
	joined("my-cluster")
	request := p.b.uidOf(prPath + "/" + p.aID)

	// The same cluster at its IPv6 address, and by its name.
	p.a.host.Link("eth0").AddAddress("fd00:77::1/64")
	p.b.host.Link("eth0").AddAddress("fd00:77::2/64")
	p.a.host.WriteFile("/etc/hosts", "127.0.0.1 localhost\n10.77.0.2 birch.test\n")
	for _, url := range []string{"https://[fd00:77::2]:6447", "https://birch.test:6447"} {
		mustApply(url)
		says(api.ConditionTrue, "")
		p.a.eventually("birch is called at "+url, func() error {
			got, err := p.a.peer(p.bID)
			if err == nil && got.URL != url {
				err = fmt.Errorf("it is at %s", got.URL)
			}
			return err
		})
		joined("my-cluster")
	}

	// On the command line it takes one step, and there is a ForeignCluster for it, too.
	p.b.eventually("the cluster there says who it is", func() error {
		_, err := p.b.cli("peers", "connect", "https://10.77.0.1:6447", "--yes", "--no-wait")
		return err
	})
	p.b.awaitFC("is a person's", p.aID, func(fc foreignCluster) bool {
		return reachable(fc) && fc.Spec.DiscoveryType == "Manual" && fc.Spec.AuthURL == "https://10.77.0.1:6447" && fc.Spec.Join
	})

	// Birch comes in sight. It is the same peer.
	for _, x := range boxes {
		x.configure("")
		x.reload()
	}
	p.a.eventually("birch is seen on the LAN, too", func() error {
		got, err := p.a.peer(p.bID)
		if err == nil && !strings.HasPrefix(strings.Join(got.Sources, " "), "Manual LAN") {
			err = fmt.Errorf("seen by %v", got.Sources)
		}
		return err
	})
	joined("my-cluster")
	if all, err := p.a.foreignClusters(); err != nil || len(all) != 1 {
		t.Errorf("%d ForeignClusters, %v", len(all), err)
	}
	if p.b.uidOf(prPath+"/"+p.aID) != request {
		t.Error("the peering was made anew")
	}

	// Who deletes the object hangs up; what is on the LAN is shown under its own name then.
	p.a.kubectl("delete", "fc", "my-cluster")
	p.b.gone(prPath + "/" + p.aID)
	p.a.awaitFC("appears", p.bID, func(fc foreignCluster) bool { return reachable(fc) && !fc.Spec.Join })

	// One with another name takes the place of the agent's, also while joined.
	p.a.setJoin(p.bID, true)
	p.a.awaitStatus("is joined", p.bID, outgoing(true))
	request = p.b.uidOf(prPath + "/" + p.aID)
	p.a.shell(fmt.Sprintf(`cat << "EOF" | kubectl apply -f -
apiVersion: discovery.liqo.io/v1alpha1
kind: ForeignCluster
metadata:
  name: the-neighbour
spec:
  authUrl: "https://%s:6447"
EOF`, p.b.addr))
	joined("the-neighbour")
	p.a.awaitNoFC(p.bID)
	if p.b.uidOf(prPath+"/"+p.aID) != request {
		t.Error("the peering was made anew")
	}
}

// Where the box is decides what it does, as with Wi-Fi.
func TestNetworks(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	cafe := b.AddLAN("cafe")
	boxes := newBoxes(t, b, "alder", "birch", "cedar")
	alder, birch, cedar := boxes[0], boxes[1], boxes[2]
	// Alder is at home with birch, and cedar sits in the café, where alder goes too.
	alder.host.AddLink(cafe, "wlan0", "10.99.0.1/24")
	cedar.host.AddLink(cafe, "wlan0", "10.99.0.3/24")
	cedar.configure("[discovery]\ninterfaces = [\"wlan0\"]\n")
	const rules = `[[network]]
name = "home"
subnet = "10.77.0.0/24"
[[network]]
name = "elsewhere"
advertise = false
discover = false
autojoin = false
`
	alder.configure(rules)
	for _, x := range boxes {
		x.start("--kubeconfig", "none")
	}
	alderID, birchID, cedarID := alder.id(), birch.id(), cedar.id()
	alder.awaitPeer(birchID, "Present")
	birch.awaitPeer(alderID, "Present")
	cedar.eventually("cedar is announced", func() error {
		if ad := cedar.mustStatus().Advertisement; !ad.Established {
			return fmt.Errorf("%+v", ad)
		}
		return nil
	})
	uses := map[string]string{}
	for _, n := range alder.mustStatus().Networks {
		uses[n.Link] = n.Rule
	}
	if uses["wlan0"] != "elsewhere" || len(uses) != 2 {
		t.Errorf("%v", uses)
	}
	if _, err := alder.peer(cedarID); err == nil {
		t.Error("alder knows cedar")
	}
	if _, err := cedar.peer(alderID); err == nil {
		t.Error("cedar knows alder")
	}
	alder.configure("")
	alder.reload()
	alder.awaitPeer(cedarID, "Present")
	cedar.awaitPeer(alderID, "Present")
	alder.configure(rules)
	alder.reload()
	alder.awaitPeer(cedarID, "Lost")
	cedar.awaitPeer(alderID, "Lost")
	alder.keeps(birchID, "the rule is about cedar")

	// The gateway's hardware address tells two networks apart that use the same addresses.
	router := b.AddHost("router", "10.77.0.254/24")
	if out, err := alder.host.Run(t.Context(), "ip", "route", "add", "default", "via", "10.77.0.254"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	mac := router.Link("eth0").HardwareAddr()
	alder.configure(fmt.Sprintf("[[network]]\nname = \"orchard\"\ngateway_mac = %q\n[[network]]\nname = \"elsewhere\"\nadvertise = false\ndiscover = false\n", mac))
	alder.reload()
	alder.eventually("alder is in the orchard", func() error {
		for _, n := range alder.mustStatus().Networks {
			if n.Rule == "orchard" && n.Advertise && n.Discover {
				return nil
			}
		}
		return fmt.Errorf("%+v", alder.mustStatus().Networks)
	})
	alder.awaitPeer(birchID, "Present")
	alder.configure("[[network]]\nname = \"orchard\"\ngateway_mac = \"02:00:00:00:00:01\"\n[[network]]\nname = \"elsewhere\"\nadvertise = false\ndiscover = false\n")
	alder.reload()
	alder.awaitPeer(birchID, "Lost")
	birch.awaitPeer(alderID, "Lost")
}
