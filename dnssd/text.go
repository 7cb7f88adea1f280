package dnssd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"liqo.io/agent/peer/text"
)

const (
	// maxName is the longest name in its escaped form: 255 bytes on the wire, each
	// written as \DDD.
	maxName    = 1020
	maxTXTKeys = 64 // looked at per TXT record
)

// canonical returns a name of DNS in lower case and without its trailing dot, "." for
// the root, escapes kept (RFC 1035 section 5.1). It reports false for what is no name.
func canonical(name string) (string, bool) {
	if len(name) > maxName || !ascii(name) {
		return "", false
	}
	if _, ok := dns.IsDomainName(name); !ok {
		return "", false
	}
	// IsDomainName lets a few bytes too many through.
	if _, err := dns.PackDomainName(dns.Fqdn(name), make([]byte, 255), 0, nil, false); err != nil {
		return "", false
	}
	if name = dns.CanonicalName(name); name == "." {
		return name, true
	}
	return name[:len(name)-1], true
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// quoted returns what strangers wrote so that it can stand in a message.
func quoted(s string) string { return strconv.QuoteToASCII(text.Excerpt(s)) }

// decodeTXT reads the strings of a TXT record (RFC 6763 section 6.4): keys in lower
// case, the first of equal keys counts, strings without a key or with a key that is
// not printable are ignored, a key without "=" has the value "". The map is never nil.
func decodeTXT(record []string) map[string]string {
	pairs := make(map[string]string)
	for _, s := range record {
		key, value, _ := strings.Cut(unescape(s), "=")
		if key == "" || !ascii(key) {
			continue
		}
		key = strings.ToLower(key)
		if _, seen := pairs[key]; seen {
			continue
		}
		if len(pairs) == maxTXTKeys {
			break
		}
		pairs[key] = value
	}
	return pairs
}

// unescape returns the bytes of a character string in its escaped form (RFC 1035
// section 5.1).
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		if n, ok := decimal(s[i+1:]); ok {
			b = append(b, n)
			i += 3
			continue
		}
		i++
		b = append(b, s[i])
	}
	return string(b)
}

// decimal reads the DDD of an escape.
func decimal(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	n := 0
	for i := range 3 {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int(s[i]-'0')
	}
	return byte(n), n < 256
}

// count writes a number of things.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
