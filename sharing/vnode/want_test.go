package vnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/attack"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
)

const barn = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")

func TestAmounts(t *testing.T) {
	for _, tc := range []struct {
		name, amount, want string // "" = left out
	}{
		{"cpu", "4", "4"}, {"cpu", "1500m", "1500m"}, {"cpu", "1.0005", "1"}, {"cpu", "1n", "0"}, {"cpu", "9E", "1M"}, {"cpu", "9e99", "1M"}, {"cpu", "0", "0"},
		{"memory", "8Gi", "8Gi"}, {"memory", "1500m", "1"}, {"memory", "1.5", "1"}, {"memory", "9Ei", "8Pi"}, {"memory", "9223372036854775807", "9007199254740992"}, {"memory", "-1", ""},
		{"memory", "", ""}, {"memory", "lots", ""}, {"memory", "NaN", ""}, {"memory", strings.Repeat("9", 32), "9007199254740992"},
		{"ephemeral-storage", "20G", "20G"},
		{"pods", "50", "50"}, {"pods", "0", "0"}, {"pods", "1.9", "1"}, {"pods", "9e18", "100k"}, {"pods", "x", "110"},
		{"example.com/gpu", "2", "2"}, {"example.com/gpu", "2500m", "2"},
		{"gpu", "2", ""}, {"hugepages-2Mi", "1Gi", ""}, {"kubernetes.io/batch-cpu", "1", ""}, {"node.kubernetes.io/x", "1", ""}, {"requests.example.com/gpu", "1", ""},
		{"attachable-volumes-aws-ebs", "1", ""}, {"bad name/x", "1", ""}, {"/x", "1", ""}, {"", "1", ""}, {strings.Repeat("a", 300) + ".com/x", "1", ""},
	} {
		got := amounts(map[string]string{tc.name: tc.amount})
		q, there := got[corev1.ResourceName(tc.name)]
		if there != (tc.want != "") || there && q.String() != tc.want {
			t.Errorf("%s %q: %q (%v), want %q", tc.name, tc.amount, q.String(), there, tc.want)
		}
		if n := got.Pods().Value(); tc.name != "pods" && n != 110 {
			t.Errorf("%s: %d pods", tc.name, n)
		}
	}
	many := map[string]string{"cpu": "1"}
	for i := range 10_000 {
		many[fmt.Sprintf("example.com/device-%d", i)] = "1"
	}
	if got := amounts(many); len(got) != maxResources+2 {
		t.Errorf("%d resources", len(got))
	}
}

func named(name string) *corev1.Node {
	n := &corev1.Node{}
	n.Name = name
	return n
}

// A provider labels its node with what is its own to say, and with nothing that people
// or controllers of this cluster go by.
func TestAttackNodeLabels(t *testing.T) {
	offered := map[string]string{
		"offer.liqo.io/color": "red", "offer.liqo.io/rack.example.com": "7", "topology.kubernetes.io/zone": "barn", "topology.kubernetes.io/region": "", "node.kubernetes.io/instance-type": "big",
		"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux",
	}
	want := maps.Clone(offered)
	maps.Copy(want, firmLabels(barn))
	want["node-role.kubernetes.io/agent"], want["kubernetes.io/hostname"], want["liqo.io/cluster-name"] = "", "liqo-barn", "barn"
	hostile := []string{
		"color", "example.com/rack", "topology.kubernetes.io/x", "x.offer.liqo.io/y", "offer.liqo.io/", "offer.liqo.io/x/y", "node.kubernetes.io/x", "liqo.io/x",
		"node-role.kubernetes.io/control-plane", "node-restriction.kubernetes.io/x", "liqo.io/type", "liqo.io/cluster-id", "x.liqo.io/y", "kubernetes.io/hostname",
		"kubernetes.io/x", "beta.kubernetes.io/arch", "node.kubernetes.io/exclude-from-external-load-balancers", "k8s.io/x", "app.kubernetes.io/managed-by",
		"svccontroller.k3s.cattle.io/enablelb", "k3s.io/x", "zone.topology.kubernetes.io/x", "", "/", "a b", "-x", "x/y/z", strings.Repeat("a", 64), "Ä",
	}
	for _, key := range hostile {
		offered[key] = "evil"
	}
	offered["offer.liqo.io/value"], offered["offer.liqo.io/long"] = "a b", strings.Repeat("a", 64)
	p := spec.Node{ID: barn, Name: "barn", Wanted: true, Reachable: true, Offer: &api.AdvertisementSpec{Labels: offered}}
	if diff := cmp.Diff(want, wanted(p, judge(p), Kubelet{}, named("liqo-barn")).labels); diff != "" {
		t.Error(diff)
	}
	got := wanted(p, judge(p), Kubelet{}, named("liqo-barn")).labels
	for _, key := range hostile {
		told := "left out"
		if value, there := got[key]; there && value != want[key] {
			told = "the node has it"
		}
		attack.Attempt{What: fmt.Sprintf("label its node %.64q", key), As: "provider", Want: "left out"}.Saw(t, told)
	}
	for i := range 10_000 {
		offered[fmt.Sprintf("offer.liqo.io/label-%d", i)] = "x"
	}
	for _, name := range []string{"", "a b", strings.Repeat("a", 64), "\x00"} {
		p.Name = name
		got := wanted(p, judge(p), Kubelet{}, named("liqo-barn")).labels
		if _, there := got["liqo.io/cluster-name"]; there || len(got) > maxLabels+20 {
			t.Errorf("%q: %d labels", name, len(got))
		}
		for key, value := range got {
			if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
				t.Errorf("label %q=%q", key, value)
			}
		}
	}
}

