//go:build linux

package bed

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// LiqoNamespace is where Liqo is installed.
	LiqoNamespace = "liqo"

	// The programs of [Liqo], by the names of their Deployments.
	LiqoControllerManager = "liqo-controller-manager"
	LiqoReplicator        = "liqo-crd-replicator"
	LiqoWebhook           = "liqo-webhook"

	liqoProbePort   = 18081 // of the controller manager, on the host's loopback
	liqoWebhookPort = 9443  // as its chart has it

	// liqoPing is how often Liqo asks whether a peer's API server is there. It asks four times a minute otherwise.
	liqoPing = "1s"

	// liqoEnv is the version of Liqo that runs, if it is another one than that of the bed.
	liqoEnv = "LIQO_BED_LIQO"
)

// liqoFile is the name of one of Liqo's programs, or of a file of its chart, for [Binary].
func liqoFile(name string) string {
	if version := os.Getenv(liqoEnv); version != "" {
		return "liqo-" + version + "/" + name
	}
	return "liqo/" + name
}

// LiqoBuilt reports whether Liqo's programs are there, which only make liqo and make test-liqo build.
func LiqoBuilt() bool {
	path, err := binaryPath(liqoFile("chart.json"))
	if err == nil {
		_, err = os.Stat(path)
	}
	return err == nil
}

// Liqo is Liqo 1.x in a cluster, installed as its Helm chart does, without networking unless [Liqo.EnableNetworking] says so.
// Its own programs run as processes of the host, with the rights that they have in the cluster. Their Deployments are there, too:
// what runs for these are pods of the host's kubelet, which do nothing. Its virtual kubelet is not available, so virtual nodes have no Node.
type Liqo struct {
	// Kube is the cluster.
	Kube *Kube
	// ID is the name by which Liqo knows the cluster.
	ID string
	// Version is that of its programs, as its chart says it.
	Version string

	mu        sync.Mutex
	commands  map[string]Cmd      // by program
	processes map[string]*Process // by program, the one started last
}

// StartLiqo installs Liqo and starts its programs, and before them controllers ([Kube.StartControllers]), which sign certificates
// and collect garbage, and a kubelet ([Kube.StartKwok]). It returns when all of them work.
func (k *Kube) StartLiqo(ctx context.Context, id string) (*Liqo, error) {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	dir := filepath.Dir(Binary(k.Host.bed.t, liqoFile("chart.json")))
	l := &Liqo{Kube: k, ID: id, commands: map[string]Cmd{}, processes: map[string]*Process{}}
	// Peers come to the API server at the host's addresses.
	err := k.Readdress(ctx)
	if err == nil {
		err = l.install(ctx, dir)
	}
	if err == nil {
		err = l.Start(ctx, LiqoWebhook, LiqoControllerManager, LiqoReplicator)
	}
	if err != nil {
		return nil, fmt.Errorf("host %s: Liqo: %w", k.Host.Name, err)
	}
	return l, nil
}

func (l *Liqo) install(ctx context.Context, dir string) error {
	crds, err := readObjects(filepath.Join(dir, "crds.json"))
	if err != nil {
		return err
	}
	chart, err := readObjects(filepath.Join(dir, "chart.json"))
	if err != nil {
		return err
	}
	if err := l.Kube.applyAll(ctx, crds); err != nil {
		return err
	}
	for _, crd := range crds {
		if err := Poll(ctx, func() error { return l.Kube.served(ctx, crd) }); err != nil {
			return err
		}
	}
	// A garbage collector that was there before would take half a minute to look for new kinds.
	if err := l.Kube.StartControllers(ctx); err != nil {
		return err
	}
	if err := l.Kube.StartKwok(ctx); err != nil {
		return err
	}
	if err := l.Kube.Apply(ctx, `{apiVersion: v1, kind: Namespace, metadata: {name: `+LiqoNamespace+`}}`); err != nil {
		return err
	}
	if err := l.applyAdapted(ctx, chart); err != nil {
		return err
	}
	for _, o := range chart {
		if o.GetKind() != "Deployment" {
			continue
		}
		l.Version = o.GetLabels()["app.kubernetes.io/version"]
		if l.commands[o.GetName()], err = l.command(ctx, dir, o); err != nil {
			return fmt.Errorf("%s: %w", o.GetName(), err)
		}
	}
	return nil
}

// applyAdapted applies objects of Liqo's chart, as they have to be in the bed.
func (l *Liqo) applyAdapted(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if err := l.adapt(o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return l.Kube.applyAll(ctx, objects)
}

// EnableNetworking has Liqo connect networks, as far as its controller manager does that: gateways are pods that do nothing, so there
// is never a Connection, and without its IPAM it maps no addresses to others.
func (l *Liqo) EnableNetworking(ctx context.Context) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	objects, err := readObjects(Binary(l.Kube.Host.bed.t, liqoFile("networking.json")))
	if err != nil {
		return err
	}
	if err := l.applyAdapted(ctx, objects); err != nil {
		return err
	}
	// The controller manager does not start without the Service of its proxy.
	if err := l.Kube.Apply(ctx, `{apiVersion: v1, kind: Service, metadata: {name: liqo-proxy, namespace: `+LiqoNamespace+`, labels: {app.kubernetes.io/name: proxy}}, spec: {ports: [{port: 8118}]}}`); err != nil {
		return err
	}
	// Nor without a default route, by whose link its gateways would leave.
	if out, err := l.Kube.Host.Run(ctx, "ip", "route", "replace", "default", "dev", "eth0"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	l.mu.Lock()
	command := l.commands[LiqoControllerManager]
	command.Args = append(slices.Clone(command.Args), "--networking-enabled=true", "--ipam-server=")
	l.commands[LiqoControllerManager] = command
	l.mu.Unlock()
	if err := l.Process(LiqoControllerManager).Kill(); err != nil {
		return err
	}
	return l.Start(ctx, LiqoControllerManager)
}

func readObjects(path string) ([]*unstructured.Unstructured, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	objects, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return objects, nil
}

// served reports whether the API server has the objects of a custom resource definition.
func (k *Kube) served(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _, _ := unstructured.NestedString(v.(map[string]any), "name")
		if _, err := k.Request(ctx, http.MethodGet, "/apis/"+group+"/"+version+"/"+plural+"?limit=1", "", nil); err != nil {
			return err
		}
	}
	return nil
}

