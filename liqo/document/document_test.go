package document

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
)

const (
	consumer ClusterID = "barn"
	provider ClusterID = "mill"
)

var now = time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)

// nonceText is a nonce as Liqo makes it.
var nonceText = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb, 1, 2, 3}, nonceBytes/4))

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// box has a key and signs as Liqo's controllers do.
type box struct {
	t      testing.TB
	signer crypto.Signer
	keys   Keys
}

func newBox(t testing.TB, signer crypto.Signer) box {
	t.Helper()
	private := must(x509.MarshalPKCS8PrivateKey(signer))(t)
	keys := must(ParseKeys(pemOf(pemPrivateKey, private), publicPEM(t, signer)))(t)
	return box{t, signer, keys}
}

func publicPEM(t testing.TB, signer crypto.Signer) []byte {
	t.Helper()
	return pemOf(pemPublicKey, must(x509.MarshalPKIXPublicKey(signer.Public()))(t))
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func ed25519Box(t testing.TB) box {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return newBox(t, must(key, err)(t))
}

// sign signs a nonce.
func (b box) sign(nonce Nonce) []byte {
	b.t.Helper()
	sum := sha256.Sum256([]byte(nonce))
	switch b.signer.(type) {
	case ed25519.PrivateKey:
		return must(b.signer.Sign(rand.Reader, []byte(nonce), crypto.Hash(0)))(b.t)
	default:
		return must(b.signer.Sign(rand.Reader, sum[:], crypto.SHA256))(b.t)
	}
}

func (b box) tenant(nonce Nonce) Tenant {
	b.t.Helper()
	return must(NewTenant(consumer, b.keys, nonce, b.sign(nonce)))(b.t)
}

// request makes a request for a certificate that Liqo would not.
func (b box) request(template *x509.CertificateRequest) []byte {
	b.t.Helper()
	return pemOf(pemRequest, must(x509.CreateCertificateRequest(rand.Reader, template, b.signer))(b.t))
}

// certificate issues a certificate for the box, in PEM; change may make it another one than a
// provider gives.
func (b box) certificate(change func(*x509.Certificate)) []byte {
	b.t.Helper()
	ca := ed25519Box(b.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: controlPlane(consumer),
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), BasicConstraintsValid: true,
	}
	if change != nil {
		change(template)
	}
	return pemOf(pemCertificate, must(x509.CreateCertificate(rand.Reader, template, &x509.Certificate{Subject: pkix.Name{CommonName: "k3s-client-ca"}}, b.signer.Public(), ca.signer))(b.t))
}

// authority is the certificate of a CA, or of something else, in PEM.
func authority(t testing.TB, isCA bool) []byte {
	t.Helper()
	ca := ed25519Box(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "k3s-server-ca"}, NotBefore: now, NotAfter: now.Add(time.Hour),
		BasicConstraintsValid: true, IsCA: isCA,
	}
	return pemOf(pemCertificate, must(x509.CreateCertificate(rand.Reader, template, template, ca.signer.Public(), ca.signer))(t))
}

func controlPlane(id ClusterID) pkix.Name {
	return pkix.Name{CommonName: string(id), Organization: []string{organization}}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	return must(json.Marshal(v))(t)
}

func TestParseClusterID(t *testing.T) {
	for _, good := range []string{"a", "barn", "0-1", strings.Repeat("x", maxClusterID), "216cfbdb-a677-41a1-a411-3dfe25d44472"} {
		id, err := ParseClusterID(good)
		if err != nil || string(id) != good || len(id.TenantNamespace()) > 63 {
			t.Errorf("%q: %q, %v", good, id, err)
		}
	}
	for _, bad := range []string{"", "-a", "a-", "A", "a.b", "a/b", "../a", "a b", "ä", "a\n", "a\x00", strings.Repeat("x", maxClusterID+1)} {
		if id, err := ParseClusterID(bad); err == nil {
			t.Errorf("%q is an ID: %q", bad, id)
		}
	}
	if got := consumer.TenantNamespace() + " " + consumer.IdentityName(); got != "liqo-tenant-barn controlplane-barn" {
		t.Errorf("called %s", got)
	}
}

