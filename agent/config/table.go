package config

import (
	"time"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/network"
	"liqo.io/agent/sharing/registry"
)

// setting is everything there is to say about one key of T.
type setting[T any] struct {
	key   string       // "section.name"; in an array of tables just the name
	field func(*T) any // pointer to the field: *string, *bool, *int, *time.Duration or *[]string
	def   any          // the value field points to when nothing sets it
	rule  rule
	doc   string // what it does; sentences
	// restart: a change takes effect with the next start only.
	restart bool
	// rebuild: a change takes effect by making parts of the agent anew.
	rebuild bool
}

const (
	day  = 24 * time.Hour
	year = 365 * day

	peerTable         = "peer"
	searchDomainTable = "search_domain"
	networkTable      = "network"
)

// sections documents the tables of the file, in their order.
var sections = []struct{ name, doc string }{
	{"cluster", "This cluster."},
	{"state", "Files of the agent."},
	{"discovery", "Discovery on the LAN (multicast DNS)."},
	{"endpoint", "The HTTPS port for other clusters."},
	{"trust", "Which clusters to trust and to accept."},
	{"peering", "What peers clusters."},
	{"sharing", "What peers can use of this cluster, and what this cluster uses of its peers."},
	{"log", "The log of the agent."},
	{"metrics", "Prometheus metrics."},
}

