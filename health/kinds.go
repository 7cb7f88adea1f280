package health

import "time"

// The problems with the local API server.
var (
	// APIUnreachable: the API server does not answer. Arguments: server, error.
	APIUnreachable = &Kind{
		Code: "api-unreachable", Severity: Error, Grace: time.Minute,
		Title:  "API server unreachable",
		Text:   "the API server {server} does not answer: {error}",
		Remedy: "check that Kubernetes runs (systemctl status k3s); the agent keeps trying, and peerings are kept",
		Doc: "The agent reads and writes nothing in Kubernetes: no ForeignCluster changes, no offer is renewed, no pod starts at a provider. " +
			"It still finds and remembers neighbours.",
	}
	// APICredentials: the API server does not know the kubeconfig's credentials. Arguments:
	// server, kubeconfig.
	APICredentials = &Kind{
		Code: "api-credentials", Severity: Error, Grace: 20 * time.Second,
		Title:  "API server rejects the credentials",
		Text:   "the API server {server} does not accept the credentials in {kubeconfig} (401 Unauthorized)",
		Remedy: "replace the kubeconfig; the agent notices the change",
		Doc:    "Like api-unreachable: nothing works in Kubernetes until the kubeconfig is replaced.",
	}
	// KubeconfigUnusable: there is a kubeconfig that cannot be used. Arguments: error.
	KubeconfigUnusable = &Kind{
		Code: "kubeconfig-unusable", Severity: Error, Grace: 20 * time.Second,
		Title:  "kubeconfig cannot be used",
		Text:   "the kubeconfig cannot be used: {error}",
		Remedy: "correct it, or set cluster.kubeconfig; the agent notices the change",
		Doc:    "The agent does not know the API server, or may not read the kubeconfig.",
	}
	// KubeconfigMissing: no kubeconfig was found. Arguments: error.
	KubeconfigMissing = &Kind{
		Code: "kubeconfig-missing", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "no kubeconfig",
		Text:   "no API server is known: {error}",
		Remedy: `start K3s, or set cluster.kubeconfig ("none" runs without one)`,
		Doc:    "The agent finds and remembers neighbours, but there are no ForeignClusters and no peerings.",
	}
	// APIForbidden: the API server denies what the agent needs. Arguments: error.
	APIForbidden = &Kind{
		Code: "api-forbidden", Severity: Error, Grace: 20 * time.Second,
		Title:  "permission missing in Kubernetes",
		Text:   "the API server denies the agent a permission that it needs: {error}",
		Remedy: "install the permissions of this version: liqo-agent rbac --apply",
		Doc: "The role of the agent's user lacks a rule, usually because it was created for another version. Functions that need it do not work; " +
			"all others do.",
	}
	// NewerDefinitions: a newer agent brought the custom resource definitions. Arguments:
	// theirs, ours.
	NewerDefinitions = &Kind{
		Code: "newer-definitions", Severity: Warning, Grace: 20 * time.Second,
		Title:  "custom resources of a newer version",
		Text:   "the custom resource definitions are those of a newer agent (generation {theirs}, this agent's are {ours}) and stay as they are",
		Remedy: "install the newer version again; to stay with this version, apply its definitions (liqo-agent crds)",
		Doc: "If an older agent replaced them, the API server would drop fields that the newer one stored. This agent works with them, " +
			"but the combination is not tested.",
	}
	// WebhookMissing: the admission webhook cannot be installed. Arguments: error.
	WebhookMissing = &Kind{
		Code: "webhook-missing", Severity: Warning, Grace: time.Minute,
		Title:  "admission webhook not installed",
		Text:   "the admission webhook for PeeringRequests cannot be installed: {error}",
		Remedy: "see the error; the agent keeps trying",
		Doc:    "Requests that the policy refuses are stored and then refused, instead of rejected at admission.",
	}
	// ObjectsMissing: the agent's own objects cannot be put in place. Arguments: error.
	ObjectsMissing = &Kind{
		Code: "objects-missing", Severity: Error, Grace: time.Minute,
		Title:  "own objects cannot be installed",
		Text:   "the agent's objects cannot be installed in Kubernetes: {error}",
		Remedy: "see the error; the agent keeps trying",
		Doc:    "A custom resource definition, the namespace, or the ConfigMap with the cluster ID is missing, or different from what this version needs.",
	}
	// KubeletAPI: logs, exec and port-forward of offloaded pods do not work. Arguments: problem,
	// remedy.
	KubeletAPI = &Kind{
		Code: "kubelet-api", Severity: Warning, Grace: time.Minute,
		Title:  "logs and exec of offloaded pods",
		Text:   "{problem}",
		Remedy: "{remedy}",
		Doc:    "Pods still run at providers, but kubectl logs, exec, attach and port-forward do not reach them.",
	}
	// ClockOff: our clock and that of the API server differ. Arguments: off, server.
	ClockOff = &Kind{
		Code: "clock-off", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "clock differs",
		Text:   "the clock of this box is {off} the API server's at {server}",
		Remedy: "synchronise both with a time server (timedatectl set-ntp true)",
		Doc: "Peerings do not depend on clocks, but fleet certificates, invites and tokens of the API server do: " +
			"they seem expired, or not yet valid.",
	}
)

