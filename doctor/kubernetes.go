package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
)

// found is an API server and what it said.
type found struct {
	place   string // of the kubeconfig
	server  string
	version string
	latency time.Duration
	skew    *time.Duration // its clock is ahead by; nil = it did not say
	client  *kube.Client   // nil = none could be made
	err     error          // of the first request
}

// kubernetes finds the API server and asks it for its version, once. Its error is why
// there is no client; that of the request is in what it returns.
func (b *Box) kubernetes(ctx context.Context) (found, error) {
	says, err := b.agentSays(ctx)
	var there *control.Kubernetes
	if err == nil {
		there = &says.status.Kubernetes
	}
	return b.api.get(ctx, usual+5*time.Second, func(ctx context.Context) (found, error) {
		switch {
		case there != nil && there.Disabled:
			return found{}, conn.ErrSwitchedOff
		case b.loadError != nil && (there == nil || there.Kubeconfig == ""):
			return found{}, errNoConfig
		}
		return b.ask.kube(ctx, b.config().Cluster.Kubeconfig, there, b.opts.Environ)
	})
}

// errNoConfig: the configuration, which may name a kubeconfig, cannot be read.
var errNoConfig = errors.New("the configuration, which may name the kubeconfig, is invalid")

// findAPI reads the kubeconfig that the agent uses, or would, and asks its API server
// for its version.
func findAPI(ctx context.Context, setting string, running *control.Kubernetes, _ []string) (found, error) {
	if running != nil && running.Kubeconfig != "" && !strings.Contains(running.Kubeconfig, ":") {
		setting = running.Kubeconfig
	}
	config, place, err := conn.LoadKubeconfig(setting)
	if err != nil {
		return found{place: place}, err
	}
	out := found{place: place, server: config.Host}
	if out.client, err = kube.New(config); err != nil {
		return out, err
	}
	out.err = out.ask(ctx, config)
	return out, nil
}