// settings are the keys of the file apart from its arrays of tables.
var settings = []setting[Config]{
	{key: "cluster.id", field: func(c *Config) any { return &c.Cluster.ID }, def: "", rule: optional(clusterID), restart: true,
		doc: "The cluster ID. Empty: the ConfigMap cluster-id in cluster.namespace, else the ID in the database, else the UID of the control-plane node, else a new UUID."},
	{key: "cluster.name", field: func(c *Config) any { return &c.Cluster.Name }, def: "", rule: optional(clusterName),
		doc: "The name that other clusters see. Empty: the host name."},
	{key: "cluster.namespace", field: func(c *Config) any { return &c.Cluster.Namespace }, def: "liqo", rule: namespace, restart: true,
		doc: "The Kubernetes namespace of the agent's ConfigMap and Secrets. Peers see it as the guest namespace."},
	{key: "cluster.admission_listen", field: func(c *Config) any { return &c.Cluster.AdmissionListen }, def: "127.0.0.1:6446", rule: loopbackPort, restart: true,
		doc: "The loopback address and port where the local API server asks the agent about PeeringRequests. If the port is taken, the agent uses another one."},
	{key: "cluster.kubeconfig", field: func(c *Config) any { return &c.Cluster.Kubeconfig }, def: "", rule: anyPath, restart: true,
		doc: `The kubeconfig file for the local API server. Empty: the first of $KUBECONFIG, /etc/liqo-agent/kubeconfig (see liqo-agent rbac), /etc/rancher/k3s/k3s.yaml and ~/.kube/config that exists. "none": run without an API server.`},

	{key: "state.dir", field: func(c *Config) any { return &c.State.Dir }, def: "/var/lib/liqo-agent", rule: filePath, restart: true,
		doc: "The directory of the database (agent.db) and the cluster key."},
	{key: "state.socket", field: func(c *Config) any { return &c.State.Socket }, def: "/run/liqo-agent/agent.sock", rule: socketPath, restart: true,
		doc: "The unix socket for the command line."},
	{key: "state.history", field: func(c *Config) any { return &c.State.History }, def: 90 * day, rule: between(time.Hour, 10*year),
		doc: "How long to keep events and forgotten neighbours; longer while neither a time server nor most joined peers confirm the clock."},

	{key: "discovery.service", field: func(c *Config) any { return &c.Discovery.Service }, def: "_liqo._tcp", rule: serviceType, rebuild: true,
		doc: "The DNS-SD service type to advertise and to browse, on the LAN and in search domains."},
	{key: "discovery.domain", field: func(c *Config) any { return &c.Discovery.Domain }, def: "local", rule: mdnsDomain, rebuild: true,
		doc: "The domain of multicast DNS names."},
	{key: "discovery.enable_discovery", field: func(c *Config) any { return &c.Discovery.EnableDiscovery }, def: true,
		doc: "Look for other clusters."},
	{key: "discovery.enable_advertisement", field: func(c *Config) any { return &c.Discovery.EnableAdvertisement }, def: true,
		doc: "Advertise this cluster."},
	{key: "discovery.ttl", field: func(c *Config) any { return &c.Discovery.TTL }, def: 75 * time.Minute, rule: between(10*time.Second, day),
		doc: "The TTL of the advertised records, except address records. Neighbours forget this cluster when it ends; they query again well before."},
	{key: "discovery.autojoin", field: func(c *Config) any { return &c.Discovery.Autojoin }, def: true,
		doc: "Join new peers automatically if this configuration trusts their key: through trust.fleet_ca, a [[peer]] entry or the system's certificate authorities. A peer that a person trusted is joined with liqo-agent peers connect."},
	{key: "discovery.autojoin_untrusted", field: func(c *Config) any { return &c.Discovery.AutojoinUntrusted }, def: false,
		doc: "Also join new peers that are not trusted, and trust the first key that they show. Only for test networks."},
	{key: "discovery.interfaces", field: func(c *Config) any { return &c.Discovery.Interfaces }, def: []string{}, rule: globs,
		doc: "The network interfaces to use: names, or globs such as eth*. Empty: all except exclude_interfaces."},
	{key: "discovery.exclude_interfaces", field: func(c *Config) any { return &c.Discovery.ExcludeInterfaces }, def: ifwatch.DefaultExclude(), rule: globs,
		doc: "The network interfaces to ignore. The default ignores loopback and container interfaces. It does not apply to interfaces that discovery.interfaces lists."},
	{key: "discovery.check_interval", field: func(c *Config) any { return &c.Discovery.CheckInterval }, def: 30 * time.Second, rule: between(time.Second, time.Hour),
		doc: "How often to check the endpoint of each neighbour and to query each peer for its state. After three failed checks in a row, a peer is unreachable."},
	{key: "discovery.lost_after", field: func(c *Config) any { return &c.Discovery.LostAfter }, def: 15 * time.Minute, rule: between(time.Second, 30*day),
		doc: "How long to keep the peering with an unreachable peer before it is removed here. It is restored when the peer returns. At least check_interval."},
	{key: "discovery.max_neighbours", field: func(c *Config) any { return &c.Discovery.MaxNeighbours }, def: 5000, rule: within(1, 100_000), restart: true,
		doc: "How many neighbours to keep in memory. Beyond that, known clusters stay, and unknown ones take turns."},

	{key: "endpoint.listen", field: func(c *Config) any { return &c.Endpoint.Listen }, def: ":6447", rule: listenAddress, restart: true,
		doc: "The address and port to listen on. Without an address: all addresses. Port 0: any free port, which is advertised."},
	{key: "endpoint.advertise_url", field: func(c *Config) any { return &c.Endpoint.AdvertiseURL }, def: "", rule: optional(endpointURL),
		doc: "The URL where peers reach this cluster, https://host:port, if it is behind a router. Empty: peers use the source address of its connections."},
	{key: "endpoint.certificate", field: func(c *Config) any { return &c.Endpoint.Certificate }, def: "", rule: anyPath, restart: true,
		doc: "A PEM file with a public certificate for the cluster key (see liqo-agent key csr) and its issuers. It is used when a peer connects to one of its names."},
	{key: "endpoint.max_connections", field: func(c *Config) any { return &c.Endpoint.MaxConnections }, def: 256, rule: within(1, 65_536), restart: true,
		doc: "How many connections to serve at once. Further connections wait."},

	{key: "trust.accept", field: func(c *Config) any { return &c.Trust.Accept }, def: "ask", rule: oneOf("ask", "trusted", "all", "none"),
		doc: "How to answer a peering request. ask: a person decides. trusted: accept peers with a trusted key, refuse others. all: accept everybody, and trust the first key of each cluster ID. none: refuse everybody."},
	{key: "trust.allow_empty_token", field: func(c *Config) any { return &c.Trust.AllowEmptyToken }, def: false,
		doc: "Trust the first key of each cluster ID that asks, without a token. trust.accept still decides about the request. Only for test networks."},
	{key: "trust.fleet_ca", field: func(c *Config) any { return &c.Trust.FleetCA }, def: "", rule: anyPath,
		doc: "A PEM file with the fleet CA. Keys that it certified are trusted."},
	{key: "trust.fleet_certificate", field: func(c *Config) any { return &c.Trust.FleetCertificate }, def: "", rule: anyPath,
		doc: "A PEM file with this cluster's certificate from the fleet CA (see liqo-agent fleet sign). Peers see it. Empty: fleet.crt in state.dir, if it exists."},

	{key: "peering.engine", field: func(c *Config) any { return &c.Peering.Engine }, def: string(engine.OnlyBuiltin), rule: oneOf(string(engine.Auto), string(engine.OnlyBuiltin), string(engine.OnlyLiqo)), restart: true,
		doc: "What peers this cluster with others. builtin: the agents share resources by themselves. liqo: Liqo 1.0 to 1.2, if it runs in both clusters; with others there is no peering. auto: Liqo where both clusters have it and it is ready, else builtin. Pods that peers run here by Liqo are under its rules, not those of the agent. Disconnect pairs that Liqo peers before a change to builtin."},

	{key: "sharing.enable", field: func(c *Config) any { return &c.Sharing.Enable }, def: true,
		doc: "Offer resources to accepted peers. false: withdraw all offers, and end the pods that run here for peers."},
	{key: "sharing.percentage", field: func(c *Config) any { return &c.Sharing.Percentage }, def: 50, rule: within(0, 100),
		doc: "The percentage of the free resources to offer. Free is the capacity of the nodes minus the requests of this cluster's own pods."},
	{key: "sharing.overcommit", field: func(c *Config) any { return &c.Sharing.Overcommit }, def: 100, rule: within(100, 1000),
		doc: "How much of the offered resources to promise to all peers together, in percent. 100: nothing is promised twice."},
	{key: "sharing.hysteresis", field: func(c *Config) any { return &c.Sharing.Hysteresis }, def: 10, rule: within(0, 100),
		doc: "How much a resource has to change before the offer is updated, in percent of the offer. Offers are also renewed before they expire."},
	{key: "sharing.labels", field: func(c *Config) any { return &c.Sharing.Labels }, def: []string{"offer.liqo.io/*", "topology.kubernetes.io/*", "node.kubernetes.io/instance-type"}, rule: labelGlobs,
		doc: "The node labels to include in offers, as names or globs. A label is included if all nodes have the same value. On virtual nodes, topology.kubernetes.io/zone and /region, node.kubernetes.io/instance-type and labels that begin with offer.liqo.io/ are set."},
	{key: "sharing.pod_security", field: func(c *Config) any { return &c.Sharing.PodSecurity }, def: "baseline", rule: oneOf("baseline", "restricted"),
		doc: "The Pod Security Standard for pods of peers."},
	{key: "sharing.enforce", field: func(c *Config) any { return &c.Sharing.Enforce }, def: "requests", rule: oneOf("requests", "limits"),
		doc: "What the quota of a peer limits. requests: the requests of its pods. limits: also their limits, which every container then has to set."},
	{key: "sharing.max_namespaces", field: func(c *Config) any { return &c.Sharing.MaxNamespaces }, def: 32, rule: within(1, 1000),
		doc: "How many namespaces one peer can have here."},
	{key: "sharing.namespace_prefix", field: func(c *Config) any { return &c.Sharing.NamespacePrefix }, def: "liqo", rule: namePrefix,
		doc: "The prefix of the namespaces of peers: PREFIX-ID-NAMESPACE. A change applies to new namespaces."},
	{key: "sharing.registries", field: func(c *Config) any { return &c.Sharing.Registries }, def: registry.Defaults(), rule: registries,
		doc: "The image registries that pods of peers can use, such as ghcr.io, *.azurecr.io or registry.example.com:5000. own means the registries of this cluster's own pods. IP addresses and internal names are never allowed. The nodes' credentials for a registry apply to these pods too."},
	{key: "sharing.local_images", field: func(c *Config) any { return &c.Sharing.LocalImages }, def: false,
		doc: "Let pods of peers run images that are already on the node, without pulling them. false: every image is pulled with the pod's own secrets, so that a peer cannot run a private image from the node's store."},
	{key: "sharing.guest_egress", field: func(c *Config) any { return &c.Sharing.GuestEgress }, def: "internet", rule: oneOf("internet", "all", "none"),
		doc: "Where pods of peers can connect to, besides pods of the same peer, here and in its own cluster. internet: public addresses, and DNS. all: everywhere, including this machine, other pods of this cluster and the LAN. none: nowhere, and DNS has names of their own cluster only. Needs a network policy controller; K3s has one."},
	{key: "sharing.storage", field: func(c *Config) any { return &c.Sharing.Storage }, def: "0", rule: amount,
		doc: "How much storage PersistentVolumeClaims of peers can ask for, altogether. It is divided equally among the peers. 0: they get none. Whether the disk has that much is not checked."},
	{key: "sharing.guest_storage_class", field: func(c *Config) any { return &c.Sharing.GuestStorageClass }, def: "", rule: optional(objectName),
		doc: "The storage class of these claims. Empty: the default class of this cluster."},
	{key: "sharing.storage_keep", field: func(c *Config) any { return &c.Sharing.StorageKeep }, def: 7 * day, rule: between(0, 10*year),
		doc: "How long to keep the claims of a peer with their data after its peering has ended. They are its again if it is accepted again meanwhile."},
	{key: "sharing.use", field: func(c *Config) any { return &c.Sharing.Use }, def: true,
		doc: "Create a node for each joined provider, for pods in namespaces with the label liqo.io/enabled=true. false: drain and remove these nodes."},
	{key: "sharing.storage_class", field: func(c *Config) any { return &c.Sharing.StorageClass }, def: "liqo", rule: objectName, rebuild: true,
		doc: "The storage class whose claims are kept where the first pod that uses them runs: at a provider, or in this cluster. It exists while a provider offers storage, or there are such claims."},
	{key: "sharing.home_storage_class", field: func(c *Config) any { return &c.Sharing.HomeStorageClass }, def: "", rule: optional(objectName),
		doc: "The storage class that provides the volumes of such claims in this cluster. Empty: the default class of this cluster."},
	{key: "sharing.tokens", field: func(c *Config) any { return &c.Sharing.Tokens }, def: TokensAuto, rule: oneOf(TokensAuto, TokensOff),
		doc: "Whether pods at providers have their service account tokens with them, and reach the API server of this cluster. auto: those of namespaces with the label liqo.io/tokens=true, whose tokens the provider then sees; never those of kube-system and of cluster.namespace. off: none."},
	{key: "sharing.accept_policy", field: func(c *Config) any { return &c.Sharing.AcceptPolicy }, def: "auto", rule: oneOf("auto", "manual"),
		doc: "What to do with offers of joined providers. auto: accept up to max_accepted. manual: a person decides (liqo-agent adverts accept). A change does not affect accepted offers."},
	{key: "sharing.max_accepted", field: func(c *Config) any { return &c.Sharing.MaxAccepted }, def: 128, rule: within(0, 10_000),
		doc: "How many offers to accept automatically. Manually accepted offers count too, and can exceed it. A lower number does not affect accepted offers."},
	{key: "sharing.keepalive_threshold", field: func(c *Config) any { return &c.Sharing.KeepaliveThreshold }, def: 3, rule: within(1, 1000),
		doc: "After how many failed checks in a row the node of a provider is not ready."},
	{key: "sharing.keepalive_retry", field: func(c *Config) any { return &c.Sharing.KeepaliveRetry }, def: 5 * time.Second, rule: between(time.Second, day),
		doc: "How long to wait after a failed check of a provider."},
	{key: "sharing.heartbeat", field: func(c *Config) any { return &c.Sharing.Heartbeat }, def: 25 * time.Second, rule: between(5*time.Second, time.Minute),
		doc: "How often to renew the lease of a provider's node. Keep it well below the node-monitor-grace-period of the cluster, which is 40 or 50 seconds by default."},
	{key: "sharing.drain_timeout", field: func(c *Config) any { return &c.Sharing.DrainTimeout }, def: 5 * time.Minute, rule: between(0, day),
		doc: "How long pods can take to leave the node of a removed provider, respecting PodDisruptionBudgets. Remaining pods are then deleted."},
	{key: "sharing.kubelet_listen", field: func(c *Config) any { return &c.Sharing.KubeletListen }, def: "", rule: optional(listenAddress), rebuild: true,
		doc: "The address and port where the local API server calls for kubectl logs, exec and port-forward, and metrics-server for kubectl top. Empty: the address of this machine towards its API server, and any free port. metrics-server in a pod needs one that pods can reach."},

	{key: "sharing.network", field: func(c *Config) any { return &c.Sharing.Network }, def: NetworkAuto, rule: oneOf(NetworkAuto, NetworkOff),
		doc: "Whether the networks of joined clusters are connected, so that offloaded pods can be reached from this cluster, and reach it. auto: if this cluster has one node, and the agent runs on it. off: not at all, also those of peers that Liqo peers."},
	{key: "sharing.network_range", field: func(c *Config) any { return &c.Sharing.NetworkRange }, def: network.DefaultRange.String(), rule: networkRange,
		doc: "IPv4 addresses from which this cluster chooses those by which it knows the pods of its peers. They must not be in use in its networks."},

	{key: "log.level", field: func(c *Config) any { return &c.Log.Level }, def: "info", rule: oneOf("debug", "info", "warn", "error"),
		doc: "The minimum level of log messages."},
	{key: "log.format", field: func(c *Config) any { return &c.Log.Format }, def: "auto", rule: oneOf("auto", "text", "json"), restart: true,
		doc: "The format of log lines. auto: text, without the time if systemd-journald adds it."},

	{key: "metrics.listen", field: func(c *Config) any { return &c.Metrics.Listen }, def: "", rule: optional(listenAddress),
		doc: "The address and port of the Prometheus endpoint, such as 127.0.0.1:6448: plain HTTP without authentication. Empty: none. The control socket always serves the metrics."},
}