// adapt makes of an object of the chart one of this cluster.
func (l *Liqo) adapt(o *unstructured.Unstructured) error {
	switch o.GetKind() {
	case "ClusterRole", "ClusterRoleBinding", "RuntimeClass", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return nil
	}
	o.SetNamespace(LiqoNamespace)
	switch o.GetKind() + " " + o.GetName() {
	case "ConfigMap liqo-clusterid-configmap":
		return unstructured.SetNestedField(o.Object, l.ID, "data", "CLUSTER_ID")
	case "WgGatewayServerTemplate wireguard-server", "WgGatewayClientTemplate wireguard-client":
		// The gateways of Liqo 1.0 give their pods this label.
		return unstructured.SetNestedField(o.Object, "true", "spec", "template", "spec", "deployment", "spec", "template", "metadata", "labels", "networking.liqo.io/active")
	case "Service " + LiqoWebhook:
		// The API server is on the same host.
		return unstructured.SetNestedMap(o.Object, map[string]any{
			"type": "ExternalName", "externalName": "localhost",
			"ports": []any{map[string]any{"port": int64(liqoWebhookPort)}},
		}, "spec")
	}
	return nil
}

// command is how the program of a Deployment is started on the host: with the arguments and as the account that it has there.
func (l *Liqo) command(ctx context.Context, dir string, deployment *unstructured.Unstructured) (Cmd, error) {
	var spec struct {
		Spec struct {
			Template struct {
				Spec struct {
					ServiceAccountName string
					Containers         []struct{ Command, Args []string }
				}
			}
		}
	}
	text, err := json.Marshal(deployment)
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		return Cmd{}, err
	}
	name, pod := deployment.GetName(), spec.Spec.Template.Spec
	config := "/etc/liqo/" + name + ".kubeconfig"
	if err := l.Kube.accountConfig(ctx, LiqoNamespace, pod.ServiceAccountName, config); err != nil {
		return Cmd{}, err
	}
	// The programs of one host have one network.
	args := []string{"--metrics-address=0"}
	switch name {
	case LiqoControllerManager:
		args = append(args, "--health-probe-address=127.0.0.1:"+strconv.Itoa(liqoProbePort),
			"--foreign-cluster-ping-interval="+liqoPing, "--foreign-cluster-ping-timeout="+liqoPing)
	case LiqoWebhook:
		args = append(args, "--health-probe-address=0")
	}
	variables := strings.NewReplacer("$(CLUSTER_ID)", l.ID, "$(POD_NAMESPACE)", LiqoNamespace)
	for i, a := range pod.Containers[0].Args {
		pod.Containers[0].Args[i] = variables.Replace(a)
	}
	program := "./" + path.Base(pod.Containers[0].Command[0])
	args = slices.Concat([]string{program}, pod.Containers[0].Args, args)
	if name == LiqoWebhook {
		// It writes its certificate to a fixed place in /tmp, which hosts share.
		tmp := filepath.Join(l.Kube.Host.dir, name)
		if err := os.MkdirAll(tmp, 0o755); err != nil {
			return Cmd{}, err
		}
		args = append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /tmp && exec "$@"`, tmp}, args...)
	}
	return Cmd{Name: name, Dir: dir, Args: args, Env: []string{"KUBECONFIG=" + config, "POD_NAMESPACE=" + LiqoNamespace}}, nil
}

// Start starts programs of Liqo that do not run, and waits until they work.
func (l *Liqo) Start(ctx context.Context, programs ...string) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	for _, name := range programs {
		l.mu.Lock()
		command := l.commands[name]
		l.mu.Unlock()
		p, err := l.Kube.Host.start(command)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.processes[name] = p
		l.mu.Unlock()
	}
	for _, name := range programs {
		if err := l.works(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Process returns the process of a program that was started last.
func (l *Liqo) Process(program string) *Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processes[program]
}

// works waits until a program does its job.
func (l *Liqo) works(ctx context.Context, name string) error {
	p := l.Process(name)
	if name != LiqoWebhook {
		return p.WaitLog(ctx, `"Starting workers"`)
	}
	// The API server asks it about this object, which is not stored.
	probe := `{"apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster", "metadata": {"name": "probe"}, "spec": {"clusterID": "probe"}}`
	return p.poll(ctx, func() error {
		_, err := l.Kube.Request(ctx, http.MethodPost, "/apis/core.liqo.io/v1beta1/foreignclusters?dryRun=All", "application/json", []byte(probe))
		return err
	})
}
