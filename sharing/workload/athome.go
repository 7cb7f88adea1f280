package workload

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// homeNames replaces, in what a provider says about the copy of a pod, its names for the pod's
// namespace, node, addresses, claims and UID by those that they have in this cluster.
type homeNames struct{ pairs []namePair }

type namePair struct {
	theirs, ours string
	// alone: theirs may be a word of the language, so it is a name only in quotes or after "node".
	alone bool
}

// maxReplaced bounds a text before names are replaced, in bytes: ours may be longer.
const maxReplaced = 2 * maxMessage

// namesOf returns the names for the copy of mine with that UID. theirs is the copy, nil if it is
// not known any more.
func namesOf(mine, theirs *corev1.Pod, uid types.UID, in Origin) homeNames {
	var h homeNames
	add := func(theirs, ours string, alone bool) {
		if theirs != "" && ours != "" && theirs != ours {
			h.pairs = append(h.pairs, namePair{theirs, ours, alone})
		}
	}
	add(in.Namespace, mine.Namespace, false)
	add(string(uid), string(mine.UID), false)
	for i := range mine.Spec.Volumes {
		if c := mine.Spec.Volumes[i].PersistentVolumeClaim; c != nil && in.Claim != nil {
			if remote, why := in.Claim(mine.Namespace, c.ClaimName); why == nil {
				add(remote, c.ClaimName, false)
			}
		}
	}
	if theirs == nil {
		return h
	}
	add(theirs.Spec.NodeName, mine.Spec.NodeName, true)
	for _, ip := range theirs.Status.PodIPs[:min(len(theirs.Status.PodIPs), maxPodIPs)] {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil || in.Network == nil || in.Network.Here == nil {
			continue
		}
		if here, ok := in.Network.Here(addr); ok {
			add(addr.String(), here.String(), false)
		}
	}
	return h
}

// in returns a text with the names of this cluster.
func (h homeNames) in(text string) string {
	text = text[:min(len(text), maxReplaced)]
	for _, p := range h.pairs {
		if !p.alone {
			text = replaceName(text, p.theirs, p.ours)
			continue
		}
		text = strings.ReplaceAll(text, `"`+p.theirs+`"`, `"`+p.ours+`"`)
		text = replaceName(text, "node "+p.theirs, "node "+p.ours)
	}
	return text
}

// AtHome returns what a provider says about its namespace for one of this cluster, with the name of
// that.
func AtHome(text, theirs, ours string) string { return replaceName(text, theirs, ours) }

// replaceName replaces a name, but not where it is part of a longer one.
func replaceName(text, from, to string) string {
	var out strings.Builder
	done := 0
	for next := 0; ; {
		at := strings.Index(text[next:], from)
		if at < 0 {
			break
		}
		at += next
		next = at + len(from)
		if at > 0 && ofName(text[at-1]) || next < len(text) && ofName(text[next]) {
			continue
		}
		out.WriteString(text[done:at] + to)
		done = next
	}
	return out.String() + text[done:]
}

func ofName(c byte) bool {
	return c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// atHome returns theirs with the names of this cluster in what its status says. What containers
// say themselves stays as it is.
func atHome(mine, theirs *corev1.Pod, in Origin) *corev1.Pod {
	names := namesOf(mine, theirs, theirs.UID, in)
	out := *theirs
	s := theirs.Status.DeepCopy()
	s.Message = names.in(s.Message)
	for i := range s.Conditions {
		s.Conditions[i].Message = names.in(s.Conditions[i].Message)
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil {
				w.Message = names.in(w.Message)
			}
		}
	}
	out.Status = *s
	return &out
}