const peerDoc = "A peer that is known in advance. Repeat for each peer."

// peerSettings are the keys of [[peer]].
var peerSettings = []setting[StaticPeer]{
	{key: "id", field: func(p *StaticPeer) any { return &p.ID }, def: "", rule: clusterID,
		doc: "The cluster ID of the peer."},
	{key: "fingerprint", field: func(p *StaticPeer) any { return &p.Fingerprint }, def: "", rule: optional(fingerprint),
		doc: "The fingerprint of its key, which is then trusted."},
	{key: "url", field: func(p *StaticPeer) any { return &p.URL }, def: "", rule: optional(endpointURL),
		doc: "The URL of its endpoint, if it is not on the LAN."},
	{key: "connect", field: func(p *StaticPeer) any { return &p.Connect }, def: "", rule: oneOf("", "auto", "never"),
		doc: "Whether to connect to it. auto: whenever it is present. never: not at all. Empty: follow liqo-agent peers connect, else discovery.autojoin."},
	{key: "accept", field: func(p *StaticPeer) any { return &p.Accept }, def: "", rule: oneOf("", "auto", "never"),
		doc: "Whether to accept its requests. auto: always. never: not at all. Empty: follow liqo-agent peers accept, else trust.accept."},
}

const searchDomainDoc = "A DNS domain with clusters. Repeat for each domain."

