package peer

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"liqo.io/agent/peer/text"
)

// MaxURLLength is the longest URL of an endpoint in bytes, as the custom resources
// have it.
const MaxURLLength = 1024

// ParseURL reads the URL of an endpoint: https://HOST or https://HOST:PORT, and
// nothing behind it but a slash. HOST is an address or a name, which need not exist.
// The result has nothing but Scheme and Host; its String is the form in which URLs are
// kept and compared. The error says what is wrong, and quotes nothing of s.
func ParseURL(s string) (*url.URL, error) {
	if len(s) > MaxURLLength {
		return nil, fmt.Errorf("it is %d bytes long, at most %d are allowed", len(s), MaxURLLength)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || !text.Printable(s):
		return nil, errors.New("it is not a URL")
	case u.Scheme != "https":
		return nil, errors.New("it does not begin with https://")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(s, "#") || u.Path != "" && u.Path != "/":
		return nil, errors.New("it has more than a host and a port")
	case !validHost(u.Hostname()):
		return nil, errors.New("its host is neither an address nor a name")
	case strings.HasSuffix(u.Host, ":"):
		return nil, errors.New("the port is missing")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("its port is not between 1 and 65535")
		}
	}
	return &url.URL{Scheme: "https", Host: u.Host}, nil
}

// validHost reports whether a host is an address, which may have a zone, or can be
// looked up as a name.
func validHost(host string) bool {
	name := host
	if addr, err := netip.ParseAddr(host); err == nil {
		name = addr.Zone()
	} else if host == "" {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '.' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
	})
}