// The problems with the identity of this cluster.
var (
	// IDConflict: another live cluster has our ID. Arguments: address.
	IDConflict = &Kind{
		Code: "id-conflict", Severity: Error,
		Title: "another cluster has our ID",
		Text:  "another cluster at {address} uses our cluster ID with another key: one of the two is a copy",
		Remedy: "on the copy: stop the agent, delete its state directory, set cluster.id in its configuration (or the ConfigMap cluster-id) " +
			"to a new UUID, and start it again",
		Doc: "Two clusters have the same ID after a disk was copied. Peers know one of them, usually the one that they met first, and refuse the other.",
	}
	// InstanceRenamed: somebody announces our ID already. Arguments: instance.
	InstanceRenamed = &Kind{
		Code: "instance-renamed", Severity: Warning,
		Title:  "announced under another name",
		Text:   "another box already announces our cluster ID, so this one is announced as {instance}: one of the two may be a copy",
		Remedy: "if a disk was copied: on the copy, stop the agent, delete its state directory, set cluster.id to a new UUID, and start it again",
		Doc:    "The name on the network is the cluster ID. A copy of the whole disk also has the same key, so peers cannot distinguish the two.",
	}
	// ClusterIDDiffers: the configuration and the ConfigMap disagree. Arguments: ours, namespace, theirs.
	ClusterIDDiffers = &Kind{
		Code: "cluster-id-differs", Severity: Warning,
		Title:  "two cluster IDs",
		Text:   "cluster.id is {ours}, but ConfigMap cluster-id in namespace {namespace} says {theirs}",
		Remedy: "make both the same, or remove cluster.id from the configuration",
		Doc:    "The agent uses the configured ID. Other programs that read the ConfigMap use the other one.",
	}
	// KeyChain: the file with the succession of keys is not whole. Arguments: error.
	KeyChain = &Kind{
		Code: "key-chain", Severity: Warning,
		Title:  "succession of keys incomplete",
		Text:   "{error}",
		Remedy: "restore cluster.chain from a backup, or have people trust the key at the peers: liqo-agent peers trust",
		Doc:    "Peers that know an earlier key of this cluster cannot follow to the current one, and consider this a different cluster.",
	}
	// PeerConflict: somebody shows the ID of a peer with another key. Arguments: peer, address,
	// fingerprint.
	PeerConflict = &Kind{
		Code: "peer-conflict", Severity: Error,
		Title:  "a peer's ID with another key",
		Text:   "a cluster at {address} uses the cluster ID of {peer} with another key ({fingerprint})",
		Remedy: "find out which of the two is the copy; the known peer is unchanged",
		Doc:    "Either the disk of the peer was copied, or somebody impersonates it. The known key stays valid.",
	}
)

