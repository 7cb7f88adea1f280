package scan

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"liqo.io/agent/cli/render"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/wire"
)

// printNeighbour writes one event of scan --watch.
func printNeighbour(p *render.Printer, n Neighbour) {
	if p.Format == render.JSON {
		p.Line(n)
		return
	}
	color := ""
	if n.Event == "lost" {
		color = render.Dim
	}
	p.Colored(color, fmt.Sprintf("%s  %-7s  %-24s  %-22s  %-8s  %s", n.At.Local().Format("15:04:05.000"), n.Event, render.Clean(n.label()),
		render.Clean(n.where()), render.Clean(n.Link), render.Clean(n.verdict())))
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

func printEnd(p *render.Printer, st mdnssvc.Stats) {
	end := scanEnd{Event: "end", At: time.Now(), Received: st.Received, Sent: st.Sent, SocketDrops: st.SocketDrops, Drops: st.Drops}
	if end.Drops == nil {
		end.Drops = map[wire.DropReason]uint64{}
	}
	if p.Format == render.JSON {
		p.Line(end)
		return
	}
	p.Printf("%d packets received, %d sent, %d lost by the kernel", end.Received, end.Sent, end.SocketDrops)
	for _, reason := range slices.Sorted(maps.Keys(end.Drops)) {
		p.Printf(", %d dropped: %s", end.Drops[reason], render.Clean(string(reason)))
	}
	p.Printf("\n")
}

// printNeighbours writes the outcome of one look.
func printNeighbours(p *render.Printer, list []Neighbour, wide bool, service string) {
	if p.Value(list) {
		return
	}
	if len(list) == 0 {
		p.Printf("No answer for %s.\n", render.Clean(service))
		p.Printf("Scan longer (liqo-agent scan --timeout 10s), or on other interfaces (--interface NAME).\n")
		p.Printf("Firewalls must allow UDP port 5353.\n")
		return
	}
	header := []string{"NAME", "ADDRESS", "LINK", "VERIFIED"}
	if wide {
		header = []string{"NAME", "INSTANCE", "ADDRESSES", "PORT", "HOST", "LINK", "FINGERPRINT", "TXT", "VERIFIED"}
	}
	rows := make([]render.Row, 0, len(list))
	for _, n := range list {
		cells := []string{n.label(), n.where(), n.Link, n.verdict()}
		if wide {
			cells = []string{n.label(), n.Instance, strings.Join(n.Addrs, ","), portText(n.Port), n.Host, n.Link, n.Fingerprint, n.txt(), n.verdict()}
		}
		r := render.Row{Cells: cells}
		if !n.Verified && n.ID != "" {
			r.Color = render.Yellow
		}
		rows = append(rows, r)
	}
	p.Table(header, rows)
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