// TestParseNonce: a provider has a consumer sign nothing but what Liqo makes.
func TestParseNonce(t *testing.T) {
	if n, err := ParseNonce([]byte(nonceText)); err != nil || string(n) != nonceText {
		t.Errorf("%q, %v", n, err)
	}
	// What TLS 1.3 has a client sign begins like this (RFC 8446, section 4.4.3).
	tls := strings.Repeat(" ", 64) + "TLS 1.3, client Certific"
	for name, bad := range map[string]string{
		"nothing": "", "short": nonceText[4:], "long": nonceText + "AAAA", "a line break": nonceText[:87] + "\n", "breaks for padding": nonceText[:84] + "\n\n\n\n",
		"another alphabet": strings.ReplaceAll(nonceText, "+", "-"), "bits behind the end": nonceText[:85] + "R" + nonceText[86:], "for TLS": tls,
		"bytes": string(bytes.Repeat([]byte{0x30}, 84)) + "\x00\xff\x30\x82",
	} {
		if n, err := ParseNonce([]byte(bad)); err == nil {
			t.Errorf("%s: %q is a nonce", name, n)
		}
	}
}

// TestTenant: what a consumer makes is what a provider takes, with each kind of key that Liqo has.
func TestTenant(t *testing.T) {
	nonce := Nonce(nonceText)
	for name, b := range map[string]box{
		"Ed25519": ed25519Box(t),
		"RSA":     newBox(t, must(rsa.GenerateKey(rand.Reader, 2048))(t)),
		"ECDSA":   newBox(t, must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)),
	} {
		made := b.tenant(nonce)
		got, err := ParseTenant(encode(t, made), consumer, nonce)
		if err != nil || !got.Equal(made) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if again := must(NewTenant(consumer, b.keys, nonce, made.Signature))(t); !again.Equal(made) {
			t.Errorf("%s: another Tenant each time", name)
		}
		inPEM := made
		inPEM.PublicKey = publicPEM(t, b.signer)
		if got, err := ParseTenant(encode(t, inPEM), consumer, nonce); err != nil || !got.Equal(made) || !made.Equal(got) {
			t.Errorf("%s with its key in PEM, as liqoctl has it: %+v, %v", name, got, err)
		}
	}
	b, other := ed25519Box(t), ed25519Box(t)
	if got, err := NewTenant(consumer, b.keys, nonce, other.sign(nonce)); err == nil {
		t.Errorf("a Tenant with the signature of another key: %+v", got)
	}
}

