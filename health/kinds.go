package health

import "time"

// The problems with the local API server.
var (
	// APIUnreachable: the API server does not answer. Arguments: server, error.
	APIUnreachable = &Kind{
		Code: "api-unreachable", Severity: Error, Grace: time.Minute,
		Title:  "API server unreachable",
		Text:   "the API server {server} does not answer: {error}",
		Remedy: "see whether Kubernetes runs (systemctl status k3s); it is tried again by itself, and nothing of a peering is lost meanwhile",
		Doc: "Nothing is written to or read from Kubernetes: no ForeignCluster changes, no offer is renewed, no pod starts at a provider. " +
			"Neighbours are still found and remembered.",
	}
	// APICredentials: the API server does not know the kubeconfig's credentials. Arguments:
	// server, kubeconfig.
	APICredentials = &Kind{
		Code: "api-credentials", Severity: Error, Grace: 20 * time.Second,
		Title:  "API server rejects the credentials",
		Text:   "the API server {server} does not accept the credentials in {kubeconfig} (401 Unauthorized)",
		Remedy: "replace the kubeconfig; it is read again by itself",
		Doc:    "As with an API server that does not answer, nothing is done in Kubernetes until the kubeconfig is replaced.",
	}
	// KubeconfigUnusable: there is a kubeconfig that cannot be used. Arguments: error.
	KubeconfigUnusable = &Kind{
		Code: "kubeconfig-unusable", Severity: Error, Grace: 20 * time.Second,
		Title:  "kubeconfig cannot be used",
		Text:   "the kubeconfig cannot be used: {error}",
		Remedy: "correct it, or set cluster.kubeconfig; it is read again by itself",
		Doc:    "The agent does not know where the API server is, or may not read the file that says so.",
	}
	// KubeconfigMissing: no kubeconfig was found. Arguments: error.
	KubeconfigMissing = &Kind{
		Code: "kubeconfig-missing", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "no kubeconfig",
		Text:   "no API server is known: {error}",
		Remedy: `start K3s, or set cluster.kubeconfig; "none" if there is none on purpose`,
		Doc:    "Neighbours are found and remembered, but there are no ForeignClusters and no peerings.",
	}
	// APIForbidden: the API server denies what the agent needs. Arguments: error.
	APIForbidden = &Kind{
		Code: "api-forbidden", Severity: Error, Grace: 20 * time.Second,
		Title:  "permission missing in Kubernetes",
		Text:   "the API server forbids what the agent needs: {error}",
		Remedy: "give it the role of this version: liqo-agent rbac --apply",
		Doc: "The role of the agent's user lacks a rule, mostly because it was made for another version. Whatever needs it does not work; " +
			"everything else does.",
	}
	// NewerDefinitions: a newer agent brought the custom resource definitions. Arguments:
	// theirs, ours.
	NewerDefinitions = &Kind{
		Code: "newer-definitions", Severity: Warning, Grace: 20 * time.Second,
		Title:  "custom resources of a newer version",
		Text:   "the custom resource definitions are those of a newer agent (generation {theirs}, this agent's are {ours}) and stay as they are",
		Remedy: "install the newer version again; if it is to stay away, apply the definitions of this one (liqo-agent crds)",
		Doc: "An older agent that took them back would have the API server drop fields that the newer one stored. This agent works with them, " +
			"but nobody has tried the two together.",
	}
	// WebhookMissing: the admission webhook cannot be installed. Arguments: error.
	WebhookMissing = &Kind{
		Code: "webhook-missing", Severity: Warning, Grace: time.Minute,
		Title:  "admission webhook not installed",
		Text:   "the admission webhook for PeeringRequests cannot be installed: {error}",
		Remedy: "see the error; it is tried again by itself",
		Doc:    "Requests that the policy refuses are stored before they are refused, instead of being turned away at once.",
	}
	// ObjectsMissing: the agent's own objects cannot be put in place. Arguments: error.
	ObjectsMissing = &Kind{
		Code: "objects-missing", Severity: Error, Grace: time.Minute,
		Title:  "own objects cannot be installed",
		Text:   "the agent's own objects in Kubernetes cannot be put in place: {error}",
		Remedy: "see the error; it is tried again by itself",
		Doc:    "A custom resource definition, the namespace or the ConfigMap with the cluster ID is missing or differs from what this version needs.",
	}
	// KubeletAPI: logs, exec and port-forward of offloaded pods do not work. Arguments: problem,
	// remedy.
	KubeletAPI = &Kind{
		Code: "kubelet-api", Severity: Warning, Grace: time.Minute,
		Title:  "logs and exec of offloaded pods",
		Text:   "{problem}",
		Remedy: "{remedy}",
		Doc:    "Pods run at providers all the same, but kubectl logs, exec, attach and port-forward do not reach them.",
	}
	// ClockOff: our clock and that of the API server differ. Arguments: off, server.
	ClockOff = &Kind{
		Code: "clock-off", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "clock differs",
		Text:   "the clock of this box is {off} the API server's at {server}",
		Remedy: "let both follow a time server (timedatectl set-ntp true)",
		Doc: "Peerings do not depend on anybody's clock, but fleet certificates, invites and tokens of the API server do: " +
			"they count as expired, or as not valid yet.",
	}
)

