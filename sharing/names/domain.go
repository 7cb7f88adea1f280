package names

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"liqo.io/agent/sharing/workload"
)

// Domain returns the domain of the cluster of an API server: certificates of API servers are
// for kubernetes.default.svc.<domain>, too. It is [workload.DefaultDomain] if the certificate
// does not say.
func Domain(ctx context.Context, local *rest.Config) (string, error) {
	client, err := rest.HTTPClientFor(local)
	if err != nil {
		return "", fmt.Errorf("find out the cluster domain: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(local)
	if err != nil {
		return "", fmt.Errorf("find out the cluster domain: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
	if err != nil {
		return "", fmt.Errorf("find out the cluster domain: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("find out the cluster domain: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is used again
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		for _, name := range resp.TLS.PeerCertificates[0].DNSNames {
			if domain, ok := strings.CutPrefix(strings.ToLower(name), "kubernetes.default.svc."); ok && workload.ValidDomain(domain) {
				return domain, nil
			}
		}
	}
	return workload.DefaultDomain, nil
}