func TestHostileTenant(t *testing.T) {
	nonce := Nonce(nonceText)
	other := Nonce(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, nonceBytes)))
	b, thief := ed25519Box(t), ed25519Box(t)
	good := b.tenant(nonce)
	change := func(change func(*Tenant)) []byte {
		c := good
		change(&c)
		return encode(t, c)
	}
	asking := func(template x509.CertificateRequest) []byte {
		return change(func(c *Tenant) { c.CSR = b.request(&template) })
	}
	weak := must(rsa.GenerateKey(rand.Reader, 1024))(t)
	weakTenant := func() []byte {
		sum := sha256.Sum256([]byte(nonce))
		return encode(t, Tenant{
			ClusterID: consumer, PublicKey: publicPEM(t, weak),
			Signature: must(rsa.SignPKCS1v15(rand.Reader, weak, crypto.SHA256, sum[:]))(t),
			CSR:       pemOf(pemRequest, must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: controlPlane(consumer)}, weak))(t)),
		})
	}
	text := string(encode(t, good))
	for name, body := range map[string][]byte{
		"nothing": nil, "null": []byte("null"), "a list": []byte("[]"), "two values": []byte(text + "{}"), "not UTF-8": []byte(text + "\xff"),
		"too long":                []byte(text + strings.Repeat(" ", maxTenant)),
		"a field twice":           []byte(strings.Replace(text, `{`, `{"clusterID":"barn",`, 1)),
		"a field in capitals too": []byte(strings.Replace(text, `{`, `{"CLUSTERID":"barn",`, 1)),
		// These are fields of a Tenant's spec that change what its provider checks.
		"a policy":        []byte(strings.Replace(text, `{`, `{"authzPolicy":"TolerateNoHandshake",`, 1)),
		"a proxy":         []byte(strings.Replace(text, `{`, `{"proxyURL":"http://192.0.2.1",`, 1)),
		"a namespace":     []byte(strings.Replace(text, `{`, `{"namespace":"kube-system",`, 1)),
		"another cluster": change(func(c *Tenant) { c.ClusterID = "farm" }),
		"no key":          change(func(c *Tenant) { c.PublicKey = nil }),
		"another key":     change(func(c *Tenant) { c.PublicKey = must(thief.keys.encoded())(t) }),
		"a private key":   change(func(c *Tenant) { c.PublicKey = pemOf(pemPrivateKey, []byte{1}) }),
		"no PEM":          change(func(c *Tenant) { c.PublicKey = []byte("key") }),
		"text before":     change(func(c *Tenant) { c.PublicKey = append([]byte("x\n"), c.PublicKey...) }),
		"two keys":        change(func(c *Tenant) { c.PublicKey = bytes.Repeat(c.PublicKey, 2) }),
		"two keys in PEM": change(func(c *Tenant) { c.PublicKey = bytes.Repeat(publicPEM(t, b.signer), 2) }),
		"PEM after text":  change(func(c *Tenant) { c.PublicKey = append([]byte("x\n"), publicPEM(t, b.signer)...) }),
		"a header": change(func(c *Tenant) {
			c.PublicKey = pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Headers: map[string]string{"a": "b"}})
		}),
		"a short RSA key":  weakTenant(),
		"no signature":     change(func(c *Tenant) { c.Signature = nil }),
		"a long signature": change(func(c *Tenant) { c.Signature = make([]byte, maxSignature+1) }),
		"an old signature": change(func(c *Tenant) { c.Signature = b.sign(other) }),
		"no request":       change(func(c *Tenant) { c.CSR = nil }),
		"a long request":   change(func(c *Tenant) { c.CSR = append(c.CSR, bytes.Repeat([]byte("\n"), maxRequest)...) }),
		"a broken request": change(func(c *Tenant) { c.CSR = pemOf(pemRequest, []byte{0x30, 0}) }),
		"a certificate":    change(func(c *Tenant) { c.CSR = authority(t, true) }),
		"another's request": change(func(c *Tenant) {
			c.CSR = thief.request(&x509.CertificateRequest{Subject: controlPlane(consumer)})
		}),
		"an administrator":    asking(x509.CertificateRequest{Subject: pkix.Name{CommonName: string(consumer), Organization: []string{"system:masters"}}}),
		"administrators too":  asking(x509.CertificateRequest{Subject: pkix.Name{CommonName: string(consumer), Organization: []string{organization, "system:masters"}}}),
		"another's name":      asking(x509.CertificateRequest{Subject: controlPlane("farm")}),
		"a name too many":     asking(x509.CertificateRequest{Subject: pkix.Name{CommonName: string(consumer), Organization: []string{organization}, OrganizationalUnit: []string{"a"}}}),
		"two names":           asking(x509.CertificateRequest{Subject: pkix.Name{CommonName: string(consumer), Organization: []string{organization}, ExtraNames: []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "farm"}}}}),
		"no name":             asking(x509.CertificateRequest{}),
		"an alternative name": asking(x509.CertificateRequest{Subject: controlPlane(consumer), DNSNames: []string{"kubernetes"}}),
		"a broken signature": change(func(c *Tenant) {
			block, _ := pem.Decode(c.CSR)
			der := bytes.Clone(block.Bytes)
			der[len(der)-1] ^= 1
			c.CSR = pemOf(pemRequest, der)
		}),
	} {
		if got, err := ParseTenant(body, consumer, nonce); err == nil {
			t.Errorf("%s: taken: %+v", name, got)
		}
	}
}

func identity(t testing.TB, b box) Identity {
	t.Helper()
	return Identity{
		ClusterID: provider, Namespace: "liqo-tenant-barn", APIServer: "https://192.0.2.1:6443", CA: authority(t, true), Certificate: b.certificate(nil),
	}
}

func expected(b box) Expected {
	return Expected{Provider: provider, Consumer: consumer, Keys: b.keys, Now: now}
}

