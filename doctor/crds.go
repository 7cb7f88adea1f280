package doctor

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/kube"
	"liqo.io/agent/peering/install"
)

func checkCRDs(ctx context.Context, b *Box) []Finding {
	there, err := b.kubernetes(ctx)
	if f, none := without(there, err); none {
		return []Finding{f}
	}
	found, err := readCRDs(ctx, there.client)
	switch {
	case apierrors.IsForbidden(err):
		return []Finding{skipped("the user in %s may not read the definitions: %v", there.place, err)}
	case err != nil:
		return []Finding{skipped("cannot read the definitions: %v", err)}
	}
	_, running := b.agentSays(ctx)
	return judgeCRDs(found, running == nil)
}

// readCRDs returns what there is of our definitions; a missing one is nil.
func readCRDs(ctx context.Context, client *kube.Client) (map[string]map[string]any, error) {
	out := make(map[string]map[string]any)
	for _, m := range api.CRDs() {
		var object map[string]any
		err := client.Get(ctx, install.CRDPath+"/"+m.Name, &object)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil {
			out[m.Name] = object
		}
	}
	return out, nil
}

// judgeCRDs compares the definitions in the API server with those of this build.
func judgeCRDs(found map[string]map[string]any, agentRuns bool) []Finding {
	var missing, newer, other, pending []string
	owners := make(map[string][]string)
	for _, m := range api.CRDs() {
		object, is := found[m.Name]
		if !is {
			missing = append(missing, m.Name)
			continue
		}
		var wanted map[string]any
		if err := yaml.Unmarshal(m.YAML, &wanted); err != nil {
			return []Finding{skipped("the definition of %s in this program: %v", m.Name, err)}
		}
		if install.NewerDefinition(object) {
			newer = append(newer, m.Name)
		} else if !install.Covers(object["spec"], wanted["spec"]) {
			other = append(other, m.Name)
			for _, owner := range managers(object) {
				owners[owner] = append(owners[owner], m.Name)
			}
		}
		if served, err := install.Established(object); !served || err != nil {
			pending = append(pending, m.Name)
		}
	}
	var out []Finding
	if len(missing) > 0 {
		f := Finding{Code: "crds-missing", Status: Error, What: "missing: " + strings.Join(missing, ", "),
			Why: "without them there are no ForeignClusters and no peerings", Do: []string{"liqo-agent crds | kubectl apply --server-side -f -"}}
		if agentRuns {
			f.Do = append([]string{"the agent creates them when it connects to the API server: check liqo-agent status for errors, or restart it"}, f.Do...)
		} else {
			f.Do = append([]string{"start the agent, which creates them"}, f.Do...)
		}
		out = append(out, f)
	}
	if len(newer) > 0 {
		out = append(out, Finding{Code: health.NewerDefinitions.Code, Status: Warning, What: "from a newer liqo-agent than this one: " + strings.Join(newer, ", "),
			Why: "this version works with them and does not change them, but the combination is not tested",
			Do:  []string{"install the newer version again; to stay with this one: liqo-agent crds | kubectl apply --server-side --force-conflicts -f -"}})
	}
	if len(other) > 0 {
		f := Finding{Code: "crds-other-version", Status: Error,
			What: "different from this version of liqo-agent: " + strings.Join(other, ", "),
			Why:  "the API server may drop or reject fields that this version writes",
			Do:   []string{"update them: liqo-agent crds | kubectl apply --server-side --force-conflicts -f -"}}
		if len(owners) > 0 {
			f.What += "; also changed by: " + strings.Join(slices.Sorted(keysOf(owners)), ", ")
			f.Do = append(f.Do, "if something else manages them (GitOps, another version of Liqo), give it the output of liqo-agent crds")
		}
		out = append(out, f)
	}
	if len(pending) > 0 {
		out = append(out, Finding{Code: "crds-not-served", Status: Error, What: "not served by the API server: " + strings.Join(pending, ", "),
			Why: "another definition has the same names, or the API server has a problem", Do: []string{"check the conditions: kubectl describe crd " + pending[0]}})
	}
	if len(out) == 0 {
		out = append(out, fine("all %d exist, in this version", len(found)))
	}
	return out
}

// managers returns who else has written to an object's spec.
func managers(object map[string]any) []string {
	metadata, _ := object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	var out []string
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		name, _ := entry["manager"].(string)
		if entry["subresource"] == "status" || name == "" || name == install.ManagerCRDs || name == "kube-apiserver" || slices.Contains(out, name) {
			continue
		}
		if fields, _ := entry["fieldsV1"].(map[string]any); fields["f:spec"] != nil {
			out = append(out, name)
		}
	}
	return out
}
