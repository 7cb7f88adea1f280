package filter

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"
)

// Desired is everything that the tables are made from.
type Desired struct {
	// Device is the name of the network device to all peers. It need not exist yet.
	Device string
	// Tunnel is the name of another device to the same peers, whose kernels pass packets on without this process; "" for
	// none. It counts as a device to peers for tunnelLife after the last Set, which is to be called every minute: later, there
	// is nobody who takes back what was granted. By it, hosts reach ProbePort of each other.
	Tunnel string
	// Pods are the addresses of this node's pods: one prefix per family, at most.
	// Traffic of a family without one is dropped.
	Pods []netip.Prefix
	// Host are the host's own addresses within Pods, one for each. What the host
	// itself sends to a peer gets the corresponding address of Ours.
	Host []netip.Addr
	// Bridge is the name of the network device by which the host reaches Pods, which has the addresses in Host; "" if that is
	// not known. Who comes by it may have an address in Pods. Who comes by another one has each packet checked for
	// whether answers would go the same way, which takes longer.
	Bridge string
	// Connections bounds how many connections tracked here each peer may have opened at a time, so that nobody takes the
	// whole table of the kernel; 0 is no bound. Twice as many can be new at once, and a 32nd of it a second: those that
	// are closed stay in the table for a while, and are not counted. Half of all that is for one address, so that none takes
	// everything from the others of its peer. Kernels without connlimit have no bound.
	Connections int
	// Names is where pods of this node ask the host for names.
	Names Names
	// Peers are the clusters to be reached, in any order.
	Peers []Peer
	// Guests are the pods of this node that are a cluster's, by its name: their addresses, each once. Of what each of them
	// opens to anybody, no more is tracked here than Connections. Their cluster need not be one of Peers.
	Guests map[string][]netip.Prefix

	renewal int // of Tunnel; of Set
}

// ProbePort is the UDP port, at both ends, by which hosts try whether packets pass the tunnel.
const ProbePort = 6448

// For how long the tunnel counts, and how old that may be before a Set renews it.
const (
	tunnelLife  = 5 * time.Minute
	tunnelRenew = tunnelLife / 10
)

// Names is a DNS service of the host for some of its pods. The zero Names is none.
type Names struct {
	// Addresses are the host's own, at most one of each family, for nothing else: nobody
	// reaches them but for the ports.
	Addresses []netip.Addr
	// AskPort is the port that pods ask, by UDP and TCP, and Port the one to which it is
	// redirected.
	AskPort, Port uint16
	// From are the pods that may ask, but for those in Except.
	From, Except []netip.Prefix
}

// Peer is a cluster that is reached by the device.
type Peer struct {
	// Name identifies the peer: up to 63 letters, digits, dots, dashes and underscores.
	Name string
	// Theirs are the addresses that stand here for what the peer sends from: its pods, and
	// the pods of clusters that are reached by way of it. One prefix per family, at most.
	// Blocks of peers must not overlap.
	Theirs []netip.Prefix
	// Ours are the addresses that stand for this node's pods there: one as long as Pods
	// for each family of Theirs.
	Ours []netip.Prefix
	// Gateways are the addresses in Theirs of the peer's host. The host here may
	// ping them.
	Gateways []netip.Addr
	// Out are the connections that may be opened to the peer. The host itself, and clients
	// from elsewhere whose connection was redirected here (to a NodePort), may reach
	// the To of all of them.
	Out []Grant
	// In are the connections that the peer may open.
	In []Grant
	// API is how pods of the peer reach the API server of this cluster.
	API API
	// Thirds are the pods of other peers that have an address there. What is granted
	// between two peers passes only between pods that each have one at the other's.
	Thirds []Third
}

// Third is a pod of one peer that another one reaches by way of this cluster.
type Third struct {
	// Here is its address in Theirs of its own peer.
	Here netip.Addr
	// There is its address at the other one: in the range next to Ours with which that makes
	// a range twice as large.
	There netip.Addr
}

// Grant allows connections from each of the addresses in From to each of those in To,
// as pods here see them. Addresses of both families can be mixed.
type Grant struct {
	From, To []netip.Prefix
	// By is the name of the peer as whose the connections count; "" for nobody's, or that of
	// In. A grant by a peer that is not there is none.
	By string
}

