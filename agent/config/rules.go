package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/api"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/registry"
)

// rule says which values of a key's type are allowed. The zero rule allows
// all.
type rule struct {
	allowed string // completes "must be ..."
	check   func(value any) error
	// normal brings what people write differently into one form, before the check;
	// nil leaves it as it is. What the check refuses it returns unchanged, for the
	// message.
	normal func(string) string
}

// maxServerLength bounds the address of a DNS server, in bytes: a name of 253 and
// what may stand around it.
const maxServerLength = 270

// errNotAllowed is what a check returns when the rule's own words say it all.
var errNotAllowed = errors.New("is not allowed")

// normalise returns the value in the form that is kept.
func (r rule) normalise(value any) any {
	if s, ok := value.(string); ok && r.normal != nil {
		return r.normal(s)
	}
	return value
}

// accepts returns nil, or an error that says what is wrong and what is right.
func (r rule) accepts(value any) error {
	if r.check == nil {
		return nil
	}
	err := r.check(value)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotAllowed):
		return errors.New("must be " + r.allowed)
	}
	return fmt.Errorf("must be %s: %w", r.allowed, err)
}

// textRule makes a rule of a check for strings.
func textRule(allowed string, check func(string) error) rule {
	return rule{allowed: allowed, check: func(v any) error { return check(v.(string)) }}
}

// optional also allows the empty string.
func optional(r rule) rule {
	check := r.check
	r.allowed = "empty or " + r.allowed
	r.check = func(v any) error {
		if v == "" {
			return nil
		}
		return check(v)
	}
	return r
}

// written is r with its values brought into one form first.
func written(normal func(string) string, r rule) rule {
	r.normal = normal
	return r
}

func oneOf(values ...string) rule {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = strconv.Quote(v)
	}
	last := len(names) - 1
	return textRule(strings.Join(names[:last], ", ")+" or "+names[last], func(s string) error {
		for _, v := range values {
			if s == v {
				return nil
			}
		}
		return errNotAllowed
	})
}

// namePrefix is what names of Kubernetes objects can begin with.
var namePrefix = textRule("up to 20 lower-case letters, digits and hyphens, beginning with a letter", func(s string) error {
	if !prefixForm.MatchString(s) {
		return errNotAllowed
	}
	return nil
})

