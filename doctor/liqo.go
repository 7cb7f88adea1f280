package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/kube"
	"liqo.io/agent/liqo"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/peer/text"
)

const ourSite = ".liqo.io"

// liqoModules are what Liqo's networking needs of the kernel (pkg/gateway, pkg/fabric).
var liqoModules = []string{"geneve", "wireguard", "nf_tables"}

// foreignLiqo is what there is of a Liqo that is not this one.
type foreignLiqo struct {
	served  map[string][]string // see servedResources
	setting engine.Setting
	// found is the Liqo 1.x, nil for none, and err why that is not known.
	found *engine.Installation
	err   error
	// missing are those of liqoModules that this machine does not have.
	missing []string
}

func checkForeignLiqo(ctx context.Context, b *Box) []Finding {
	there, err := b.kubernetes(ctx)
	if f, none := without(there, err); none {
		return []Finding{f}
	}
	l := foreignLiqo{setting: engine.Setting(b.config().Peering.Engine)}
	if l.served, err = servedResources(ctx, there.client); err != nil {
		return []Finding{skipped("cannot list the resources of the API server: %v", err)}
	}
	if l.found, l.err = liqo.Find(ctx, there.client); l.found != nil {
		for _, name := range liqoModules {
			if !look.KernelHas(name) {
				l.missing = append(l.missing, name)
			}
		}
	}
	return l.judge()
}

// servedResources returns the resources of groups that end in liqo.io, as
// plural.group, by version. Every authenticated user may ask for them.
func servedResources(ctx context.Context, client *kube.Client) (map[string][]string, error) {
	var groups struct {
		Groups []struct {
			Name     string
			Versions []struct{ GroupVersion, Version string }
		}
	}
	if err := client.Get(ctx, "/apis", &groups); err != nil {
		return nil, err
	}
	out := make(map[string][]string)
	for _, g := range groups.Groups {
		if !strings.HasSuffix(g.Name, ourSite) {
			continue
		}
		for _, v := range g.Versions {
			var list struct{ Resources []struct{ Name string } }
			if err := client.Get(ctx, "/apis/"+v.GroupVersion, &list); err != nil {
				return nil, errors.Join(fmt.Errorf("resources of %s", v.GroupVersion), err)
			}
			for _, r := range list.Resources {
				if !strings.Contains(r.Name, "/") {
					name := r.Name + "." + g.Name
					out[name] = append(out[name], v.Version)
				}
			}
		}
	}
	return out, nil
}

// judge says what a Liqo that is not this one means.
func (l foreignLiqo) judge() []Finding {
	ours := make(map[string]bool)
	for _, m := range api.CRDs() {
		ours[m.Name] = true
	}
	var foreign []string
	for _, name := range slices.Sorted(keysOf(l.served)) {
		if !ours[name] {
			foreign = append(foreign, name)
		}
	}
	const full = "use full names: kubectl get foreignclusters.discovery.liqo.io, and foreignclusters.core.liqo.io for those of Liqo"
	drives := l.setting != engine.OnlyBuiltin
	version := "another version of Liqo"
	if l.found != nil {
		version = strings.TrimSpace("Liqo " + l.found.Version)
	}
	var out []Finding
	switch {
	case l.setting == engine.OnlyLiqo && (len(foreign) == 0 || l.found == nil && l.err == nil):
		install := "install Liqo 1.0 to 1.2: liqoctl install"
		if len(foreign) > 0 {
			install = "remove the other version of Liqo, which has " + text.List(foreign, 4, ", ") + ", and " + install
		}
		return []Finding{{Code: "liqo-missing", Status: Error, What: "Liqo 1.x is not installed in this cluster, and peering.engine is liqo", Why: "no cluster is peered with",
			Do: []string{install, `or set peering.engine = "auto", and restart the agent`}}}
	case len(foreign) == 0:
		return []Finding{fine("not installed in this cluster")}
	case drives && l.err != nil:
		return []Finding{skipped("Liqo is installed in this cluster, and cannot be looked at: %v", l.err)}
	case drives && l.found != nil && l.found.Problem != "":
		out = append(out, Finding{Code: "liqo-unusable", Status: Warning, What: version + " is installed in this cluster, and cannot be used: " + l.found.Problem,
			Why: "it peers this cluster with no other one",
			Do:  []string{"look at its pods: kubectl get pods --all-namespaces -l app.kubernetes.io/part-of=liqo", full}})
	case drives && l.found != nil:
		out = append(out, fine("%s, which calls this cluster %s, peers it with others that run Liqo (peering.engine is %s); %s", version, l.found.ID, l.setting, full))
	default:
		drive := `have the agent drive Liqo 1.x: set peering.engine = "auto", and restart the agent (docs/liqo.md)`
		if drives {
			drive = "have the agent drive it: replace it by Liqo 1.0 to 1.2 (docs/liqo.md)"
		}
		out = append(out, Finding{Code: "foreign-liqo", Status: Warning, What: version + " is installed in this cluster, with " + text.List(foreign, 4, ", "),
			Why: "the two do not know each other: `kubectl get foreignclusters` may show the objects of either, each has its own peerings and virtual nodes, and both may offer the same resources",
			Do:  []string{full, drive, "or use only one of them: remove the other (liqoctl uninstall), or this agent"}})
	}
	if len(l.missing) > 0 {
		out = append(out, Finding{Code: "liqo-modules", Status: Info, What: "this machine has no kernel module " + text.List(l.missing, 4, ", "),
			Why: "Liqo needs it to connect the networks of clusters (liqoctl network)", Do: []string{"install it, or connect no networks by Liqo: liqoctl peer --networking-disabled"}})
	}
	return out
}
