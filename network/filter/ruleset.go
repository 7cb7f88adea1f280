package filter

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// ruleset is the wanted content of one family's table.
type ruleset struct {
	six      bool
	sets     map[string]*set
	chains   map[string]*chain
	counters map[string]bool
}

// set is a named set, or a verdict map.
type set struct {
	kind     kind
	elements []element // in order, each once
}

// around returns the index of the element of a set of addresses that has an address, -1 for none. A nil set is empty.
func (s *set) around(a netip.Addr) int {
	if s == nil {
		return -1
	}
	return slices.IndexFunc(s.elements, func(e element) bool { return e.from.Compare(a) <= 0 && a.Compare(e.to) <= 0 })
}

type kind int

const (
	addresses    kind = iota // intervals of addresses
	pairs                    // intervals of source addresses, each with one of destinations
	verdicts                 // intervals of addresses, each with a chain
	translations             // addresses, each with another one
	links                    // names of network devices
	limited                  // addresses that packets had lately, each with how fast they came
	counted                  // addresses that packets had, each with the connections that it has
)

// filledByKernel reports whether the elements of a set are none of ours.
func (k kind) filledByKernel() bool { return k == limited || k == counted }

// element is an interval of addresses in a set, with its first and its last one.
type element struct {
	from, to       netip.Addr
	toFrom, toLast netip.Addr // of destinations, in pairs; toFrom is the other address in translations
	chain          string     // in verdicts
	link           string     // in links
	renewal        int        // of a link that is forgotten some time after; 0 for one that stays
}

func (e element) compare(o element) int {
	return cmp.Or(
		e.from.Compare(o.from), e.to.Compare(o.to), e.toFrom.Compare(o.toFrom), e.toLast.Compare(o.toLast), cmp.Compare(e.chain, o.chain),
		cmp.Compare(e.link, o.link), cmp.Compare(e.renewal, o.renewal),
	)
}

// chain is a list of rules. It is called by others unless it has a hook.
type chain struct {
	hook     *nftables.ChainHook
	kind     nftables.ChainType
	priority nftables.ChainPriority
	rules    [][]expr.Any
}

const (
	tableName  = "liqo"
	ifNameSize = 16 // with the final zero byte
	dnsTCP     = 6
	dnsUDP     = 17
)

// rulesets returns the tables for what is desired, IPv4 first. Each family has one,
// so that nothing of a family without pods passes the device.
func rulesets(d *Desired) [2]*ruleset {
	return [2]*ruleset{build(d, false), build(d, true)}
}

func build(d *Desired, six bool) *ruleset {
	r := &ruleset{six: six, sets: make(map[string]*set), chains: make(map[string]*chain), counters: make(map[string]bool)}
	b := builder{ruleset: r, device: d.Device, tunnel: d.Tunnel, bridge: d.Bridge, pods: ofFamily(d.Pods, six), blocks: cover(blocks(d, six))}
	for _, h := range d.Host {
		if h.Is6() == six {
			b.host = h
		}
	}
	b.names = d.Names
	for _, a := range d.Names.Addresses {
		if a.Is6() == six {
			b.asked = netip.PrefixFrom(a, a.BitLen())
		}
	}
	b.askers = ofFamily(d.Names.From, six)
	b.hosts = d.Connections > 0 && len(d.Guests) > 0
	b.addSets(d)
	b.addHooks()
	b.peers = make(map[string]bool)
	for i := range d.Peers {
		b.peers[d.Peers[i].Name] = ofFamily(d.Peers[i].Theirs, six).IsValid()
	}
	for i := range d.Peers {
		b.addPeer(&d.Peers[i], d.Connections)
	}
	b.addGuests(d)
	for _, s := range r.sets {
		slices.SortFunc(s.elements, element.compare)
	}
	return r
}

// blocks returns the blocks of all peers.
func blocks(d *Desired, six bool) (out []netip.Prefix) {
	for i := range d.Peers {
		if theirs := ofFamily(d.Peers[i].Theirs, six); theirs.IsValid() {
			out = append(out, theirs)
		}
	}
	return out
}

