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
	"liqo.io/agent/peering"
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
			return found{}, peering.ErrSwitchedOff
		case b.loadError != nil && (there == nil || there.Kubeconfig == ""):
			return found{}, errNoConfig
		}
		return b.ask.kube(ctx, b.config().Cluster.Kubeconfig, there, b.opts.Environ)
	})
}

// errNoConfig: the configuration, which may name a kubeconfig, cannot be read.
var errNoConfig = errors.New("the configuration cannot be used, which may say where the kubeconfig is")

// findAPI reads the kubeconfig that the agent uses, or would, and asks its API server
// for its version.
func findAPI(ctx context.Context, setting string, running *control.Kubernetes, _ []string) (found, error) {
	if running != nil && running.Kubeconfig != "" && !strings.Contains(running.Kubeconfig, ":") {
		setting = running.Kubeconfig
	}
	config, place, err := peering.LoadKubeconfig(setting)
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
		return apierrors.NewUnauthorized("the API server does not take the credentials")
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
	case errors.Is(err, peering.ErrSwitchedOff):
		return skipped(`the agent works without an API server (cluster.kubeconfig = "none")`), true
	case err != nil, api.err != nil:
		return skipped("no API server can be asked"), true
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
	const why = "the agent goes on finding clusters, but makes no ForeignClusters, takes no requests and shares nothing until it can use an API server"
	switch {
	case errors.Is(err, peering.ErrSwitchedOff):
		return skipped(`the agent works without an API server (cluster.kubeconfig = "none")`)
	case errors.Is(err, errNoConfig):
		return skipped("%v", err)
	case errors.Is(err, fs.ErrPermission) && !root:
		if running != nil && running.Connected {
			return fine("the agent is connected to %s; its kubeconfig may not be read by this user", running.Server)
		}
		return skipped("the kubeconfig may not be read by this user: use sudo")
	case errors.Is(err, peering.ErrNoKubeconfig):
		return Finding{Code: "kubeconfig-missing", Status: Warning, What: "no kubeconfig was found: " + err.Error(), Why: why,
			Do: []string{"start K3s, whose kubeconfig is used by itself", "or make one with the few permissions that the agent needs: sudo liqo-agent rbac --apply",
				`or say that there is none: [cluster] kubeconfig = "none"`}}
	case err != nil:
		return Finding{Code: "kubeconfig-unusable", Status: Error, What: "the kubeconfig cannot be used: " + err.Error(), Why: why,
			Do: []string{"mend the file, or name another one with cluster.kubeconfig", "make one for the agent: sudo liqo-agent rbac --apply"}}
	case api.err == nil && running != nil && !running.Connected && !running.Disabled && running.Kubeconfig == "":
		return Finding{Code: "kubeconfig-hidden", Status: Error, What: fmt.Sprintf("%s leads to an API server that answers, and the agent does not find it: %s", api.place, running.LastError),
			Why: why + "; the service does not see home directories, /etc/kubernetes and the like",
			Do: []string{"make a kubeconfig where it looks, and leave cluster.kubeconfig empty: sudo liqo-agent rbac --apply --kubeconfig " + api.place,
				"if it runs in a container, see what that is given"}}
	case api.err == nil && api.latency > slowAnswer:
		return Finding{Code: "api-slow", Status: Warning, What: fmt.Sprintf("%s took %s to answer", api.server, api.latency.Round(10*time.Millisecond)),
			Why: "everything that goes through the API server takes long, and leases of virtual nodes may end before they are renewed",
			Do:  []string{"see what keeps the machine busy: top, iostat", "a slow disk under K3s' database is the usual reason: see the check disk"}}
	case api.err == nil:
		return fine("%s answers in %s, version %s (kubeconfig %s)", api.server, api.latency.Round(time.Millisecond), api.version, api.place)
	}
	return failedAPI(api, why)
}

// failedAPI explains why an API server could not be asked.
func failedAPI(api found, why string) Finding {
	f := Finding{Code: "api-unreachable", Status: Error, What: fmt.Sprintf("%s does not answer: %v", api.server, api.err), Why: why,
		Do: []string{"see whether K3s runs: systemctl status k3s", "see whether the address in " + api.place + " is right"}}
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var dns *net.DNSError
	switch {
	case apierrors.IsUnauthorized(api.err):
		f.Code, f.What = "api-credentials", fmt.Sprintf("%s does not take the credentials in %s", api.server, api.place)
		f.Do = []string{"the certificate or token has ended, or is from another cluster: K3s renews its own when it is restarted",
			"make the agent's anew: sudo liqo-agent rbac --apply"}
	case apierrors.IsForbidden(api.err):
		f.Code, f.What = "api-credentials", fmt.Sprintf("%s lets the user in %s see nothing: %v", api.server, api.place, api.err)
		f.Do = []string{"give it the permissions that the agent needs: sudo liqo-agent rbac --apply"}
	case errors.As(api.err, &unknown), errors.As(api.err, &host), errors.As(api.err, &invalid):
		f.Code, f.What = "api-credentials", fmt.Sprintf("the certificate of %s is not what %s expects: %v", api.server, api.place, api.err)
		f.Do = []string{"the kubeconfig is of another cluster, of an earlier installation, or the clock is wrong", "use the present one, or make the agent's anew: sudo liqo-agent rbac --apply"}
	case errors.As(api.err, &dns):
		f.Do = []string{"the name " + dns.Name + " cannot be looked up: mend DNS, or the address in " + api.place}
	case errors.Is(api.err, syscall.ECONNREFUSED):
		f.What = fmt.Sprintf("nothing listens at %s", api.server)
	}
	return f
}
