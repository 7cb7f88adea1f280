package peer

import (
	"fmt"
	"strconv"
	"strings"

	"liqo.io/agent/peer/text"
)

// spoken is what Spoken returns, as Protocol.String writes it. It is a variable so
// that the linker can make a program that speaks another range, for tests of what
// happens when two versions meet (-X liqo.io/agent/peer.spoken=2). Nothing writes it.
var spoken = "1"

// firstProtocol is what is spoken by those who do not say.
var firstProtocol = Protocol{Oldest: 1, Newest: 1}

// Protocol is a range of versions of the wire protocol: of the calls between the
// endpoints of two clusters. It is told in a header of each request and answer;
// the newest one is announced as TXT key "v", too. Two clusters that have a
// version in common speak the newest of those.
type Protocol struct{ Oldest, Newest int }

// Spoken is what this build speaks.
func Spoken() Protocol {
	p, err := ParseProtocol(spoken)
	if err != nil {
		return firstProtocol
	}
	return p
}

// maxProtocol is the greatest version that is taken for one.
const maxProtocol = 9999

// ParseProtocol reads what String writes: "1", or "1-3" for a range. Nothing at
// all is what the first version said, which is "1".
func ParseProtocol(s string) (Protocol, error) {
	if s == "" {
		return firstProtocol, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	p := Protocol{Oldest: parseProtocolNumber(from), Newest: parseProtocolNumber(to)}
	if p.Oldest == 0 || p.Newest < p.Oldest {
		return Protocol{}, fmt.Errorf("%q is no range of protocol versions, such as 1 or 1-3", text.Excerpt(s))
	}
	return p, nil
}

// parseProtocolNumber returns 0 for what is none.
func parseProtocolNumber(text string) int {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n > maxProtocol || strconv.FormatUint(n, 10) != text {
		return 0
	}
	return int(n)
}

// String returns "1" for one version and "1-3" for more.
func (p Protocol) String() string {
	if p.Oldest == p.Newest {
		return strconv.Itoa(p.Newest)
	}
	return strconv.Itoa(p.Oldest) + "-" + strconv.Itoa(p.Newest)
}

// Common returns the version that p and o speak with each other, and whether there
// is one.
func (p Protocol) Common(o Protocol) (version int, ok bool) {
	version = min(p.Newest, o.Newest)
	return version, version >= max(p.Oldest, o.Oldest)
}
