package wire

import (
	"fmt"
	"strings"
)

const (
	// MaxTXTKeys is how many keys DecodeTXT keeps of one record.
	MaxTXTKeys = 64
	// maxTXT is the size up to which a TXT record fits one Ethernet packet
	// beside the rest of a response (RFC 6763 section 6.2).
	maxTXT    = 1300
	maxString = 255
)

// EncodeTXT returns the strings of a TXT record, ready for dns.TXT, that hold
// the given key and value pairs in their order (RFC 6763 section 6.3). Keys are
// printable ASCII without "=" and differ in more than the case of letters;
// values are any bytes. One pair takes at most 255 bytes, all of them together
// 1300. No pairs give the one empty string that section 6.1 demands.
func EncodeTXT(pairs [][2]string) ([]string, error) {
	if len(pairs) == 0 {
		return []string{""}, nil
	}
	size := 0
	seen := make(map[string]bool, len(pairs))
	out := make([]string, 0, len(pairs))
	for _, p := range pairs {
		key := p[0]
		if !validKey(key) {
			return nil, fmt.Errorf("TXT key %q: want one or more printable ASCII characters other than '='", key)
		}
		if lower := strings.ToLower(key); seen[lower] {
			return nil, fmt.Errorf("TXT key %q is given twice, and a reader only sees the first", key)
		} else {
			seen[lower] = true
		}
		n := len(key) + 1 + len(p[1])
		if n > maxString {
			return nil, fmt.Errorf("TXT key %q: %d bytes with its value, at most %d fit one string", key, n, maxString)
		}
		size += 1 + n
		out = append(out, escapeString(key+"="+p[1]))
	}
	if size > maxTXT {
		return nil, fmt.Errorf("TXT record: %d bytes, at most %d fit one packet", size, maxTXT)
	}
	return out, nil
}

// DecodeTXT reads the strings of a dns.TXT (RFC 6763 section 6.4). Keys are
// folded to lower case; of a key that occurs twice the first counts; strings
// without a key, or with one that is not printable ASCII, are ignored; a key
// without "=" has the value "". Values are raw bytes: nothing says that they
// are UTF-8. At most MaxTXTKeys keys are kept. The map is never nil.
func DecodeTXT(txt []string) map[string]string {
	pairs := make(map[string]string, min(len(txt), MaxTXTKeys))
	for _, s := range txt {
		key, value, _ := strings.Cut(unescapeString(s), "=")
		if !validKey(key) {
			continue
		}
		key = strings.ToLower(key)
		if _, seen := pairs[key]; seen {
			continue
		}
		if len(pairs) == MaxTXTKeys {
			break
		}
		pairs[key] = value
	}
	return pairs
}

func validKey(key string) bool {
	for i := range len(key) {
		if c := key[i]; c < ' ' || c > '~' || c == '=' {
			return false
		}
	}
	return key != ""
}

// escapeString writes a character string the way Decode does.
func escapeString(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~':
			writeDDD(&b, c)
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescapeString(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		var c byte
		c, i = unescape(s, i)
		b = append(b, c)
	}
	return string(b)
}
