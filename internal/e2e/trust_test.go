//go:build linux

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// An invite lets its bearer in, once, and nobody has to compare anything.
func TestInvite(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newClusters(t, b, "alder", "birch", "cedar")
	for _, x := range boxes {
		x.start()
	}
	p := &pair{a: boxes[0], b: boxes[1], aID: boxes[0].id(), bID: boxes[1].id()}
	c := boxes[2]
	p.a.awaitFC("appears", p.bID, reachable)
	c.awaitPeer(p.bID, "Present")
	c.awaitPeer(p.aID, "Present")

	made, err := cliJSON[control.Invite](p.b, "invite", "create", "--ttl", "10m", "--note", "for alder")
	if err != nil {
		t.Fatal(err)
	}
	invite, err := trust.ParseInvite(made.Token)
	if err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(p.b.host.Path(statePath))
	if err != nil {
		t.Fatal(err)
	}
	if wal, err := os.ReadFile(p.b.host.Path(statePath + "-wal")); err == nil {
		database = append(database, wal...)
	}
	if strings.Contains(string(database), string(invite.Secret[:])) || strings.Contains(string(database), made.Token) {
		t.Error("the issuer keeps the secret")
	}
	if strings.Contains(p.b.agent.Log(), made.Token) {
		t.Error("the token is in the log")
	}

	// At another cluster than its issuer, it is not even tried.
	if out, err := c.cli("peers", "connect", "--token", made.Token, "https://"+p.a.addr.String()+":6447"); err == nil {
		t.Errorf("a token was used at another cluster:\n%s", out)
	}
	p.a.mustCLI("peers", "connect", "--token", made.Token, "--timeout", soon.String())
	p.works()
	for x, id := range map[*box]string{p.a: p.bID, p.b: p.aID} {
		if got := x.peerJSON(id).Trust; got.Mode != control.Trusted || got.Method != "Invite" || got.By == "" || got.At.IsZero() {
			t.Errorf("%s: trust %+v", x.host.Name, got)
		}
	}
	listed, err := cliJSON[[]control.Invite](p.b, "invite", "list")
	if err != nil || len(listed) != 1 || listed[0].State != control.InviteUsed || listed[0].UsedBy != p.aID || listed[0].Token != "" {
		t.Errorf("the list: %+v %v", listed, err)
	}

	// Somebody who got hold of the token afterwards.
	c.mustCLI("peers", "connect", "--token", made.Token, "--no-wait")
	p.b.eventually("the replay is seen, and waits like any stranger", func() error {
		requests, err := p.b.asks.Requests(t.Context())
		if err != nil || !slices.ContainsFunc(requests, func(r control.Request) bool { return r.ID == c.id() }) {
			return fmt.Errorf("requests %+v %v", requests, err)
		}
		return nil
	})
	if got := p.b.peerJSON(c.id()).Trust.Mode; got == control.Trusted {
		t.Error("the second bearer is trusted")
	}

	revoked, err := cliJSON[control.Invite](p.b, "invite", "create")
	if err != nil {
		t.Fatal(err)
	}
	p.b.mustCLI("invite", "revoke", revoked.ID)
	listed, err = cliJSON[[]control.Invite](p.b, "invite", "list")
	if err != nil || !slices.ContainsFunc(listed, func(i control.Invite) bool { return i.ID == revoked.ID && i.State == control.InviteRevoked }) {
		t.Errorf("the list: %+v %v", listed, err)
	}
	c.mustCLI("peers", "forget", p.bID, "--yes")
	c.awaitPeer(p.bID, "Present")
	waits := func(fc *api.ForeignCluster) error {
		return condition(fc, api.ConditionOutgoingPeering, api.ConditionFalse, "AwaitingAcceptance")
	}
	c.awaitStatus("does not wait for the first token any more", p.bID, func(fc *api.ForeignCluster) error {
		if waits(fc) == nil {
			return errors.New("it does")
		}
		return nil
	})
	c.mustCLI("peers", "connect", "--token", revoked.Token, "--no-wait")
	c.awaitStatus("waits like any stranger, after the token was refused", p.bID, waits)
	if got := p.b.peerJSON(c.id()).Trust.Mode; got == control.Trusted {
		t.Error("the bearer of a revoked invite is trusted")
	}
}

