package bundle

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// removed stands where a secret was.
const removed = "(removed)"

// shortest is the length below which a value is not looked for: it would take
// harmless words out, and is no secret to rely on.
const shortest = 8

// patterns are the forms of secrets. The first group is kept.
var patterns = []*regexp.Regexp{
	// Private keys, also those whose newlines were written as \n. A key that is cut off
	// goes to the end of its base64.
	regexp.MustCompile(`()-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s]|\\[nr])*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?`),
	// Invites.
	regexp.MustCompile(`(?i)()\bliqo1-[0-9a-z-]{16,}(?:@[^\s"'\\]+)?`),
	// Tokens of K3s, kubeadm and JSON Web Tokens.
	regexp.MustCompile(`()\bK10[0-9a-f]{32,}::[^\s"'\\]+`),
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`),
	regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
	// Credentials in headers and URLs.
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@"'\\]+@`),
	// Values behind names that say what they are, in YAML, JSON, TOML and logs.
	regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|private[_-]?key|client-key-data|credential)\\*"?\s*[:=]\s*)` +
		`(?:"(?:[^"\\]|\\.)*"|\\+"[^"\\]*\\+"|'[^']*'|[^\s,;{}\[\]"'\\]+)`),
	// PEM in base64, as kubeconfigs have it: keys, and with them certificates.
	regexp.MustCompile(`()\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]+`),
	// The value of a variable in a unit: all of the line, which may have more of them.
	regexp.MustCompile(`(?m)(^\s*(?:Environment|PassEnvironment|SetCredential|SetCredentialEncrypted)\s*=).+`),
}

// harmless are values that the patterns of names may meet and that say something.
var harmless = regexp.MustCompile(`^[\s:="']*(?:true|false|null|0|none|""|''|\(removed\))["']?$`)

// jsonName finds a name that is in quotes, so that its value is one of JSON's.
var jsonName = regexp.MustCompile(`[^\\]"\s*:\s*$`)

// Scrubber takes secrets out of text, and, if wanted, names and addresses. It may be
// used by any number of goroutines.
type Scrubber struct {
	secrets [][]byte
	// Redact replaces names and addresses, the same by the same.
	names map[string]string
	order []string // of names, longest first
	addrs *addresses
}

// NewScrubber returns a Scrubber that takes out these values besides everything that
// looks like a secret.
func NewScrubber(secrets []string) *Scrubber {
	s := &Scrubber{}
	for _, secret := range secrets {
		if secret = strings.TrimSpace(secret); len(secret) >= shortest {
			s.secrets = append(s.secrets, []byte(secret))
		}
	}
	// Of two of which one is part of the other, the longer one goes first.
	slices.SortFunc(s.secrets, func(a, b []byte) int { return len(b) - len(a) })
	return s
}

// Redact has names replaced by "name-1", "name-2" and so on, in this order, and IP
// addresses by "address-1" and so on in the order in which they come up. Call it
// before the first Scrub, and give text to one Scrub at a time then.
func (s *Scrubber) Redact(names []string) {
	s.names, s.addrs = make(map[string]string), &addresses{names: make(map[netip.Addr]string)}
	for _, name := range names {
		if _, known := s.names[name]; !known && len(name) > 1 {
			s.names[name] = fmt.Sprintf("name-%d", len(s.names)+1)
			s.order = append(s.order, name)
		}
	}
	slices.SortFunc(s.order, func(a, b string) int { return len(b) - len(a) })
}

// Scrub returns text without secrets.
func (s *Scrubber) Scrub(text []byte) []byte {
	for _, secret := range s.secrets {
		text = bytes.ReplaceAll(text, secret, []byte(removed))
	}
	for _, p := range patterns {
		text = p.ReplaceAllFunc(text, func(found []byte) []byte {
			kept := p.FindSubmatch(found)[1]
			if len(kept) > 0 && harmless.Match(found[len(kept):]) {
				return found
			}
			rest := found[len(kept):]
			switch { // what is JSON stays JSON
			case len(kept) > 0 && (bytes.HasPrefix(rest, []byte(`"`)) || jsonName.Match(kept)):
				return append(slices.Clone(kept), `"`+removed+`"`...)
			case len(kept) > 0 && bytes.HasPrefix(rest, []byte(`\"`)):
				return append(slices.Clone(kept), `\"`+removed+`\"`...)
			case bytes.HasSuffix(kept, []byte("://")):
				return append(slices.Clone(kept), removed+"@"...)
			}
			return append(slices.Clone(kept), removed...)
		})
	}
	if s.names != nil {
		text = s.redact(text)
	}
	return text
}

// addresses name IP addresses in the order in which they come up.
type addresses struct{ names map[netip.Addr]string }

// addressLike finds what may be an IP address.
var addressLike = regexp.MustCompile(`\b(?:\d{1,3}(?:\.\d{1,3}){3})\b|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:%[a-zA-Z0-9._-]+)?`)

func (s *Scrubber) redact(text []byte) []byte {
	for _, name := range s.order {
		text = replaceWord(text, name, s.names[name])
	}
	return addressLike.ReplaceAllFunc(text, func(found []byte) []byte {
		at, err := netip.ParseAddr(string(found))
		if err != nil || at.IsUnspecified() || at.IsLoopback() || at.IsMulticast() {
			return found
		}
		at = at.WithZone("")
		name, known := s.addrs.names[at]
		if !known {
			name = fmt.Sprintf("address-%d", len(s.addrs.names)+1)
			s.addrs.names[at] = name
		}
		return []byte(name)
	})
}

// replaceWord replaces a word where it is not part of a longer one.
func replaceWord(text []byte, word, by string) []byte {
	var out bytes.Buffer
	for {
		at := bytes.Index(text, []byte(word))
		if at < 0 {
			out.Write(text)
			return out.Bytes()
		}
		end := at + len(word)
		if (at > 0 && partOfWord(text[at-1])) || (end < len(text) && partOfWord(text[end])) {
			out.Write(text[:at+1])
			text = text[at+1:]
			continue
		}
		out.Write(text[:at])
		out.WriteString(by)
		text = text[end:]
	}
}

func partOfWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}