// The bounds and defaults of the time between two looks at a search domain.
const (
	shortestInterval   = time.Second
	longestInterval    = day
	defaultMinInterval = 30 * time.Second
	defaultMaxInterval = time.Hour
)

// searchDomainSettings are the keys of [[search_domain]].
var searchDomainSettings = []setting[SearchDomain]{
	{key: "domain", field: func(d *SearchDomain) any { return &d.Domain }, def: "", rule: domainName,
		doc: "The DNS domain."},
	{key: "autojoin", field: func(d *SearchDomain) any { return &d.Autojoin }, def: true,
		doc: "Join trusted clusters that are found there. Overrides discovery.autojoin."},
	{key: "server", field: func(d *SearchDomain) any { return &d.Server }, def: "", rule: optional(dnsServer),
		doc: "The DNS server to query; tls:// uses DNS over TLS (RFC 7858). Empty: the system's."},
	{key: "min_interval", field: func(d *SearchDomain) any { return &d.MinInterval }, def: defaultMinInterval, rule: between(shortestInterval, longestInterval),
		doc: "The minimum time between two queries. In between, the TTL of the answers decides."},
	{key: "max_interval", field: func(d *SearchDomain) any { return &d.MaxInterval }, def: defaultMaxInterval, rule: between(shortestInterval, longestInterval),
		doc: "The maximum time between two queries. At least min_interval."},
}

