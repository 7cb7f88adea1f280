package document

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	maxIdentity     = 64 << 10 // of the document, in bytes
	maxCA           = 32 << 10 // of the certificates of an API server in PEM
	maxCertificates = 16       // among them
	maxChain        = 4        // certificates of a client and its issuers
	defaultPort     = 443      // of an API server whose URL has none
)

// Identity is what a provider gives to its consumer: where its API server is, how to know it,
// and the certificate for it. Namespace is that of the consumer there.
type Identity struct {
	ClusterID   ClusterID `json:"clusterID"`
	Namespace   string    `json:"namespace"`
	APIServer   string    `json:"apiServer"`
	CA          []byte    `json:"ca"`        // PEM
	Certificate []byte    `json:"signedCRT"` // PEM
}

// Expected is what a consumer knows of an Identity before it comes.
type Expected struct {
	// Provider is whose Identity it is, and Consumer this cluster.
	Provider, Consumer ClusterID
	// Keys are those of this cluster.
	Keys Keys
	// Now is the time at which the certificate has to be valid.
	Now time.Time
}

// ParseIdentity reads an Identity. Its API server is https://host:port without anything else;
// where that is, the caller says with At.
//
// CA and certificate are two different matters in K3s and kubeadm: the CA is that of the API
// server's certificate, and clients have theirs from another one. So the certificate has to
// belong to our key and to name us, and the CAs have to be CAs.
func ParseIdentity(body []byte, want Expected) (Identity, error) {
	var i Identity
	if err := decode(body, maxIdentity, &i); err != nil {
		return Identity{}, fmt.Errorf("the Identity cannot be read: %w", err)
	}
	switch {
	case i.ClusterID != want.Provider:
		return Identity{}, fmt.Errorf("the Identity is not that of cluster %s", want.Provider)
	case i.Namespace != want.Consumer.TenantNamespace():
		return Identity{}, fmt.Errorf("the Identity is for namespace %q, and ours there is %s", text.Line(i.Namespace, 63), want.Consumer.TenantNamespace())
	}
	server, err := peer.ParseURL(i.APIServer)
	if err != nil {
		return Identity{}, fmt.Errorf("the URL of the API server in the Identity cannot be used: %w", err)
	}
	i.APIServer = server.String()
	if err := checkCA(i.CA); err != nil {
		return Identity{}, fmt.Errorf("the CA of the API server in the Identity cannot be used: %w", err)
	}
	if err := checkCertificate(i.Certificate, want); err != nil {
		return Identity{}, fmt.Errorf("the certificate in the Identity cannot be used: %w", err)
	}
	return i, nil
}

// At returns the Identity for the provider whose endpoint is at that address. The port of its
// API server is the one that it says. Its address is not: Liqo writes the one that the
// provider's node had when the certificate was made, and a provider must not send this
// cluster's certificate anywhere else than to itself.
func (i Identity) At(address netip.Addr) (Identity, error) {
	if !usable(address) {
		return Identity{}, errors.New("the address of the provider cannot be that of an API server")
	}
	server, err := peer.ParseURL(i.APIServer)
	if err != nil {
		return Identity{}, err
	}
	port := uint64(defaultPort)
	if said := server.Port(); said != "" {
		if port, err = strconv.ParseUint(said, 10, 16); err != nil {
			return Identity{}, err
		}
	}
	i.APIServer = "https://" + netip.AddrPortFrom(address.Unmap(), uint16(port)).String()
	return i, nil
}

// usable reports whether an address at which a peer was met can be written down.
func usable(address netip.Addr) bool {
	return address.IsValid() && address.Zone() == "" && !address.IsUnspecified() && !address.IsMulticast()
}

// certificates reads PEM with nothing but certificates in it.
func certificates(text []byte, limit, most int) ([]*x509.Certificate, error) {
	if len(text) > limit {
		return nil, fmt.Errorf("it has %d bytes; at most %d make sense", len(text), limit)
	}
	var out []*x509.Certificate
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		begins := bytes.HasPrefix(rest, []byte("-----BEGIN "))
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || !begins || block.Type != pemCertificate || len(block.Headers) > 0 {
			return nil, errors.New("it is not a list of certificates in PEM")
		}
		if len(out) == most {
			return nil, fmt.Errorf("it has more than %d certificates", most)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return out, nil
}

func checkCA(text []byte) error {
	certs, err := certificates(text, maxCA, maxCertificates)
	if err != nil {
		return err
	}
	for _, cert := range certs {
		if !cert.IsCA || !cert.BasicConstraintsValid {
			return errors.New("one of its certificates is not that of a CA")
		}
	}
	return nil
}

func checkCertificate(pemText []byte, want Expected) error {
	chain, err := certificates(pemText, maxCA, maxChain)
	if err != nil {
		return err
	}
	cert := chain[0]
	switch {
	case cert.IsCA:
		return errors.New("it is that of a CA")
	case !isControlPlane(cert.Subject, want.Consumer):
		return fmt.Errorf("its subject is not CN=%s, O=%s alone", want.Consumer, organization)
	case !want.Keys.public.Equal(cert.PublicKey):
		return errors.New("it is not for the key of this cluster")
	case !want.Now.Before(cert.NotAfter):
		return fmt.Errorf("it was valid until %s", text.Time(cert.NotAfter))
	}
	return nil
}

// Encode returns the document.
func (i Identity) Encode() (json.RawMessage, error) { return json.Marshal(i) }
