package wire

import (
	"strings"
)

// ServiceEnumeration is the name, below a domain, under which a responder lists
// its service types (RFC 6763 section 9).
const ServiceEnumeration = "_services._dns-sd._udp"

// Key returns the form in which names are compared: letters A to Z folded to
// lower case and nothing else (RFC 6762 section 16), escapes written the way
// Decode writes them, a final dot. Names are equal exactly when their keys are.
func Key(name string) string {
	plain := strings.HasSuffix(name, ".")
	for i := 0; i < len(name); i++ {
		if c := name[i]; c >= 'A' && c <= 'Z' || c == '\\' || mustEscape(c) && c != '.' {
			plain = false
			break
		}
	}
	if plain {
		return name
	}
	var b strings.Builder
	b.Grow(len(name) + 1)
	for label := range labels(name) {
		for i := range len(label) {
			c := label[i]
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			writeEscaped(&b, c)
		}
		b.WriteByte('.')
	}
	if b.Len() == 0 {
		return "."
	}
	return b.String()
}

// InstanceName returns the full name of a service instance (RFC 6763 section
// 4.1) in presentation form. instance is the plain text of one label: dots,
// spaces and UTF-8 in it are escaped (section 4.3). service ("_liqo._tcp") and
// domain ("local") are names; a final dot makes no difference.
func InstanceName(instance, service, domain string) string {
	return EscapeLabel(instance) + "." + ServiceName(service, domain)
}

// ServiceName returns the full name under which instances of a service are
// listed, such as "_liqo._tcp.local.".
func ServiceName(service, domain string) string {
	return trimDots(service) + "." + trimDots(domain) + "."
}

// SubtypeName returns the full name under which instances of a subtype of a
// service are listed (RFC 6763 section 7.1). subtype is the plain text of one
// label.
func SubtypeName(subtype, service, domain string) string {
	return EscapeLabel(subtype) + "._sub." + ServiceName(service, domain)
}

// HostName returns the full name of a host; host is the plain text of one label.
func HostName(host, domain string) string {
	return EscapeLabel(host) + "." + trimDots(domain) + "."
}

// SplitInstance takes the full name of a service instance apart: the plain text
// of the instance label, the service ("_liqo._tcp") and the domain ("local"),
// both without final dot. ok is false for anything that is not an instance name,
// such as a host name or the name of a service type.
func SplitInstance(fqdn string) (instance, service, domain string, ok bool) {
	var parts []string
	for label := range labels(fqdn) {
		parts = append(parts, label)
	}
	if len(parts) < 4 || !isServiceLabel(parts[1]) || parts[1] == "_sub" {
		return "", "", "", false
	}
	if proto := strings.ToLower(parts[2]); proto != "_tcp" && proto != "_udp" {
		return "", "", "", false
	}
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = EscapeLabel(p)
	}
	return parts[0], escaped[1] + "." + escaped[2], strings.Join(escaped[3:], "."), true
}

func isServiceLabel(s string) bool { return len(s) > 1 && s[0] == '_' }

// EscapeLabel returns the plain text of one label in presentation form.
func EscapeLabel(text string) string {
	for i := range len(text) {
		if mustEscape(text[i]) {
			var b strings.Builder
			b.Grow(2 * len(text))
			for j := range len(text) {
				writeEscaped(&b, text[j])
			}
			return b.String()
		}
	}
	return text
}

// labels yields the plain text of each label of a name in presentation form.
// Empty labels are left out.
func labels(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		var label []byte
		for i := 0; i < len(name); {
			if name[i] == '.' {
				i++
				if len(label) > 0 && !yield(string(label)) {
					return
				}
				label = label[:0]
				continue
			}
			var c byte
			c, i = unescape(name, i)
			label = append(label, c)
		}
		if len(label) > 0 {
			yield(string(label))
		}
	}
}

// unescape returns the byte that presentation form has at s[i], and the index
// behind it.
func unescape(s string, i int) (byte, int) {
	if s[i] != '\\' || i+1 == len(s) {
		return s[i], i + 1
	}
	if i+3 < len(s) && isDigit(s[i+1]) && isDigit(s[i+2]) && isDigit(s[i+3]) {
		n := int(s[i+1]-'0')*100 + int(s[i+2]-'0')*10 + int(s[i+3]-'0')
		return byte(n), i + 4
	}
	return s[i+1], i + 2
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// mustEscape reports whether a byte of a label is written with a backslash.
func mustEscape(c byte) bool {
	switch c {
	case '.', ' ', '\'', '@', ';', '(', ')', '"', '\\':
		return true
	}
	return c < ' ' || c > '~'
}

func writeEscaped(b *strings.Builder, c byte) {
	switch {
	case c < ' ' || c > '~':
		writeDDD(b, c)
	case mustEscape(c):
		b.WriteByte('\\')
		b.WriteByte(c)
	default:
		b.WriteByte(c)
	}
}

func writeDDD(b *strings.Builder, c byte) {
	b.Write([]byte{'\\', '0' + c/100, '0' + c/10%10, '0' + c%10})
}

func trimDots(s string) string { return strings.Trim(s, ".") }