// The problems with what is kept on disk.
var (
	// StateVolatile: nothing is stored. Arguments: error, dir.
	StateVolatile = &Kind{
		Code: "state-volatile", Severity: Error,
		Title:  "nothing is stored",
		Text:   "nothing is stored: {error}",
		Remedy: "make {dir} writable and restart the agent",
		Doc:    "The agent works from memory. Decisions about peers, history and everything else that it remembers are lost at the next start.",
	}
	// StateDamaged: the database is damaged. Arguments: error.
	StateDamaged = &Kind{
		Code: "state-damaged", Severity: Error,
		Title:  "database damaged",
		Text:   "{error}",
		Remedy: "restart the agent, which saves readable data in a new database; check the disk",
		Doc:    "A check of the whole database found inconsistent pages: the disk fails, or lost writes in a power cut.",
	}
	// StateRecovered: a damaged database was set aside at the start. Arguments: recovery, file.
	StateRecovered = &Kind{
		Code: "state-recovered", Severity: Warning,
		Title:  "database was damaged",
		Text:   "{recovery}",
		Remedy: "check the disk, and delete {file} when you are sure that nothing is missing",
		Doc:    "The new database contains what was readable. The problem ends when you delete the old file, which was set aside.",
	}
	// StateWrite: changes cannot be stored. Arguments: error.
	StateWrite = &Kind{
		Code: "state-write", Severity: Error, Grace: 5 * time.Second,
		Title:  "changes are not stored",
		Text:   "changes are not stored: {error}",
		Remedy: "free disk space, or find what locks the file; the agent keeps trying",
		Doc:    "Changes about peers stay in memory until they can be stored, and are lost in a power cut.",
	}
	// DiskFull: hardly anything can be written. Arguments: free, dir.
	DiskFull = &Kind{
		Code: "disk-full", Severity: Error,
		Title:  "disk full",
		Text:   "the disk with {dir} has {free} left",
		Remedy: "free space there",
		Doc:    "The database cannot grow, and soon nothing can be stored. K3s has the same problem if it uses the same disk.",
	}
	// DiskLow: there is little room. Arguments: free, dir.
	DiskLow = &Kind{
		Code: "disk-low", Severity: Warning, Grace: time.Minute,
		Title:  "disk nearly full",
		Text:   "the disk with {dir} has only {free} left",
		Remedy: "free space there",
		Doc:    "The agent needs only a few megabytes. Something else fills the disk.",
	}
)

