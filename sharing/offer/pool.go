package offer

import (
	"cmp"
	"maps"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"liqo.io/agent/api"
	"liqo.io/agent/sharing/registry"
)

// LabelVersion among the labels of an offer is the Kubernetes version of the
// provider: the lowest of its kubelets.
const LabelVersion = "liqo.io/provider-version"

const (
	// maxResources is how many resources an offer may name.
	maxResources = 64
	// maxLabels is how many labels it has at most, and maxLabelValue how long a value
	// may be.
	maxLabels     = 60
	maxLabelValue = 63
)

// Pool is what there is to offer.
type Pool struct {
	// Nodes is how many nodes it is of.
	Nodes int
	// Free is what can run on them altogether, less what the pods ask for that run
	// there and are no consumer's. A resource that is used up is there with 0.
	Free Amounts
	// Labels describe the nodes: architecture, operating system, LabelVersion, and
	// those that were asked for and that all of them have in common.
	Labels map[string]string
	// Registries are those that consumers may have images from.
	Registries registry.List
	// Images are present on some node, and from one of those registries; the largest
	// first.
	Images []api.ContainerImage
}

// Count finds out what there is to offer. labels are names or globs (path.Match) of the node
// labels that consumers learn, and registries the entries of a registry.List. An offer is for
// one architecture: of nodes of several ones, those of the one with the most cpu count. Neither
// nodes nor pods are changed, and the Pool shares memory with nodes. storage is how many bytes the
// claims of consumers may ask for altogether; it is people's decision, and nothing is counted.
func Count(nodes []*Node, pods []*Pod, labels, registries []string, storage int64) Pool {
	used := make(map[string]*Node, len(nodes))
	for _, n := range choose(nodes) {
		used[n.Name] = n
	}
	p := Pool{Nodes: len(used), Free: Amounts{}}
	for _, n := range used {
		for name, amount := range parseAll(n.Status.Allocatable) {
			if amount > 0 {
				p.Free[name] = plus(p.Free[name], amount)
			}
		}
	}
	taken, own := Amounts{}, make(map[string]bool)
	for _, pod := range pods {
		for _, name := range pod.Registries {
			own[name] = true
		}
		if used[pod.Node] != nil {
			taken.add(pod.Requests)
		}
	}
	for name, amount := range p.Free {
		p.Free[name] = max(amount-taken[name], 0)
	}
	if delete(p.Free, claims); storage > 0 && p.Nodes > 0 {
		p.Free[claims] = storage
	}
	limit(p.Free)
	sorted := slices.SortedFunc(maps.Values(used), func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	// Not nil: they are known, even if there are none.
	p.Registries = registry.List{Entries: registries, Own: slices.AppendSeq([]string{}, maps.Keys(own))}
	slices.Sort(p.Registries.Own)
	p.Labels, p.Images = describe(sorted, labels), images(sorted, p.Registries)
	return p
}

// choose returns the nodes that count.
func choose(nodes []*Node) []*Node {
	cpus, groups := make(map[string]int64), make(map[string][]*Node)
	for _, n := range nodes {
		if !n.usable() {
			continue
		}
		arch := n.architecture()
		amount, _ := parse(cpu, n.Status.Allocatable[cpu])
		cpus[arch], groups[arch] = plus(cpus[arch], amount), append(groups[arch], n)
	}
	best, found := "", false
	for _, arch := range slices.Sorted(maps.Keys(groups)) {
		if !found || cpus[arch] > cpus[best] {
			best, found = arch, true
		}
	}
	return groups[best]
}

// limit drops resources that are too many for an offer. Those of every node stay.
func limit(a Amounts) {
	names := slices.SortedFunc(maps.Keys(a), func(x, y string) int { return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x, y)) })
	for _, name := range names[min(len(names), maxResources):] {
		delete(a, name)
	}
}

func rank(name string) int {
	switch name {
	case cpu, memory, storage, claims, pods:
		return 0
	}
	return 1
}

// describe returns the labels of an offer of those nodes.
func describe(nodes []*Node, wanted []string) map[string]string {
	out := make(map[string]string)
	if len(nodes) == 0 {
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(nodes[0].Labels)) {
		value := nodes[0].Labels[key]
		matches := slices.ContainsFunc(wanted, func(glob string) bool {
			ok, err := path.Match(glob, key)
			return ok && err == nil
		})
		common := !slices.ContainsFunc(nodes, func(n *Node) bool {
			other, there := n.Labels[key]
			return !there || other != value
		})
		if matches && common && len(value) <= maxLabelValue && len(out) < maxLabels {
			out[key] = value
		}
	}
	own := map[string]string{labelArch: nodes[0].architecture(), labelOS: linux, LabelVersion: lowest(nodes)}
	for key, value := range own {
		delete(out, key)
		if value != "" && len(value) <= maxLabelValue {
			out[key] = value
		}
	}
	return out
}

// lowest returns the lowest version of the nodes' kubelets, "" when none says one.
func lowest(nodes []*Node) string {
	text, least := "", (*version.Version)(nil)
	for _, n := range nodes {
		v, err := version.ParseGeneric(n.Status.NodeInfo.KubeletVersion)
		if err == nil && (least == nil || v.LessThan(least)) {
			text, least = n.Status.NodeInfo.KubeletVersion, v
		}
	}
	return text
}

// images returns what is present on the nodes and from one of the registries. An
// image that several have is the same if it goes by one name.
func images(nodes []*Node, from registry.List) []api.ContainerImage {
	var all []api.ContainerImage
	known := make(map[string]bool)
	for _, n := range nodes {
		for _, image := range n.Status.Images {
			image.Names = allowed(image.Names, from)
			if len(image.Names) == 0 {
				continue
			}
			if !slices.ContainsFunc(image.Names, func(name string) bool { return known[name] }) {
				all = append(all, image)
			}
			for _, name := range image.Names {
				known[name] = true
			}
		}
	}
	slices.SortStableFunc(all, largestFirst)
	room, out := maxImageText, []api.ContainerImage(nil)
	for _, image := range all[:min(len(all), maxImages)] {
		for _, name := range image.Names {
			room -= len(name)
		}
		if room < 0 {
			break
		}
		out = append(out, image)
	}
	return out
}

// allowed returns those names of an image that are of the registries.
func allowed(names []string, from registry.List) []string {
	var out []string
	for _, name := range names {
		if from.AllowsImage(name) {
			out = append(out, name)
		}
	}
	return out
}
