package serving

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube"
)

const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// labels are those of our requests, and of nobody else's.
func labels() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "liqo-agent", "app.kubernetes.io/component": "kubelet-serving"}
}

// errWaiting is why a certificate is not signed while a request waits.
var errWaiting = errors.New("nothing in this cluster has signed the request for a certificate of kubelets yet")

// request asks for a certificate and returns it once it is signed, however long
// that takes. Meanwhile it sees to it that there is one to serve with.
func (k *Keeper) request(ctx context.Context, client *kube.Client, subject Subject) (*tls.Certificate, error) {
	if err := sweep(ctx, client); err != nil {
		return nil, fmt.Errorf("delete the requests of earlier starts: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	keyText, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: names(subject), IPAddresses: []net.IP{subject.Address.AsSlice()}}, key)
	if err != nil {
		return nil, err
	}
	csr := &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "liqo-agent-kubelet-", Labels: labels()},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	if err := client.Create(ctx, requests, csr, csr); err != nil {
		return nil, err
	}
	csr.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "LiqoAgent",
		Message: "The agent serves the kubelet API of virtual nodes at this address."})
	path := requests + "/" + csr.Name
	if err := client.Update(ctx, path+"/approval", csr, nil); err != nil {
		return nil, err
	}
	chain, err := k.signed(ctx, client, csr, subject)
	if err != nil {
		return nil, err
	}
	certificate, err := assemble(chain, keyText)
	if err == nil {
		err = fits(certificate.Leaf, subject)
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate signed for %s cannot be used: %w", csr.Name, err)
	}
	if err := client.Delete(ctx, path, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		k.logger.Warn("A request for a certificate stays until the next one.", "name", csr.Name, "error", err)
	}
	return certificate, nil
}

// sweep deletes our requests of earlier times: their keys are gone.
func sweep(ctx context.Context, client *kube.Client) error {
	var old certificatesv1.CertificateSigningRequestList
	if err := client.Get(ctx, requests, &old); err != nil {
		return err
	}
	for _, csr := range old.Items {
		if !ours(csr.Labels) {
			continue
		}
		if err := client.Delete(ctx, requests+"/"+csr.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func ours(have map[string]string) bool {
	for key, value := range labels() {
		if have[key] != value {
			return false
		}
	}
	return true
}

// signed waits until a request is signed and returns the chain.
func (k *Keeper) signed(ctx context.Context, client *kube.Client, csr *certificatesv1.CertificateSigningRequest, subject Subject) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	news := make(chan struct{}, 1)
	cache := kube.NewCache(kube.Kind[*certificatesv1.CertificateSigningRequest]{
		Fresh: func() *certificatesv1.CertificateSigningRequest { return &certificatesv1.CertificateSigningRequest{} },
		Changed: func(_, _ *certificatesv1.CertificateSigningRequest) {
			select {
			case news <- struct{}{}:
			default:
			}
		},
	})
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		cache.Follow(ctx, client, kube.Query{Path: requests, Fields: "metadata.name=" + csr.Name})
	}()
	defer func() {
		cancel()
		<-followed
	}()
	synced := cache.Synced()
	late := time.NewTimer(k.unserved())
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late.C:
			k.makeDo(subject, errWaiting.Error())
			continue
		case <-synced:
			synced = nil
		case <-news:
		}
		if synced != nil {
			continue
		}
		now := cache.Get("", csr.Name)
		if now == nil { // deleted, or so new that the first list did not have it yet
			now = &certificatesv1.CertificateSigningRequest{}
			err := client.Get(ctx, requests+"/"+csr.Name, now)
			if apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("the request %s was deleted before it was signed", csr.Name)
			}
			if err != nil {
				return nil, err
			}
		}
		for _, c := range now.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return nil, fmt.Errorf("the request %s: %s: %s: %s", csr.Name, c.Type, c.Reason, c.Message)
			}
		}
		if len(now.Status.Certificate) > 0 {
			return now.Status.Certificate, nil
		}
	}
}