// The problems with the network.
var (
	// MDNSPort: port 5353 cannot be shared. Arguments: error.
	MDNSPort = &Kind{
		Code: "mdns-port", Severity: Error, Grace: 5 * time.Second,
		Title:  "port 5353 is held",
		Text:   "{error}",
		Remedy: "see \"Port 5353 is held\" in docs/troubleshooting.md; the agent keeps trying",
		Doc:    "Another program uses the port of multicast DNS and does not share it. This cluster finds no clusters on the LAN, and none finds it.",
	}
	// NoLinks: no interface is in use. Arguments: none.
	NoLinks = &Kind{
		Code: "no-links", Severity: Error, Grace: 10 * time.Second,
		Title:  "no network interface in use",
		Text:   "no network interface is in use for discovery",
		Remedy: "connect a network, or check discovery.interfaces and discovery.exclude_interfaces",
		Doc:    "All interfaces are down, have no address, or are excluded by the configuration. The agent finds no clusters on the LAN.",
	}
	// SocketDrops: the kernel drops packets. Arguments: dropped.
	SocketDrops = &Kind{
		Code: "socket-drops", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "packets lost by the kernel",
		Text:   "the kernel dropped {dropped} multicast DNS packets in the last minute because the agent's buffer was full",
		Remedy: "give the agent CAP_NET_ADMIN, or raise the sysctl net.core.rmem_max",
		Doc:    "With many neighbours, answers come in bursts. The agent queries lost ones again, which makes discovery slower.",
	}
	// TooManyPeers: neighbours are left out. Arguments: refused.
	TooManyPeers = &Kind{
		Code: "too-many-peers", Severity: Warning,
		Title:  "neighbours are left out",
		Text:   "{refused} sightings of unknown clusters were ignored in the last minute: the limit of known clusters is reached",
		Remedy: "raise discovery.max_neighbours, or find out who announces so many clusters",
		Doc:    "The number of clusters in memory is limited. New ones are ignored until others are gone.",
	}
	// SearchDomain: a domain cannot be looked in. Arguments: domain, error.
	SearchDomain = &Kind{
		Code: "search-domain", Severity: Warning,
		Title:  "search domain cannot be looked in",
		Text:   "the search domain {domain} cannot be queried: {error}",
		Remedy: "known clusters stay; see liqo-agent domains show {domain}",
		Doc:    "The DNS server of the domain does not answer, or its answers are invalid. The agent finds no new clusters there.",
	}
	// PodNetworkImpossible: this cluster shares with others and cannot be connected with them. Arguments: message, remedy.
	PodNetworkImpossible = &Kind{
		Code: "pod-network-impossible", Severity: Warning, Grace: time.Minute,
		Title:  "pods cannot be connected with peers",
		Text:   "the pods of this cluster cannot be connected with those of its peers: {message}",
		Remedy: "{remedy}; or set sharing.network = \"off\" if they are not to be connected",
		Doc:    "Sharing works, but pods at a provider have no address here, and Services do not lead to them. The requirements are in docs/network.md.",
	}
	// PodNetworkDown: no packets pass between pods of this cluster and of a peer. Arguments: peer, id, error.
	PodNetworkDown = &Kind{
		Code: "pod-network-down", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "no packets pass between pods of a peer and ours",
		Text:   "pods of {peer} and of this cluster do not reach each other: {error}",
		Remedy: "make sure that one of the two clusters can connect to the other by TCP (liqo-agent doctor here and there); see liqo-agent network list",
		Doc:    "The peer itself answers, so this is not peer-unreachable. Pods at the provider are not ready while their network is down.",
	}
	// StorageRetained: claims of a cluster are kept after its peering. Arguments: peer, id, claims, size, until.
	StorageRetained = &Kind{
		Code: "storage-retained", Severity: Warning,
		Title:  "data of a cluster is kept after its peering",
		Text:   "{claims} of {peer} with {size} are kept until {until}, and then removed: its peering has ended",
		Remedy: "accept it again (liqo-agent peers accept {id}), or remove them (liqo-agent storage reclaim {id})",
		Doc:    "Nothing is removed by the end of a peering. How long claims are kept is in sharing.storage_keep.",
	}
	// StorageAway: data of this cluster is where no pod reaches it. Arguments: peer, id, claims, size.
	StorageAway = &Kind{
		Code: "storage-away", Severity: Warning, Grace: time.Minute,
		Title:  "data of this cluster is at a cluster without peering",
		Text:   "{claims} of this cluster with {size} are at {peer}, and there is no peering with it, which removes them after some days",
		Remedy: "connect again (liqo-agent peers connect {id}), or delete the claims if nobody needs the data; see liqo-agent storage list",
		Doc:    "Pods that use these claims wait. How long the provider keeps them is its own setting, sharing.storage_keep, 7 days by default.",
	}
	// StorageMissing: a provider has removed data of this cluster. Arguments: peer, id, claims.
	StorageMissing = &Kind{
		Code: "storage-missing", Severity: Error,
		Title:  "a provider does not have data of this cluster",
		Text:   "{peer} does not have the data of {claims} of this cluster",
		Remedy: "ask its administrator; delete the claims to begin anew; see liqo-agent storage list",
		Doc:    "The data was removed there, by a person or because its time was over. Pods that mount the claims cannot start.",
	}
	// StorageUnusable: storage is offered and cannot be used. Arguments: error.
	StorageUnusable = &Kind{
		Code: "storage-unusable", Severity: Warning, Grace: time.Minute,
		Title:  "claims of peers cannot be kept here",
		Text:   "storage is offered to peers (sharing.storage), but {error}",
		Remedy: "make a storage class with volumeBindingMode WaitForFirstConsumer the default one, or name one in sharing.guest_storage_class; or set sharing.storage = \"0\"",
		Doc:    "The claims of consumers need a storage class of this cluster.",
	}
	// StoragePressure: a disk is nearly full, and peers have data here. Arguments: nodes, claims, size.
	StoragePressure = &Kind{
		Code: "storage-pressure", Severity: Warning, Grace: time.Minute,
		Title:  "the disk with data of peers is nearly full",
		Text:   "little disk is left on {nodes} (DiskPressure), and {claims} of peers with {size} are in this cluster",
		Remedy: "see whose data it is (liqo-agent storage list); remove what is only kept after a peering (liqo-agent storage reclaim PEER), or free space",
		Doc:    "Kubernetes evicts pods of the node, those of this cluster, too, and starts no more. Data is not deleted, but programs fail that write to a full disk.",
	}
	// PodNetworkMoved: the pods of a peer have other addresses than before. Arguments: peer, route, from, to.
	PodNetworkMoved = &Kind{
		Code: "pod-network-moved", Severity: Warning,
		Title:  "pods of a peer have other addresses",
		Text:   "the pods of {peer} have addresses in {to} now, because this machine has a route to {route}, which overlaps with the previous {from}",
		Remedy: "restart software that remembers the old addresses; if it happens again, set sharing.network_range to addresses that nothing else uses",
		Doc:    "The route was added after the addresses were chosen. Connections to the old addresses are cut. It is shown for an hour.",
	}
	// NetworksUnusable: the rules for networks cannot be used. Arguments: error.
	NetworksUnusable = &Kind{
		Code: "networks-unusable", Severity: Error,
		Title:  "rules for networks cannot be used",
		Text:   "{error}",
		Remedy: "correct [[network]] and reload the configuration",
		Doc:    "Until it is corrected, the agent sends nothing on any link, because it does not know which links are permitted.",
	}
)