var validName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// check returns what is wrong with it.
func (d *Desired) check() error {
	if d.Device == "" || len(d.Device) >= ifNameSize {
		return fmt.Errorf("network filter: %q is no name of a device", d.Device)
	}
	if d.Tunnel == d.Device || len(d.Tunnel) >= ifNameSize {
		return fmt.Errorf("network filter: %q is no name of another device", d.Tunnel)
	}
	if len(d.Bridge) >= ifNameSize {
		return fmt.Errorf("network filter: %q is no name of a bridge", d.Bridge)
	}
	if err := d.checkPods(); err != nil {
		return fmt.Errorf("network filter: %w", err)
	}
	if err := d.Names.check(); err != nil {
		return fmt.Errorf("network filter: names: %w", err)
	}
	names := make(map[string]bool, len(d.Peers))
	type block struct {
		netip.Prefix
		peer string
	}
	var blocks []block
	for i := range d.Peers {
		p := &d.Peers[i]
		if !validName.MatchString(p.Name) || names[p.Name] {
			return fmt.Errorf("network filter: peer %q: the name is used twice, or not one of up to 63 letters, digits, dots, dashes and underscores", p.Name)
		}
		names[p.Name] = true
		if err := p.check(d.Pods); err != nil {
			return fmt.Errorf("network filter: peer %s: %w", p.Name, err)
		}
		for _, b := range p.Theirs {
			blocks = append(blocks, block{b, p.Name})
		}
	}
	slices.SortFunc(blocks, func(a, b block) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for i := 1; i < len(blocks); i++ {
		if a, b := blocks[i-1], blocks[i]; a.Overlaps(b.Prefix) {
			return fmt.Errorf("network filter: block %s of peer %s overlaps %s of peer %s: choose another one", b.Prefix, b.peer, a.Prefix, a.peer)
		}
	}
	return d.checkGuests()
}

func (d *Desired) checkGuests() error {
	seen := make(map[netip.Prefix]bool)
	for name, guests := range d.Guests {
		if !validName.MatchString(name) {
			return fmt.Errorf("network filter: guests of %q: the name is not one of up to 63 letters, digits, dots, dashes and underscores", name)
		}
		for _, g := range guests {
			if !g.IsSingleIP() || seen[g] {
				return fmt.Errorf("network filter: guest %s of %s is no address, or is there twice", g, name)
			}
			seen[g] = true
		}
	}
	return nil
}

func (d *Desired) checkPods() error {
	if err := onePerFamily(d.Pods); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	for _, pods := range d.Pods {
		if !slices.ContainsFunc(d.Host, pods.Contains) {
			return fmt.Errorf("no address of the host in %s", pods)
		}
	}
	if len(d.Host) != len(d.Pods) {
		return fmt.Errorf("%d addresses of the host for %d ranges of pods", len(d.Host), len(d.Pods))
	}
	return nil
}

func (n *Names) check() error {
	var addresses []netip.Prefix
	for _, a := range n.Addresses {
		addresses = append(addresses, netip.PrefixFrom(a, a.BitLen()))
	}
	if len(addresses) > 0 && (n.AskPort == 0 || n.Port == 0) {
		return errors.New("addresses without a port")
	}
	return errors.Join(onePerFamily(addresses), onePerFamily(n.From))
}

func (p *Peer) check(pods []netip.Prefix) error {
	if err := errors.Join(onePerFamily(p.Theirs), onePerFamily(p.Ours)); err != nil {
		return err
	}
	if len(p.Ours) != len(p.Theirs) {
		return fmt.Errorf("%d blocks of theirs, but %d of ours", len(p.Theirs), len(p.Ours))
	}
	for _, theirs := range p.Theirs {
		own, ours := ofFamily(pods, theirs.Addr().Is6()), ofFamily(p.Ours, theirs.Addr().Is6())
		if own.Bits() != ours.Bits() || !own.IsValid() {
			return fmt.Errorf("its block for our pods %s must be as long as our range %s", ours, own)
		}
		if own.Overlaps(theirs) {
			return fmt.Errorf("block %s overlaps our pods %s: choose another one", theirs, own)
		}
	}
	if a := p.API.At; a.IsValid() && (a.Port() == 0 || a.Addr().IsLoopback() || a.Addr() != a.Addr().Unmap() || a.Addr().IsUnspecified()) {
		return fmt.Errorf("%s is no address of an API server that pods can reach", a)
	}
	return p.checkThirds()
}

func (p *Peer) checkThirds() error {
	seen := make(map[netip.Addr]bool)
	for _, t := range p.Thirds {
		six := t.There.Is6()
		if ours := ofFamily(p.Ours, six); t.Here.Is6() != six || !ours.IsValid() || !beside(ours).Contains(t.There) {
			return fmt.Errorf("%s, for %s, is not next to its block for our pods %s", t.There, t.Here, ours)
		}
		if seen[t.Here] || seen[t.There] {
			return fmt.Errorf("%s, for %s, is used twice", t.There, t.Here)
		}
		seen[t.Here], seen[t.There] = true, true
	}
	return nil
}

// beside returns the prefix that makes one twice as large with p.
func beside(p netip.Prefix) netip.Prefix {
	out := p.Masked().Addr().AsSlice()
	bit := p.Bits() - 1
	out[bit/8] ^= 0x80 >> (bit % 8)
	a, _ := netip.AddrFromSlice(out)
	return netip.PrefixFrom(a, p.Bits())
}

func onePerFamily(prefixes []netip.Prefix) error {
	for i, p := range prefixes {
		if !p.IsValid() || p.Addr().Is4In6() || p != p.Masked() {
			return fmt.Errorf("%s is no network", p)
		}
		if slices.ContainsFunc(prefixes[:i], func(q netip.Prefix) bool { return q.Addr().Is6() == p.Addr().Is6() }) {
			return fmt.Errorf("more than one network of the family of %s", p)
		}
	}
	return nil
}

// ofFamily returns the first prefix of a family, or the zero Prefix.
func ofFamily(prefixes []netip.Prefix, six bool) netip.Prefix {
	for _, p := range prefixes {
		if p.Addr().Is6() == six {
			return p
		}
	}
	return netip.Prefix{}
}

// corresponding returns the address in prefix "to" that has the place of addr in
// prefix "from", which is as long.
func corresponding(addr netip.Addr, from, to netip.Prefix) netip.Addr {
	out, base := addr.AsSlice(), to.Masked().Addr().AsSlice()
	for i := range out {
		host := byte(0xff >> min(8, max(0, from.Bits()-8*i)))
		out[i] = out[i]&host | base[i]&^host
	}
	a, _ := netip.AddrFromSlice(out)
	return a
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	out := p.Addr().AsSlice()
	for i := range out {
		out[i] |= byte(0xff >> min(8, max(0, p.Bits()-8*i)))
	}
	a, _ := netip.AddrFromSlice(out)
	return a
}

// cover returns the longest prefix that has all addresses of these, which are of one family; the zero Prefix for none.
func cover(prefixes []netip.Prefix) netip.Prefix {
	if len(prefixes) == 0 {
		return netip.Prefix{}
	}
	out := prefixes[0]
	for _, p := range prefixes[1:] {
		for !out.Contains(p.Addr()) || out.Bits() > p.Bits() {
			out = netip.PrefixFrom(out.Addr(), out.Bits()-1).Masked()
		}
	}
	return out
}

// merge returns the addresses of a family as few disjoint intervals.
func merge(prefixes []netip.Prefix, six bool) []element {
	out := make([]element, 0, len(prefixes))
	for _, p := range prefixes {
		if p.IsValid() && p.Addr().Is6() == six {
			out = append(out, element{from: p.Masked().Addr(), to: last(p)})
		}
	}
	slices.SortFunc(out, func(a, b element) int { return a.from.Compare(b.from) })
	n := 0
	for _, e := range out {
		// After the last address of the family there is none, and Next returns the zero Addr.
		if n > 0 && (out[n-1].to.Compare(e.from) >= 0 || out[n-1].to.Next() == e.from) {
			if out[n-1].to.Less(e.to) {
				out[n-1].to = e.to
			}
			continue
		}
		out[n] = e
		n++
	}
	return out[:n]
}
