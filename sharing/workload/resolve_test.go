package workload

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestClusterDomain(t *testing.T) {
	for _, tc := range []struct {
		searches []string
		domain   string
		rest     []string
	}{
		{nil, DefaultDomain, nil},
		{[]string{"shop.svc.corp.lan", "svc.corp.lan", "corp.lan"}, "corp.lan", []string{}},
		{[]string{"shop.svc.corp.lan", "svc.corp.lan", "corp.lan", "example.com"}, "corp.lan", []string{"example.com"}},
		{[]string{"shop.svc.k8s", "svc.k8s", "k8s"}, "k8s", []string{}},
		{[]string{"example.com"}, DefaultDomain, []string{"example.com"}},
		{[]string{"shop.svc.corp.lan", "svc.corp.lan"}, DefaultDomain, []string{"shop.svc.corp.lan", "svc.corp.lan"}},
		{[]string{"a.b.svc.corp.lan", "svc.corp.lan", "corp.lan"}, DefaultDomain, []string{"a.b.svc.corp.lan", "svc.corp.lan", "corp.lan"}},
		{[]string{".svc.corp.lan", "svc.corp.lan", "corp.lan"}, DefaultDomain, []string{".svc.corp.lan", "svc.corp.lan", "corp.lan"}},
		{[]string{"shop.svc.", "svc.", ""}, DefaultDomain, []string{"shop.svc.", "svc.", ""}},
		{[]string{"shop.svc..", "svc..", "."}, DefaultDomain, []string{"shop.svc..", "svc..", "."}},
		{[]string{"shop.svc.Corp", "svc.Corp", "Corp"}, DefaultDomain, []string{"shop.svc.Corp", "svc.Corp", "Corp"}},
		{[]string{"shop.svc." + long, "svc." + long, long}, DefaultDomain, []string{"shop.svc." + long, "svc." + long, long}},
	} {
		domain, rest := ClusterDomain(tc.searches)
		if domain != tc.domain || !slices.Equal(rest, tc.rest) {
			t.Errorf("%q: %q %q", tc.searches, domain, rest)
		}
	}
}

var long = strings.Repeat("a23456789.", 13) + "lan"

// dnsOf is how a pod asks for names.
type dnsOf struct {
	Policy                corev1.DNSPolicy
	Servers, Search, Opts []string
}

func (d dnsOf) spec() *corev1.PodSpec {
	out := &corev1.PodSpec{DNSPolicy: d.Policy}
	if d.Servers != nil || d.Search != nil || d.Opts != nil {
		out.DNSConfig = &corev1.PodDNSConfig{Nameservers: d.Servers, Searches: d.Search}
	}
	for _, o := range d.Opts {
		name, value, valued := strings.Cut(o, ":")
		option := corev1.PodDNSConfigOption{Name: name}
		if valued {
			option.Value = &value
		}
		out.DNSConfig.Options = append(out.DNSConfig.Options, option)
	}
	return out
}

func dnsIn(spec *corev1.PodSpec) dnsOf {
	out := dnsOf{Policy: spec.DNSPolicy}
	if c := spec.DNSConfig; c != nil {
		out.Servers, out.Search = c.Nameservers, c.Searches
		for _, o := range c.Options {
			text := o.Name
			if o.Value != nil {
				text += ":" + *o.Value
			}
			out.Opts = append(out.Opts, text)
		}
	}
	return out
}