// The problems with the configuration and with the agent itself.
var (
	// ConfigBad: the configuration on disk is bad. Arguments: error.
	ConfigBad = &Kind{
		Code: "config-bad", Severity: Error,
		Title:  "configuration not reloaded",
		Text:   "the configuration on disk has errors, so the old one stays in use: {error}",
		Remedy: "correct it (liqo-agent config check) and reload again",
		Doc:    "The reload had no effect. The next start would fail.",
	}
	// ClusterConfigBad: the ClusterConfig sets what cannot be. Arguments: error.
	ClusterConfigBad = &Kind{
		Code: "cluster-config-bad", Severity: Error,
		Title:  "ClusterConfig not usable",
		Text:   "the ClusterConfig has invalid values: {error}",
		Remedy: "kubectl edit clusterconfigs liqo-configuration",
		Doc:    "The values of the configuration file apply instead.",
	}
	// RestartNeeded: changed settings wait for a restart. Arguments: keys.
	RestartNeeded = &Kind{
		Code: "restart-needed", Severity: Warning,
		Title:  "settings wait for a restart",
		Text:   "changed settings need a restart: {keys}",
		Remedy: "restart the agent when convenient",
		Doc:    "Some settings cannot change while the agent runs. Until the restart, it uses their old values.",
	}
	// MetricsListen: metrics are not served. Arguments: error.
	MetricsListen = &Kind{
		Code: "metrics-listen", Severity: Warning,
		Title:  "metrics are not served",
		Text:   "metrics are not served at metrics.listen: {error}",
		Remedy: "free the port or set another one (metrics.listen), and reload the configuration",
		Doc:    "Prometheus cannot scrape this box by TCP. GET /metrics on the control socket still works.",
	}
	// PartFailing: a part of the agent fails. Arguments: part, error.
	PartFailing = &Kind{
		Code: "part-failing", Severity: Error,
		Title:  "a part of the agent fails",
		Text:   "{error}",
		Remedy: "the agent restarts it; if the problem stays, see the log",
		Doc:    "A part that should always run has ended. The agent restarts it with backoff; it counts as running after a minute.",
	}
)

