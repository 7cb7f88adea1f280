package peer

import (
	"errors"
	"fmt"
	"strings"

	"liqo.io/agent/peer/text"
)

// MaxClusterIDLength is the longest cluster ID in bytes. A cluster ID is also
// a DNS label (the DNS-SD instance name, RFC 6763 section 4.1.1) and a
// Kubernetes object name, and the DNS label is the narrower of the two.
const MaxClusterIDLength = 63

// MaxClusterNameLength is the longest human-readable cluster name in bytes.
// With the key "name=" it fits a 255-byte DNS-SD TXT string (RFC 6763 section
// 6.1) with room to spare, and keeps tables readable.
const MaxClusterNameLength = 63

// ClusterID is the stable identifier of a cluster: an RFC 1123 label of at
// most MaxClusterIDLength bytes, in practice a UUID. The zero value means
// "unknown".
type ClusterID string

// ParseClusterID returns s as a ClusterID, or an error that says which rule s
// breaks. It accepts exactly what Kubernetes accepts as a label-like object
// name: lower-case letters, digits and inner hyphens.
func ParseClusterID(s string) (ClusterID, error) {
	if err := checkLabel(s); err != nil {
		return "", fmt.Errorf("cluster ID %q: %w", text.Excerpt(s), err)
	}
	return ClusterID(s), nil
}

// Short returns the first eight bytes of the ID, for tables and log lines that
// a person reads. It is not unique.
func (id ClusterID) Short() string {
	if len(id) <= 8 {
		return string(id)
	}
	return string(id[:8])
}

// Reference returns how a person names a cluster in a command: by the first of the
// names that can be typed as it stands, else by its ID. Names come from the network
// and are about to be pasted into a shell.
func Reference(id ClusterID, names ...string) string {
	for _, name := range names {
		if typeable(name) {
			return name
		}
	}
	return string(id)
}

func typeable(name string) bool {
	for i, c := range []byte(name) {
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '.' && c != '_') {
			return false
		}
	}
	return name != ""
}

// ParseClusterName checks a human-readable cluster name: 1 to
// MaxClusterNameLength bytes of valid, printable UTF-8 without leading or
// trailing space. Names come from the network and end up on terminals, so
// control characters are refused rather than escaped.
func ParseClusterName(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("cluster name is empty")
	case len(s) > MaxClusterNameLength:
		return "", fmt.Errorf("cluster name is %d bytes long, at most %d are allowed", len(s), MaxClusterNameLength)
	case s != strings.TrimSpace(s):
		return "", fmt.Errorf("cluster name %q begins or ends with a space", s)
	case !text.Printable(s):
		return "", fmt.Errorf("cluster name %q contains characters that cannot be printed", s)
	}
	return s, nil
}

// ParseNamespace checks a Kubernetes namespace name (an RFC 1123 label).
func ParseNamespace(s string) (string, error) {
	if err := checkLabel(s); err != nil {
		return "", fmt.Errorf("namespace %q: %w", text.Excerpt(s), err)
	}
	return s, nil
}

func checkLabel(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	if len(s) > MaxClusterIDLength {
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), MaxClusterIDLength)
	}
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		inner := i > 0 && i < len(s)-1
		if !alnum && (c != '-' || !inner) {
			return errors.New("must consist of lower-case letters, digits and inner hyphens")
		}
	}
	return nil
}
