package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"liqo.io/agent/peer"
)

// ChainFile is the name of the file in the state directory that holds the
// succession certificates of the cluster key: PEM, newest first.
const ChainFile = "cluster.chain"

const (
	maxChainFile = 64 << 10
	// maxChainFileCertificates bounds the work for a file that is not ours.
	maxChainFileCertificates = 4 * maxSuccessions
)

// loadChain reads the succession certificates that lead to k. It is called
// before anybody else sees k.
func (k *Key) loadChain(dir string) {
	path := filepath.Join(dir, ChainFile)
	data, err := readSmall(path, maxChainFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		err = fmt.Errorf("cannot be read: %w", err)
	default:
		k.successions, err = parseChain(data, k.fingerprint)
	}
	if err != nil {
		k.chainProblem = fmt.Errorf("%s is not whole: %w. Peers that know this cluster by an earlier key may not follow to the present one; "+
			"restore the file from a backup, or have people trust the present key there", path, err)
	}
}

// parseChain reads the content of a chain file as far as it can, and returns the
// certificates that lead to the key fp, newest first. Others are left out
// silently: a rotation that a power cut interrupted leaves such, and so does a
// key restored from a backup.
func parseChain(data []byte, fp peer.Fingerprint) ([]*x509.Certificate, error) {
	certs, err := parseCertificates(data, maxChainFileCertificates)
	if err == nil && len(certs) == 0 {
		err = errors.New("it holds no certificate, which no rotation leaves behind")
	}
	var chain []*x509.Certificate
	seen := map[peer.Fingerprint]bool{fp: true}
	for _, cert := range certs {
		st, ok := stepOf(cert)
		if ok && st.to == fp && !seen[st.from] && len(chain) < maxSuccessions && st.signed() {
			chain, fp = append(chain, cert), st.from
			seen[fp] = true
		}
	}
	return chain, err
}