// The problems with the identity of this cluster.
var (
	// IDConflict: another live cluster has our ID. Arguments: address.
	IDConflict = &Kind{
		Code: "id-conflict", Severity: Error,
		Title: "another cluster has our ID",
		Text:  "another live cluster at {address} uses our cluster ID with another key: one of the two is a copy",
		Remedy: "on the copy: stop the agent, delete its state directory, set cluster.id in its configuration (or the ConfigMap cluster-id) " +
			"to a new UUID, and start it again",
		Doc: "Two clusters with one ID come from a copied disk. Peers know one of the two, which is mostly the one that they met first, and refuse the other.",
	}
	// InstanceRenamed: somebody announces our ID already. Arguments: instance.
	InstanceRenamed = &Kind{
		Code: "instance-renamed", Severity: Warning,
		Title:  "announced under another name",
		Text:   "somebody on the network announces our cluster ID already, so we are announced as {instance}: one of the two may be a complete copy",
		Remedy: "if a disk was copied: on the copy, stop the agent, delete its state directory, set cluster.id to a new UUID, and start it again",
		Doc:    "The name on the network is the cluster ID. A copy of the whole disk has the same key too, and then nobody can tell the two apart.",
	}
	// ClusterIDDiffers: the configuration and the ConfigMap disagree. Arguments: ours, namespace, theirs.
	ClusterIDDiffers = &Kind{
		Code: "cluster-id-differs", Severity: Warning,
		Title:  "two cluster IDs",
		Text:   "cluster.id is {ours}, but ConfigMap cluster-id in namespace {namespace} says {theirs}",
		Remedy: "make both the same, or remove cluster.id from the configuration",
		Doc:    "The configured ID is used. Whatever else reads the ConfigMap knows this cluster by the other one.",
	}
	// KeyChain: the file with the succession of keys is not whole. Arguments: error.
	KeyChain = &Kind{
		Code: "key-chain", Severity: Warning,
		Title:  "succession of keys incomplete",
		Text:   "{error}",
		Remedy: "restore cluster.chain from a backup, or have people trust the key at the peers: liqo-agent peers trust",
		Doc:    "Peers that know this cluster by an earlier key cannot follow to the present one by themselves, and take it for somebody else.",
	}
	// PeerConflict: somebody shows the ID of a peer with another key. Arguments: peer, address,
	// fingerprint.
	PeerConflict = &Kind{
		Code: "peer-conflict", Severity: Error,
		Title:  "a peer's ID with another key",
		Text:   "somebody at {address} shows the cluster ID of {peer} with another key ({fingerprint})",
		Remedy: "find out which of the two is the copy; nothing was changed about the one we know",
		Doc:    "Either the peer's disk was copied, or somebody pretends to be it. The known key goes on to count.",
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
		Doc:    "The agent works from memory. Decisions about peers, history and what is remembered are gone with the next start.",
	}
	// StateDamaged: the database is damaged. Arguments: error.
	StateDamaged = &Kind{
		Code: "state-damaged", Severity: Error,
		Title:  "database damaged",
		Text:   "{error}",
		Remedy: "restart the agent: it saves what can be read into a new database; and check the disk",
		Doc:    "A check of the whole database found that its pages contradict each other, as after a failing disk or a power cut on one that lies about writing.",
	}
	// StateRecovered: a damaged database was set aside at the start. Arguments: recovery, file.
	StateRecovered = &Kind{
		Code: "state-recovered", Severity: Warning,
		Title:  "database was damaged",
		Text:   "{recovery}",
		Remedy: "check the disk, and delete {file} when you are sure that nothing is missing",
		Doc:    "What could be read is in the new database. The problem ends when the file that was set aside is deleted.",
	}
	// StateWrite: changes cannot be stored. Arguments: error.
	StateWrite = &Kind{
		Code: "state-write", Severity: Error, Grace: 5 * time.Second,
		Title:  "changes are not stored",
		Text:   "changes are not stored: {error}",
		Remedy: "free space on the disk, or see what holds the file; it is tried again by itself",
		Doc:    "What changes about peers is kept in memory until it can be stored, and lost if the box loses its power before.",
	}
	// DiskFull: hardly anything can be written. Arguments: free, dir.
	DiskFull = &Kind{
		Code: "disk-full", Severity: Error,
		Title:  "disk full",
		Text:   "the disk with {dir} has {free} left",
		Remedy: "free space there",
		Doc:    "The database cannot grow, and soon nothing can be stored. K3s suffers from the same disk.",
	}
	// DiskLow: there is little room. Arguments: free, dir.
	DiskLow = &Kind{
		Code: "disk-low", Severity: Warning, Grace: time.Minute,
		Title:  "disk nearly full",
		Text:   "the disk with {dir} has only {free} left",
		Remedy: "free space there",
		Doc:    "The agent needs a few megabytes. What fills the disk is something else, and it will take the rest as well.",
	}
)