type builder struct {
	*ruleset
	device, tunnel, bridge string

	pods   netip.Prefix // not valid: none of this family
	blocks netip.Prefix // which has those of all peers; not valid: there are none
	host   netip.Addr
	names  Names
	asked  netip.Prefix // the address of Names; not valid: none of this family
	askers netip.Prefix // who may ask
	peers  map[string]bool
	hosts  bool // there are guests, of which each is bounded
}

func (b *builder) addSets(d *Desired) {
	for name, kind := range map[string]kind{
		"theirs": addresses, "gateways": addresses, "services": addresses, "silent": addresses,
		"pairs": pairs,
		"dnat":  verdicts, "snat": verdicts, "in": verdicts, "out": verdicts, "admit": verdicts, "api": verdicts, guests: verdicts,
	} {
		b.sets[name] = &set{kind: kind}
	}
	b.sets["to_peers"] = &set{kind: links, elements: []element{{link: d.Device}}}
	if d.Tunnel != "" {
		b.add("to_peers", element{link: d.Tunnel, renewal: d.renewal})
	}
	var gateways, services []netip.Prefix
	for _, p := range d.Peers {
		for _, g := range p.Gateways {
			gateways = append(gateways, netip.PrefixFrom(g, g.BitLen()))
		}
		theirs := ofFamily(p.Theirs, b.six)
		for _, g := range p.Out {
			for _, to := range g.To {
				// A grant of one peer's must not open another one's block.
				switch {
				case !theirs.IsValid() || !theirs.Overlaps(to):
				case to.Bits() < theirs.Bits():
					services = append(services, theirs)
				default:
					services = append(services, to)
				}
			}
		}
	}
	b.fill("gateways", gateways)
	b.fill("services", services)
	b.fill("silent", d.Names.Except)
}

// fill makes a set of addresses of those of this family.
func (b *builder) fill(name string, prefixes []netip.Prefix) {
	b.sets[name] = &set{kind: addresses, elements: merge(prefixes, b.six)}
}

func (b *builder) add(name string, e element) {
	b.sets[name].elements = append(b.sets[name].elements, e)
}

// addPeer adds what belongs to one peer.
func (b *builder) addPeer(p *Peer, connections int) {
	theirs, ours := ofFamily(p.Theirs, b.six), ofFamily(p.Ours, b.six)
	if !theirs.IsValid() {
		return
	}
	block := element{from: theirs.Addr(), to: last(theirs)}
	b.add("theirs", block)
	pair := block
	pair.toFrom, pair.toLast = ours.Addr(), last(ours)
	b.add("pairs", pair)
	here, there := &set{kind: translations}, &set{kind: translations}
	for _, t := range p.Thirds {
		if t.Here.Is6() == b.six {
			here.elements = append(here.elements, element{from: t.There, to: t.There, toFrom: t.Here})
			there.elements = append(there.elements, element{from: t.Here, to: t.Here, toFrom: t.There})
		}
	}
	if len(here.elements) > 0 {
		pair.toFrom, pair.toLast = beside(ours).Addr(), last(beside(ours))
		b.add("pairs", pair)
	}
	dnatPeer, snatPeer := "dnat_"+p.Name, snat+p.Name
	thirdsHere, thirdsThere := dnatPeer+thirds, snatPeer+thirds
	b.sets[thirdsHere], b.sets[thirdsThere] = here, there
	for _, name := range []string{"dnat", "snat", "in", "out", "admit", "api"} {
		e := block
		e.chain = name + "_" + p.Name
		b.add(name, e)
	}
	// What is for nobody must not go on to who has that address here.
	b.chains[dnatPeer] = &chain{rules: append(b.addAPI(p, ours),
		rule(b.within(destination, ours), b.translate(expr.NATTypeDestNAT, b.pods)),
		rule(b.translateBy(expr.NATTypeDestNAT, destination, thirdsHere)),
		rule(drop()),
	)}
	gateway := corresponding(b.host, b.pods, ours)
	b.chains[snatPeer] = &chain{rules: [][]expr.Any{
		rule(b.within(source, b.pods), b.translate(expr.NATTypeSourceNAT, ours)),
		rule(b.translateBy(expr.NATTypeSourceNAT, source, thirdsThere)),
		rule(b.in(source, "theirs"), drop()),
		rule(b.translate(expr.NATTypeSourceNAT, netip.PrefixFrom(gateway, gateway.BitLen()))),
	}}
	b.addAdmission(p.Name, connections/len(p.Theirs)) // each family counts for itself
	b.addGrants("in_"+p.Name, p.In, p.Name)
	b.addGrants("out_"+p.Name, p.Out, "")
}

