package names

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// meaning is what a name means for a guest.
type meaning int

const (
	foreign  meaning = iota // a name of a cluster that does not exist for guests
	empty                   // exists, and has only names below it
	own                     // of a Service of its cluster, and known by another name here
	outside                 // of neither cluster
	outsider                // of neither cluster, and guests may not ask for such names
	server                  // the API server of the guest's cluster
)

// view is how guests of one consumer see names. Domains are fully qualified.
type view struct {
	theirs, ours string            // cluster domains of the consumer, and of this cluster
	namespaces   map[string]string // guest namespaces by those of the consumer
	nodes        map[string]bool   // names of this cluster's nodes
	outside      bool              // names outside are answered
	server       []netip.Addr      // where the API server of the consumer is; none: not for this guest
}

// apiServer is the name of the API server, before the domain of its cluster, and without one: pods
// that search no cluster find it, too.
const apiServer = "kubernetes.default.svc."

// ask returns what a name means, and the name to ask the cluster DNS for if it is own or outside.
func (v *view) ask(name string) (string, meaning) {
	prefix, within := below(name, v.theirs)
	if len(v.server) > 0 && (within && strings.EqualFold(prefix, apiServer) || strings.EqualFold(name, apiServer)) {
		return "", server
	}
	if within {
		return v.service(prefix)
	}
	if _, ok := below(name, v.ours); ok || v.node(name) {
		return "", foreign
	}
	if !v.outside {
		return "", outsider
	}
	return name, outside
}

// service is ask for the labels before the domain of the consumer.
func (v *view) service(prefix string) (string, meaning) {
	if prefix == "" {
		return "", empty
	}
	prefix, kind := lastLabel(prefix)
	if kind != "svc" {
		return "", foreign // those of pods have addresses that mean something else here
	}
	if prefix == "" {
		return "", empty
	}
	prefix, namespace := lastLabel(prefix)
	guest, ok := v.namespaces[namespace]
	if !ok {
		return "", foreign
	}
	if _, service := lastLabel(prefix); namespace == "default" && service == "kubernetes" {
		return "", foreign // it is no Service here: see ask
	}
	return valid(prefix+guest+".svc."+v.ours, own)
}

// back returns the guest's name for one of the cluster DNS, false if guests may not have it.
func (v *view) back(name string) (string, bool) {
	prefix, ok := below(name, v.ours)
	if !ok && v.node(name) {
		return "", false
	}
	if !ok {
		return name, true
	}
	prefix, kind := lastLabel(prefix)
	if kind != "svc" {
		return "", false
	}
	prefix, guest := lastLabel(prefix)
	for namespace, known := range v.namespaces {
		if known == guest {
			name, as := valid(prefix+namespace+".svc."+v.theirs, own)
			return name, as == own
		}
	}
	return "", false
}

// node reports whether a name is that of a node of this cluster, which the DNS of K3s knows.
func (v *view) node(name string) bool { return v.nodes[strings.ToLower(strings.TrimSuffix(name, "."))] }

// valid returns a name that was put together, foreign if it is too long to exist.
func valid(name string, as meaning) (string, meaning) {
	if _, ok := dns.IsDomainName(name); !ok {
		return "", foreign
	}
	return name, as
}

// below reports whether a name is a domain, or below it: then prefix is what comes before,
// with the dot.
func below(name, domain string) (prefix string, ok bool) {
	labels := dns.Split(name)
	first := len(labels) - dns.CountLabel(domain)
	if first < 0 || len(labels) == 0 {
		return "", false
	}
	at := labels[first]
	return name[:at], strings.EqualFold(name[at:], domain)
}

// lastLabel splits the last label off a prefix, in lower case. Both are "" for none.
func lastLabel(prefix string) (rest, label string) {
	labels := dns.Split(prefix)
	if len(labels) == 0 {
		return "", ""
	}
	at := labels[len(labels)-1]
	return prefix[:at], strings.ToLower(strings.TrimSuffix(prefix[at:], "."))
}