// TestResolve: what a pod has at a provider that answers for its cluster, and at one that does not.
func TestResolve(t *testing.T) {
	const agent = "169.254.241.53"
	home := []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	corp := []string{"shop.svc.corp.lan", "svc.corp.lan", "corp.lan"}
	var many []string
	for i := range 40 {
		many = append(many, strings.Repeat("a", i+1)+".example.com")
	}
	for name, tc := range map[string]struct{ pod, with, without dnsOf }{
		"nothing said": {with: dnsOf{corev1.DNSNone, []string{agent}, home, []string{"ndots:5"}}},
		"the default": {
			pod:  dnsOf{Policy: corev1.DNSClusterFirst},
			with: dnsOf{corev1.DNSNone, []string{agent}, home, []string{"ndots:5"}}, without: dnsOf{Policy: corev1.DNSClusterFirst},
		},
		"another domain": {
			pod:     dnsOf{Policy: corev1.DNSClusterFirst, Search: slices.Concat(corp, []string{"example.com"})},
			with:    dnsOf{corev1.DNSNone, []string{agent}, slices.Concat(corp, []string{"example.com"}), []string{"ndots:5"}},
			without: dnsOf{Policy: corev1.DNSClusterFirst, Search: []string{"example.com"}},
		},
		"another namespace in it": {
			pod:     dnsOf{Policy: corev1.DNSClusterFirst, Search: []string{"other.svc.corp.lan", "svc.corp.lan", "corp.lan"}},
			with:    dnsOf{corev1.DNSNone, []string{agent}, corp, []string{"ndots:5"}},
			without: dnsOf{Policy: corev1.DNSClusterFirst},
		},
		"words of its own": {
			pod:     dnsOf{corev1.DNSClusterFirst, []string{"192.0.2.1", agent, "192.0.2.2", "192.0.2.3"}, []string{"example.com", "cluster.local"}, []string{"ndots:2", "rotate"}},
			with:    dnsOf{corev1.DNSNone, []string{agent, "192.0.2.1", "192.0.2.2"}, slices.Concat(home, []string{"example.com"}), []string{"ndots:2", "rotate"}},
			without: dnsOf{corev1.DNSClusterFirst, []string{"192.0.2.1", agent, "192.0.2.2", "192.0.2.3"}, []string{"example.com", "cluster.local"}, []string{"ndots:2", "rotate"}},
		},
		"too many": {
			pod:     dnsOf{Policy: corev1.DNSClusterFirst, Search: many},
			with:    dnsOf{corev1.DNSNone, []string{agent}, slices.Concat(home, many[:29]), []string{"ndots:5"}},
			without: dnsOf{Policy: corev1.DNSClusterFirst, Search: many},
		},
		"of the host": {
			pod:  dnsOf{corev1.DNSDefault, nil, []string{"example.com"}, []string{"rotate"}},
			with: dnsOf{corev1.DNSNone, []string{agent}, []string{"example.com"}, []string{"rotate"}}, without: dnsOf{corev1.DNSDefault, nil, []string{"example.com"}, []string{"rotate"}},
		},
		"of its own": {
			pod:  dnsOf{corev1.DNSNone, []string{"192.0.2.1"}, corp, nil},
			with: dnsOf{corev1.DNSNone, []string{"192.0.2.1"}, corp, nil}, without: dnsOf{corev1.DNSNone, []string{"192.0.2.1"}, corp, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			with, without := tc.pod.spec(), tc.pod.spec()
			resolve(with, Guest{Origin: "shop", Nameservers: []string{agent}})
			resolve(without, Guest{Origin: "shop"})
			if d := cmp.Diff(tc.with, dnsIn(with)); d != "" {
				t.Error("answered: " + d)
			}
			if got := dnsIn(without); got.Policy != tc.without.Policy || !slices.Equal(got.Search, tc.without.Search) || !slices.Equal(got.Servers, tc.without.Servers) || !slices.Equal(got.Opts, tc.without.Opts) {
				t.Errorf("not answered: %+v", got)
			}
			// What was completed once stays.
			again := with.DeepCopy()
			resolve(again, Guest{Origin: "shop", Nameservers: []string{agent}})
			if d := cmp.Diff(dnsIn(with), dnsIn(again)); d != "" {
				t.Error("again: " + d)
			}
		})
	}
}

// TestSayDomain: a consumer says how its cluster is called, where that is not what everybody is.
func TestSayDomain(t *testing.T) {
	pod := podWith(t, corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}})
	pod.Namespace = "shop"
	for _, tc := range []struct {
		network *Network
		policy  corev1.DNSPolicy
		want    string
	}{
		{nil, "", ""}, {&Network{}, "", ""}, {&Network{Domain: DefaultDomain}, "", ""},
		{&Network{Domain: "corp.lan"}, "", "shop.svc.corp.lan svc.corp.lan corp.lan"},
		{&Network{Domain: "corp.lan"}, corev1.DNSClusterFirst, "shop.svc.corp.lan svc.corp.lan corp.lan"},
		{&Network{Domain: "corp.lan"}, corev1.DNSDefault, ""}, {&Network{Domain: "corp.lan"}, corev1.DNSNone, ""},
	} {
		mine := pod.DeepCopy()
		mine.Spec.DNSPolicy = tc.policy
		in := origin
		in.Network = tc.network
		out, r := Translate(mine, in)
		if r != nil {
			t.Fatal(r)
		}
		got := ""
		if out.Spec.DNSConfig != nil {
			got = strings.Join(out.Spec.DNSConfig.Searches, " ")
		}
		if got != tc.want || mine.Spec.DNSConfig != nil {
			t.Errorf("%+v, %q: searches %q, want %q", tc.network, tc.policy, got, tc.want)
		}
	}
}
