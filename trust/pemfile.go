package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"liqo.io/agent/peer/text"
)

const (
	certificateBlock = "CERTIFICATE"
	publicBlock      = "PUBLIC KEY"
	requestBlock     = "CERTIFICATE REQUEST"
	// maxCertificateFile leaves room for a fleet's CAs with comments.
	maxCertificateFile = 256 << 10
)

// readSmall reads a file of at most limit bytes.
func readSmall(file string, limit int64) ([]byte, error) {
	// O_NONBLOCK keeps a FIFO from blocking the start.
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file but %s", file, info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, limit)
	}
	return data, nil
}

// readCertificates reads the PEM certificates of a file, at least one and at
// most limit.
func readCertificates(file string, limit int) ([]*x509.Certificate, error) {
	data, err := readSmall(file, maxCertificateFile)
	if err != nil {
		return nil, fmt.Errorf("certificate file cannot be read: %w", err)
	}
	certs, err := parseCertificates(data, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%s: the file holds no PEM block %q", file, certificateBlock)
	}
	return certs, nil
}

// parseCertificates reads PEM certificates, with comments between them. It stops
// at the first thing that is wrong and returns the certificates before it.
func parseCertificates(data []byte, limit int) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		// Decode passes over what it cannot read in search of a block it can.
		begun, read := bytes.Count(data[:len(data)-len(rest)], []byte("-----BEGIN")), 0
		if block != nil {
			read = 1
		} else {
			begun = bytes.Count(data, []byte("-----BEGIN"))
		}
		if begun != read {
			return certs, fmt.Errorf("the PEM block of certificate %d is incomplete or damaged", len(certs)+1)
		}
		if block == nil {
			return certs, nil
		}
		if block.Type != certificateBlock {
			return certs, fmt.Errorf("the file holds a PEM block %q, want only %q", text.Excerpt(block.Type), certificateBlock)
		}
		if len(certs) == limit {
			return certs, fmt.Errorf("the file holds more than %d certificates", limit)
		}
		if len(block.Bytes) > maxCertificate {
			return certs, fmt.Errorf("certificate %d has %d bytes, at most %d are allowed", len(certs)+1, len(block.Bytes), maxCertificate)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return certs, fmt.Errorf("certificate %d cannot be read: %w", len(certs)+1, err)
		}
		certs, data = append(certs, cert), rest
	}
}

// onePEM returns the content of the only PEM block of data, which must be of the
// given type.
func onePEM(data []byte, blockType string) ([]byte, error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, errors.New("there is no complete PEM block")
	case block.Type != blockType:
		return nil, fmt.Errorf("there is a PEM block %q, want %q", text.Excerpt(block.Type), blockType)
	case len(bytes.TrimSpace(rest)) != 0:
		return nil, errors.New("there is more after the PEM block")
	}
	return block.Bytes, nil
}

func encodeCertificates(certs ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range certs {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: cert.Raw}))
	}
	return out.Bytes()
}
