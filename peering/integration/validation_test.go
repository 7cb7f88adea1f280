package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
)

// What the rules about URLs say.
const (
	sayScheme   = "authUrl must begin with https://, as in https://192.0.2.1:6447"
	sayNoURL    = "authUrl is no URL: write https://ADDRESS:PORT"
	sayBrackets = "authUrl must have an IPv6 address in brackets"
	sayNoHost   = "authUrl has no host"
	sayPort     = "authUrl must have a port between 1 and 65535"
	sayUser     = "authUrl must not hold a user name or password"
	sayPath     = "authUrl must end after the port"
	sayEmpty    = "authUrl must not be empty"
)

// urls are what the API server is to take as an authUrl, and what it is to say
// about the others.
var urls = []struct {
	url string
	say []string // all of it; nil = it is taken
}{
	{"https://192.0.2.1:6447", nil},
	{"https://[2001:db8::1]:6447", nil},
	{"https://[2001:db8::1]", nil},
	{"https://[fe80::1%25eth0]:6447", nil},
	{"https://box.example.com", nil},
	{"https://box.example.com:443/", nil},
	{"https://box:1", nil},
	{"https://my_box:65535", nil},
	{"HTTPS://Box.Example.com:6447", nil},

	{"http://192.0.2.1:6447", []string{sayScheme}},
	{"ftp://192.0.2.1:6447", []string{sayScheme}},
	{"192.0.2.1:6447", []string{sayScheme}},
	{"box:6447", []string{sayScheme}},
	{"box", []string{sayScheme}},
	{"//box:6447", []string{sayScheme}},
	{" https://box:6447", []string{sayScheme}},
	{"file:///etc/passwd", []string{sayScheme}},
	{"https:/box:6447", []string{sayScheme}},
	{"https://ho st", []string{sayNoURL}},
	{"https://box:six", []string{sayNoURL}},
	{"https://box:6447 ", []string{sayNoURL}},
	{"https://box:-1", []string{sayNoURL}},
	{"https://[2001:db8::1:6447", []string{sayNoURL}},
	{"https://bo\tx", []string{sayNoURL}},
	{"https://2001:db8::1:6447", []string{sayBrackets}},
	{"https://2001:db8::1", []string{sayBrackets}},
	{"https://::1", []string{sayBrackets}},
	{"https://", []string{sayNoHost}},
	{"https:///", []string{sayNoHost}},
	{"https://:6447", []string{sayNoHost}},
	{"https://box:0", []string{sayPort}},
	{"https://box:99999", []string{sayPort}},
	{"https://box:65536", []string{sayPort}},
	{"https://box:123456789012345678901234567890", []string{sayPort}},
	{"https://box:", []string{sayPort}},
	{"https://user@box", []string{sayUser}},
	{"https://user:secret@box:6447", []string{sayUser}},
	{"https://box/path", []string{sayPath}},
	{"https://box:6447/ids", []string{sayPath}},
	{"https://box//", []string{sayPath}},
	{"https://box:6447/%2e", []string{sayPath}},
	{"https://box?x=1", []string{sayPath}},
	{"https://box:6447/?", []string{sayPath}},
	{"https://box:6447/#x", []string{sayPath}},
	{"https://user@box/path?x#y", []string{sayUser, sayPath}},
	{"https://" + strings.Repeat("x", 1016), nil},
	{"https://" + strings.Repeat("x", 1017), []string{"may not be more than 1024"}},
}

