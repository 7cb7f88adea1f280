//go:build linux

package bed

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
)

// IssueToken does what a controller manager does about one Secret of a service account:
// it waits for it, and fills in a token. Unlike a controller manager it costs nothing.
func (k *Kube) IssueToken(ctx context.Context, namespace, name string) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	space := "/api/v1/namespaces/" + namespace
	var secret, account struct {
		Metadata struct {
			UID         string
			Annotations map[string]string
		}
	}
	if err := Poll(ctx, func() error { return k.read(ctx, space+"/secrets/"+name, &secret) }); err != nil {
		return err
	}
	of := secret.Metadata.Annotations["kubernetes.io/service-account.name"]
	if err := k.read(ctx, space+"/serviceaccounts/"+of, &account); err != nil {
		return err
	}
	const claim = "kubernetes.io/serviceaccount/"
	token, err := signed(k.accountKey, map[string]string{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:" + namespace + ":" + of,
		claim + "namespace": namespace, claim + "secret.name": name,
		claim + "service-account.name": of, claim + "service-account.uid": account.Metadata.UID,
	})
	if err != nil {
		return fmt.Errorf("sign a token: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{
		"token": []byte(token), "ca.crt": k.serverCA.pem, "namespace": []byte(namespace),
	}})
	if err != nil {
		return err
	}
	_, err = k.Request(ctx, http.MethodPatch, space+"/secrets/"+name, "application/merge-patch+json", patch)
	return err
}

// accountConfig writes a kubeconfig of a service account to a file of the host.
func (k *Kube) accountConfig(ctx context.Context, namespace, account, file string) error {
	text, err := k.Request(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", "application/json",
		[]byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}`))
	if err != nil {
		return err
	}
	var request struct{ Status struct{ Token string } }
	if err := json.Unmarshal(text, &request); err != nil {
		return err
	}
	return k.Host.Do(func() error { return writeFile(file, kubeconfig(k.serverCA.pem, "token: "+request.Status.Token)) })
}

func (k *Kube) read(ctx context.Context, path string, into any) error {
	text, err := k.Request(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// signed returns a JSON Web Token (RFC 7515, ES256).
func signed(key *ecdsa.PrivateKey, claims map[string]string) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + b64(payload)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + b64(signature), nil
}