var prefixForm = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$`)

func within(low, high int) rule {
	return rule{allowed: fmt.Sprintf("between %d and %d", low, high), check: func(v any) error {
		if n := v.(int); n < low || n > high {
			return errNotAllowed
		}
		return nil
	}}
}

func between(low, high time.Duration) rule {
	return rule{allowed: fmt.Sprintf("between %s and %s", formatDuration(low), formatDuration(high)), check: func(v any) error {
		if d := v.(time.Duration); d < low || d > high {
			return errNotAllowed
		}
		return nil
	}}
}

var (
	clusterID = textRule("a cluster ID: lower-case letters, digits and inner hyphens, at most 63", func(s string) error {
		if _, err := peer.ParseClusterID(s); err != nil {
			return errNotAllowed
		}
		return nil
	})
	clusterName = textRule("1 to 63 bytes of printable text", func(s string) error {
		_, err := peer.ParseClusterName(s)
		return err
	})
	namespace = textRule("a Kubernetes namespace: lower-case letters, digits and inner hyphens, at most 63", func(s string) error {
		if _, err := peer.ParseNamespace(s); err != nil {
			return errNotAllowed
		}
		return nil
	})
	fingerprint = textRule("the 64 hexadecimal digits of a SHA-256", func(s string) error {
		if _, err := peer.ParseFingerprint(s); err != nil {
			return errNotAllowed
		}
		return nil
	})
	// amount is one of bytes, up to a pebibyte.
	amount = textRule("an amount such as \"20Gi\"", func(s string) error {
		q, err := api.ParseAmount(s)
		if err != nil || len(s) > 32 || q.Sign() < 0 || q.CmpInt64(1<<50) > 0 {
			return errNotAllowed
		}
		return nil
	})
	objectName = textRule("the name of a Kubernetes object", func(s string) error {
		if len(validation.IsDNS1123Subdomain(s)) > 0 {
			return errNotAllowed
		}
		return nil
	})
	anyPath = textRule("a path", func(s string) error {
		if strings.ContainsRune(s, 0) {
			return errors.New("it contains a NUL byte")
		}
		return nil
	})
	filePath = textRule("a path", func(s string) error {
		if s == "" {
			return errNotAllowed
		}
		return anyPath.check(s)
	})
	// socketPath: the kernel's sockaddr_un has room for 108 bytes with the
	// closing NUL.
	socketPath = textRule("a path of at most 107 bytes", func(s string) error {
		if len(s) > 107 {
			return fmt.Errorf("it has %d", len(s))
		}
		return filePath.check(s)
	})
	globs = rule{allowed: "a list of interface names or globs such as \"eth*\"", check: func(v any) error {
		return ifwatch.Filter{Include: v.([]string)}.Validate()
	}}
	// labelGlobs are matched by path.Match, as sharing/offer does.
	labelGlobs = rule{allowed: "a list of label names or globs such as \"topology.kubernetes.io/*\"", check: func(v any) error {
		for _, p := range v.([]string) {
			if _, err := path.Match(p, ""); p == "" || err != nil {
				return fmt.Errorf("%q is neither a label's name nor a glob (names with *, ? and [a-z])", p)
			}
		}
		return nil
	}}
	registries = rule{allowed: "a list of registries such as \"ghcr.io\", \"*.azurecr.io\" or \"own\"", check: func(v any) error {
		for _, entry := range v.([]string) {
			if err := registry.CheckEntry(entry); err != nil {
				return fmt.Errorf("%q: %w", entry, err)
			}
		}
		return nil
	}}
	glob = textRule("the name of an interface or a glob such as \"wlan*\"", func(s string) error {
		return ifwatch.Filter{Include: []string{s}}.Validate()
	})
	serviceType   = textRule("a TCP service type such as \"_liqo._tcp\" (RFC 6763 section 7)", checkServiceType)
	domainName    = written(normalDomain, textRule("a domain name such as \"example.com\"", checkDomain))
	mdnsDomain    = written(normalDomain, textRule("a domain name such as \"example.com\"", checkMDNSDomain))
	listenAddress = textRule("an address and port such as \":6447\" or \"192.0.2.1:6447\"", checkListen)
	loopbackPort  = textRule("a loopback address and port such as \"127.0.0.1:6446\" or \"[::1]:6446\"", checkLoopback)
	endpointURL   = textRule("a URL such as \"https://box.example.com:6447\"", checkURL)
	dnsServer     = textRule("a DNS server such as \"192.0.2.53\", \"[2001:db8::53]:53\" or \"tls://dns.example.com\"", checkServer)
	subnet        = textRule("a network such as \"192.168.7.0/24\" or \"2001:db8:7::/64\"", checkSubnet)
	networkRange  = textRule("a range of IPv4 addresses in 240.0.0.0/4 such as \"241.0.0.0/8\", not smaller than a /20", checkNetworkRange)
	gatewayMAC    = written(normalMAC, textRule("the hardware address of a router such as \"00:00:5e:00:53:01\"", checkMAC))
)

// checkServiceType checks RFC 6763 section 7 with the service names of RFC 6335
// section 5.1.
func checkServiceType(s string) error {
	name, ok := strings.CutSuffix(s, "._tcp")
	if !ok || !strings.HasPrefix(name, "_") {
		return errNotAllowed
	}
	name = name[1:]
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > 15:
		return fmt.Errorf("the name has %d characters, at most 15 are allowed", len(name))
	case name[0] == '-' || name[len(name)-1] == '-' || strings.Contains(name, "--"):
		return errors.New("a hyphen stands at an end of the name or beside another")
	case !strings.ContainsFunc(name, isLetter):
		return errors.New("the name has no letter")
	case strings.ContainsFunc(name, func(r rune) bool { return !isLetter(r) && (r < '0' || r > '9') && r != '-' }):
		return errors.New("only letters, digits and hyphens are allowed in the name")
	}
	return nil
}

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

// normalDomain returns the form that tells domains apart: lower case, without the
// dot of the root.
func normalDomain(s string) string {
	if trimmed := strings.TrimSuffix(s, "."); checkDomain(trimmed) == nil {
		return strings.ToLower(trimmed)
	}
	return s
}

// checkDomain checks a host or domain name: RFC 1123 labels, and underscores,
// which DNS-SD domains may have.
func checkDomain(s string) error {
	if s == "" || len(s) > 253 {
		return errNotAllowed
	}
	for label := range strings.SplitSeq(s, ".") {
		bad := label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-'
		if bad || strings.ContainsFunc(label, func(r rune) bool { return !isLetter(r) && (r < '0' || r > '9') && r != '-' && r != '_' }) {
			return errNotAllowed
		}
	}
	return nil
}

// maxMDNSDomain is how long a domain may be, in bytes, so that names in it with an instance of 63 bytes and a service
// of 15 have the 255 that DNS allows. Without them there is no mDNS, and no agent.
const maxMDNSDomain = 167

func checkMDNSDomain(s string) error {
	if len(s) > maxMDNSDomain {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(s), maxMDNSDomain)
	}
	return checkDomain(s)
}

func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errNotAllowed
	}
	if _, err := netip.ParseAddr(host); host != "" && err != nil {
		return fmt.Errorf("%q is not an IP address", host)
	}
	return checkPort(port, 0)
}

func checkPort(s string, low uint64) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n < low {
		return fmt.Errorf("%q is not a port (%d to 65535)", s, low)
	}
	return nil
}

func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if checkDomain(host) != nil {
		return fmt.Errorf("%q is neither an IP address nor a host name", host)
	}
	return nil
}

// checkLoopback checks an address that nobody but this machine can reach.
func checkLoopback(s string) error {
	addr, err := netip.ParseAddrPort(s)
	if err != nil {
		return errNotAllowed
	}
	switch a := addr.Addr(); {
	case !a.IsLoopback():
		return errors.New("others than this machine could reach it")
	case a != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && a != netip.IPv6Loopback():
		return errors.New("the certificate of the webhook is for 127.0.0.1 and [::1]") // peering/admission refuses others
	}
	return nil
}

func checkURL(s string) error {
	u, err := peer.ParseURL(s)
	switch {
	case err != nil:
		return err
	case u.Port() == "":
		return errors.New("the port is missing")
	}
	return checkHost(u.Hostname())
}

func checkServer(s string) error {
	if len(s) > maxServerLength {
		return errNotAllowed
	}
	s = strings.TrimPrefix(s, "tls://")
	if host, port, err := net.SplitHostPort(s); err == nil {
		return errors.Join(checkHost(host), checkPort(port, 1))
	}
	return checkHost(s)
}

// checkSubnet refuses bits behind the prefix: it is unclear what they are meant to
// say.
func checkSubnet(s string) error {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return errNotAllowed
	case p != p.Masked():
		return fmt.Errorf("an address in it is given; the network is %s", p.Masked())
	}
	return nil
}

// checkNetworkRange checks what blocks for the pods of peers are chosen from.
func checkNetworkRange(s string) error {
	if err := checkSubnet(s); err != nil {
		return err
	}
	p := netip.MustParsePrefix(s)
	if !p.Addr().Is4() || p.Bits() > 20 || p.Bits() < 8 || p.Addr().As4()[0] < 240 || p.Addr().As4()[0] == 255 {
		return errNotAllowed
	}
	return nil
}

// normalMAC writes a hardware address as the kernel's tools do.
func normalMAC(s string) string {
	if mac, err := net.ParseMAC(s); err == nil && len(mac) == 6 {
		return mac.String()
	}
	return s
}

func checkMAC(s string) error {
	mac, err := net.ParseMAC(s)
	switch {
	case err != nil || len(mac) != 6:
		return errNotAllowed
	case mac[0]&1 != 0:
		return errors.New("it is one of a group, which no router has")
	}
	return nil
}
