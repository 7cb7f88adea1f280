//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/rbac"
)

func TestMain(m *testing.M) { bed.Main(m) }

// out is where the command puts the agent's kubeconfig.
const out = "/etc/liqo-agent/kubeconfig"

// site is a host with an API server, whose administrator uses the command.
type site struct {
	*testing.T
	kube  *bed.Kube
	host  *bed.Host
	admin *kube.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	k := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	s := &site{T: t, host: k.Host, kube: k}
	s.admin = s.client(s.kube.RESTConfig())
	return s
}

func (s *site) client(config *rest.Config) *kube.Client {
	s.Helper()
	config.Dial = s.host.DialContext
	config.Timeout = bedtest.RequestTimeout
	client, err := kube.New(config)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(client.Close)
	return client
}

// run runs liqo-agent rbac on the host, and returns what it says that it did.
func (s *site) run(args ...string) ([]rbac.Change, error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), bed.Hang)
	defer cancel()
	text, err := s.host.Run(ctx, append([]string{bed.Binary(s, "liqo-agent"), "rbac", "-o", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var done []rbac.Change
	return done, json.Unmarshal([]byte(text), &done)
}

func (s *site) must(args ...string) []rbac.Change {
	s.Helper()
	done, err := s.run(args...)
	if err != nil {
		s.Fatal(err)
	}
	return done
}

// expect compares the results of all that was done.
func (s *site) expect(what string, done []rbac.Change, want ...rbac.Result) {
	s.Helper()
	var results []rbac.Result
	for _, d := range done {
		results = append(results, d.Result)
	}
	slices.Sort(results)
	if results = slices.Compact(results); !slices.Equal(results, want) {
		s.Errorf("%s: %+v, want %s", what, done, want)
	}
}

// file is the agent's kubeconfig.
func (s *site) file() string {
	s.Helper()
	text, err := os.ReadFile(s.host.Path(out))
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// agent is a client with the agent's kubeconfig.
func (s *site) agent() *kube.Client {
	s.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(s.file()))
	if err != nil {
		s.Fatal(err)
	}
	return s.client(config)
}

// gaps is what a user lacks, in a few words.
func (s *site) gaps(client *kube.Client, namespace string) []string {
	s.Helper()
	found, err := rbac.Gaps(s.Context(), client, namespace)
	if err != nil {
		s.Fatal(err)
	}
	var texts []string
	for _, gap := range found {
		texts = append(texts, gap.String())
	}
	return texts
}

const rolePath = "/apis/rbac.authorization.k8s.io/v1/clusterroles/liqo-agent"

// The command installs the user, leaves alone what is right, puts right what is not,
// and takes it all away again.
func TestInstall(t *testing.T) {
	s := newSite(t)
	issued := make(chan error, 1)
	go func() { issued <- s.kube.IssueToken(t.Context(), "edge", rbac.TokenName) }()
	first := s.must("--apply", "--namespace", "edge")
	if err := <-issued; err != nil {
		t.Fatal(err)
	}
	s.expect("the first time", first, rbac.Created)
	if info, err := os.Stat(s.host.Path(out)); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	text := s.file()
	s.expect("the second time", s.must("--apply", "--namespace", "edge"), rbac.Unchanged)
	if s.file() != text {
		t.Error("the second time the file is another one")
	}

	// Its user may do what the rules say. It is no administrator.
	agent := s.agent()
	if gaps := s.gaps(agent, "edge"); len(gaps) > 0 {
		t.Errorf("the agent lacks %q", gaps)
	}
	if gaps := s.gaps(s.admin, "edge"); len(gaps) > 0 {
		t.Errorf("the administrator lacks %q", gaps)
	}
	for _, path := range []string{
		"/apis/apps/v1/deployments", "/api/v1/replicationcontrollers", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x",
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/another",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/another.example.com",
	} {
		if err := agent.Get(t.Context(), path, nil); !apierrors.IsForbidden(err) {
			t.Errorf("GET %s: %v", path, err)
		}
	}
	// It cannot install itself: that is what the administrator is for.
	for _, args := range [][]string{{"--apply", "--force"}, {"--delete", "--yes"}} {
		_, err := s.run(append(args, "--namespace", "edge", "--kubeconfig", out, "--out", "/tmp/kubeconfig")...)
		if err == nil || !strings.Contains(err.Error(), "not the rights of an administrator") {
			t.Errorf("as the agent, %q: %v", args, err)
		}
	}

	// What somebody took away is found, and given back.
	role := s.read(rolePath)
	var rules []any
	for _, rule := range role["rules"].([]any) {
		if !strings.Contains(fmt.Sprint(rule), "subjectaccessreviews") {
			rules = append(rules, rule)
		}
	}
	role["rules"] = rules
	if err := s.admin.Update(t.Context(), rolePath, role, nil); err != nil {
		t.Fatal(err)
	}
	bedtest.Within(s, "the gap shows", func() error {
		if gaps := s.gaps(agent, "edge"); len(gaps) != 1 || gaps[0] != "create subjectaccessreviews.authorization.k8s.io" {
			return fmt.Errorf("the agent lacks %q", gaps)
		}
		return nil
	})
	// The administrator's client is a manager of its own now.
	if _, err := s.run("--apply", "--namespace", "edge"); err == nil || !strings.Contains(err.Error(), "--force") ||
		!strings.Contains(err.Error(), "ClusterRole liqo-agent: somebody else manages it") {
		t.Errorf("with somebody else's rules: %v", err)
	}
	s.expect("by force", s.must("--apply", "--namespace", "edge", "--force"), rbac.Changed, rbac.Unchanged)
	if gaps := s.gaps(agent, "edge"); len(gaps) > 0 {
		t.Errorf("at once after that, the agent lacks %q", gaps)
	}
	s.expect("after that", s.must("--apply", "--namespace", "edge"), rbac.Unchanged)

	// The way back, which leaves alone what is not ours.
	role = s.read(rolePath)
	role["metadata"].(map[string]any)["labels"] = nil
	if err := s.admin.Update(t.Context(), rolePath, role, nil); err != nil {
		t.Fatal(err)
	}
	s.expect("taken away", s.must("--delete", "--yes", "--namespace", "edge"), rbac.Deleted, rbac.Kept)
	if _, err := os.Stat(s.host.Path(out)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
	s.expect("taken away again", s.must("--delete", "--yes", "--namespace", "edge"), rbac.Kept, rbac.Missing)
	bedtest.Within(s, "the token is void", func() error {
		if err := agent.Get(t.Context(), "/api/v1/nodes", nil); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("it gives %w", err)
		}
		return nil
	})
	if err := s.admin.Get(t.Context(), "/api/v1/namespaces/edge", nil); err != nil {
		t.Errorf("the namespace: %v", err)
	}
}

func (s *site) read(path string) map[string]any {
	s.Helper()
	var object map[string]any
	if err := s.admin.Get(s.Context(), path, &object); err != nil {
		s.Fatal(err)
	}
	return object
}

// What is printed can be applied with kubectl, and the command takes it over without a
// change and without force.
func TestPrinted(t *testing.T) {
	s := newSite(t)
	text, err := rbac.Manifest("liqo", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.host.RunInput(t.Context(), string(text), "kubectl", "--kubeconfig", bed.Kubeconfig, "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if err := s.kube.IssueToken(t.Context(), "liqo", rbac.TokenName); err != nil {
		t.Fatal(err)
	}
	for _, d := range s.must("--apply") {
		if d.Kind != "File" && d.Result == rbac.Created {
			t.Errorf("%+v", d)
		}
	}
	s.expect("the second time", s.must("--apply"), rbac.Unchanged)
	if gaps := s.gaps(s.agent(), "liqo"); len(gaps) > 0 {
		t.Errorf("the agent lacks %q", gaps)
	}
}

// What stands in the way is told before anything is done.
func TestInTheWay(t *testing.T) {
	s := newSite(t)
	s.host.WriteFile(out, "mine")
	if _, err := s.run("--apply"); err == nil || !strings.Contains(err.Error(), out+" exists") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a file of somebody else's: %v", err)
	}
	if s.file() != "mine" {
		t.Error("it was overwritten")
	}
	if err := s.admin.Get(t.Context(), rolePath, nil); !apierrors.IsNotFound(err) {
		t.Errorf("the role: %v", err)
	}
	if err := os.Remove(s.host.Path(out)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.kube.Kubectl(t.Context(), "create", "namespace", rbac.DefaultNamespace); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"liqo-peer-a", "liqo-controller-manager"} {
		if _, err := s.kube.Kubectl(t.Context(), "create", "serviceaccount", "--namespace", rbac.DefaultNamespace, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.run("--apply"); err == nil || !strings.Contains(err.Error(), "has service accounts of others: liqo-controller-manager. ") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a namespace of somebody else's: %v", err)
	}
	if err := s.admin.Get(t.Context(), rolePath, nil); !apierrors.IsNotFound(err) {
		t.Errorf("the role: %v", err)
	}
	s.host.WriteFile(out, "mine")
	if _, err := s.run("--apply", "--kubeconfig", "/absent"); err == nil || !strings.Contains(err.Error(), "/absent: no such file") {
		t.Errorf("no administrator: %v", err)
	}
	// That of this test goes on, for the next one.
	if _, err := s.host.Run(t.Context(), "sh", "-c", "sed s/:6443/:6444/ "+bed.Kubeconfig+" >/etc/nowhere"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run("--apply", "--force", "--kubeconfig", "/etc/nowhere"); err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "127.0.0.1:6444") {
		t.Errorf("no API server: %v", err)
	}
	if s.file() != "mine" {
		t.Error("it was overwritten")
	}
}
