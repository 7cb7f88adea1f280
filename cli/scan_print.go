package cli

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/wire"
)

// neighbour writes one event of scan --watch.
func (p *printer) neighbour(n Neighbour) {
	if p.format == formatJSON {
		raw, err := encodeJSON(n, "")
		p.fail(err)
		p.write(raw)
		return
	}
	color, reset := "", ""
	if p.color && n.Event == "lost" {
		color, reset = colorDim, colorReset
	}
	p.printf("%s%s  %-7s  %-24s  %-22s  %-8s  %s%s\n", color, n.At.Local().Format("15:04:05.000"), n.Event, clean(n.label()),
		clean(n.where()), clean(n.Link), clean(n.verdict()), reset)
}

// scanEnd is the last line of scan --watch --stats -o json: what happened to
// packets since the start.
type scanEnd struct {
	Event       string                     `json:"event"`
	At          time.Time                  `json:"at"`
	Received    uint64                     `json:"received"`
	Sent        uint64                     `json:"sent"`
	SocketDrops uint64                     `json:"socketDrops"` // lost by the kernel because the buffer was full
	Drops       map[wire.DropReason]uint64 `json:"drops"`       // received and not used, by reason
}

func (p *printer) scanEnd(st mdnssvc.Stats) {
	end := scanEnd{Event: "end", At: time.Now(), Received: st.Received, Sent: st.Sent, SocketDrops: st.SocketDrops, Drops: st.Drops}
	if end.Drops == nil {
		end.Drops = map[wire.DropReason]uint64{}
	}
	if p.format == formatJSON {
		raw, err := encodeJSON(end, "")
		p.fail(err)
		p.write(raw)
		return
	}
	p.printf("%d packets received, %d sent, %d lost by the kernel", end.Received, end.Sent, end.SocketDrops)
	for _, reason := range slices.Sorted(maps.Keys(end.Drops)) {
		p.printf(", %d not used: %s", end.Drops[reason], clean(string(reason)))
	}
	p.printf("\n")
}

// neighbours writes the outcome of one look.
func (p *printer) neighbours(list []Neighbour, wide bool, service string) {
	if p.value(list) {
		return
	}
	if len(list) == 0 {
		p.printf("Nobody answered for %s.\n", clean(service))
		p.printf("Look longer (liqo-agent scan --timeout 10s), or at other interfaces (--interface NAME).\n")
		p.printf("A firewall must let UDP port 5353 through.\n")
		return
	}
	header := []string{"NAME", "ADDRESS", "LINK", "VERIFIED"}
	if wide {
		header = []string{"NAME", "INSTANCE", "ADDRESSES", "PORT", "HOST", "LINK", "FINGERPRINT", "TXT", "VERIFIED"}
	}
	rows := make([]row, 0, len(list))
	for _, n := range list {
		cells := []string{n.label(), n.where(), n.Link, n.verdict()}
		if wide {
			cells = []string{n.label(), n.Instance, strings.Join(n.Addrs, ","), portText(n.Port), n.Host, n.Link, n.Fingerprint, n.txt(), n.verdict()}
		}
		r := row{cells: cells}
		if !n.Verified && n.ID != "" {
			r.color = colorYellow
		}
		rows = append(rows, r)
	}
	p.table(header, rows)
}

func (n Neighbour) label() string {
	if n.Name != "" {
		return n.Name
	}
	return n.Instance
}

// where is the address and the port, as a URL has them.
func (n Neighbour) where() string {
	if n.Addr == "" {
		return ""
	}
	if n.Port == 0 {
		return n.Addr
	}
	return net.JoinHostPort(n.Addr, portText(n.Port))
}

func portText(port uint16) string { return strconv.Itoa(int(port)) }

// verdict says whether it is verified, and why not.
func (n Neighbour) verdict() string {
	switch {
	case n.Self:
		return "yes (this cluster)"
	case n.Verified && n.Reason == "":
		return "yes"
	case n.Reason == "":
		return "no"
	case n.Verified:
		return "yes (" + n.Reason + ")"
	}
	return "no (" + n.Reason + ")"
}

func (n Neighbour) txt() string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(n.TXT)) {
		pairs = append(pairs, key+"="+n.TXT[key])
	}
	return strings.Join(pairs, " ")
}
