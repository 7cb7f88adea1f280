package offer

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/sharing/workload"
)

// machine returns a node that is ready.
func machine(name string, allocatable map[string]string, change ...func(*Node)) *Node {
	n := &Node{}
	n.Name = name
	n.Labels = map[string]string{}
	n.Status.Allocatable = allocatable
	n.Status.Conditions = []NodeCondition{{Type: NodeReady, Status: "True"}}
	for _, c := range change {
		c(n)
	}
	return n
}

// busy returns a pod on a node.
func busy(node string, requests Amounts) *Pod { return &Pod{Node: node, Requests: requests} }

// TestOnly: a node is the only one if there is no other of this cluster, usable or not.
func TestOnly(t *testing.T) {
	virtual := machine("liqo-birch", nil, func(n *Node) { n.Labels["liqo.io/type"] = "virtual-node" })
	for name, tc := range map[string]struct {
		nodes []*Node
		want  string
	}{
		"none":                  {nil, ""},
		"one":                   {[]*Node{machine("a", nil)}, "a"},
		"one and a virtual one": {[]*Node{virtual, machine("a", nil)}, "a"},
		"a virtual one":         {[]*Node{virtual}, ""},
		"two":                   {[]*Node{machine("a", nil), machine("b", nil)}, ""},
		"two, one not ready":    {[]*Node{machine("a", nil), machine("b", nil, func(n *Node) { n.Status.Conditions[0].Status = "Unknown" })}, ""},
		"two, one cordoned":     {[]*Node{machine("a", nil, func(n *Node) { n.Spec.Unschedulable = true }), machine("b", nil)}, ""},
		"one, cordoned":         {[]*Node{machine("a", nil, func(n *Node) { n.Spec.Unschedulable = true })}, ""},
		"one, tainted":          {[]*Node{machine("a", nil, func(n *Node) { n.Spec.Taints = []Taint{{Effect: "NoSchedule"}} })}, ""},
		"one, about to go":      {[]*Node{machine("a", nil, func(n *Node) { n.DeletionTimestamp = &metav1.Time{} })}, ""},
	} {
		if got := Only(tc.nodes); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestCountFree(t *testing.T) {
	small := map[string]string{"cpu": "3900m", "memory": "3824Mi", "pods": "110"}
	all := Amounts{cpu: 3900, memory: 3824 << 20, pods: 110}
	arch := func(arch string) func(*Node) {
		return func(n *Node) { n.Labels["kubernetes.io/arch"] = arch }
	}
	taint := func(effect string) func(*Node) {
		return func(n *Node) { n.Spec.Taints = []Taint{{Effect: effect}} }
	}
	for _, tc := range []struct {
		name  string
		nodes []*Node
		pods  []*Pod
		count int
		want  Amounts
	}{
		{"none", nil, nil, 0, Amounts{}},
		{"one", []*Node{machine("a", small)}, nil, 1, all},
		{"two", []*Node{machine("a", small), machine("b", map[string]string{"cpu": "100m", "memory": "1Gi", "nvidia.com/gpu": "2"})}, nil, 2,
			Amounts{cpu: 4000, memory: 4848 << 20, pods: 110, "nvidia.com/gpu": 2}},
		{"left out", []*Node{
			machine("a", small, func(n *Node) { n.Spec.Unschedulable = true }),
			machine("b", small, func(n *Node) { n.Status.Conditions[0].Status = "Unknown" }),
			machine("c", small, func(n *Node) { n.Status.Conditions = nil }),
			machine("d", small, func(n *Node) { n.Labels["liqo.io/type"] = "virtual-node" }),
			machine("e", small, func(n *Node) { n.DeletionTimestamp = &metav1.Time{} }),
			machine("f", small, func(n *Node) { n.Labels["kubernetes.io/os"] = "windows" }),
			machine("g", small, func(n *Node) { n.Status.NodeInfo.OperatingSystem = "windows" }),
			machine("h", small, taint("NoSchedule")), machine("i", small, taint("NoExecute")),
		}, []*Pod{busy("a", all)}, 0, Amounts{}},
		{"no reason to", []*Node{machine("a", small, taint("PreferNoSchedule"))}, nil, 1, all},
		{"nonsense", []*Node{machine("a", map[string]string{"cpu": "many", "pods": "0", "memory": "-1Gi", "hugepages-2Mi": "4Mi", "batch.kubernetes.io/x": "1", "x": "1", "a.example/x": "1"})},
			nil, 1, Amounts{"a.example/x": 1}},
		{"pods", []*Node{machine("a", small), machine("b", small, func(n *Node) { n.Spec.Unschedulable = true })}, []*Pod{
			busy("a", Amounts{cpu: 900, memory: 24 << 20, pods: 1}), busy("a", Amounts{cpu: 1000, pods: 1, storage: 5}),
			busy("b", Amounts{cpu: 1000, pods: 1}), busy("elsewhere", Amounts{cpu: 1000, pods: 1}), busy("", nil),
		}, 1, Amounts{cpu: 2000, memory: 3800 << 20, pods: 108}},
		{"used up", []*Node{machine("a", small)}, []*Pod{busy("a", Amounts{cpu: 3000, pods: 1}), busy("a", Amounts{cpu: 2000, pods: 1})}, 1,
			Amounts{cpu: 0, memory: 3824 << 20, pods: 108}},
		{"endless", []*Node{machine("a", small)}, []*Pod{busy("a", Amounts{cpu: 1<<63 - 1}), busy("a", Amounts{cpu: 1<<63 - 1})}, 1,
			Amounts{cpu: 0, memory: 3824 << 20, pods: 110}},
		{"two architectures", []*Node{
			machine("a", map[string]string{"cpu": "2"}, arch("arm64")), machine("b", map[string]string{"cpu": "3"}, arch("amd64")), machine("c", map[string]string{"cpu": "2"}, arch("arm64")),
		}, []*Pod{busy("b", Amounts{cpu: 1000}), busy("c", Amounts{cpu: 500})}, 2, Amounts{cpu: 3500}},
		{"two as strong", []*Node{machine("a", map[string]string{"cpu": "2"}, arch("arm64")), machine("b", map[string]string{"cpu": "2", "memory": "1Mi"}, arch("amd64"))}, nil, 1,
			Amounts{cpu: 2000, memory: 1 << 20}},
	} {
		if got := Count(tc.nodes, tc.pods, nil, nil, 0); !maps.Equal(got.Free, tc.want) || got.Nodes != tc.count {
			t.Errorf("%s: %d nodes with %v, want %d with %v", tc.name, got.Nodes, got.Free, tc.count, tc.want)
		}
	}
	many := map[string]string{"cpu": "1"}
	for i := range 2 * maxResources {
		many[fmt.Sprintf("a.example/%03d", i)] = "1"
	}
	if got := Count([]*Node{machine("a", many)}, nil, nil, nil, 0).Free; len(got) != maxResources || got[cpu] != 1000 {
		t.Errorf("%d resources, cpu %d", len(got), got[cpu])
	}
}

func TestCountLabels(t *testing.T) {
	node := func(name, version string, labels map[string]string) *Node {
		return machine(name, map[string]string{"cpu": "1"}, func(n *Node) {
			n.Labels = labels
			n.Status.NodeInfo = NodeInfo{Architecture: "arm64", OperatingSystem: "linux", KubeletVersion: version}
		})
	}
	a := node("a", "v1.36.10+k3s1", map[string]string{"topology.kubernetes.io/zone": "hall", "topology.kubernetes.io/region": "plant", "x": "1", "kubernetes.io/os": "linux", "liqo.io/provider-version": "v9"})
	b := node("b", "v1.36.9+k3s1", map[string]string{"topology.kubernetes.io/zone": "yard", "topology.kubernetes.io/region": "plant", "x": "1", "y": "2", "liqo.io/provider-version": "v9"})
	for _, tc := range []struct {
		nodes []*Node
		globs []string
		want  map[string]string
	}{
		{nil, []string{"*"}, map[string]string{}},
		{[]*Node{a, b}, nil, map[string]string{"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", LabelVersion: "v1.36.9+k3s1"}},
		{[]*Node{a, b}, []string{"topology.kubernetes.io/*", "?", "[", "liqo.io/*"},
			map[string]string{"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", LabelVersion: "v1.36.9+k3s1", "topology.kubernetes.io/region": "plant", "x": "1"}},
		{[]*Node{node("c", "?", nil)}, nil, map[string]string{"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}},
		{[]*Node{machine("d", nil)}, nil, map[string]string{"kubernetes.io/os": "linux"}},
	} {
		if got := Count(tc.nodes, nil, tc.globs, nil, 0).Labels; !maps.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.globs, got, tc.want)
		}
	}
	many := map[string]string{"long": strings.Repeat("x", 64)}
	for i := range 100 {
		many[fmt.Sprint("l", i)] = "v"
	}
	if got := Count([]*Node{node("a", "v1", many)}, nil, []string{"l*"}, nil, 0).Labels; len(got) > 64 || got["long"] != "" || got["kubernetes.io/arch"] == "" {
		t.Errorf("%d labels: %v", len(got), got)
	}
}

func TestImages(t *testing.T) {
	from := []string{"r.example.com", "docker.io"}
	digest := "r.example.com/web@sha256:" + strings.Repeat("0", 64)
	var crowd []api.ContainerImage
	for i := range 2 * maxImages {
		crowd = append(crowd, api.ContainerImage{Names: []string{fmt.Sprint("r.example.com/i:", i)}, SizeBytes: int64(i)})
	}
	node := func(name string, images ...api.ContainerImage) *Node {
		n := machine(name, map[string]string{"cpu": "1"}, func(n *Node) { n.Status.Images = images })
		n.Trim()
		n.Trim()
		return n
	}
	a := node("a",
		api.ContainerImage{Names: []string{digest, "r.example.com/web:1", "r.example.com/web:latest"}, SizeBytes: 5},
		api.ContainerImage{Names: []string{digest}, SizeBytes: 9}, api.ContainerImage{Names: []string{"<none>@<none>", "<none>:<none>"}},
		api.ContainerImage{Names: []string{"a", "b", "c", "d", "e", "f", strings.Repeat("x", 300)}, SizeBytes: 7}, api.ContainerImage{})
	b := node("b", api.ContainerImage{Names: []string{"r.example.com/web:1"}, SizeBytes: 6}, api.ContainerImage{Names: []string{"r.example.com/db:2"}, SizeBytes: 6})
	want := []api.ContainerImage{
		{Names: []string{digest}, SizeBytes: 9}, {Names: []string{"a", "b", "c", "d", "e"}, SizeBytes: 7},
		{Names: []string{"r.example.com/db:2"}, SizeBytes: 6}, {Names: []string{"r.example.com/web:1", "r.example.com/web:latest"}, SizeBytes: 5},
	}
	if got := Count([]*Node{b, a}, nil, nil, from, 0).Images; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := Count([]*Node{node("c", crowd...)}, nil, nil, from, 0).Images; len(got) != maxImages || got[0].SizeBytes != 2*maxImages-1 {
		t.Errorf("%d images, the first %+v", len(got), got[0])
	}
	for i := range crowd {
		crowd[i].Names = nil
		for j := range maxNames {
			crowd[i].Names = append(crowd[i].Names, fmt.Sprintf("%s:%d-%d", strings.Repeat("x", 240), i, j))
		}
	}
	text, err := json.Marshal(Count([]*Node{node("d", crowd...)}, nil, nil, from, 0).Images)
	if err != nil || len(text) > maxImageText*5/4 || len(text) < maxImageText/2 {
		t.Errorf("%d bytes of images, %v", len(text), err)
	}
}

// TestNodeKeeps reads a Node as the API server writes it, and checks what is kept.
func TestNodeKeeps(t *testing.T) {
	n := &Node{}
	if err := json.Unmarshal([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","annotations":{"x":"y"},
		"managedFields":[{"manager":"k3s"}],"labels":{"l":"m"}},"spec":{"podCIDR":"10.42.0.0/24","unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]},"status":{
		"capacity":{"cpu":"9"},"allocatable":{"cpu":"4","memory":"1Gi"},"images":[{"names":["a:1"],"sizeBytes":3}],"nodeInfo":{"kubeletVersion":"v1","machineID":"m"},
		"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"DiskPressure","status":"False"},{"type":"Ready","status":"True","message":"fine"}]}}`), n); err != nil {
		t.Fatal(err)
	}
	n.Trim()
	want := &Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7", Labels: map[string]string{"l": "m"}}}
	want.Spec = NodeSpec{Unschedulable: true, Taints: []Taint{{Effect: "NoSchedule"}}}
	want.Status = NodeStatus{
		Allocatable: map[string]string{"cpu": "4", "memory": "1Gi"}, Conditions: []NodeCondition{{NodeDiskPressure, "False"}, {NodeReady, "True"}},
		NodeInfo: NodeInfo{KubeletVersion: "v1"}, Images: []api.ContainerImage{{Names: []string{"a:1"}, SizeBytes: 3}},
	}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("%+v\nwant %+v", n, want)
	}
	c := n.DeepCopyObject().(*Node)
	if !reflect.DeepEqual(c, n) {
		t.Errorf("copied to %+v", c)
	}
	c.Status.Allocatable["cpu"], c.Labels["l"], c.Status.Conditions[0].Status, c.Status.Images[0].Names[0], c.Spec.Taints[0].Effect = "x", "x", "x", "x", "x"
	if !reflect.DeepEqual(n, want) {
		t.Error("a copy shares memory")
	}
	if n.DiskPressed() {
		t.Error("its disk is nearly full")
	}
	n.Status.Conditions[0].Status = "True"
	if !n.DiskPressed() {
		t.Error("its disk is not nearly full")
	}
	if n.Labels[workload.LabelType] = workload.VirtualNode; n.DiskPressed() {
		t.Error("the disk of a peer counts as one of this cluster")
	}
	if !slices.Equal(tellable([]string{"a@b", ""}), []string{"a@b"}) {
		t.Error("an image that has only a digest has no name")
	}
}

// TestImagesOfRegistries: an offer has nobody know what comes from elsewhere.
func TestImagesOfRegistries(t *testing.T) {
	n := machine("a", map[string]string{"cpu": "1"}, func(n *Node) {
		for i, names := range [][]string{
			{"docker.io/library/web:1"}, {"ghcr.io/a/b:1"}, {"registry.example.com/shop:1", "10.0.0.1:5000/shop:1"}, {"registry.example.com:5000/shop:2"},
			{"10.0.0.1:5000/secret:1"}, {"registry.lan/secret:1"}, {"localhost/built-here:1"}, {"secret.example.org/x:1"}, {"sha256:" + strings.Repeat("0", 64) + "@x"},
		} {
			n.Status.Images = append(n.Status.Images, api.ContainerImage{Names: names, SizeBytes: int64(100 - i)})
		}
	})
	var own []*Pod
	for _, text := range []string{
		`{"metadata":{"name":"shop"},"spec":{"initContainers":[{"image":"registry.example.com:5000/shop:2"}],"containers":[{"image":"registry.example.com/shop:1"},{"image":"10.0.0.1:5000/secret:1"},{"image":""},{"image":"registry.lan/secret:1"}]}}`,
		`{"metadata":{"name":"guest","labels":{"liqo.io/origin-cluster-id":"x"}},"spec":{"containers":[{"image":"secret.example.org/x:1"}]}}`,
	} {
		pod := new(Pod)
		if err := json.Unmarshal([]byte(text), pod); err != nil {
			t.Fatal(err)
		}
		own = append(own, pod)
	}
	if own[0].Same(own[1]) || !own[0].Same(own[0].DeepCopyObject().(*Pod)) {
		t.Error("pods with images of other registries are the same, or a copy is not")
	}
	for _, tc := range []struct {
		entries, want []string
	}{
		{[]string{"docker.io", "own"}, []string{"docker.io/library/web:1", "registry.example.com/shop:1", "registry.example.com:5000/shop:2"}},
		{[]string{"docker.io", "ghcr.io"}, []string{"docker.io/library/web:1", "ghcr.io/a/b:1"}},
		{[]string{"own"}, []string{"registry.example.com/shop:1", "registry.example.com:5000/shop:2"}},
		{nil, nil},
	} {
		pool := Count([]*Node{n}, own, nil, tc.entries, 0)
		var got []string
		for _, image := range pool.Images {
			got = append(got, image.Names...)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v: told of %v, want %v", tc.entries, got, tc.want)
		}
		if want := []string{"registry.example.com", "registry.example.com:5000"}; !slices.Equal(pool.Registries.Own, want) {
			t.Errorf("the cluster's own pods use %v, want %v", pool.Registries.Own, want)
		}
	}
	if pool := Count(nil, nil, nil, []string{"own"}, 0); !pool.Registries.Known() {
		t.Error("without pods it is not known what they use")
	}
}
