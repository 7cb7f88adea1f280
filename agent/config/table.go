package config

import (
	"time"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/sharing/registry"
)

// setting is everything there is to say about one key of T.
type setting[T any] struct {
	key   string       // "section.name"; in an array of tables just the name
	field func(*T) any // pointer to the field: *string, *bool, *int, *time.Duration or *[]string
	def   any          // the value field points to when nothing sets it
	rule  rule
	doc   string // what it is for; sentences
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
	{"cluster", "Who we are."},
	{"state", "Where things are kept."},
	{"discovery", "Neighbours on the LAN (multicast DNS)."},
	{"endpoint", "The HTTPS port that other clusters talk to."},
	{"trust", "Whom to believe."},
	{"sharing", "What peers may use of this cluster, and what it uses of theirs."},
	{"log", "The agent's own messages."},
	{"metrics", "Numbers for Prometheus."},
}

// settings are the keys of the file apart from its arrays of tables.
var settings = []setting[Config]{
	{key: "cluster.id", field: func(c *Config) any { return &c.Cluster.ID }, def: "", rule: optional(clusterID), restart: true,
		doc: "The cluster's ID, for fleets that name their clusters. Empty: the ConfigMap cluster-id in the namespace below, else the one remembered, else the UID of the control-plane node, else a new UUID."},
	{key: "cluster.name", field: func(c *Config) any { return &c.Cluster.Name }, def: "", rule: optional(clusterName),
		doc: "The name shown to others. Empty: the host's name."},
	{key: "cluster.namespace", field: func(c *Config) any { return &c.Cluster.Namespace }, def: "liqo", rule: namespace, restart: true,
		doc: "The Kubernetes namespace of our own ConfigMap and Secrets, told to others as the guest namespace."},
	{key: "cluster.admission_listen", field: func(c *Config) any { return &c.Cluster.AdmissionListen }, def: "127.0.0.1:6446", rule: loopbackPort, restart: true,
		doc: "Where the local API server asks the agent about PeeringRequests: a loopback address and port. If the port is taken, another one is used."},
	{key: "cluster.kubeconfig", field: func(c *Config) any { return &c.Cluster.Kubeconfig }, def: "", rule: anyPath, restart: true,
		doc: `The kubeconfig file to reach the local API server with. Empty: $KUBECONFIG, /etc/liqo-agent/kubeconfig (see liqo-agent rbac), /etc/rancher/k3s/k3s.yaml or ~/.kube/config, whichever exists first. "none": work without an API server.`},

	{key: "state.dir", field: func(c *Config) any { return &c.State.Dir }, def: "/var/lib/liqo-agent", rule: filePath, restart: true,
		doc: "The directory of the database (agent.db) and of the cluster's key."},
	{key: "state.socket", field: func(c *Config) any { return &c.State.Socket }, def: "/run/liqo-agent/agent.sock", rule: socketPath, restart: true,
		doc: "The unix socket that the command line talks to."},
	{key: "state.history", field: func(c *Config) any { return &c.State.History }, def: 90 * day, rule: between(time.Hour, 10*year),
		doc: "How long events and forgotten neighbours are remembered."},

	{key: "discovery.service", field: func(c *Config) any { return &c.Discovery.Service }, def: "_liqo._tcp", rule: serviceType, rebuild: true,
		doc: "The DNS-SD service type to advertise and to look for, on the LAN and in search domains."},
	{key: "discovery.domain", field: func(c *Config) any { return &c.Discovery.Domain }, def: "local", rule: domainName, rebuild: true,
		doc: "The domain of multicast DNS names."},
	{key: "discovery.enable_discovery", field: func(c *Config) any { return &c.Discovery.EnableDiscovery }, def: true,
		doc: "Look for neighbours."},
	{key: "discovery.enable_advertisement", field: func(c *Config) any { return &c.Discovery.EnableAdvertisement }, def: true,
		doc: "Let neighbours find us."},
	{key: "discovery.ttl", field: func(c *Config) any { return &c.Discovery.TTL }, def: 75 * time.Minute, rule: between(10*time.Second, day),
		doc: "How long neighbours may keep our announcement without hearing it again: the TTL of those of its records that hold no address. They ask again well before it ends."},
	{key: "discovery.autojoin", field: func(c *Config) any { return &c.Discovery.Autojoin }, def: true,
		doc: "Join newly found peers whose key this configuration trusts: by trust.fleet_ca, a [[peer]] entry, or the system's certificate authorities. Whom a person trusted is joined when that person says so."},
	{key: "discovery.autojoin_untrusted", field: func(c *Config) any { return &c.Discovery.AutojoinUntrusted }, def: false,
		doc: "Join newly found peers that are not trusted, too: the first key that is seen is then trusted. For playgrounds only."},
	{key: "discovery.interfaces", field: func(c *Config) any { return &c.Discovery.Interfaces }, def: []string{}, rule: globs,
		doc: "The network interfaces to use, as names or globs such as eth*. Empty: all except those excluded."},
	{key: "discovery.exclude_interfaces", field: func(c *Config) any { return &c.Discovery.ExcludeInterfaces }, def: ifwatch.DefaultExclude(), rule: globs,
		doc: "The network interfaces to leave out. The default leaves out loopback and the plumbing of containers, and does not apply to what interfaces names."},
	{key: "discovery.check_interval", field: func(c *Config) any { return &c.Discovery.CheckInterval }, def: 30 * time.Second, rule: between(time.Second, time.Hour),
		doc: "How often each neighbour's endpoint is checked, and each peer that there is a peering with is asked for its state. Three failed checks in a row make it unreachable."},
	{key: "discovery.lost_after", field: func(c *Config) any { return &c.Discovery.LostAfter }, def: 15 * time.Minute, rule: between(time.Second, 30*day),
		doc: "How long the peering with an unreachable peer is kept before it is undone here. It is taken up again when the peer returns. Not shorter than check_interval."},
	{key: "discovery.max_neighbours", field: func(c *Config) any { return &c.Discovery.MaxNeighbours }, def: 5000, rule: within(1, 100_000), restart: true,
		doc: "How many neighbours are kept in memory. Beyond it those we know stay and strangers take turns."},

	{key: "endpoint.listen", field: func(c *Config) any { return &c.Endpoint.Listen }, def: ":6447", rule: listenAddress, restart: true,
		doc: "The address and port to listen on. Without an address: on all of them. Port 0: any free one, which is advertised."},
	{key: "endpoint.advertise_url", field: func(c *Config) any { return &c.Endpoint.AdvertiseURL }, def: "", rule: optional(endpointURL),
		doc: "The URL at which peers are asked to call us, https://host:port, for a box behind a router. Empty: they use the address that our calls come from."},
	{key: "endpoint.certificate", field: func(c *Config) any { return &c.Endpoint.Certificate }, def: "", rule: anyPath, restart: true,
		doc: "A PEM file with a public certificate over the cluster's key (see liqo-agent key csr) and those of its issuers, shown to who calls us by one of its names."},
	{key: "endpoint.max_connections", field: func(c *Config) any { return &c.Endpoint.MaxConnections }, def: 256, rule: within(1, 65_536), restart: true,
		doc: "How many connections are served at once; more wait."},

	{key: "trust.accept", field: func(c *Config) any { return &c.Trust.Accept }, def: "ask", rule: oneOf("ask", "trusted", "all", "none"),
		doc: "What happens with a request for peering. ask: a person decides. trusted: peers with a trusted key are accepted, and others turned away. all: everybody is accepted, and the first key of each cluster ID is then trusted. none: nobody is."},
	{key: "trust.allow_empty_token", field: func(c *Config) any { return &c.Trust.AllowEmptyToken }, def: false,
		doc: "Trust anyone who asks: the first key of each cluster ID is trusted. What happens with their requests, accept says. For playgrounds only."},
	{key: "trust.fleet_ca", field: func(c *Config) any { return &c.Trust.FleetCA }, def: "", rule: anyPath,
		doc: "A PEM file with the certificate authority of the fleet: keys that it signed are trusted."},
	{key: "trust.fleet_certificate", field: func(c *Config) any { return &c.Trust.FleetCertificate }, def: "", rule: anyPath,
		doc: "A PEM file with this cluster's certificate from the fleet's authority (liqo-agent fleet sign), shown to peers. Empty: fleet.crt in state.dir, if it is there."},

	{key: "sharing.enable", field: func(c *Config) any { return &c.Sharing.Enable }, def: true,
		doc: "Offer resources to peers that were let in. Off: what they have is withdrawn, and what they run here ends."},
	{key: "sharing.percentage", field: func(c *Config) any { return &c.Sharing.Percentage }, def: 50, rule: within(0, 100),
		doc: "How much of what is free is offered, in percent: of what this cluster's nodes can run, less what its own pods ask for."},
	{key: "sharing.overcommit", field: func(c *Config) any { return &c.Sharing.Overcommit }, def: 100, rule: within(100, 1000),
		doc: "How much of that is promised to all peers together, in percent. 100: nothing is promised twice."},
	{key: "sharing.hysteresis", field: func(c *Config) any { return &c.Sharing.Hysteresis }, def: 10, rule: within(0, 100),
		doc: "By how many percent of what was offered a resource has to change until an offer is written anew. It is in any case before it ends."},
	{key: "sharing.labels", field: func(c *Config) any { return &c.Sharing.Labels }, def: []string{"offer.liqo.io/*", "topology.kubernetes.io/*", "node.kubernetes.io/instance-type"}, rule: labelGlobs,
		doc: "The node labels that peers are told of, as names or globs, where all nodes have the same value. A peer's virtual node shows topology.kubernetes.io/zone and /region, node.kubernetes.io/instance-type, and what begins with offer.liqo.io/."},
	{key: "sharing.pod_security", field: func(c *Config) any { return &c.Sharing.PodSecurity }, def: "baseline", rule: oneOf("baseline", "restricted"),
		doc: "The Pod Security Standard that peers' pods are held to here."},
	{key: "sharing.enforce", field: func(c *Config) any { return &c.Sharing.Enforce }, def: "requests", rule: oneOf("requests", "limits"),
		doc: "What is held to the offer. requests: what peers' pods ask for; limits: also what they may use at most, which every container then has to say."},
	{key: "sharing.max_namespaces", field: func(c *Config) any { return &c.Sharing.MaxNamespaces }, def: 32, rule: within(1, 1000),
		doc: "How many namespaces one peer may have here."},
	{key: "sharing.namespace_prefix", field: func(c *Config) any { return &c.Sharing.NamespacePrefix }, def: "liqo", rule: namePrefix,
		doc: "What the names of peers' namespaces here begin with: PREFIX-ID-NAMESPACE. A change is for those that are made afterwards."},
	{key: "sharing.registries", field: func(c *Config) any { return &c.Sharing.Registries }, def: registry.Defaults(), rule: registries,
		doc: "The registries that peers' pods may have their images from, such as ghcr.io, *.azurecr.io or registry.example.com:5000; own stands for those that pods of this cluster's own use. Addresses and internal names are never allowed. The credentials that the nodes have for a registry count for these pods, too."},
	{key: "sharing.local_images", field: func(c *Config) any { return &c.Sharing.LocalImages }, def: false,
		doc: "Let peers' pods run images that are on the node already without pulling them. Off: each image is pulled, with the pod's own secrets, so that nobody runs what only lies in the box's store."},
	{key: "sharing.guest_egress", field: func(c *Config) any { return &c.Sharing.GuestEgress }, def: "internet", rule: oneOf("internet", "all", "none"),
		doc: "Where peers' pods may connect to from here, besides other pods of the same peer. internet: to what is neither private nor link-local, and to the cluster's DNS; all: everywhere, also to this box, to pods of this cluster and to the LAN; none: nowhere. It takes something that enforces network policies, as K3s does."},
	{key: "sharing.use", field: func(c *Config) any { return &c.Sharing.Use }, def: true,
		doc: "Make a node of each joined provider, for pods of namespaces with the label liqo.io/enabled=true. Off: nodes are drained and removed."},
	{key: "sharing.accept_policy", field: func(c *Config) any { return &c.Sharing.AcceptPolicy }, def: "auto", rule: oneOf("auto", "manual"),
		doc: "What happens with offers of joined providers. auto: they are accepted, up to max_accepted; manual: a person decides (liqo-agent adverts accept). A change refuses nothing that is accepted."},
	{key: "sharing.max_accepted", field: func(c *Config) any { return &c.Sharing.MaxAccepted }, def: 128, rule: within(0, 10_000),
		doc: "How many offers are accepted at most when accept_policy is auto. Those that people accepted count, and may be more. A lower number refuses nothing that is accepted."},
	{key: "sharing.keepalive_threshold", field: func(c *Config) any { return &c.Sharing.KeepaliveThreshold }, def: 3, rule: within(1, 1000),
		doc: "After how many failed checks of a provider in a row its node is not ready."},
	{key: "sharing.keepalive_retry", field: func(c *Config) any { return &c.Sharing.KeepaliveRetry }, def: 5 * time.Second, rule: between(time.Second, day),
		doc: "The time between two checks of a provider of which the last one failed."},
	{key: "sharing.heartbeat", field: func(c *Config) any { return &c.Sharing.Heartbeat }, def: 25 * time.Second, rule: between(5*time.Second, time.Minute),
		doc: "How often the lease of a provider's node is renewed: well below the node-monitor-grace-period of the cluster, which is 40 or 50 seconds by default."},
	{key: "sharing.drain_timeout", field: func(c *Config) any { return &c.Sharing.DrainTimeout }, def: 5 * time.Minute, rule: between(0, day),
		doc: "How long pods may take to leave the node of a provider that is given up, as PodDisruptionBudgets allow. Those that are left then are deleted."},
	{key: "sharing.kubelet_listen", field: func(c *Config) any { return &c.Sharing.KubeletListen }, def: "", rule: optional(listenAddress), rebuild: true,
		doc: "The address and port for kubectl logs, exec and port-forward, which the local API server calls. Empty: the address that this box reaches its API server from, and any free port."},

	{key: "log.level", field: func(c *Config) any { return &c.Log.Level }, def: "info", rule: oneOf("debug", "info", "warn", "error"),
		doc: "The least important messages to log."},
	{key: "log.format", field: func(c *Config) any { return &c.Log.Format }, def: "auto", rule: oneOf("auto", "text", "json"), restart: true,
		doc: "The form of log lines. auto: text, without the time where the systemd journal adds it."},

	{key: "metrics.listen", field: func(c *Config) any { return &c.Metrics.Listen }, def: "", rule: optional(listenAddress),
		doc: "The address and port for Prometheus, such as 127.0.0.1:6448, in plain HTTP and for whoever can reach it. Empty: none; the control socket has the metrics in any case."},
}

