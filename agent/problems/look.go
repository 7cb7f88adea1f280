package problems

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/agent/connect"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/connectivity"
)

const (
	// diskFull and diskLow are the room, in bytes, below which a disk is full, or nearly
	// so. The agent itself needs a few megabytes.
	diskFull = 8 << 20
	diskLow  = 64 << 20
	// clockTolerance is by how much clocks may differ.
	clockTolerance = time.Minute
	// fewDrops is how many packets the kernel may lose in a minute.
	fewDrops = 20
)

func (m *Monitor) lookAtAPIServer(st peering.APIStatus) {
	trouble := st.Trouble
	if st.Connected {
		trouble = conn.TroubleNone
	}
	for kind, is := range map[*health.Kind]bool{
		health.APIUnreachable:     trouble == conn.TroubleUnreachable,
		health.APICredentials:     trouble == conn.TroubleCredentials,
		health.KubeconfigUnusable: trouble == conn.TroubleKubeconfig,
		health.KubeconfigMissing:  trouble == conn.TroubleNoKubeconfig,
	} {
		if !is {
			m.cfg.Tracker.Clear(kind, "")
			continue
		}
		m.cfg.Tracker.Set(kind, health.Finding{Since: st.Since, Args: health.Args{
			"server": st.Server, "kubeconfig": st.Kubeconfig, "error": st.LastError,
		}})
	}
	objects := st.ObjectsError
	if trouble == conn.TroubleSetup {
		objects = st.LastError
	}
	var forbidden []health.Finding
	for _, what := range st.Forbidden {
		forbidden = append(forbidden, health.Finding{About: what, Args: health.Args{"error": what}})
	}
	m.cfg.Tracker.Replace(health.APIForbidden, forbidden...)
	// Objects that are missing because of missing rights are one problem, not two.
	m.cfg.Tracker.When(health.ObjectsMissing, objects != "" && len(forbidden) == 0, health.Args{"error": objects})
	m.cfg.Tracker.When(health.WebhookMissing, st.WebhookError != "" && len(forbidden) == 0, health.Args{"error": st.WebhookError})
	theirs, ours := m.cfg.Peering.NewerCRDs()
	m.cfg.Tracker.When(health.NewerDefinitions, theirs > ours, health.Args{"theirs": strconv.Itoa(theirs), "ours": strconv.Itoa(ours)})
	off := st.ClockOffset.Round(time.Second)
	relation := "behind"
	if off < 0 {
		off, relation = -off, "ahead of"
	}
	m.cfg.Tracker.When(health.ClockOff, off >= clockTolerance, health.Args{"off": off.String() + " " + relation, "server": st.Server})
}

func (m *Monitor) lookAtNetwork() {
	cfg := m.cfg.Settings()
	m.cfg.Tracker.When(health.NoLinks, m.cfg.Links() == 0 && (cfg.Discovery.EnableDiscovery || cfg.Discovery.EnableAdvertisement), nil)
	name := m.cfg.MDNS.Stats().InstanceName
	m.cfg.Tracker.When(health.InstanceRenamed, name != "" && name != string(m.cfg.ID), health.Args{"instance": fmt.Sprintf("%q", name)})

	var domains, urls []health.Finding
	for _, r := range m.cfg.Domains() {
		if !r.Outcome.Conclusive() {
			domains = append(domains, health.Finding{About: r.Domain, Args: health.Args{"domain": r.Domain, "error": r.Message}})
		}
	}
	m.cfg.Tracker.Replace(health.SearchDomain, domains...)
	for _, given := range m.cfg.GivenURLs() {
		switch given.State.Reason {
		case registry.OtherCluster, registry.OtherKey, registry.NotACluster, registry.ThisCluster:
			urls = append(urls, health.Finding{About: string(given.ID), Args: health.Args{"id": string(given.ID), "error": given.State.Message}})
		}
	}
	m.cfg.Tracker.Replace(health.GivenURL, urls...)
}

func (m *Monitor) lookAtPeers() {
	conflict := m.cfg.Registry.SelfConflict()
	m.cfg.Tracker.When(health.IDConflict, conflict != nil, func() health.Args {
		if conflict == nil {
			return nil
		}
		return health.Args{"address": conflict.Addr}
	}())
	var conflicts, away, waiting []health.Finding
	for _, p := range m.cfg.Registry.Peers() {
		if c := p.Conflict; c != nil {
			conflicts = append(conflicts, health.Finding{About: string(p.ID), Since: c.Since, Args: health.Args{
				"address": c.Addr, "peer": m.cfg.Label(p.ID), "fingerprint": c.Fingerprint.String(),
			}})
		}
	}
	m.cfg.Tracker.Replace(health.PeerConflict, conflicts...)
	for _, id := range m.cfg.Decisions.Wanted() {
		p, known := m.cfg.Registry.Peer(id)
		if !known || p.Phase != peer.PhaseUnreachable && p.Phase != peer.PhaseLost {
			continue
		}
		if view := m.cfg.Peering.View(id); view.Outgoing.Joined || view.Incoming.Joined {
			away = append(away, health.Finding{About: string(id), Args: health.Args{
				"peer": m.cfg.Label(id), "id": string(id), "error": p.Reason,
			}})
		}
	}
	m.cfg.Tracker.Replace(health.PeerUnreachable, away...)
	for id, r := range m.cfg.Requests() {
		if r.State == string(api.RequestPending) {
			waiting = append(waiting, health.Finding{About: string(id), Since: r.Since, Args: health.Args{
				"peer": m.cfg.Label(id), "id": string(id),
			}})
		}
	}
	slices.SortFunc(waiting, func(a, b health.Finding) int { return strings.Compare(a.About, b.About) })
	m.cfg.Tracker.Replace(health.RequestWaiting, waiting...)
}