func TestIdentity(t *testing.T) {
	b := ed25519Box(t)
	good := identity(t, b)
	good.CA = append(good.CA, authority(t, true)...)
	got, err := ParseIdentity(encode(t, good), expected(b))
	if err != nil || !bytes.Equal(got.Certificate, good.Certificate) || !bytes.Equal(got.CA, good.CA) || got.APIServer != good.APIServer {
		t.Fatalf("%+v, %v", got, err)
	}
	for address, want := range map[string]string{
		"198.51.100.7": "https://198.51.100.7:6443", "2001:db8::1": "https://[2001:db8::1]:6443", "::ffff:198.51.100.7": "https://198.51.100.7:6443",
		"fe80::1%eth0": "", "0.0.0.0": "", "224.0.0.1": "",
	} {
		moved, err := got.At(netip.MustParseAddr(address))
		if moved.APIServer != want || (err == nil) != (want != "") {
			t.Errorf("at %s: %q, %v", address, moved.APIServer, err)
		}
	}
	got.APIServer = "https://birch.example.com"
	if moved, err := got.At(netip.MustParseAddr("198.51.100.7")); err != nil || moved.APIServer != "https://198.51.100.7:443" {
		t.Errorf("by a name: %q, %v", moved.APIServer, err)
	}
}

func TestHostileIdentity(t *testing.T) {
	b, thief := ed25519Box(t), ed25519Box(t)
	good := identity(t, b)
	change := func(change func(*Identity)) []byte {
		c := good
		change(&c)
		return encode(t, c)
	}
	server := func(url string) []byte { return change(func(c *Identity) { c.APIServer = url }) }
	certificate := func(alter func(*x509.Certificate)) []byte {
		return change(func(c *Identity) { c.Certificate = b.certificate(alter) })
	}
	text := string(encode(t, good))
	for name, body := range map[string][]byte{
		"nothing": nil, "null": []byte("null"), "too long": []byte(text + strings.Repeat(" ", maxIdentity)),
		"a field twice": []byte(strings.Replace(text, `{`, `{"ca":"",`, 1)),
		// A kubeconfig with any of these sends what is meant for the provider elsewhere.
		"a proxy":              []byte(strings.Replace(text, `{`, `{"proxyURL":"http://192.0.2.1",`, 1)),
		"credentials of AWS":   []byte(strings.Replace(text, `{`, `{"awsConfig":{},`, 1)),
		"another cluster":      change(func(c *Identity) { c.ClusterID = "farm" }),
		"another namespace":    change(func(c *Identity) { c.Namespace = "kube-system" }),
		"another's namespace":  change(func(c *Identity) { c.Namespace = "liqo-tenant-farm" }),
		"no server":            server(""),
		"no TLS":               server("http://192.0.2.1:6443"),
		"a user":               server("https://a:b@192.0.2.1:6443"),
		"a path":               server("https://192.0.2.1:6443/api"),
		"a query":              server("https://192.0.2.1:6443?a"),
		"a fragment":           server("https://192.0.2.1:6443#"),
		"a port too high":      server("https://192.0.2.1:65536"),
		"a line break":         server("https://192.0.2.1:6443\n- name: x"),
		"no CA":                change(func(c *Identity) { c.CA = nil }),
		"a CA that is none":    change(func(c *Identity) { c.CA = authority(t, false) }),
		"text between CAs":     change(func(c *Identity) { c.CA = append(append(bytes.Clone(c.CA), "x\n"...), c.CA...) }),
		"too many CAs":         change(func(c *Identity) { c.CA = bytes.Repeat(c.CA, maxCertificates+1) }),
		"a key as CA":          change(func(c *Identity) { c.CA = publicPEM(t, thief.signer) }),
		"no certificate":       change(func(c *Identity) { c.Certificate = nil }),
		"a long chain":         change(func(c *Identity) { c.Certificate = bytes.Repeat(c.Certificate, maxChain+1) }),
		"another's":            change(func(c *Identity) { c.Certificate = thief.certificate(nil) }),
		"a CA for this key":    certificate(func(c *x509.Certificate) { c.IsCA = true }),
		"another's name":       certificate(func(c *x509.Certificate) { c.Subject = controlPlane("farm") }),
		"another organization": certificate(func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }),
		"ended":                certificate(func(c *x509.Certificate) { c.NotAfter = now }),
	} {
		if got, err := ParseIdentity(body, expected(b)); err == nil {
			t.Errorf("%s: taken: %+v", name, got)
		}
	}
}