const peerDoc = "What you know about a peer beforehand; repeat it for each peer."

// peerSettings are the keys of [[peer]].
var peerSettings = []setting[StaticPeer]{
	{key: "id", field: func(p *StaticPeer) any { return &p.ID }, def: "", rule: clusterID,
		doc: "The peer's cluster ID."},
	{key: "fingerprint", field: func(p *StaticPeer) any { return &p.Fingerprint }, def: "", rule: optional(fingerprint),
		doc: "The fingerprint of its key, which is then trusted."},
	{key: "url", field: func(p *StaticPeer) any { return &p.URL }, def: "", rule: optional(endpointURL),
		doc: "Where it is, if it is not to be found on the LAN."},
	{key: "connect", field: func(p *StaticPeer) any { return &p.Connect }, def: "", rule: oneOf("", "auto", "never"),
		doc: "Whether to connect to it when it is there. Empty: as decided with peers connect, else discovery.autojoin."},
	{key: "accept", field: func(p *StaticPeer) any { return &p.Accept }, def: "", rule: oneOf("", "auto", "never"),
		doc: "Whether to accept its requests. Empty: as decided with peers accept, else trust.accept."},
}

const searchDomainDoc = "A DNS domain to look for clusters in; repeat it for each domain."

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
		doc: "The domain."},
	{key: "autojoin", field: func(d *SearchDomain) any { return &d.Autojoin }, def: true,
		doc: "Join the clusters found there that are trusted. It goes before discovery.autojoin."},
	{key: "server", field: func(d *SearchDomain) any { return &d.Server }, def: "", rule: optional(dnsServer),
		doc: "The DNS server to ask; tls:// in front asks it over TLS (RFC 7858). Empty: the system's."},
	{key: "min_interval", field: func(d *SearchDomain) any { return &d.MinInterval }, def: defaultMinInterval, rule: between(shortestInterval, longestInterval),
		doc: "The shortest time between two looks at the domain, which follow the TTL of what was found."},
	{key: "max_interval", field: func(d *SearchDomain) any { return &d.MaxInterval }, def: defaultMaxInterval, rule: between(shortestInterval, longestInterval),
		doc: "The longest time between two looks. Not shorter than min_interval."},
}