// TestURLs: every URL that no endpoint can have is refused when it is written,
// with what to write instead.
func TestURLs(t *testing.T) {
	k := startKube(t)
	installCRDs(t, k)
	for i, tc := range urls {
		name := fmt.Sprintf("c-%d", i)
		url, err := json.Marshal(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range []struct{ kind, path, spec string }{
			{api.KindForeignCluster, fcPath, fmt.Sprintf(`{"authUrl":%s}`, url)},
			{api.KindPeeringRequest, prPath, fmt.Sprintf(`{"clusterIdentity":{"clusterID":%q},"authUrl":%s}`, name, url)},
		} {
			expect(t, k, object.kind, object.path, name, object.spec, tc.say)
		}
	}
	expect(t, k, api.KindForeignCluster, fcPath, "empty", `{"authUrl":""}`, []string{sayEmpty})
	expect(t, k, api.KindForeignCluster, fcPath, "none", `{}`, []string{"set authUrl (where the cluster's endpoint is) or clusterIdentity.clusterID"})
	expect(t, k, api.KindPeeringRequest, prPath, "empty", `{"clusterIdentity":{"clusterID":"empty"},"authUrl":""}`, nil)

	t.Run("an edit", func(t *testing.T) {
		_, err := k.Kubectl(t.Context(), "patch", "fc", "c-0", "--type", "merge", "-p", `{"spec":{"authUrl":"https://192.0.2.1:6447/ids"}}`)
		if err == nil || !strings.Contains(err.Error(), sayPath) {
			t.Errorf("error %v", err)
		}
	})
}

// expect creates an object and checks what the API server says about it: say, and
// nothing else.
func expect(t *testing.T, k *bed.Kube, kind, path, name, spec string, say []string) {
	t.Helper()
	version := strings.TrimPrefix(path[:strings.LastIndexByte(path, '/')], "/apis/")
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`, version, kind, name, spec)
	answer, err := k.Request(t.Context(), "POST", path, jsonMIME, []byte(body))
	if err == nil {
		if len(say) > 0 {
			t.Errorf("%s %.200s is taken, want %q", kind, spec, say)
		}
		return
	}
	var refusal struct {
		Details struct {
			Causes []struct {
				Message string `json:"message"`
			} `json:"causes"`
		} `json:"details"`
	}
	if err := json.Unmarshal(answer, &refusal); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, cause := range refusal.Details.Causes {
		// The server adds that to whatever it says before it comes to our rules.
		if !strings.Contains(cause.Message, "some validation rules were not checked") {
			said = append(said, cause.Message)
		}
	}
	if !slices.EqualFunc(said, say, strings.Contains) {
		t.Errorf("%s %.200s:\nsaid %q\nwant %q", kind, spec, said, say)
	}
}

// TestSearchDomainValidation: a domain or server that nobody can ask is refused
// when it is written, with what to write instead.
func TestSearchDomainValidation(t *testing.T) {
	k := startKube(t)
	installCRDs(t, k)
	const (
		domain = "domain must be the name of a DNS domain, such as example.com"
		scheme = "server may begin with tls://, for DNS over TLS, and with no other scheme"
		server = "server must be a host name or an IP address, with or without a port"
		port   = "server must have a port between 1 and 65535"
	)
	long := strings.Repeat(strings.Repeat("x", 63)+".", 3) + strings.Repeat("x", 61)
	for i, tc := range []struct {
		spec string
		say  []string
	}{
		{`{"domain":"example.com","autojoin":true}`, nil},
		{`{"domain":"Example.COM."}`, nil},
		{`{"domain":"local"}`, nil},
		{`{"domain":"_sites.my-farm.example"}`, nil},
		{`{"domain":"` + long + `"}`, nil},
		{`{}`, []string{"Required value"}},
		{`{"domain":""}`, []string{domain}},
		{`{"domain":"x` + long + `"}`, []string{"may not be more than 253"}},
		{`{"domain":"exam ple.com"}`, []string{domain}},
		{`{"domain":"example..com"}`, []string{domain}},
		{`{"domain":".example.com"}`, []string{domain}},
		{`{"domain":"-example.com"}`, []string{domain}},
		{`{"domain":"example.com/x"}`, []string{domain}},
		{`{"domain":"https://example.com"}`, []string{domain}},
		{`{"domain":"` + strings.Repeat("x", 64) + `.com"}`, []string{domain}},
		{`{"domain":"grün.example"}`, []string{domain}},
		{`{"domain":"a","autojoin":"yes"}`, []string{"must be of type boolean"}},

		{`{"domain":"a","server":""}`, nil},
		{`{"domain":"a","server":"192.0.2.53"}`, nil},
		{`{"domain":"a","server":"192.0.2.53:5353"}`, nil},
		{`{"domain":"a","server":"ns.example.com"}`, nil},
		{`{"domain":"a","server":"ns.example.com:53"}`, nil},
		{`{"domain":"a","server":"2001:db8::53"}`, nil},
		{`{"domain":"a","server":"::1"}`, nil},
		{`{"domain":"a","server":"fe80::1%eth0"}`, nil},
		{`{"domain":"a","server":"[2001:db8::53]:53"}`, nil},
		{`{"domain":"a","server":"[fe80::1%eth0]:65535"}`, nil},
		{`{"domain":"a","server":"::ffff:192.0.2.53"}`, nil},
		{`{"domain":"a","server":"tls://dns.example.com"}`, nil},
		{`{"domain":"a","server":"tls://192.0.2.53:853"}`, nil},
		{`{"domain":"a","server":"tls://[2001:db8::53]:853"}`, nil},
		{`{"domain":"a","server":"https://dns.example.com"}`, []string{scheme}},
		{`{"domain":"a","server":"udp://192.0.2.53:53"}`, []string{scheme}},
		{`{"domain":"a","server":"https://dns.example.com/dns-query"}`, []string{scheme, server}},
		{`{"domain":"a","server":"192.0.2.53/24"}`, []string{server}},
		{`{"domain":"a","server":"192.0.2.53 192.0.2.54"}`, []string{server}},
		{`{"domain":"a","server":"192.0.2.53,192.0.2.54"}`, []string{server}},
		{`{"domain":"a","server":"ns:dns"}`, []string{server}},
		{`{"domain":"a","server":"-ns"}`, []string{server}},
		{`{"domain":"a","server":":53"}`, []string{server}},
		{`{"domain":"a","server":"[ns]:53"}`, []string{server}},
		{`{"domain":"a","server":"[2001:db8::53"}`, []string{server}},
		{`{"domain":"a","server":"tls://"}`, []string{server}},
		{`{"domain":"a","server":"ns:0"}`, []string{port}},
		{`{"domain":"a","server":"ns:65536"}`, []string{port}},
		{`{"domain":"a","server":"ns:"}`, []string{port}},
		{`{"domain":"a","server":"tls://[2001:db8::53]:99999999999999999999"}`, []string{port}},
		{`{"domain":"a","server":"` + strings.Repeat("n", 271) + `"}`, []string{"may not be more than 270"}},

		{`{"domain":"a","minIntervalSeconds":1,"maxIntervalSeconds":86400}`, nil},
		{`{"domain":"a","minIntervalSeconds":60,"maxIntervalSeconds":60}`, nil},
		{`{"domain":"a","minIntervalSeconds":0}`, []string{"should be greater than or equal to 1"}},
		{`{"domain":"a","maxIntervalSeconds":86401}`, []string{"should be less than or equal to 86400"}},
		{`{"domain":"a","minIntervalSeconds":1.5}`, []string{"must be of type int64", "must be of type integer"}},
		{`{"domain":"a","minIntervalSeconds":60,"maxIntervalSeconds":30}`, []string{"minIntervalSeconds must not be greater than maxIntervalSeconds"}},
	} {
		expect(t, k, api.KindSearchDomain, sdPath, fmt.Sprintf("d-%d", i), tc.spec, tc.say)
	}
	for path, want := range map[string]string{
		"sd.spec.domain": "such as example.com", "sd.spec.server": "DNS over TLS", "sd.spec.autojoin": "goes before the setting for all clusters",
		"sd.status.found": "what the domain lists", "sd.status.lastQuery.outcome": "ServerFailure",
	} {
		explains(t, k, path, want)
	}
}

// explains checks that kubectl explain says something about a field.
func explains(t *testing.T, k *bed.Kube, path, want string) {
	t.Helper()
	within(t, "kubectl explain "+path, func() error { // what kubectl knows lags behind a moment
		out, err := k.Kubectl(t.Context(), "explain", path)
		if err == nil && !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			err = fmt.Errorf("no %q in:\n%s", want, out)
		}
		return err
	})
}

// TestClusterConfigValidation: no value that cannot take effect is taken, and a
// misspelt one does not go unnoticed.
func TestClusterConfigValidation(t *testing.T) {
	k := startKube(t)
	installCRDs(t, k)
	const (
		name    = "clusterName must be printable text of at most 63 bytes"
		domain  = "domain must be a domain name, such as local"
		service = "service must be a DNS-SD service over TCP, such as _liqo._tcp"
	)
	for _, tc := range []struct {
		spec string
		say  []string
	}{
		{`{"discoveryConfig":{"ttl":9}}`, []string{"should be greater than or equal to 10"}},
		{`{"discoveryConfig":{"ttl":86401}}`, []string{"should be less than or equal to 86400"}},
		{`{"discoveryConfig":{"ttl":"90s"}}`, []string{"must be of type integer"}},
		{`{"discoveryConfig":{"enableDiscovery":"off"}}`, []string{"must be of type boolean"}},
		{`{"discoveryConfig":{"clusterName":""}}`, []string{"should be at least 1 chars long"}},
		{`{"discoveryConfig":{"clusterName":"` + strings.Repeat("x", 64) + `"}}`, []string{"may not be more than 63"}},
		{`{"discoveryConfig":{"clusterName":"` + strings.Repeat("ü", 32) + `"}}`, []string{name}},
		{`{"discoveryConfig":{"clusterName":" barn"}}`, []string{name}},
		{`{"discoveryConfig":{"clusterName":"ba\trn"}}`, []string{name}},
		{`{"discoveryConfig":{"clusterName":"ba\u202ern"}}`, []string{name}},
		{`{"discoveryConfig":{"domain":"lo cal"}}`, []string{domain}},
		{`{"discoveryConfig":{"service":"_liqo._udp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"liqo"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_li--qo._tcp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_123._tcp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_liqo-._tcp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_abcdefghijklmnop._tcp"}}`, []string{service}},
		{`{"advertisementConfig":{"outgoingConfig":{"resourceSharingPercentage":101}}}`, []string{"should be less than or equal to 100"}},
		{`{"advertisementConfig":{"outgoingConfig":{"resourceSharingPercentage":-1}}}`, []string{"should be greater than or equal to 0"}},
		{`{"advertisementConfig":{"ingoingConfig":{"acceptPolicy":"Perhaps"}}}`, []string{`supported values: "AutoAcceptMax", "Manual"`}},
		{`{"advertisementConfig":{"keepaliveRetryTime":0}}`, []string{"should be greater than or equal to 1"}},

		{`{"discoveryConfig":{"clusterName":"Grünes Haus №1","enableDiscovery":false,"enableAdvertisement":false,"autojoin":true,"autojoinUntrusted":false,"ttl":90,
			"domain":"local","service":"_l-1._tcp"},"authConfig":{"allowEmptyToken":false},"advertisementConfig":{"outgoingConfig":{"enableBroadcaster":true,
			"resourceSharingPercentage":100},"ingoingConfig":{"acceptPolicy":"AutoAcceptMax","maxAcceptableAdvertisement":5},"keepaliveThreshold":3,"keepaliveRetryTime":20}}`, nil},
	} {
		expect(t, k, api.KindClusterConfig, ccPath, api.ClusterConfigName, tc.spec, tc.say)
	}
	expect(t, k, api.KindClusterConfig, ccPath, "another-one", `{}`, []string{"the agent reads the ClusterConfig named liqo-configuration only"})

	t.Run("a misspelt switch", func(t *testing.T) {
		out, err := shell(t, k, `kubectl patch clusterconfigs liqo-configuration --patch '{"spec":{"discoveryConfig":{"enableDiscovry": true}}}' --type merge 2>&1`)
		if err != nil || !strings.Contains(out, `unknown field "spec.discoveryConfig.enableDiscovry"`) {
			t.Errorf("kubectl patch: %v\n%s", err, out)
		}
		manifest := "apiVersion: config.liqo.io/v1alpha1\nkind: ClusterConfig\nmetadata: {name: liqo-configuration}\nspec: {discoveryConfig: {enableDiscovry: true}}\n"
		if err := k.Apply(t.Context(), manifest); err == nil || !strings.Contains(err.Error(), `unknown field "spec.discoveryConfig.enableDiscovry"`) {
			t.Errorf("kubectl apply: %v", err)
		}
	})
	t.Run("kubectl", func(t *testing.T) {
		out, err := k.Kubectl(t.Context(), "get", "clusterconfigs")
		if got := strings.Join(strings.Fields(out), " "); err != nil || !strings.HasPrefix(got, "NAME DISCOVERY ADVERTISEMENT AUTOJOIN HEALTHY AGE liqo-configuration false false true") {
			t.Errorf("kubectl get: %v\n%s", err, out)
		}
	})
	for path, want := range map[string]string{
		"clusterconfig": "wins over the configuration file and takes effect at once", "cc.spec.discoveryConfig.enableDiscovery": "discovery.enable_discovery",
		"cc.spec.discoveryConfig.ttl": "how many seconds", "cc.spec.authConfig.allowEmptyToken": "playgrounds",
	} {
		explains(t, k, path, want)
	}
}

// shell runs a command as a person does who is logged in to the box, and returns
// what it printed.
func shell(t *testing.T, k *bed.Kube, command string) (string, error) {
	t.Helper()
	return k.Host.Run(t.Context(), "sh", "-c", command)
}
