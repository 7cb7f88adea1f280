package clitest

import (
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

const (
	Barn = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"
	Silo = "0558de48-1111-4b7d-ba04-6bd2a0f9d24f"
	Shed = "9c1b7c1e-5f0a-4f7e-8d0a-2b1f0c3d4e5f"
	Van  = "d00dfeed-0000-4000-8000-000000000001"

	FarmID  = "fa120000-5f0a-4f7e-8d0a-2b1f0c3d4e5f"
	Tractor = "7ac70000-5f0a-4f7e-8d0a-2b1f0c3d4e5f"
)

// Steps are the steps of connecting to a peer, of which so many are done.
func Steps(done int) []control.Step {
	steps := []control.Step{
		{Name: "reachable", Text: "(remote) the cluster answers"},
		{Name: "trusted", Text: "(local) its key is trusted"},
		{Name: "let-in", Text: "(remote) this cluster has access"},
		{Name: "requested", Text: "(remote) the PeeringRequest exists"},
		{Name: "accepted", Text: "(remote) the PeeringRequest is accepted"},
		{Name: "offered", Text: "(local) its Advertisement exists"},
		{Name: "offer-accepted", Text: "(local) its Advertisement is accepted"},
	}
	for i := range steps {
		steps[i].Done = i < done
	}
	return steps
}

var BarnKey = strings.Repeat("ab", 32)

func Farm() *Memory {
	return &Memory{Has: Has{
		Peers: []control.Peer{
			{ID: Barn, Name: "barn", Phase: "Present", Source: "LAN", URL: "https://192.0.2.7:6447", Addresses: []string{"192.0.2.7:6447", "[fe80::7%eth0]:6447"},
				Sources: []string{"LAN", "WAN"}, Domains: []string{"example.com", "lab.example.com"}, Links: []string{"eth0", "eth1"}, Fingerprint: BarnKey, Namespace: "liqo", Version: "1", TTLSeconds: 120, Verified: true, Remembered: true,
				ForeignCluster: Barn, FirstSeen: Now.Add(-72 * time.Hour), LastSeen: Now.Add(-12 * time.Second),
				Code: "aaaaa-bbbbb-ccccc-ddddd-eeeee-fffff-ggggg-hhhhh", Role: "ConsumerAndProvider",
				Trust: control.Trust{Mode: control.Trusted, Method: string(peer.TrustPerson), By: "user alice (command line)", At: Now.Add(-71 * time.Hour),
					Detail: "followed the key's rotation from 1234", Fingerprint: BarnKey},
				Outgoing: control.Direction{Wanted: true, Joined: true, Reason: "Joined", Message: "Its offer is accepted.", Since: Now.Add(-70 * time.Hour), Steps: Steps(7)},
				Incoming: control.Direction{Wanted: true, Joined: true, Since: Now.Add(-time.Hour)},
				Sharing: control.PeerSharing{Provider: &control.Provider{ID: Barn, Name: "barn", Node: Barn, Ready: true, Offered: map[string]string{"cpu": "3500m", "memory": "6Gi"}, Pods: 3},
					Consumer: &control.Consumer{ID: Barn, Name: "barn", Promised: map[string]string{"cpu": "1"}, Used: map[string]string{"cpu": "500m"}, Pods: 2, Namespaces: 1}},
				Network: &control.NetworkPeer{
					ID: Barn, Name: "barn", State: control.NetworkConnected, Since: Now.Add(-3 * time.Hour), Engine: "wireguard", MTU: 1420, RTTMicroseconds: 1240,
					Theirs: []string{"241.35.10.0/24"}, Ours: []string{"241.7.0.0/24"}, SentBytes: 3 << 20, ReceivedBytes: 42 << 30, Dropped: map[string]uint64{"disconnected": 2, "source": 5},
				},
				Preferences: control.Preferences{AutoConnect: control.Yes, AutoAccept: control.Yes, Note: "leaking roof", URL: "https://barn.example:6447", CPU: "4", Memory: "6Gi"}},
			{ID: Silo, Name: "silo", Alias: "Halle 3", Phase: "Unreachable", Reason: "connect to 192.0.2.8:6447: connection refused", Source: "LAN",
				URL: "https://192.0.2.8:6447", Addresses: []string{"192.0.2.8:6447"}, Links: []string{"eth0"}, Fingerprint: strings.Repeat("cd", 32),
				Namespace: "liqo", Version: "1", TTLSeconds: 120, Failures: 2, Verified: true, Remembered: true, FirstSeen: Now.Add(-time.Hour), LastSeen: Now.Add(-5 * time.Minute),
				Conflict: &control.Conflict{Fingerprint: strings.Repeat("ef", 32), Address: "192.0.2.66:6447", Since: Now.Add(-time.Minute)},
				Trust: control.Trust{Mode: control.Trusted, Method: string(peer.TrustFleet), By: "fleet CA Acme", At: Now.Add(-time.Hour), Fingerprint: strings.Repeat("ce", 32),
					Until: Now.Add(-10 * time.Minute), Suspended: Now.Add(-9 * time.Minute)},
				Outgoing: control.Direction{Wanted: true, Reason: control.ReasonAwaitingAcceptance, Message: "The provider has not decided yet.",
					Since: Now.Add(-time.Minute), Steps: Steps(4)},
				Request: &control.Request{ID: Silo, Name: "silo", Kind: control.KindRequest, State: "Pending", Since: Now.Add(-2 * time.Minute), Address: "192.0.2.8"}},
			{ID: Shed, Name: "shed", Phase: "Lost", Reason: "goodbye", Source: "LAN", Addresses: []string{}, Links: []string{}, Fingerprint: strings.Repeat("12", 32),
				Verified: true, Remembered: true, FirstSeen: Now.Add(-240 * time.Hour), LastSeen: Now.Add(-49 * time.Hour),
				Outgoing: control.Direction{Reason: "Disconnected", Message: "The cluster is not to be joined.", Steps: Steps(2)}, Incoming: control.Direction{Reason: "Unknown", Message: "no API server"},
				Trust: control.Trust{Mode: control.Untrusted}, Preferences: control.Preferences{AutoConnect: control.No, AutoAccept: control.No, Blocked: true}},
			// What a hostile neighbour would like to send to a terminal.
			{ID: Van, Name: "van\x1b[31m\u202e", Phase: "Unverified", Reason: "not\nasked yet", Source: "LAN", Addresses: []string{"192.0.2.9:6447"}, Links: []string{"eth0"}},
		},
		Events: []peer.Event{
			{At: Now.Add(-73 * time.Hour), ID: "11111111-2222-4333-8444-555555555555", Kind: peer.EventLost, Detail: "expired"},
			{At: Now.Add(-72 * time.Hour), ID: Barn, Kind: peer.EventAppeared, Detail: "on eth0 at 192.0.2.5:6447"},
			{At: Now.Add(-2 * time.Hour), ID: Barn, Kind: peer.EventAddressChanged, Detail: "192.0.2.5:6447 -> 192.0.2.7:6447"},
			{At: Now.Add(-time.Hour), ID: Barn, Kind: peer.EventTrusted, Detail: "by user alice (command line), who confirmed the code"},
			{At: Now.Add(-59 * time.Minute), ID: Barn, Kind: peer.EventJoined, Detail: "barn accepted"},
			{At: Now.Add(-50 * time.Minute), ID: Shed, Kind: peer.EventBlocked, Detail: "by user alice (command line)"},
			{At: Now.Add(-40 * time.Minute), ID: FarmID, Kind: peer.EventInviteCreated, Detail: "0a1b2c3d4e5f6071 for 1h by user alice (command line)"},
			{At: Now.Add(-30 * time.Minute), ID: Silo, Kind: peer.EventKeyRefused, Detail: "192.0.2.66:6447 shows another key"},
			{At: Now.Add(-time.Minute), ID: Silo, Kind: peer.EventConflict, Detail: "another key at 192.0.2.66:6447"},
		},
		Requests: []control.Request{
			{ID: Silo, Name: "silo", Kind: control.KindRequest, State: "Pending", Since: Now.Add(-2 * time.Minute), Address: "192.0.2.8"},
			{ID: Tractor, Name: "tractor\x1b[2J", Kind: control.KindAsk, State: "Refused", Since: Now.Add(-3 * time.Hour), Code: "zzzzz-yyyyy", Fingerprint: strings.Repeat("34", 32),
				Address: "192.0.2.11", Message: "its key was not there before"},
		},
		Invites: []control.Invite{
			{ID: "0a1b2c3d4e5f6071", State: control.InviteOpen, Note: "for the van", CreatedAt: Now.Add(-10 * time.Minute), CreatedBy: "user alice (command line)", ExpiresAt: Now.Add(50 * time.Minute)},
			{ID: "0f0f0f0f0f0f0f0f", State: control.InviteUsed, CreatedAt: Now.Add(-time.Hour), CreatedBy: "user root (command line)", ExpiresAt: Now, UsedAt: Now.Add(-30 * time.Minute), UsedBy: Barn},
		},
		Domains: []control.Domain{
			{Name: "example.com", Source: "file /etc/liqo-agent/liqo-agent.toml line 7", Autojoin: new(bool), MinIntervalSeconds: 30, MaxIntervalSeconds: 3600,
				Ignored: []string{"command line (user alice)"}, LastQuery: Now.Add(-time.Minute), NextQuery: Now.Add(5 * time.Minute), Outcome: "Found", Message: "5 entries",
				AnsweredBy: "192.0.2.53:53", Authenticated: true, Browsed: []string{"lab.example.com", "van.example.com"},
				Entries: []control.DomainEntry{
					{Name: "barn.example.com", URL: "https://barn.example.com:6447", ClusterID: Barn, Cluster: "barn"},
					{Name: "barn2.example.com", URL: "https://barn.example.com:6448", ClusterID: Barn, Cluster: "barn"},
					{Name: "farm.example.com", URL: "https://farm.example.com:6447", ClusterID: FarmID, Cluster: "farm", Reason: "ThisCluster", Message: "it is this cluster"},
					{Name: "new.example.com", URL: "https://new.example.com:6447", Reason: "NotAskedYet"},
					{Name: "old.example.com", Reason: "NoSRV", Message: "the name has no SRV record"},
					{Name: "older.example.com", Reason: "NoSRV", Message: "the name has no SRV record"},
					{Name: "van\x1b[2J.example.com", URL: "https://van.example.com:6447", Reason: "Unreachable", Message: "connect: connection \u202erefused"},
				}},
			{Name: "example.net", Source: "SearchDomain other", Server: "tls://192.0.2.54", MinIntervalSeconds: 30, MaxIntervalSeconds: 3600, LastQuery: Now.Add(-2 * time.Hour),
				NextQuery: Now, Outcome: "Timeout", Message: "192.0.2.54:853 did not answer within 5s"},
			{Name: "example.org", Source: "command line (user alice)", MinIntervalSeconds: 5, MaxIntervalSeconds: 60, LastQuery: Now.Add(-time.Second),
				NextQuery: Now.Add(time.Minute), Outcome: "NoName", Message: "192.0.2.53:53 knows no such name", AnsweredBy: "192.0.2.53:53"},
			{Name: "lab.example.com", Source: "command line (user alice)", MinIntervalSeconds: 30, MaxIntervalSeconds: 3600},
		},
		Adverts: []control.Advert{
			{ID: Barn, Name: "barn", Status: control.AdvertAccepted, Reason: "Joined", Message: "The offer is accepted.",
				Resources: map[string]string{"cpu": "3500m", "memory": "6Gi", "pods": "90", "example.com/gpu": "1", "ephemeral-storage": "40Gi"},
				Labels:    map[string]string{"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a"}, Arch: "arm64", OS: "linux",
				Images: []string{"a:1", "b:1", "c:1", "d:1", "e:1", "f:1", "g:1"}, OfferedAt: Now.Add(-time.Hour), ExpiresAt: Now.Add(5 * time.Hour), CreatedAt: Now.Add(-70 * time.Hour),
				Node: Barn, NodeReady: true, NodeReason: "ProviderReady", NodeMessage: "the kubelet is posting ready status", Pods: 3},
			{ID: Silo, Name: "Halle 3", Status: control.AdvertPending, Reason: "AwaitingDecision", Message: "Somebody has to decide.",
				Resources: map[string]string{"cpu": "1", "memory": "512Mi"}, Arch: "amd64", CreatedAt: Now.Add(-time.Minute), OfferedAt: Now.AddDate(-20, 0, 0), ExpiresAt: Now.AddDate(-20, 0, 1)},
			{ID: Shed, Name: "shed\x1b[2J", Status: control.AdvertRefused, Reason: "RefusedByPerson", Message: "Refused by user alice (command line).", DecidedBy: "liqo-agent-intent",
				Expired: true, ExpiresAt: Now.Add(-time.Hour), CreatedAt: Now.Add(-49 * time.Hour), Node: Shed, NodeReason: "Draining", NodeMessage: "2 pods are left.", Pods: 2},
		},
		Network: control.Network{Names: control.Names{Addresses: []string{"169.254.241.53"}}, Peers: []control.NetworkPeer{
			{ID: Barn, Name: "barn", State: control.NetworkConnected, Since: Now.Add(-3 * time.Hour), Engine: "wireguard", MTU: 1420, RTTMicroseconds: 1240, Theirs: []string{"241.35.10.0/24", "fd35:a:0:1::/64"}, Ours: []string{"241.7.0.0/24", "fd07::/64"},
				SentBytes: 3 << 20, ReceivedBytes: 42 << 30, Dropped: map[string]uint64{"disconnected": 2, "source": 5},
				Services: 4, RefusedServices: []control.RefusedService{{Namespace: "shop", Name: "alias", Reason: "NotReflected", Message: "A Service of type ExternalName is an alias."}}},
			{ID: Silo, Name: "Halle 3", State: "Silent", Engine: "tls", NoWireGuard: "the kernel of this machine has no WireGuard; try `modprobe wireguard`", MTU: 1500, Message: "the peer does not answer", Since: Now.Add(-5 * time.Minute), Theirs: []string{"241.35.11.0/24"}, Ours: []string{"241.7.1.0/24"},
				SentBytes: 512, Dropped: map[string]uint64{"disconnected": 40}},
			{ID: Shed, Name: "shed\x1b[2J", State: control.NetworkOff, Reason: "NotShared", Message: "The peering is beginning or ending: no resources are shared with it now."},
			{ID: Van, Name: "van\u202e", State: "Connecting", MTU: 1500, Message: "connect to 192.0.2.9:6447: \u202erefused", Since: Now.Add(-time.Minute)},
		}},
		Storage: control.Storage{
			Class: "liqo", OfferedBytes: 20 << 30,
			Own: []control.OwnStorage{
				{Namespace: "shop", Claim: "data-web-0", Bytes: 2 << 30, State: "Home", Since: Now.Add(-time.Hour)},
				{ID: Barn, Name: "barn", Namespace: "shop", Claim: "data-db-0", Bytes: 5 << 30, State: "Bound", Since: Now.Add(-49 * time.Hour)},
				{ID: Silo, Name: "Halle 3", Namespace: "shop", Claim: "cache", Bytes: 1 << 30, State: "Parted", Message: "There is no peering with the provider, which keeps the data for some days. Connect again to use it.", Since: Now.Add(-time.Hour)},
			},
			Guests: []control.GuestStorage{
				{ID: Shed, Name: "shed\x1b[2J", Claims: 3, Bytes: 12 << 30, State: control.StorageRetained, Since: Now.Add(-24 * time.Hour), Until: Now.Add(6 * 24 * time.Hour)},
				{ID: Van, Name: "van\u202e", Claims: 1, Bytes: 1 << 30, State: control.StorageInUse},
			},
		},
		Status: control.Status{
			Version: "1.2.3", Protocol: "1-2",
			Identity:  control.Identity{ClusterID: FarmID, Name: "farm", Namespace: "liqo", Fingerprint: strings.Repeat("77", 32), IDOrigin: "ConfigMap"},
			StartedAt: Now.Add(-3 * time.Hour),
			Links:     []control.Link{{Name: "eth0", Addresses: []string{"192.0.2.1/24"}}, {Name: "eth1", Addresses: []string{}}},
			Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local"},
			Advertisement: control.Advertisement{
				Enabled: true, Established: true, Instance: FarmID, Source: "default",
			},
			Autojoin: control.Autojoin{Source: "ClusterConfig liqo-configuration", NotJoined: []control.NotJoined{{ID: Silo, Name: "Halle 3", Reason: "TrustedByPerson",
				Message: "autojoin is on for the search domain example.com, but its key is trusted by a person's word, which joins nobody by itself. Join it with: liqo-agent peers connect silo"}}},
			Domains: []control.DomainSummary{{Domain: "example.com", Outcome: "Found", Clusters: 1, Source: "file x"}, {Domain: "example.net", Outcome: "Timeout", Message: "192.0.2.54 did not answer"},
				{Domain: "lab.example.com"}},
			Networks: []control.LinkNetwork{{Link: "eth0", Rule: "home", Advertise: true, Discover: true, Autojoin: true, Why: "192.0.2.1 is in 192.0.2.0/24"},
				{Link: "eth1", Rule: "elsewhere"}},
			Endpoint:   control.Endpoint{Listen: ":6447", Port: 6447, Connections: 1},
			Kubernetes: control.Kubernetes{Server: "https://127.0.0.1:6443", LastError: "connection refused", Kubeconfig: "/etc/rancher/k3s/k3s.yaml"},
			State:      control.State{Path: "/var/lib/liqo-agent/agent.db"},
			Peers:      map[string]int{"Present": 1, "Unverified": 1, "Unreachable": 1, "Lost": 1},
			Sharing: control.Sharing{
				Offering: control.Offering{Enabled: true, Percentage: 50, Overcommit: 150, Source: "default", Pool: map[string]string{"cpu": "2", "memory": "3Gi", "pods": "50"},
					Consumers: []control.Consumer{{ID: Barn, Name: "barn", Promised: map[string]string{"cpu": "1", "memory": "1Gi"}, Used: map[string]string{"cpu": "500m"}, Pods: 2, Namespaces: 1},
						{ID: Van, Name: "van\u202e", Ending: true}}},
				Using: control.Using{Enabled: true, Policy: "auto", MaxAccepted: 128, Source: "ClusterConfig liqo-configuration", Accepted: 1, Pending: 1, Refused: 1,
					Providers: []control.Provider{{ID: Barn, Name: "barn", Node: Barn, Ready: true, Offered: map[string]string{"cpu": "3500m", "memory": "6Gi"}, Pods: 3},
						{ID: Shed, Name: "shed", Node: Shed, Reason: "Draining", Message: "2 pods are left.", Pods: 2}}},
			},
			Network: control.NetworkSummary{Peers: 4, Connected: 1, WireGuard: 1},
			Peering: control.PeeringStatus{Wanted: 2, Joined: 1, Serving: 1, Requests: 2, Invites: 1},
			Trust: control.TrustStatus{Accept: "all", Open: "trust.accept = \"all\"", FleetCA: &control.FleetCA{Name: "Acme", Path: "/etc/liqo-agent/fleet.pem",
				Fingerprint: strings.Repeat("fa", 32), NotAfter: Now.Add(24 * time.Hour)}},
			Packets: control.Packets{Received: 1200, Sent: 34},
			Drops:   map[string]uint64{"mdns:malformed": 2, "mdns:off-link": 5},
			Problems: []control.Problem{
				{Code: "peer-conflict", Severity: "error", Text: "somebody at 192.0.2.66 shows the cluster ID of silo with another key", Remedy: "find out which of the two is the copy", Since: Now.Add(-12 * time.Minute)},
				{Code: "open-to-anybody", Severity: "warning", Text: "anybody who can reach this agent is trusted: trust.accept is \"all\"", Remedy: "undo the setting, unless this is a test network", Since: Now.Add(-3 * time.Hour)}},
			LastErrors: []control.LogEntry{{At: Now.Add(-2 * time.Minute), Level: "error", Text: "carrying out a decision failed:\x1b[2J no", Count: 3}, {At: Now.Add(-2 * time.Hour), Level: "warn", Text: "old", Count: 1}},
		},
	}}
}