// The problems with the network.
var (
	// MDNSPort: port 5353 cannot be shared. Arguments: error.
	MDNSPort = &Kind{
		Code: "mdns-port", Severity: Error, Grace: 5 * time.Second,
		Title:  "port 5353 is held",
		Text:   "{error}",
		Remedy: "see the docs under \"Port 5353 is held\"; it is tried again by itself",
		Doc:    "Another program has the port of multicast DNS for itself. Nobody is found on the LAN, and nobody finds this cluster there.",
	}
	// NoLinks: no interface is in use. Arguments: none.
	NoLinks = &Kind{
		Code: "no-links", Severity: Error, Grace: 10 * time.Second,
		Title:  "no network interface in use",
		Text:   "no network interface is in use for discovery",
		Remedy: "plug a cable in, or see discovery.interfaces and discovery.exclude_interfaces",
		Doc:    "All interfaces are down, have no address, or are left out by the configuration. Nobody is found on the LAN.",
	}
	// SocketDrops: the kernel drops packets. Arguments: dropped.
	SocketDrops = &Kind{
		Code: "socket-drops", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "packets lost by the kernel",
		Text:   "the kernel dropped {dropped} multicast DNS packets in the last minute because the agent's buffer was full",
		Remedy: "let the agent have CAP_NET_ADMIN, or raise the sysctl net.core.rmem_max",
		Doc:    "With many neighbours, answers come in bursts. Those that are lost are asked for again, which makes finding slower.",
	}
	// TooManyPeers: neighbours are left out. Arguments: refused.
	TooManyPeers = &Kind{
		Code: "too-many-peers", Severity: Warning,
		Title:  "neighbours are left out",
		Text:   "{refused} sightings of unknown clusters were left out in the last minute, because as many are known as there may be",
		Remedy: "raise discovery.max_neighbours, or see who announces so many",
		Doc:    "The number of clusters that are kept in memory is bounded. New ones are not taken up until others are gone.",
	}
	// SearchDomain: a domain cannot be looked in. Arguments: domain, error.
	SearchDomain = &Kind{
		Code: "search-domain", Severity: Warning,
		Title:  "search domain cannot be looked in",
		Text:   "the search domain {domain} cannot be looked in: {error}",
		Remedy: "clusters known from it stay; see liqo-agent domains show {domain}",
		Doc:    "The DNS server of the domain does not answer, or not with what can be believed. Nothing new is found there.",
	}
	// NetworksUnusable: the rules for networks cannot be used. Arguments: error.
	NetworksUnusable = &Kind{
		Code: "networks-unusable", Severity: Error,
		Title:  "rules for networks cannot be used",
		Text:   "{error}",
		Remedy: "mend [[network]] and reload the configuration",
		Doc:    "Until then nothing is said on any link, because it is not known on which it may be.",
	}
)