func TestNodeInfo(t *testing.T) {
	for _, tc := range []struct{ os, arch, version, want string }{
		{"linux", "arm64", "v1.36.3+k3s1", "linux arm64 v1.36.3+k3s1"}, {"", "", "", "linux  "}, {"windows", "amd64", "1.30", "windows amd64 1.30"},
		{"../etc", "a b", "v1.36.3 \x1b[31m", "linux  "}, {"Linux", strings.Repeat("a", 33), "latest", "linux  "},
		{"linux", "amd64", "v1.36.3" + strings.Repeat("-a", 40), "linux amd64 "},
	} {
		i := nodeInfo(map[string]string{"kubernetes.io/os": tc.os, "kubernetes.io/arch": tc.arch, "liqo.io/provider-version": tc.version})
		if got := i.OperatingSystem + " " + i.Architecture + " " + i.KubeletVersion; got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

func TestImages(t *testing.T) {
	var offered []api.ContainerImage
	for i := range 10_000 {
		image := api.ContainerImage{SizeBytes: int64(20_000 - i)}
		for n := range 16 {
			image.Names = append(image.Names, fmt.Sprintf("example.com/%d/%d", i, n))
		}
		offered = append(offered, image)
	}
	offered[0].SizeBytes = -1
	offered[1].Names = []string{"", "a b", "\x1b[31m", strings.Repeat("a", 10_000), "ä"}
	offered[2].Names = nil
	got := images(offered)
	if len(got) != maxImages || got[0].Names[0] != "example.com/3/0" || len(got[0].Names) != maxImageNames {
		t.Errorf("%d %+v", len(got), got[0])
	}
	text, err := json.Marshal(got)
	if err != nil || len(text) > 64<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestJudge(t *testing.T) {
	offer := &api.AdvertisementSpec{}
	for _, tc := range []struct {
		name   string
		p      spec.Node
		ready  bool
		reason string
		cordon bool
	}{
		{"ready", spec.Node{Wanted: true, Offer: offer, Reachable: true}, true, ReasonReady, false},
		{"unreachable", spec.Node{Wanted: true, Offer: offer}, false, ReasonUnreachable, false},
		{"says too much", spec.Node{Wanted: true, Offer: offer, Reachable: true, Excess: "20 MiB"}, false, ReasonExcess, false},
		{"says too much, unreachable", spec.Node{Wanted: true, Offer: offer, Excess: "20 MiB"}, false, ReasonUnreachable, false},
		{"expired", spec.Node{Wanted: true}, false, ReasonExpired, true},
		{"no offer", spec.Node{Wanted: true, Reachable: true}, false, ReasonNoOffer, true},
		{"drained", spec.Node{Reachable: true}, true, ReasonReady, true},
		{"drained and unreachable", spec.Node{}, false, ReasonUnreachable, true},
		{"gone", spec.Node{Gone: true, Reachable: true}, false, ReasonGone, true},
	} {
		j := judge(tc.p)
		if j.ready != tc.ready || j.reason != tc.reason || j.cordon != tc.cordon || j.message == "" {
			t.Errorf("%s: %+v", tc.name, j)
		}
	}
	if j := judge(spec.Node{Wanted: true, Offer: offer, Why: "\x1b[31m" + strings.Repeat("a", 10_000)}); len(j.message) > 600 || strings.ContainsRune(j.message, '\x1b') {
		t.Errorf("%q", j.message)
	}
}

func TestAddresses(t *testing.T) {
	p := spec.Node{ID: barn, Wanted: true, Reachable: true, Offer: &api.AdvertisementSpec{}}
	for address, want := range map[string]string{"10.77.0.1": "10.77.0.1", "::ffff:10.77.0.1": "10.77.0.1", "fd00::1": "fd00::1", "fe80::1%eth0": "fe80::1"} {
		w := wanted(p, judge(p), Kubelet{Address: netip.MustParseAddr(address), Port: 10350}, named("liqo-barn"))
		if len(w.status.Addresses) != 1 || w.status.Addresses[0].Address != want || w.status.DaemonEndpoints.KubeletEndpoint.Port != 10350 {
			t.Errorf("%s: %+v", address, w.status)
		}
	}
	if w := wanted(p, judge(p), Kubelet{}, named("liqo-barn")); len(w.status.Addresses) != 0 || w.status.DaemonEndpoints.KubeletEndpoint.Port != 0 {
		t.Errorf("%+v", w.status)
	}
}

func TestOurs(t *testing.T) {
	node := func(providerID string, labels map[string]string) *corev1.Node {
		n := &corev1.Node{}
		n.Name, n.Labels, n.Spec.ProviderID = string(barn), labels, providerID
		return n
	}
	for _, tc := range []struct {
		name string
		node *corev1.Node
		want bool
	}{
		{"ours", node(providerID(barn), firmLabels(barn)), true},
		{"labels removed", node(providerID(barn), nil), true},
		{"named otherwise", node(providerID("other"), firmLabels(barn)), true},
		{"labels only", node("", firmLabels(barn)), false},
		{"a real one", node("", map[string]string{"kubernetes.io/hostname": string(barn)}), false},
		{"a real one of a cloud, labelled", node("aws:///x", firmLabels(barn)), false},
		{"another one's", node("", firmLabels("other")), false},
		{"of no cluster", node("liqo://", firmLabels(barn)), false},
		{"of something that cannot be a cluster", node("liqo://a/b", firmLabels(barn)), false},
		{"of another virtual kubelet", node("", map[string]string{"liqo.io/type": "virtual-node"}), false},
	} {
		if got := whose(tc.node); (got != "") != tc.want || got != "" && providerID(got) != tc.node.Spec.ProviderID {
			t.Errorf("%s: %q", tc.name, got)
		}
	}
}

func TestNodeNames(t *testing.T) {
	const id, other = peer.ClusterID("83d0f353-3141-44ad-bc31-9c4520be089f"), peer.ClusterID("a-b-c-d-e-f")
	long := strings.Repeat("x", 200)
	for _, tc := range []struct {
		called string
		id     peer.ClusterID
		want   []string
	}{
		{"box-b", id, []string{"liqo-box-b", "liqo-box-b-83d0f353", "liqo-box-b-83d0f353-2", "liqo-box-b-83d0f353-3"}},
		{"Box B", id, []string{"liqo-box-b"}},
		{"box_b.example.", id, []string{"liqo-box-b-example"}},
		{"liqo-box-b", id, []string{"liqo-liqo-box-b"}},
		{"Küche", other, []string{"liqo-k-che", "liqo-k-che-a-b-c-d"}},
		{"кухня", id, []string{"liqo-83d0f353", "liqo-83d0f353", "liqo-83d0f353-2"}},
		{"", id, []string{"liqo-83d0f353"}},
		{"--", id, []string{"liqo-83d0f353"}},
		{"../../kube-system", id, []string{"liqo-kube-system"}},
		{long, id, []string{"liqo-" + long[:58], "liqo-" + long[:49] + "-83d0f353"}},
		{strings.Repeat("x-", 40), id, []string{"liqo-" + strings.Repeat("x-", 28) + "x", "liqo-" + strings.Repeat("x-", 24) + "x-83d0f353"}},
	} {
		for i, want := range tc.want {
			if got := nodeName(tc.called, tc.id, i); got != want {
				t.Errorf("%q, attempt %d: %s, want %s", tc.called, i, got, want)
			}
		}
	}
}

// FuzzNodeName: whatever a cluster calls itself, its node has a name that a node and
// a label can have, and that begins as no machine's does.
func FuzzNodeName(f *testing.F) {
	for _, called := range []string{"box-b", "", "-", "Ä", strings.Repeat("a-", 100), "\xff", "\x00", "İK"} {
		f.Add(called, "83d0f353-3141-44ad-bc31-9c4520be089f", 0)
		f.Add(called, "a-b-c-d-e-f", 1<<40)
	}
	f.Fuzz(func(t *testing.T, called, text string, attempt int) {
		id, err := peer.ParseClusterID(text)
		if err != nil || attempt < 0 {
			t.Skip()
		}
		name := nodeName(called, id, attempt)
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 || !strings.HasPrefix(name, namePrefix) {
			t.Errorf("%q: %v", name, errs)
		}
	})
}