const networkDoc = "A rule for a network, such as a Wi-Fi. Repeat for each network. For each interface, the first rule counts whose conditions all match. A rule can only switch off what [discovery] allows; without a matching rule, [discovery] alone counts."

// networkSettings are the keys of [[network]].
var networkSettings = []setting[Network]{
	{key: "name", field: func(n *Network) any { return &n.Name }, def: "", rule: clusterName,
		doc: "The name of the network in liqo-agent status and in the log."},
	{key: "interface", field: func(n *Network) any { return &n.Interface }, def: "", rule: optional(glob),
		doc: "Condition: the name of the interface, or a glob. Empty: any."},
	{key: "subnet", field: func(n *Network) any { return &n.Subnet }, def: "", rule: optional(subnet),
		doc: "Condition: the interface has an address in this subnet. Empty: any."},
	{key: "gateway_mac", field: func(n *Network) any { return &n.GatewayMAC }, def: "", rule: optional(gatewayMAC),
		doc: "Condition: the hardware address of the default router on this interface (see ip neigh). It distinguishes networks that use the same addresses. Empty: any."},
	{key: "advertise", field: func(n *Network) any { return &n.Advertise }, def: true,
		doc: "Advertise this cluster there, if discovery.enable_advertisement is on."},
	{key: "discover", field: func(n *Network) any { return &n.Discover }, def: true,
		doc: "Look for clusters there, if discovery.enable_discovery is on."},
	{key: "autojoin", field: func(n *Network) any { return &n.Autojoin }, def: true,
		doc: "Join peers that are found only there, if discovery.autojoin is on."},
}

// find returns the setting of a key.
func find[T any](table []setting[T], key string) (setting[T], bool) {
	for _, s := range table {
		if s.key == key {
			return s, true
		}
	}
	return setting[T]{}, false
}

func applyDefaults[T any](table []setting[T], c *T) {
	for _, s := range table {
		assign(s.field(c), s.def)
	}
}
