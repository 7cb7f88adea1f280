//go:build linux

package bed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

// writeFiles makes the control plane's keys and certificates, its flags and the kubeconfig.
func (k *Kube) writeFiles() error {
	serverCA, err := newAuthority("k3s-server-ca")
	if err != nil {
		return err
	}
	clientCA, err := newAuthority("k3s-client-ca")
	if err != nil {
		return err
	}
	proxyCA, err := newAuthority("k3s-request-header-ca")
	if err != nil {
		return err
	}
	proxy, err := proxyCA.issue(pkix.Name{CommonName: "system:auth-proxy"}, nil, nil)
	if err != nil {
		return err
	}
	admin, err := clientCA.issue(pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}}, nil, nil)
	if err != nil {
		return err
	}
	kubeletClient, err := clientCA.issue(pkix.Name{CommonName: "system:apiserver", Organization: []string{"system:masters"}}, nil, nil)
	if err != nil {
		return err
	}
	serverCAKey, err := encodeKey(serverCA.key)
	if err != nil {
		return err
	}
	serviceAccounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serviceAccountKey, err := encodeKey(serviceAccounts)
	if err != nil {
		return err
	}
	clientCAKey, err := encodeKey(clientCA.key)
	if err != nil {
		return err
	}
	tlsDir := kubeDir + "/tls"
	k.serverCA, k.accountKey, k.kubeconfig = serverCA, serviceAccounts, kubeconfig(serverCA.pem, admin.user())
	if err := k.furnish(); err != nil {
		return err
	}
	if err := k.Host.Do(func() error {
		return errors.Join(
			writeFile(tlsDir+"/server-ca.crt", string(serverCA.pem)),
			writeFile(tlsDir+"/server-ca.key", string(serverCAKey)),
			writeFile(tlsDir+"/client-kube-apiserver.crt", string(kubeletClient.cert)),
			writeFile(tlsDir+"/client-kube-apiserver.key", string(kubeletClient.key)),
			writeFile(tlsDir+"/client-ca.crt", string(clientCA.pem)),
			writeFile(tlsDir+"/client-ca.key", string(clientCAKey)),
			writeFile(tlsDir+"/request-header-ca.crt", string(proxyCA.pem)),
			writeFile(tlsDir+"/client-auth-proxy.crt", string(proxy.cert)),
			writeFile(tlsDir+"/client-auth-proxy.key", string(proxy.key)),
			writeFile(tlsDir+"/service.key", string(serviceAccountKey)),
			writeFile(auditPolicyPath, auditPolicy),
		)
	}); err != nil {
		return err
	}
	if err := k.certifyServer(); err != nil {
		return err
	}
	k.config = &rest.Config{
		Host:            "https://127.0.0.1:" + kubePort,
		TLSClientConfig: rest.TLSClientConfig{CAData: serverCA.pem, CertData: admin.cert, KeyData: admin.key},
		Dial:            k.Host.DialContext,
	}
	k.flags = []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--secure-port=" + kubePort,
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		// It would taint the node as not ready until a controller that most tests do without takes
		// that back.
		"--disable-admission-plugins=TaintNodesByCondition",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + k.Host.Pods.Services().String(),
		"--client-ca-file=" + tlsDir + "/client-ca.crt",
		"--tls-cert-file=" + tlsDir + "/server.crt",
		"--tls-private-key-file=" + tlsDir + "/server.key",
		"--requestheader-client-ca-file=" + tlsDir + "/request-header-ca.crt",
		"--requestheader-allowed-names=system:auth-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + tlsDir + "/client-auth-proxy.crt",
		"--proxy-client-key-file=" + tlsDir + "/client-auth-proxy.key",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + tlsDir + "/service.key",
		"--service-account-signing-key-file=" + tlsDir + "/service.key",
		"--service-account-lookup=true",
		"--api-audiences=https://kubernetes.default.svc.cluster.local,k3s",
		"--kubelet-certificate-authority=" + tlsDir + "/server-ca.crt",
		"--kubelet-client-certificate=" + tlsDir + "/client-kube-apiserver.crt",
		"--kubelet-client-key=" + tlsDir + "/client-kube-apiserver.key",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--audit-policy-file=" + auditPolicyPath,
		"--audit-log-path=" + auditLogPath,
		"--profiling=false",
		// It would cost a sixth of each start and of each request, and nothing here comes near its limits.
		"--enable-priority-and-fairness=false",
	}
	return nil
}

// furnish gives the host what a control plane has on it: its directory, the administrator's kubeconfig, and
// the certificate of a kubelet.
func (k *Kube) furnish() error {
	if err := k.Host.Do(func() error {
		for _, dir := range []string{k.dir, kubeDir} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(k.dir, kubeDir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", kubeDir, err)
		}
		// As K3s writes it: for root.
		return errors.Join(writeFile(Kubeconfig, k.kubeconfig), os.Chmod(Kubeconfig, 0o600))
	}); err != nil {
		return err
	}
	return k.certifyKubelet()
}

// certifyServer writes the certificate of the API server, for the addresses that the host has now.
func (k *Kube) certifyServer() error {
	server, err := k.serverCA.issue(pkix.Name{CommonName: "kube-apiserver"},
		[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", k.Host.Name},
		append(k.Host.ips(), net.ParseIP(serviceIP)))
	if err != nil {
		return err
	}
	return k.Host.Do(func() error {
		return errors.Join(
			writeFile(kubeDir+"/tls/server.key", string(server.key)),
			writeFile(kubeDir+"/tls/server.crt", string(server.cert)),
		)
	})
}

// certifyKubelet writes the certificate of a kubelet, for the addresses that the host has now.
func (k *Kube) certifyKubelet() error {
	kubelet, err := k.serverCA.issue(pkix.Name{CommonName: "system:node:" + k.Host.Name, Organization: []string{"system:nodes"}},
		[]string{"localhost", k.Host.Name}, k.Host.ips())
	if err != nil {
		return err
	}
	return k.Host.Do(func() error {
		return errors.Join(
			writeFile(kubeDir+"/tls/serving-kubelet.crt", string(kubelet.cert)),
			writeFile(kubeDir+"/tls/serving-kubelet.key", string(kubelet.key)),
		)
	})
}

// user is who shows the key pair to an API server, as a kubeconfig has it.
func (p keyPair) user() string {
	b64 := base64.StdEncoding.EncodeToString
	return `client-certificate-data: ` + b64(p.cert) + `
    client-key-data: ` + b64(p.key)
}

// kubeconfig returns a kubeconfig as K3s writes it, for whom the lines of user say.
func kubeconfig(ca []byte, user string) string {
	return `apiVersion: v1
kind: Config
clusters:
- name: default
  cluster:
    server: https://127.0.0.1:` + kubePort + `
    certificate-authority-data: ` + base64.StdEncoding.EncodeToString(ca) + `
users:
- name: default
  user:
    ` + user + `
contexts:
- name: default
  context:
    cluster: default
    user: default
current-context: default
`
}