// movedFor is how long a problem tells of other addresses.
const movedFor = time.Hour

// lookAtPaths checks the networks to peers.
func (m *Monitor) lookAtPaths(networks map[peer.ClusterID]connect.Seen, now time.Time) {
	var impossible, down, moved []health.Finding
	for id, seen := range networks {
		switch remedy, here := cannotConnect[seen.State.Reason]; {
		case here: // the same for all
			impossible = []health.Finding{{Args: health.Args{"message": text.Sentence(seen.State.Message), "remedy": remedy}}}
		case seen.State.Reason != reason.NetworkDown && seen.State.Reason != reason.CannotConnect:
		case m.answers(id):
			down = append(down, health.Finding{About: string(id), Since: seen.Since, Args: health.Args{
				"peer": m.cfg.Label(id), "id": string(id), "error": cmp.Or(seen.Why, "nothing comes from it"),
			}})
		}
		if move := seen.Moved; move != nil && now.Sub(move.At) < movedFor {
			moved = append(moved, health.Finding{About: string(id), Since: move.At, Args: health.Args{
				"peer": m.cfg.Label(id), "route": move.Taken.String(), "from": network.Prefixes(move.From), "to": network.Prefixes(move.To),
			}})
		}
	}
	m.cfg.Tracker.Replace(health.PodNetworkImpossible, impossible...)
	for kind, found := range map[*health.Kind][]health.Finding{health.PodNetworkDown: down, health.PodNetworkMoved: moved} {
		slices.SortFunc(found, func(a, b health.Finding) int { return strings.Compare(a.About, b.About) })
		m.cfg.Tracker.Replace(kind, found...)
	}
}

// cannotConnect says what to do if this cluster cannot be connected, by reason. Off is on purpose.
var cannotConnect = map[string]string{
	reason.NotPossibleHere:          "liqo-agent doctor says what this machine lacks",
	connectivity.ReasonSeveralNodes: "share from clusters with one node",
	connectivity.ReasonNoRange:      "use a network plugin that gives nodes a spec.podCIDR, as that of K3s does",
	connectivity.ReasonElsewhere:    "run the agent on the node of the cluster",
}

// answers reports whether a peer does. One that does not is a problem of its own.
func (m *Monitor) answers(id peer.ClusterID) bool {
	p, known := m.cfg.Registry.Peer(id)
	return !known || p.Phase != peer.PhaseUnreachable && p.Phase != peer.PhaseLost
}

// counters are those that only grow.
type counters struct{ drops, refused uint64 }

// lookAtCounters compares counters with those of a minute ago.
func (m *Monitor) lookAtCounters() {
	drops, refused := m.cfg.MDNS.Stats().SocketDrops, m.cfg.Registry.Stats().Refused
	since := func(now, before uint64) uint64 { return max(now, before) - before } // a part that started anew counts from zero
	lost, left := since(drops, m.counted.drops), since(refused, m.counted.refused)
	m.cfg.Tracker.When(health.SocketDrops, lost >= fewDrops, health.Args{"dropped": fmt.Sprint(lost)})
	m.cfg.Tracker.When(health.TooManyPeers, left > 0, health.Args{"refused": fmt.Sprint(left)})
	m.counted.drops, m.counted.refused = drops, refused
}

// lookAtDisk checks the free space, and whether a damaged database that was set aside
// still exists.
func (m *Monitor) lookAtDisk() {
	dir := m.cfg.Settings().State.Dir
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return // writes to the directory report the error
	}
	free := int64(fs.Bavail) * int64(fs.Bsize)
	args := health.Args{"dir": dir, "free": fmt.Sprintf("%.1f MiB", float64(free)/(1<<20))}
	readOnly := fs.Flags&unix.ST_RDONLY != 0 // what nobody can write to does not fill up
	m.cfg.Tracker.When(health.DiskFull, free < diskFull && !readOnly, args)
	m.cfg.Tracker.When(health.DiskLow, free >= diskFull && free < diskLow && !readOnly, args)
	if aside := m.cfg.SetAside(); aside != "" {
		if _, err := os.Lstat(aside); errors.Is(err, os.ErrNotExist) {
			m.cfg.Tracker.Clear(health.StateRecovered, "")
		}
	}
}