func TestParseKeys(t *testing.T) {
	b, other := ed25519Box(t), ed25519Box(t)
	private := pemOf(pemPrivateKey, must(x509.MarshalPKCS8PrivateKey(b.signer))(t))
	public := must(b.keys.encoded())(t)
	for name, pair := range map[string][2][]byte{
		"nothing": {nil, nil}, "no public key": {private, nil}, "no private key": {nil, public}, "swapped": {public, private},
		"of two pairs": {private, must(other.keys.encoded())(t)}, "not PKCS #8": {pemOf(pemPrivateKey, []byte{0x30, 0}), public},
	} {
		if _, err := ParseKeys(pair[0], pair[1]); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestReview(t *testing.T) {
	for name, c := range map[string]struct {
		status   string
		want     Slice
		accepted bool
	}{
		"nothing yet": {`{}`, Slice{}, false},
		"half":        {`{"conditions":[{"type":"Authentication","status":"Accepted"}]}`, Slice{Authentication: Accepted}, false},
		"accepted": {
			`{"conditions":[{"type":"Resources","status":"Accepted"},{"type":"Authentication","status":"Accepted"}],"resources":{"cpu":2,"memory":"4Gi"}}`,
			Slice{Authentication: Accepted, Resources: Accepted, Granted: map[string]string{"cpu": "2", "memory": "4Gi"}}, true,
		},
		"denied": {
			`{"conditions":[{"type":"Authentication","status":"Accepted"},{"type":"Resources","status":"Denied","message":"no\u001b[2J\nroom"}]}`,
			Slice{Authentication: Accepted, Resources: Denied, Message: "no [2J room"}, false,
		},
		"words that are none": {`{"conditions":[{"type":"Authentication","status":"True"},{"type":"Fun","status":"Denied","message":"x"}]}`, Slice{}, false},
		"amounts that are none": {
			`{"resources":{"cpu":-1,"memory":"much","gpu":{"a":1},"":"1","a\nb":"1","pods":"` + strings.Repeat("1", maxAmount+1) + `","storage":"1"}}`,
			Slice{Granted: map[string]string{"storage": "1"}}, false,
		},
	} {
		var status SliceStatus
		if err := json.Unmarshal([]byte(c.status), &status); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := status.Review()
		if string(encode(t, got)) != string(encode(t, c.want)) || got.Accepted() != c.accepted {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	many := SliceStatus{Resources: map[string]Amount{}}
	for i := range 2 * maxAmounts {
		many.Resources["example.com/"+string(rune('a'+i%26))+string(rune('a'+i/26))] = "1"
	}
	if got := many.Review(); len(got.Granted) != maxAmounts {
		t.Errorf("%d amounts", len(got.Granted))
	}
}

func network() Network {
	return Network{
		ClusterID: provider, Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("100.64.0.0/12")},
		External: []netip.Prefix{netip.MustParsePrefix("10.70.0.0/16")}, Gateway: Server, Port: 31840, MTU: 1340, Key: bytes.Repeat([]byte{7}, keyBytes),
	}
}

var taken = []netip.Prefix{netip.MustParsePrefix("192.168.4.0/22"), netip.MustParsePrefix("2001:db8::/64")}

func TestNetwork(t *testing.T) {
	good := network()
	got, err := ParseNetwork(encode(t, good), provider, taken)
	if err != nil || !reflect.DeepEqual(got, good) {
		t.Errorf("%+v, %v", got, err)
	}
	before := Network{ClusterID: provider, Pods: good.Pods, External: good.External}
	if got, err := ParseNetwork(encode(t, before), provider, taken); err != nil || !reflect.DeepEqual(got, before) {
		t.Errorf("before there is a gateway: %+v, %v", got, err)
	}
	off, err := ParseNetwork([]byte(`{"clusterID":"mill","problem":"off\u001b[2J","pod":["0.0.0.0/0"]}`), provider, taken)
	if err != nil || !reflect.DeepEqual(off, Network{ClusterID: provider, Problem: "off [2J"}) {
		t.Errorf("%+v, %v", off, err)
	}
	for address, want := range map[string]string{"198.51.100.7": "198.51.100.7", "::ffff:198.51.100.7": "198.51.100.7", "2001:db8::7": "", "fe80::1%eth0": "", "0.0.0.0": "", "224.0.0.1": ""} {
		if got, err := Reachable(netip.MustParseAddr(address)); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
}

func TestHostileNetwork(t *testing.T) {
	change := func(change func(*Network)) []byte {
		c := network()
		change(&c)
		return encode(t, c)
	}
	pods := func(ranges ...string) []byte {
		return change(func(c *Network) {
			c.Pods = nil
			for _, r := range ranges {
				c.Pods = append(c.Pods, netip.MustParsePrefix(r))
			}
		})
	}
	text := string(encode(t, network()))
	for name, body := range map[string][]byte{
		"nothing": nil, "null": []byte("null"), "too long": []byte(text + strings.Repeat(" ", maxNetwork)), "a list": []byte("[]"),
		"a field twice":       []byte(strings.Replace(text, `{`, `{"pod":[],`, 1)),
		"a host":              []byte(strings.Replace(text, `{`, `{"addresses":["198.51.100.7"],`, 1)),
		"a protocol":          []byte(strings.Replace(text, `{`, `{"protocol":"TCP",`, 1)),
		"a template":          []byte(strings.Replace(text, `{`, `{"serverTemplateRef":{},`, 1)),
		"a Secret":            []byte(strings.Replace(text, `{`, `{"secretRef":{"name":"authentication-keys"},`, 1)),
		"what is no range":    []byte(strings.Replace(text, `10.42.0.0/16`, `10.42.0.0`, 1)),
		"a range of null":     []byte(strings.Replace(text, `"10.42.0.0/16"`, `null`, 1)),
		"an empty range":      []byte(strings.Replace(text, `10.42.0.0/16`, ``, 1)),
		"another cluster":     change(func(c *Network) { c.ClusterID = "farm" }),
		"no pods":             pods(),
		"too many":            pods("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.4.0/24", "10.0.5.0/24", "10.0.6.0/24", "10.0.7.0/24", "10.0.8.0/24"),
		"no external range":   change(func(c *Network) { c.External = nil }),
		"two":                 change(func(c *Network) { c.External = append(c.External, netip.MustParsePrefix("10.71.0.0/16")) }),
		"the internet":        pods("0.0.0.0/0"),
		"half of it":          pods("128.0.0.0/1"),
		"somebody's":          pods("8.8.8.0/24"),
		"more than private":   pods("192.0.0.0/8"),
		"loopback":            pods("127.0.0.0/8"),
		"link-local":          pods("169.254.169.0/24"),
		"multicast":           pods("224.0.0.0/16"),
		"reserved":            pods("240.0.0.0/16"),
		"IPv6":                pods("fd00::/64"),
		"IPv4 in IPv6":        pods("::ffff:10.0.0.0/112"),
		"too large":           pods("10.0.0.0/10"),
		"too large together":  pods("10.0.0.0/12", "172.16.0.0/12"),
		"too small":           pods("10.0.0.1/32"),
		"bits of hosts":       pods("10.42.0.1/16"),
		"twice":               pods("10.42.0.0/16", "10.42.0.0/16"),
		"within another":      pods("10.42.0.0/16", "10.42.7.0/24"),
		"the external ones":   pods("10.70.0.0/24"),
		"our nodes":           pods("192.168.0.0/16"),
		"near our nodes":      pods("192.168.7.128/25"),
		"beside our nodes":    pods("192.168.5.0/24"),
		"another gateway":     change(func(c *Network) { c.Gateway = "Server" }),
		"a port of none":      change(func(c *Network) { c.Gateway, c.MTU, c.Key = "", 0, nil }),
		"a client's port":     change(func(c *Network) { c.Gateway, c.MTU = Client, 0 }),
		"a port too high":     change(func(c *Network) { c.Port = 1 << 16 }),
		"a negative port":     change(func(c *Network) { c.Port = -1 }),
		"a port and a half":   []byte(strings.Replace(text, `31840`, `31840.5`, 1)),
		"no MTU":              change(func(c *Network) { c.MTU = 0 }),
		"a small MTU":         change(func(c *Network) { c.MTU = minMTU - 1 }),
		"a large MTU":         change(func(c *Network) { c.MTU = maxMTU + 1 }),
		"a key of no gateway": change(func(c *Network) { c.Gateway, c.Port, c.MTU = "", 0, 0 }),
		"a short key":         change(func(c *Network) { c.Key = c.Key[1:] }),
		"a long key":          change(func(c *Network) { c.Key = append(c.Key, 1) }),
		"a key of zeros":      change(func(c *Network) { c.Key = make([]byte, keyBytes) }),
	} {
		if got, err := ParseNetwork(body, provider, taken); err == nil {
			t.Errorf("%s: taken: %+v", name, got)
		}
	}
}

func TestRangePattern(t *testing.T) {
	pattern := regexp.MustCompile(RangePattern)
	for _, in := range ranges {
		last := in.Addr().As4()
		for i := range last {
			last[i] |= ^net.CIDRMask(in.Bits(), 32)[i]
		}
		end := netip.AddrFrom4(last)
		for _, r := range []netip.Prefix{in, netip.PrefixFrom(end, 30).Masked(), netip.PrefixFrom(end, 24).Masked()} {
			if r.Bits() >= 10 && !pattern.MatchString(r.String()) {
				t.Errorf("%s is none", r)
			}
		}
		for _, r := range []netip.Prefix{netip.PrefixFrom(in.Addr().Prev(), 24), netip.PrefixFrom(end.Next(), 24), netip.PrefixFrom(in.Addr(), min(in.Bits()-1, 9))} {
			if pattern.MatchString(r.Masked().String()) {
				t.Errorf("%s is one", r.Masked())
			}
		}
	}
}

// FuzzNetwork: whatever is taken has ranges and a gateway that can be written down.
func FuzzNetwork(f *testing.F) {
	f.Add(encode(f, network()))
	f.Add([]byte(`{"clusterID":"mill","problem":"off"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParseNetwork(body, provider, taken)
		if err != nil {
			return
		}
		if again, err := ParseNetwork(encode(t, got), provider, taken); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("not read again: %v", err)
		}
		if got.Problem != "" {
			if !reflect.DeepEqual(got, Network{ClusterID: provider, Problem: got.Problem}) || strings.ContainsFunc(got.Problem, func(c rune) bool { return !unicode.IsPrint(c) }) {
				t.Errorf("taken: %+v", got)
			}
			return
		}
		for _, r := range append(got.Pods, got.External...) {
			if !regexp.MustCompile(RangePattern).MatchString(r.String()) {
				t.Errorf("taken: %s, which the pattern is not for", r)
			}
			if a := r.Addr(); !a.Is4() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || r.Bits() < 11 || r.Overlaps(taken[0]) {
				t.Errorf("taken: %s", r)
			}
		}
		if got.Port < 0 || got.Port > 65535 || got.Key != nil && len(got.Key) != keyBytes || got.MTU > maxMTU {
			t.Errorf("taken: %+v", got)
		}
	})
}

func FuzzNonce(f *testing.F) {
	f.Add([]byte(nonceText))
	f.Add([]byte(nonceText[:87] + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := ParseNonce(b); err == nil && (string(n) != string(b) || strings.Trim(string(n), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") != "") {
			t.Errorf("%q is a nonce", b)
		}
	})
}

// FuzzTenant: whatever is taken is for the consumer, and for nothing but a control plane.
func FuzzTenant(f *testing.F) {
	nonce := Nonce(nonceText)
	f.Add(encode(f, ed25519Box(f).tenant(nonce)))
	f.Add(encode(f, newBox(f, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(f)).tenant(nonce)))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParseTenant(body, consumer, nonce)
		if err != nil {
			return
		}
		block, _ := pem.Decode(got.CSR)
		csr := must(x509.ParseCertificateRequest(block.Bytes))(t)
		if got.ClusterID != consumer || csr.Subject.String() != "CN=barn,O=liqo.io" {
			t.Errorf("taken: %+v for %s", got, csr.Subject)
		}
		if again, err := ParseTenant(encode(t, got), consumer, nonce); err != nil || !again.Equal(got) {
			t.Errorf("not read again: %v", err)
		}
	})
}

func FuzzIdentity(f *testing.F) {
	b := ed25519Box(f)
	f.Add(encode(f, identity(f, b)))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParseIdentity(body, expected(b))
		if err != nil {
			return
		}
		moved, err := got.At(netip.MustParseAddr("192.0.2.9"))
		if got.ClusterID != provider || got.Namespace != consumer.TenantNamespace() || err != nil || !strings.HasPrefix(moved.APIServer, "https://192.0.2.9:") {
			t.Errorf("taken: %+v, %v", got, err)
		}
	})
}

func FuzzReview(f *testing.F) {
	f.Add([]byte(`{"conditions":[{"type":"Resources","status":"Denied","message":"no"}],"resources":{"cpu":"2"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var status SliceStatus
		if json.Unmarshal(body, &status) != nil {
			return
		}
		got := status.Review()
		if len(got.Granted) > maxAmounts || strings.ContainsFunc(got.Message, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("%+v", got)
		}
		for name, amount := range got.Granted {
			if checkAmount(name, amount) != nil {
				t.Errorf("%q of %q", amount, name)
			}
		}
	})
}
