package rbac

// Name is the name of the ServiceAccount and of everything that gives it its rights.
const Name = "liqo-agent"

// DefaultNamespace is where the agent's ServiceAccount is unless said otherwise; the
// default of the setting cluster.namespace, too.
const DefaultNamespace = "liqo"

// Manifest returns everything that makes a user of the agent, as YAML with a comment
// on each rule: the namespace, a ServiceAccount in it with a Secret that gets its
// token, a ClusterRole and Roles with [Rules], and their bindings. The same arguments
// give the same bytes. The error says that namespace is no name of a namespace.
func Manifest(namespace string) ([]byte, error) { return nil, nil }

// ManifestInCluster is [Manifest] without the Secret, for an agent that runs as a pod
// with the ServiceAccount: its token is mounted into it, and ends with it.
func ManifestInCluster(namespace string) ([]byte, error) { return nil, nil }
