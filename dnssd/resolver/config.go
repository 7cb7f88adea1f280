package resolver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	defaultTimeout  = 3 * time.Second
	defaultAttempts = 2
	maxTimeout      = 30 * time.Second // what resolv.conf may ask for; also resolv.conf(5)
	maxAttempts     = 5                // the same
	portDNS         = 53
	portTLS         = 853
)

// Config says whom to ask and how. The zero Config asks the name servers of /etc/resolv.conf.
type Config struct {
	// Server is asked instead of the system's name servers: host, host:port, tls://host or
	// tls://host:port, the host being an IP address (IPv6 with brackets, or without if no port
	// follows) or a name, which the system resolves. The port is 53 if not given, and 853 with TLS.
	Server string
	// Domain is what Server is configured for. A name at or below it that Server refuses is not
	// asked for elsewhere: the world's view of a private domain must not replace the server's. Other
	// names are. Without a Domain that is so for questions for PTR records, the lists.
	Domain string
	// ResolvConf is the file with the system's name servers; "" means /etc/resolv.conf.
	ResolvConf string
	// Timeout is what one server has for one answer, and once more if that takes TCP. 0 means 3 s, or
	// for the system's name servers what resolv.conf says.
	Timeout time.Duration
	// Attempts is how often a server that does not answer is asked. 0 means twice, or for the system's
	// name servers what resolv.conf says.
	Attempts int
	// RootCAs are who may vouch for a server asked by TLS; nil means those of the system.
	RootCAs *x509.CertPool
	// LookupHost resolves the host name of Server; nil means [net.DefaultResolver], which knows
	// /etc/hosts and the search domains: it is a name that a person wrote.
	LookupHost func(ctx context.Context, host string) ([]netip.Addr, error)
	// Logger gets what is worth knowing when looking for a fault, at debug level; nil means nobody.
	Logger *slog.Logger
}

// endpoint is a Server of the configuration, taken apart.
type endpoint struct {
	tls  bool
	host string     // as given, without brackets
	addr netip.Addr // if the host is one
	port uint16
}

// parseServer takes s apart, which is a valid [Config.Server] but "".
func parseServer(s string) (endpoint, error) {
	fail := func(why string) (endpoint, error) {
		return endpoint{}, fmt.Errorf("DNS server %q: %s (write host, host:port or tls://host:port)", s, why)
	}
	e := endpoint{port: portDNS}
	rest := s
	if scheme, after, found := strings.Cut(s, "://"); found {
		if !strings.EqualFold(scheme, "tls") {
			return fail("the only scheme is tls://, for DNS over TLS")
		}
		e.tls, e.port, rest = true, portTLS, after
	}
	e.host = rest
	port := ""
	switch addr, err := netip.ParseAddr(rest); {
	case err == nil:
		e.addr = addr
	case strings.HasPrefix(rest, "[") && strings.HasSuffix(rest, "]"):
		e.host = rest[1 : len(rest)-1]
		if e.addr, err = netip.ParseAddr(e.host); err != nil || e.addr.Is4() {
			return fail("there is no IPv6 address between the brackets")
		}
	case strings.Contains(rest, ":"):
		if e.host, port, err = net.SplitHostPort(rest); err != nil {
			return fail("it has neither one port nor the brackets of an IPv6 address")
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return fail("the port is a number from 1 to 65535")
		}
		e.port = uint16(n)
		if addr, err := netip.ParseAddr(e.host); err == nil {
			e.addr = addr
		} else if strings.HasPrefix(rest, "[") {
			return fail("there is no IPv6 address between the brackets")
		}
	}
	if e.tls && e.port == portDNS {
		return fail("port 53 is for DNS without TLS, and never for DNS over TLS (RFC 7858 section 3.1)")
	}
	if !e.addr.IsValid() {
		if err := checkHost(e.host); err != nil {
			return fail(err.Error())
		}
	}
	return e, nil
}

// checkHost refuses what is neither a host name nor meant as one.
func checkHost(host string) error {
	name := strings.TrimSuffix(host, ".")
	if name == "" {
		return errors.New("the host is missing")
	}
	if i := strings.IndexFunc(name, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.')
	}); i >= 0 {
		return fmt.Errorf("a host name has no %q", []rune(name[i:])[0])
	}
	if _, ok := dns.IsDomainName(name); !ok {
		return errors.New("that is no host name")
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return errors.New("that is neither an IP address nor a host name")
	}
	return nil
}