// The problems with trust.
var (
	// Open: anybody is trusted. Arguments: setting.
	Open = &Kind{
		Code: "open-to-anybody", Severity: Warning,
		Title:  "open to anybody",
		Text:   "anybody who can reach this agent is trusted: {setting}",
		Remedy: "undo the setting, unless this is a test network",
		Doc:    "Whoever can reach the endpoint may use the resources of this cluster.",
	}
	// FleetCAUnusable: the fleet CA cannot be read. Arguments: error.
	FleetCAUnusable = &Kind{
		Code: "fleet-ca-unusable", Severity: Error,
		Title:  "fleet CA cannot be used",
		Text:   "{error}",
		Remedy: "correct trust.fleet_ca and reload the configuration",
		Doc:    "The fleet CA does not make any further key trusted. Keys that it already made trusted stay trusted.",
	}
	// FleetCertificateUnusable: our fleet certificate cannot be used. Arguments: error.
	FleetCertificateUnusable = &Kind{
		Code: "fleet-certificate-unusable", Severity: Error,
		Title:  "fleet certificate cannot be used",
		Text:   "{error}",
		Remedy: "create a new one with liqo-agent fleet sign, from the output of liqo-agent key show --pem",
		Doc:    "It does not make other clusters of the fleet trust this one.",
	}
	// CertificateExpired: a certificate has expired. Arguments: what, at, remedy.
	CertificateExpired = &Kind{
		Code: "certificate-expired", Severity: Error,
		Title:  "certificate expired",
		Text:   "{what} expired on {at}",
		Remedy: "{remedy}",
		Doc: "It is a fleet CA, the fleet certificate of this cluster or of a joined peer, or the public certificate of this cluster. " +
			"An expired fleet certificate, or one of an expired fleet CA, suspends trust: the two clusters exchange nothing, " +
			"and after discovery.lost_after the peering is removed. A newer certificate restores it.",
	}
	// CertificateAboutToExpire: a certificate expires within a day. Arguments: what, at, remedy.
	CertificateAboutToExpire = &Kind{
		Code: "certificate-about-to-expire", Severity: Error,
		Title:  "certificate expires within a day",
		Text:   "{what} expires on {at}",
		Remedy: "{remedy}",
		Doc:    "Like certificate-expiring, during the last day, but at most the last thirtieth of its lifetime. Tomorrow, peerings that depend on it are suspended.",
	}
	// CertificateExpiringSoon: a certificate expires within a week. Arguments: what, at, remedy.
	CertificateExpiringSoon = &Kind{
		Code: "certificate-expiring-soon", Severity: Warning,
		Title:  "certificate expires within a week",
		Text:   "{what} expires on {at}",
		Remedy: "{remedy}",
		Doc:    "Like certificate-expiring, during the last seven days, but at most the last tenth of its lifetime.",
	}
	// CertificateExpiring: a certificate expires soon. Arguments: what, at, remedy.
	CertificateExpiring = &Kind{
		Code: "certificate-expiring", Severity: Warning,
		Title:  "certificate expires soon",
		Text:   "{what} expires on {at}",
		Remedy: "{remedy}",
		Doc: "It is a certificate of this cluster, a fleet CA, or the fleet certificate of a joined peer. Shown during the last fifth of its lifetime, but at most 30 days; " +
			"certificate-expiring-soon and certificate-about-to-expire follow. The file of trust.fleet_ca may contain both the old CA and the new one.",
	}
	// ClockUntrusted: our clock cannot be believed. Arguments: error.
	ClockUntrusted = &Kind{
		Code: "clock-untrusted", Severity: Warning, Grace: 5 * time.Minute,
		Title:  "clock cannot be believed",
		Text:   "the clock of this box is not reliable: {error}; certificates do not expire meanwhile",
		Remedy: "synchronise it with a time server (timedatectl set-ntp true)",
		Doc: "Shown while keys are trusted by fleet certificates. Only a reliable clock can tell whether those have expired: one that is synchronised with a time server, " +
			"or that agrees with most of the joined peers.",
	}
	// CertificateUnusable: the public certificate cannot be used. Arguments: error.
	CertificateUnusable = &Kind{
		Code: "certificate-unusable", Severity: Error,
		Title:  "public certificate cannot be used",
		Text:   "{error}",
		Remedy: "get one with the request that liqo-agent key csr prints, and reload the configuration",
		Doc:    "Clusters do not trust this one by its https name.",
	}
)