// The maps of addresses of third clusters are called snat_PEER_thirds, and dnat_PEER_thirds for the way back.
const snat, thirds = "snat_", "_thirds"

// refused is the beginning of the name of a peer's counter of packets that would have begun one connection too many.
const refused = "refused_"

// addAdmission adds a chain that accepts a new connection of a peer, if it has not too many. Its rules must not change
// while the peer stays: with them, the kernel forgets what it has counted.
func (b *builder) addAdmission(name string, connections int) {
	c := &chain{}
	b.chains["admit_"+name] = c
	if connections > 0 {
		counter := refused + name
		b.counters[counter] = true
		c.rules = append(b.each("admit_"+name, connections/2, counter),
			rule(first(), faster(max(connections/32, 1), 2*connections), count(counter), drop()),
			rule(first(), moreThan(connections), count(counter), drop()),
		)
	}
	c.rules = append(c.rules, rule(accept()))
}

// guests is the verdict map that leads to what bounds the pods here of a peer, in the chain guest_PEER.
const guests, guest = "guests", "guest_"

// addGuests adds a chain for each cluster that drops what a pod here of it begins beyond its bound. Whether there is a network
// with the cluster changes none of its rules: with them, the kernel would forget what it has counted.
func (b *builder) addGuests(d *Desired) {
	if !b.hosts {
		return
	}
	families := make(map[bool]bool) // each counts for itself
	for _, all := range d.Guests {
		for _, g := range all {
			families[g.Addr().Is6()] = true
		}
	}
	for of, all := range d.Guests {
		name, counter := guest+of, refused+of
		for _, g := range all {
			if g.Addr().Is6() == b.six {
				b.add(guests, element{from: g.Addr(), to: g.Addr(), chain: name})
			}
		}
		b.counters[counter] = true
		b.chains[name] = &chain{rules: b.each(name, d.Connections/max(len(families), 1), counter)}
	}
}

// each returns rules that drop what an address begins beyond this bound of its own, and count it. Sets that the kernel
// fills keep what it has counted.
func (b *builder) each(name string, connections int, counter string) [][]expr.Any {
	connections = max(connections, 1)
	b.sets[name+"_rates"], b.sets[name+"_flows"] = &set{kind: limited}, &set{kind: counted}
	return [][]expr.Any{
		rule(first(), b.perSource(name+"_rates", limited, faster(max(connections/32, 1), 2*connections)), count(counter), drop()),
		rule(first(), b.perSource(name+"_flows", counted, moreThan(connections)), count(counter), drop()),
	}
}

// addGrants adds a chain that accepts what the grants allow, as connections of the peer by if the grant names none. Each
// has two sets, so that a change of addresses changes no rule.
func (b *builder) addGrants(name string, grants []Grant, by string) {
	c := &chain{}
	b.chains[name] = c
	for i, g := range grants {
		who, do := cmp.Or(g.By, by), accept()
		if who != "" {
			do = jump("admit_" + who)
		}
		if who != "" && !b.peers[who] {
			continue
		}
		from, to := setName(name, i, "from"), setName(name, i, "to")
		b.fill(from, g.From)
		b.fill(to, g.To)
		c.rules = append(c.rules, rule(b.in(source, from), b.in(destination, to), do))
	}
}
