package peer

import (
	"net/netip"
	"net/url"
	"strings"
)

// HostName returns the host name in a URL as it is compared, in lower case and
// without a dot at its end; "" if there is none, or an address in its place.
func HostName(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return ""
	}
	return name
}

// Vouchable returns the host name in the URL at which a source with this key saw
// a peer, if a public certificate for that name says something about who is there:
// a person named the host, or it lies in the search domain that a person
// configured. Any other name was chosen by whoever could have a certificate for
// it: an SRV target elsewhere, what is said on a link, or by a caller. It is "" for
// those.
func (k Key) Vouchable(rawURL string) string {
	name := HostName(rawURL)
	switch k.Source {
	case Manual:
		return name
	case WAN:
		if InDomain(name, k.Domain) {
			return name
		}
	}
	return ""
}

// InDomain reports whether a host name, as HostName returns it, is a domain or lies
// in it. Nothing lies in the root.
func InDomain(name, domain string) bool {
	domain = strings.ToLower(strings.TrimSuffix(domain, "."))
	return domain != "" && (name == domain || strings.HasSuffix(name, "."+domain))
}