// The problems with peers.
var (
	// PeerUnreachable: a peer with which there is a peering does not answer. Arguments: peer, id, error.
	PeerUnreachable = &Kind{
		Code: "peer-unreachable", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "a peer with a peering does not answer",
		Text:   "{peer} has a peering with this cluster and does not answer: {error}",
		Remedy: "check that it is on; see liqo-agent peers show {id}",
		Doc:    "Pods keep running where they are. After discovery.lost_after without an answer, the peering is removed here.",
	}
	// RequestWaiting: somebody has to be decided about. Arguments: peer, id.
	RequestWaiting = &Kind{
		Code: "request-waiting", Severity: Warning, Grace: time.Hour,
		Title:  "a request waits for a decision",
		Text:   "{peer} has been waiting for a decision for more than an hour",
		Remedy: "liqo-agent peers requests, then liqo-agent peers accept or reject {id}",
		Doc:    "A cluster asked to use the resources of this one, and the policy requires a decision of a person.",
	}
	// GivenURL: a URL that a person gave leads somewhere else. Arguments: id, error.
	GivenURL = &Kind{
		Code: "given-url", Severity: Warning,
		Title:  "a given URL leads somewhere else",
		Text:   "the URL of {id} is wrong: {error}",
		Remedy: "correct url of its [[peer]] entry, or liqo-agent peers set {id} --url URL",
		Doc:    "Another cluster than the expected one answers there, so the agent does not use the URL.",
	}
)

// all lists every kind, in the order in which they matter.
var all = []*Kind{
	IDConflict, StateDamaged, StateVolatile, StateWrite, DiskFull,
	MDNSPort, NoLinks, PartFailing,
	APIUnreachable, APICredentials, KubeconfigUnusable, APIForbidden, ObjectsMissing,
	ConfigBad, ClusterConfigBad, NetworksUnusable,
	FleetCAUnusable, FleetCertificateUnusable, CertificateUnusable, CertificateExpired, CertificateAboutToExpire,
	PeerConflict, StorageMissing,
	Open, InstanceRenamed, ClusterIDDiffers, KeyChain,
	KubeconfigMissing, WebhookMissing, NewerDefinitions, KubeletAPI, ClockOff,
	StateRecovered, DiskLow, RestartNeeded, MetricsListen,
	CertificateExpiringSoon, CertificateExpiring, ClockUntrusted,
	PeerUnreachable, RequestWaiting, GivenURL, SearchDomain,
	PodNetworkImpossible, PodNetworkDown, PodNetworkMoved, StoragePressure, StorageRetained, StorageAway, StorageUnusable, SocketDrops, TooManyPeers,
}

// All returns every kind there is, errors first. The slice is the caller's.
func All() []*Kind { return append([]*Kind(nil), all...) }
