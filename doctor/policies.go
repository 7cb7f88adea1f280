package doctor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/workload"
)

// enforcers are what is known to enforce network policies, by the labels of its pods on
// each node.
var enforcers = []string{
	"k8s-app=calico-node", "k8s-app=canal", "k8s-app=cilium", "k8s-app=kube-router", "k8s-app=kube-network-policies", "app=kube-network-policies",
	"app=kindnet", "app=antrea", "app=ovnkube-node", "app=kube-ovn-cni", "name=weave-net",
}

const (
	// k3sVersion is in the version of each node of K3s, which enforces network policies
	// itself.
	k3sVersion = "+k3s"
	// annotationArgs on such a node are the arguments that it was started with, those of
	// its configuration files among them.
	annotationArgs = "k3s.io/node-args"
	argNoPolicies  = "--disable-network-policy"
)

// policyNode is as much of a Node as is looked at.
type policyNode struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		NodeInfo struct {
			KubeletVersion string `json:"kubeletVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// policyPod is as much of a Pod as is looked at.
type policyPod struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func checkPolicies(ctx context.Context, b *Box) []Finding {
	there, err := b.kubernetes(ctx)
	if f, none := without(there, err); none {
		return []Finding{f}
	}
	if !b.config().Sharing.Enable {
		return []Finding{skipped("nothing is shared with peers (sharing.enable), so they have no pods here")}
	}
	var nodes struct{ Items []policyNode }
	if err := there.client.Get(ctx, "/api/v1/nodes", &nodes); err != nil {
		return []Finding{skipped("cannot list the nodes: %v", err)}
	}
	bare := unguarded(nodes.Items, nil)
	var pods struct{ Items []policyPod }
	if len(bare) > 0 {
		if err := there.client.Get(ctx, "/api/v1/pods", &pods); err != nil {
			return []Finding{skipped("cannot list the pods: %v", err)}
		}
	}
	return []Finding{judgePolicies(nodes.Items, pods.Items)}
}

// unguarded returns the nodes on which nothing is known to enforce network policies.
func unguarded(nodes []policyNode, pods []policyPod) []string {
	guarded := make(map[string]bool)
	for _, p := range pods {
		for key, value := range p.Metadata.Labels {
			if p.Status.Phase == "Running" && slices.Contains(enforcers, key+"="+value) {
				guarded[p.Spec.NodeName] = true
			}
		}
	}
	var out []string
	for _, n := range nodes {
		if n.Metadata.Labels[workload.LabelType] != workload.VirtualNode && !guarded[n.Metadata.Name] && !n.enforces() {
			out = append(out, n.Metadata.Name)
		}
	}
	return out
}

// enforces reports whether K3s itself enforces network policies on the node.
func (n policyNode) enforces() bool {
	if !strings.Contains(n.Status.NodeInfo.KubeletVersion, k3sVersion) {
		return false
	}
	var args []string
	// Without the annotation there is nothing to go by but the default.
	_ = json.Unmarshal([]byte(n.Metadata.Annotations[annotationArgs]), &args)
	for i, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		if name != argNoPolicies {
			continue
		}
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		return value == "false"
	}
	return true
}

// judgePolicies says whether the network policies of guests are enforced.
func judgePolicies(nodes []policyNode, pods []policyPod) Finding {
	bare := unguarded(nodes, pods)
	switch {
	case len(nodes) == 0:
		return skipped("the cluster has no nodes")
	case len(bare) == 0:
		return fine("network policies for the pods of peers are enforced")
	}
	return Finding{Code: "no-network-policies", Status: Warning,
		What: "nothing known to enforce network policies runs on " + text.List(bare, 4, ", "),
		Why:  "pods of peers there can exchange traffic with this box, its pods and the LAN, whatever sharing.guest_egress says",
		Do: []string{"start K3s without " + argNoPolicies,
			"or install a controller for network policies: see the documentation of the network plugin",
			"or stop sharing: [sharing] enable = false"}}
}