// The problems with the configuration and with the agent itself.
var (
	// ConfigBad: the configuration on disk is bad. Arguments: error.
	ConfigBad = &Kind{
		Code: "config-bad", Severity: Error,
		Title:  "configuration not reloaded",
		Text:   "the configuration on disk is bad, the old one is in use: {error}",
		Remedy: "mend it (liqo-agent config check) and reload again",
		Doc:    "A reload changed nothing. The next start would fail.",
	}
	// ClusterConfigBad: the ClusterConfig sets what cannot be. Arguments: error.
	ClusterConfigBad = &Kind{
		Code: "cluster-config-bad", Severity: Error,
		Title:  "ClusterConfig not usable",
		Text:   "what the ClusterConfig sets cannot be used: {error}",
		Remedy: "kubectl edit clusterconfigs liqo-configuration",
		Doc:    "The configuration file counts for what cannot be used.",
	}
	// RestartNeeded: changed settings wait for a restart. Arguments: keys.
	RestartNeeded = &Kind{
		Code: "restart-needed", Severity: Warning,
		Title:  "settings wait for a restart",
		Text:   "changed settings wait for a restart: {keys}",
		Remedy: "restart the agent when convenient",
		Doc:    "Few settings cannot change while the agent runs. Until the restart their old values are in use.",
	}
	// MetricsListen: metrics are not served. Arguments: error.
	MetricsListen = &Kind{
		Code: "metrics-listen", Severity: Warning,
		Title:  "metrics are not served",
		Text:   "metrics are not served where they are to be: {error}",
		Remedy: "free the port or set another one (metrics.listen), and reload the configuration",
		Doc:    "Prometheus gets nothing from this box by TCP. GET /metrics on the control socket answers all the same.",
	}
	// PartFailing: a part of the agent fails. Arguments: part, error.
	PartFailing = &Kind{
		Code: "part-failing", Severity: Error,
		Title:  "a part of the agent fails",
		Text:   "{error}",
		Remedy: "it is started again by itself; see the log if this stays",
		Doc:    "Something that should run all the time ended. It is started again with growing pauses, and counts as sound after a minute.",
	}
)

// The problems with trust.
var (
	// Open: anybody is trusted. Arguments: setting.
	Open = &Kind{
		Code: "open-to-anybody", Severity: Warning,
		Title:  "open to anybody",
		Text:   "anybody who can reach this agent is trusted: {setting}",
		Remedy: "fine in a playground; elsewhere, take the setting back",
		Doc:    "Whoever can reach the endpoint may use the resources of this cluster.",
	}
	// FleetCAUnusable: the fleet CA cannot be read. Arguments: error.
	FleetCAUnusable = &Kind{
		Code: "fleet-ca-unusable", Severity: Error,
		Title:  "fleet CA cannot be used",
		Text:   "{error}",
		Remedy: "mend trust.fleet_ca and reload the configuration",
		Doc:    "Nobody is trusted because of the fleet CA. Keys that were trusted because of it before stay so.",
	}
	// FleetCertificateUnusable: our fleet certificate cannot be used. Arguments: error.
	FleetCertificateUnusable = &Kind{
		Code: "fleet-certificate-unusable", Severity: Error,
		Title:  "fleet certificate cannot be used",
		Text:   "{error}",
		Remedy: "make a new one with liqo-agent fleet sign, from the output of liqo-agent key show --pem",
		Doc:    "Other clusters of the fleet do not trust this one because of it.",
	}
	// CertificateExpired: a certificate has expired. Arguments: what, at, remedy.
	CertificateExpired = &Kind{
		Code: "certificate-expired", Severity: Error,
		Title:  "certificate expired",
		Text:   "{what} expired on {at}",
		Remedy: "{remedy}",
		Doc: "A fleet CA, the fleet certificate of this cluster or of a peer that is joined, or the public certificate of this cluster. " +
			"By a fleet certificate that has expired, or one of a fleet CA that has, nobody is trusted any more: nothing goes between the two clusters, " +
			"and after discovery.lost_after the peering is undone. With a newer certificate it goes on as it was.",
	}
	// CertificateAboutToExpire: a certificate expires within a day. Arguments: what, at, remedy.
	CertificateAboutToExpire = &Kind{
		Code: "certificate-about-to-expire", Severity: Error,
		Title:  "certificate expires within a day",
		Text:   "{what} expires on {at}",
		Remedy: "{remedy}",
		Doc:    "As certificate-expiring, for the last day, and at most the last thirtieth of its time: tomorrow the peerings that rest on it stand still.",
	}
	// CertificateExpiringSoon: a certificate expires within a week. Arguments: what, at, remedy.
	CertificateExpiringSoon = &Kind{
		Code: "certificate-expiring-soon", Severity: Warning,
		Title:  "certificate expires within a week",
		Text:   "{what} expires on {at}",
		Remedy: "{remedy}",
		Doc:    "As certificate-expiring, for the last seven days, and at most the last tenth of its time.",
	}
	// CertificateExpiring: a certificate expires soon. Arguments: what, at, remedy.
	CertificateExpiring = &Kind{
		Code: "certificate-expiring", Severity: Warning,
		Title:  "certificate expires soon",
		Text:   "{what} expires on {at}",
		Remedy: "{remedy}",
		Doc: "A certificate of this cluster's, a fleet CA, or the fleet certificate of a peer that is joined. Shown for the last fifth of its time, and for 30 days at most; " +
			"then come certificate-expiring-soon and certificate-about-to-expire. trust.fleet_ca may name a file with the old CA and the new one.",
	}
	// ClockUntrusted: our clock cannot be believed. Arguments: error.
	ClockUntrusted = &Kind{
		Code: "clock-untrusted", Severity: Warning, Grace: 5 * time.Minute,
		Title:  "clock cannot be believed",
		Text:   "the clock of this box cannot be believed: {error}; no trust ends by a date meanwhile",
		Remedy: "let it follow a time server (timedatectl set-ntp true)",
		Doc: "Shown while keys are trusted by certificates of a fleet. Whether those have expired can only be told by a clock that is right: one that a time server keeps, " +
			"or with which most of the joined peers agree.",
	}
	// CertificateUnusable: the public certificate cannot be used. Arguments: error.
	CertificateUnusable = &Kind{
		Code: "certificate-unusable", Severity: Error,
		Title:  "public certificate cannot be used",
		Text:   "{error}",
		Remedy: "get one with the request that liqo-agent key csr prints, and reload the configuration",
		Doc:    "Clusters that would trust this one because of its https name do not.",
	}
)