// ask asks for the version, by hand: the answer's header has the time.
func (f *found) ask(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("/apis/discovery.liqo.io").String(), nil)
	if err != nil {
		return err
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	f.latency = time.Since(began)
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	err = errors.Join(err, resp.Body.Close())
	if date, dateErr := http.ParseTime(resp.Header.Get("Date")); dateErr == nil {
		skew := time.Until(date)
		f.skew = &skew
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return apierrors.NewUnauthorized("the API server rejects the credentials")
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if versionErr := f.client.Get(ctx, "/version", &version); versionErr != nil {
		return versionErr
	}
	f.version = version.GitVersion
	return err
}

// without says why there is no API server to be looked into, if there is none.
func without(api found, err error) (Finding, bool) {
	switch {
	case errors.Is(err, conn.ErrSwitchedOff):
		return skipped(`the agent is configured to run without an API server (cluster.kubeconfig = "none")`), true
	case err != nil, api.err != nil:
		return skipped("no API server is available"), true
	}
	return Finding{}, false
}

func checkAPIServer(ctx context.Context, b *Box) []Finding {
	api, err := b.kubernetes(ctx)
	says, agentErr := b.agentSays(ctx)
	var there *control.Kubernetes
	if agentErr == nil {
		there = &says.status.Kubernetes
	}
	return []Finding{judgeAPIServer(api, err, there, b.opts.Root)}
}

// slowAnswer is when an API server is called slow.
const slowAnswer = 2 * time.Second

// judgeAPIServer says what asking the API server came to. running is what the agent
// says about it, nil when there is no agent to ask.
func judgeAPIServer(api found, err error, running *control.Kubernetes, root bool) Finding {
	const why = "the agent still finds clusters, but without an API server it creates no ForeignClusters, accepts no requests and shares nothing"
	switch {
	case errors.Is(err, conn.ErrSwitchedOff):
		return skipped(`the agent is configured to run without an API server (cluster.kubeconfig = "none")`)
	case errors.Is(err, errNoConfig):
		return skipped("%v", err)
	case errors.Is(err, fs.ErrPermission) && !root:
		if running != nil && running.Connected {
			return fine("the agent is connected to %s; this user may not read its kubeconfig", running.Server)
		}
		return skipped("this user may not read the kubeconfig: use sudo")
	case errors.Is(err, conn.ErrNoKubeconfig):
		return Finding{Code: "kubeconfig-missing", Status: Warning, What: "there is no kubeconfig: " + err.Error(), Why: why,
			Do: []string{"start K3s: the agent uses its kubeconfig by default", "or create one with only the permissions of the agent: sudo liqo-agent rbac --apply",
				`or configure the agent to run without one: [cluster] kubeconfig = "none"`}}
	case err != nil:
		return Finding{Code: "kubeconfig-unusable", Status: Error, What: "the kubeconfig cannot be used: " + err.Error(), Why: why,
			Do: []string{"correct the file, or set cluster.kubeconfig to another one", "create one for the agent: sudo liqo-agent rbac --apply"}}
	case api.err == nil && running != nil && !running.Connected && !running.Disabled && running.Kubeconfig == "":
		return Finding{Code: "kubeconfig-hidden", Status: Error, What: fmt.Sprintf("the API server of %s answers, but the agent does not find the file: %s", api.place, running.LastError),
			Why: why + "; the service cannot read home directories, /etc/kubernetes and similar",
			Do: []string{"create a kubeconfig where the agent looks, and leave cluster.kubeconfig empty: sudo liqo-agent rbac --apply --kubeconfig " + api.place,
				"if the agent runs in a container, check its mounts"}}
	case api.err == nil && api.latency > slowAnswer:
		return Finding{Code: "api-slow", Status: Warning, What: fmt.Sprintf("%s took %s to answer", api.server, api.latency.Round(10*time.Millisecond)),
			Why: "everything that needs the API server is slow, and leases of virtual nodes may expire before their renewal",
			Do:  []string{"find out what keeps the machine busy: top, iostat", "usually, the disk with the database of K3s is slow: see the check disk"}}
	case api.err == nil:
		return fine("%s answers in %s, version %s (kubeconfig %s)", api.server, api.latency.Round(time.Millisecond), api.version, api.place)
	}
	return failedAPI(api, why)
}

// failedAPI explains why an API server could not be asked.
func failedAPI(api found, why string) Finding {
	f := Finding{Code: "api-unreachable", Status: Error, What: fmt.Sprintf("%s does not answer: %v", api.server, api.err), Why: why,
		Do: []string{"check whether K3s runs: systemctl status k3s", "check the address in " + api.place}}
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var dns *net.DNSError
	switch {
	case apierrors.IsUnauthorized(api.err):
		f.Code, f.What = "api-credentials", fmt.Sprintf("%s rejects the credentials in %s", api.server, api.place)
		f.Do = []string{"the certificate or token is expired, or from another cluster; K3s renews its own when it restarts",
			"create a new one for the agent: sudo liqo-agent rbac --apply"}
	case apierrors.IsForbidden(api.err):
		f.Code, f.What = "api-credentials", fmt.Sprintf("%s forbids everything to the user in %s: %v", api.server, api.place, api.err)
		f.Do = []string{"grant the permissions that the agent needs: sudo liqo-agent rbac --apply"}
	case errors.As(api.err, &unknown), errors.As(api.err, &host), errors.As(api.err, &invalid):
		f.Code, f.What = "api-credentials", fmt.Sprintf("the certificate of %s is not what %s expects: %v", api.server, api.place, api.err)
		f.Do = []string{"the kubeconfig is from another cluster or an earlier installation, or the clock is wrong", "use the current one, or create one for the agent: sudo liqo-agent rbac --apply"}
	case errors.As(api.err, &dns):
		f.Do = []string{"the name " + dns.Name + " does not resolve: correct DNS, or the address in " + api.place}
	case errors.Is(api.err, syscall.ECONNREFUSED):
		f.What = fmt.Sprintf("nothing listens at %s", api.server)
	}
	return f
}