// Boxes whose keys the fleet's authority certified peer by themselves.
func TestFleet(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newClusters(t, b, "alder", "birch")
	p := &pair{a: boxes[0], b: boxes[1]}
	office := p.a.host // any machine will do: no agent is asked
	run := func(args ...string) string {
		t.Helper()
		out, err := office.Run(t.Context(), append([]string{p.a.bin}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	run("fleet", "init", "--name", "orchard", "--cert", "/etc/liqo-agent/fleet-ca.pem", "--key", "/etc/liqo-agent/fleet-ca.key")
	ca, err := os.ReadFile(office.Path("/etc/liqo-agent/fleet-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	const fleet = "[trust]\nfleet_ca = \"/etc/liqo-agent/fleet-ca.pem\"\naccept = \"trusted\"\n"
	// They know each other before they are certified, and keep the connections from then.
	for _, x := range boxes {
		x.host.WriteFile("/etc/liqo-agent/fleet-ca.pem", string(ca))
		x.start()
	}
	p.aID, p.bID = p.a.id(), p.b.id()
	p.a.awaitFC("appears", p.bID, reachable)
	p.b.awaitFC("appears", p.aID, reachable)
	for _, x := range boxes {
		public := x.mustCLI("key", "show", "--pem")
		office.WriteFile("/etc/liqo-agent/public.pem", public)
		run("fleet", "sign", "--ca", "/etc/liqo-agent/fleet-ca.pem", "--ca-key", "/etc/liqo-agent/fleet-ca.key",
			"--id", x.id(), "--public-key", "/etc/liqo-agent/public.pem", "-o", "/etc/liqo-agent/"+x.host.Name+".pem")
		signed, err := os.ReadFile(office.Path("/etc/liqo-agent/" + x.host.Name + ".pem"))
		if err != nil {
			t.Fatal(err)
		}
		x.host.WriteFile("/var/lib/liqo-agent/fleet.crt", string(signed))
		x.configure(fleet)
		x.reload()
	}
	p.works()
	p.a.awaitStatus("is joined both ways", p.bID, func(fc *api.ForeignCluster) error {
		return errors.Join(outgoing(true)(fc), incoming(true)(fc), condition(fc, "Trusted", api.ConditionTrue, "FleetCertified"))
	})

	p.suspends(office, run)

	// Without the authority in the configuration, its word counts no more.
	p.a.configure("[discovery]\nlost_after = \"15m\"\n")
	p.a.reload()
	p.a.eventually("the trust is void", func() error {
		got, err := p.a.peer(p.bID)
		if err == nil && got.Trust.Mode != control.UnknownTrust {
			err = fmt.Errorf("trust %s", got.Trust.Mode)
		}
		return err
	})
}

// suspends has A learn that the authority's certificate has ended by which it trusts B,
// and B get a newer certificate from another authority of the fleet.
func (p *pair) suspends(office *bed.Host, run func(args ...string) string) {
	t := p.a.t
	t.Helper()
	read := func(path string) []byte {
		t.Helper()
		content, err := os.ReadFile(office.Path(path))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	before := p.objects()
	block, _ := pem.Decode(read("/etc/liqo-agent/fleet-ca.pem"))
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(read("/etc/liqo-agent/fleet-ca.key"))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	ca.NotAfter = time.Now().Add(-time.Minute)
	ended, err := x509.CreateCertificate(rand.Reader, ca, ca, ca.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	run("fleet", "init", "--name", "meadow", "--cert", "/etc/liqo-agent/next-ca.pem", "--key", "/etc/liqo-agent/next-ca.key")
	p.a.host.WriteFile("/etc/liqo-agent/fleet-ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ended}))+string(read("/etc/liqo-agent/next-ca.pem")))
	p.a.reload()
	p.a.awaitStatus("the trust is suspended", p.bID, func(fc *api.ForeignCluster) error {
		return errors.Join(condition(fc, "Trusted", api.ConditionFalse, "CertificateEnded"), outgoing(true)(fc), incoming(true)(fc),
			condition(fc, "OutgoingPeering", api.ConditionTrue, "CertificateEnded"), condition(fc, "IncomingPeering", api.ConditionTrue, "CertificateEnded"))
	})
	p.b.awaitStatus("it is told so", p.aID, func(fc *api.ForeignCluster) error {
		return errors.Join(outgoing(true)(fc), condition(fc, "OutgoingPeering", api.ConditionTrue, "CertificateEnded"))
	})
	p.a.eventually("A says what to do", func() error { return p.a.hasProblem(health.CertificateExpired, true) })

	office.WriteFile("/etc/liqo-agent/public.pem", p.b.mustCLI("key", "show", "--pem"))
	run("fleet", "sign", "--ca", "/etc/liqo-agent/next-ca.pem", "--ca-key", "/etc/liqo-agent/next-ca.key",
		"--id", p.bID, "--public-key", "/etc/liqo-agent/public.pem", "--days", "3000", "-o", "/etc/liqo-agent/next.pem")
	p.b.host.WriteFile("/var/lib/liqo-agent/fleet.crt", string(read("/etc/liqo-agent/next.pem")))
	p.b.reload()
	p.a.awaitStatus("it is as it was", p.bID, func(fc *api.ForeignCluster) error {
		return errors.Join(condition(fc, "Trusted", api.ConditionTrue, "FleetCertified"),
			condition(fc, "OutgoingPeering", api.ConditionTrue, "Joined"), condition(fc, "IncomingPeering", api.ConditionTrue, "Joined"))
	})
	p.works()
	p.same(before)
}

// A peer that the configuration names is joined without multicast and without a
// person.
func TestStaticPeers(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newClusters(t, b, "alder", "birch")
	p := &pair{a: boxes[0], b: boxes[1]}
	const dark = "[discovery]\nenable_discovery = false\nenable_advertisement = false\n"
	for _, x := range boxes {
		x.configure(dark)
		x.start()
	}
	p.aID, p.bID = p.a.id(), p.b.id()
	for x, other := range map[*box]*box{p.a: p.b, p.b: p.a} {
		st := other.mustStatus()
		text := dark + fmt.Sprintf("[[peer]]\nid = %q\nfingerprint = %q\nurl = \"https://%s:6447\"\naccept = \"auto\"\n",
			st.Identity.ClusterID, st.Identity.Fingerprint, other.addr)
		if x == p.a {
			text += "connect = \"auto\"\n"
		}
		x.configure(text)
		if x == p.a {
			x.reload()
		} else {
			x.stop()
			x.start()
		}
	}
	p.works()
	p.a.stop()
	p.a.start()
	p.works()
	fc, err := p.a.full(p.bID)
	if err != nil || fc.Spec.DiscoveryType != api.DiscoveryManual || condition(fc, "Trusted", api.ConditionTrue, "Configured") != nil {
		t.Errorf("%+v %+v %v", fc.Spec, fc.Status, err)
	}

	// An agent that starts without the entry does not know its own any more.
	p.a.stop()
	p.a.configure(dark)
	p.a.start()
	p.a.eventually("the trust is void", func() error {
		got, err := p.a.peer(p.bID)
		if err == nil && got.Trust.Mode != control.UnknownTrust {
			err = fmt.Errorf("trust %s", got.Trust.Mode)
		}
		return err
	})
}

// A host name with a public certificate needs no code to be compared.
func TestSystemRoots(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newClusters(t, b, "alder", "birch")
	p := &pair{a: boxes[0], b: boxes[1]}
	ca, caKey := publicCA(t)
	p.a.host.WriteFile("/etc/public-ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})))
	p.a.host.WriteFile("/etc/hosts", "127.0.0.1 localhost\n"+boxes[1].addr.String()+" birch.example.com\n")
	p.a.configure(dark)
	p.a.env = []string{"SSL_CERT_FILE=/etc/public-ca.pem"}
	p.a.start()
	p.b.configure(dark)
	p.b.start()
	p.aID, p.bID = p.a.id(), p.b.id()

	certificate := p.b.certify(ca, caKey, "birch.example.com")
	// Without the certificate a person has to confirm the key.
	if _, err := p.a.cli("peers", "connect", "https://birch.example.com:6447", "--no-wait"); err == nil {
		t.Error("the name alone was trusted")
	}
	p.b.stop()
	p.b.configure(dark + certificate)
	p.b.start()
	p.a.eventually("the cluster there says who it is", func() error {
		_, err := p.a.cli("peers", "connect", "https://birch.example.com:6447", "--no-wait")
		return err
	})
	p.b.eventually("the question is seen", func() error {
		requests, err := p.b.asks.Requests(t.Context())
		if err == nil && len(requests) == 0 {
			err = errors.New("no requests")
		}
		return err
	})
	p.b.mustCLI("peers", "accept", p.aID, "--yes")
	p.works()
	if got := p.a.peerJSON(p.bID).Trust; got.Method != "SystemRoots" {
		t.Errorf("trust %+v", got)
	}
}

// Whoever answers DNS can name any host, and have a public certificate for one of his
// own. It counts only for names in the domain that was configured.
func TestNamesOutsideTheDomainProveNothing(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	alder, birch := newClusters(t, b, "alder")[0], newBoxes(t, b, "birch")[0]
	bind := b.AddHost("ns", "10.77.0.53/24").StartBIND(t.Context(),
		bed.Zone{Name: "example.com", Dynamic: true, Text: fmt.Sprintf("$TTL 2\n@ PTR birch\nbirch SRV 0 0 6447 box.evil.example.\nbox A %s\n", birch.addr)},
		bed.Zone{Name: "evil.example", Text: fmt.Sprintf("$TTL 2\nbox A %s\n", birch.addr)})
	ca, caKey := publicCA(t)
	birch.configure(dark)
	birch.start("--kubeconfig", "none")
	birchID := birch.id()
	certificate := birch.certify(ca, caKey, "box.evil.example", "box.example.com")
	birch.stop()
	birch.configure(dark + certificate)
	birch.start("--kubeconfig", "none")

	alder.host.WriteFile("/etc/public-ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})))
	alder.env = []string{"SSL_CERT_FILE=/etc/public-ca.pem"}
	alder.configure(dark + "[[search_domain]]\ndomain = \"example.com\"\nserver = \"10.77.0.53\"\nautojoin = true\n" + quick)
	alder.start()
	if fc := alder.awaitFC("appears", birchID, reachable); fc.Spec.AuthURL != "https://box.evil.example:6447" {
		t.Errorf("%+v", fc.Spec)
	}
	alder.mustCLI("domains", "refresh", "example.com")
	if fc, err := alder.foreignCluster(birchID); err != nil || fc.Spec.Join || fc.condition("Trusted") == "True" {
		t.Errorf("%+v, %v", fc, err)
	}
	// The same certificate counts for the name in the domain.
	if err := bind.Update(t.Context(), `update delete birch.example.com SRV
update add birch.example.com 2 SRV 0 0 6447 box.example.com.`); err != nil {
		t.Fatal(err)
	}
	alder.awaitFC("is trusted", birchID, func(fc foreignCluster) bool { return fc.condition("Trusted") == "True" && fc.Spec.Join })
	if got := alder.peerJSON(birchID).Trust; got.Method != "SystemRoots" {
		t.Errorf("trust %+v", got)
	}
	events, err := cliJSON[[]control.Event](alder, "peers", "history", birchID)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == string(peer.EventTrusted) && !strings.Contains(e.Detail, "of box.example.com") {
			t.Errorf("trusted before: %+v", e)
		}
	}
}

// certify has a public authority give the box a certificate for names, and returns the
// configuration with which the agent shows it.
func (x *box) certify(ca *x509.Certificate, caKey *ecdsa.PrivateKey, names ...string) string {
	x.t.Helper()
	args := []string{"key", "csr"}
	for _, name := range names {
		args = append(args, "--name", name)
	}
	block, _ := pem.Decode([]byte(x.mustCLI(args...)))
	if block == nil {
		x.t.Fatal("key csr prints no PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		x.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: request.Subject, DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, request.PublicKey, caKey)
	if err != nil {
		x.t.Fatal(err)
	}
	x.host.WriteFile("/etc/liqo-agent/public.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return "[endpoint]\ncertificate = \"/etc/liqo-agent/public.pem\"\n"
}

func publicCA(t *testing.T) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a public authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return ca, key
}