// The problems with peers.
var (
	// PeerUnreachable: a peer with which there is a peering does not answer. Arguments: peer, id, error.
	PeerUnreachable = &Kind{
		Code: "peer-unreachable", Severity: Warning, Grace: 2 * time.Minute,
		Title:  "a peer with a peering does not answer",
		Text:   "{peer}, with which there is a peering, does not answer: {error}",
		Remedy: "see whether it is on; liqo-agent peers show {id} says what was tried",
		Doc:    "Pods keep running where they are. After discovery.lost_after without an answer the peering is undone here.",
	}
	// RequestWaiting: somebody has to be decided about. Arguments: peer, id.
	RequestWaiting = &Kind{
		Code: "request-waiting", Severity: Warning, Grace: time.Hour,
		Title:  "a request waits for a decision",
		Text:   "{peer} has been waiting for a decision for long",
		Remedy: "liqo-agent peers requests, then liqo-agent peers accept or reject {id}",
		Doc:    "A cluster asked to use the resources of this one, and the policy leaves it to a person. Shown after an hour.",
	}
	// GivenURL: a URL that a person gave leads somewhere else. Arguments: id, error.
	GivenURL = &Kind{
		Code: "given-url", Severity: Warning,
		Title:  "a given URL leads somewhere else",
		Text:   "the URL given for {id} is wrong: {error}",
		Remedy: "correct url of its [[peer]] entry, or liqo-agent peers set {id} --url URL",
		Doc:    "Whoever answers there is not the cluster that the URL was given for, so it is not used.",
	}
)

// all lists every kind, in the order in which they matter.
var all = []*Kind{
	IDConflict, StateDamaged, StateVolatile, StateWrite, DiskFull,
	MDNSPort, NoLinks, PartFailing,
	APIUnreachable, APICredentials, KubeconfigUnusable, APIForbidden, ObjectsMissing,
	ConfigBad, ClusterConfigBad, NetworksUnusable,
	FleetCAUnusable, FleetCertificateUnusable, CertificateUnusable, CertificateExpired, CertificateAboutToExpire,
	PeerConflict,
	Open, InstanceRenamed, ClusterIDDiffers, KeyChain,
	KubeconfigMissing, WebhookMissing, NewerDefinitions, KubeletAPI, ClockOff,
	StateRecovered, DiskLow, RestartNeeded, MetricsListen,
	CertificateExpiringSoon, CertificateExpiring, ClockUntrusted,
	PeerUnreachable, RequestWaiting, GivenURL, SearchDomain,
	SocketDrops, TooManyPeers,
}

// All returns every kind there is, errors first. The slice is the caller's.
func All() []*Kind { return append([]*Kind(nil), all...) }