const networkDoc = "What the agent does where the box is, as with Wi-Fi; repeat it for each network. For each network interface the first rule counts whose conditions all hold, and it can only take away from what [discovery] allows. Where none holds, [discovery] alone counts."

// networkSettings are the keys of [[network]].
var networkSettings = []setting[Network]{
	{key: "name", field: func(n *Network) any { return &n.Name }, def: "", rule: clusterName,
		doc: "What the place is called, in status and in the log."},
	{key: "interface", field: func(n *Network) any { return &n.Interface }, def: "", rule: optional(glob),
		doc: "Condition: the interface has this name, or fits this glob. Empty: any."},
	{key: "subnet", field: func(n *Network) any { return &n.Subnet }, def: "", rule: optional(subnet),
		doc: "Condition: one of the interface's addresses is in this network. Empty: any."},
	{key: "gateway_mac", field: func(n *Network) any { return &n.GatewayMAC }, def: "", rule: optional(gatewayMAC),
		doc: "Condition: a default route through the interface leads to the router with this hardware address (see ip neigh). It tells two places apart that use the same addresses. Empty: any."},
	{key: "advertise", field: func(n *Network) any { return &n.Advertise }, def: true,
		doc: "Let neighbours there find us, if discovery.enable_advertisement does."},
	{key: "discover", field: func(n *Network) any { return &n.Discover }, def: true,
		doc: "Look for neighbours there, if discovery.enable_discovery does."},
	{key: "autojoin", field: func(n *Network) any { return &n.Autojoin }, def: true,
		doc: "Join peers that are seen only there, if discovery.autojoin does."},
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
