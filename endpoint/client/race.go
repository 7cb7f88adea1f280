package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"liqo.io/agent/peer"
)

// Bounds of one race, in the spirit of RFC 8305 section 5 and 8. Addresses
// come from the network, so their number is bounded too.
const (
	// headStart is how long an address is tried alone before the next is tried
	// as well. A failure ends it early.
	headStart = 200 * time.Millisecond
	// attemptTimeout is how long one address may take for everything, with the
	// DefaultTimeout or a shorter one.
	attemptTimeout = 3 * time.Second
	// maxParallel is how many addresses are tried at the same time.
	maxParallel = 6
	// maxCandidates is how many addresses are tried at all.
	maxCandidates = 16
)

// candidate is one address to try.
type candidate struct {
	addr netip.AddrPort
	name string // the host name it was looked up by, if it was
	url  string // the URL it came from; "" if it came as an address
	// lookup is a URL whose host is still to be looked up; the rest is empty then.
	lookup string
}

// candidatesFor returns what to try before the target's URL, and the failures of
// what cannot be used.
func candidatesFor(t peer.Target) ([]candidate, []*Error) {
	var all []candidate
	var failures []*Error
	for _, p := range t.Places {
		host, err := parseURL(p.URL)
		if err != nil {
			failures = append(failures, &Error{Reason: ReasonUnreachable, Err: err})
			continue
		}
		if len(p.Addrs) == 0 {
			all = append(all, candidate{lookup: host.url})
			continue
		}
		found, unusable := order(p.Addrs)
		failures = append(failures, unusable...)
		all = append(all, host.named(found)...)
	}
	found, unusable := order(t.Addrs)
	return append(all, found...), append(failures, unusable...)
}

// same reports whether two candidates are the same way to a host.
func (c candidate) same(o candidate) bool { return c.addr == o.addr && c.url == o.url }

// order returns the usable addresses in the order to try them in, and the
// failures of those that cannot be used: as given, but with the families taking
// turns beginning with that of the first address (RFC 8305 section 4), and
// link-local ones last: a peer's URL is shown to people and other hosts, and a
// link-local one means nothing to them.
func order(Addrs []netip.AddrPort) ([]candidate, []*Error) {
	var failures []*Error
	var families [2][]netip.AddrPort // routable, by family
	var local []netip.AddrPort
	first := -1
	seen := make(map[netip.AddrPort]bool, len(Addrs))
	for _, a := range Addrs {
		a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		if seen[a] {
			continue
		}
		if len(seen) == maxCandidates {
			failures = append(failures, &Error{Reason: ReasonUnreachable,
				Err: fmt.Errorf("only %d addresses of a peer are tried, the rest is left out", maxCandidates)})
			break
		}
		seen[a] = true
		if err := usable(a); err != nil {
			failures = append(failures, &Error{Reason: ReasonUnreachable, Addr: a, Err: err})
			continue
		}
		if a.Addr().IsLinkLocalUnicast() {
			local = append(local, a)
			continue
		}
		family := 0
		if a.Addr().Is6() {
			family = 1
		}
		if first < 0 {
			first = family
		}
		families[family] = append(families[family], a)
	}
	var sorted []netip.AddrPort
	if first >= 0 {
		for turn := first; len(families[0])+len(families[1]) > 0; turn = 1 - turn {
			if f := families[turn]; len(f) > 0 {
				sorted = append(sorted, f[0])
				families[turn] = f[1:]
			}
		}
	}
	sorted = append(sorted, local...)
	candidates := make([]candidate, len(sorted))
	for i, a := range sorted {
		candidates[i].addr = a
	}
	return candidates, failures
}

func usable(a netip.AddrPort) error {
	ip := a.Addr()
	switch {
	case !ip.IsValid() || a.Port() == 0:
		return errors.New("the address is incomplete")
	case ip.IsUnspecified() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return errors.New("no host can have this address")
	case ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "":
		return errors.New("a link-local address is of no use without its interface")
	}
	return nil
}

// outcome is how one attempt ended: with a failure, or with a result.
type outcome[T any] struct {
	result  T
	failure *Error
}

// race tries the candidates, each a head start later than the one before, until
// one of them gives a result. It returns after every attempt has ended. Results
// that came too late go to discard.
func race[T any](ctx context.Context, headStart time.Duration, candidates []candidate,
	try func(context.Context, candidate) (T, *Error), discard func(T)) (result T, ok bool, failures []*Error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome[T])
	stagger := time.NewTimer(0)
	defer stagger.Stop()

	var (
		next    int
		running int
		due     bool
	)
	for {
		if due && next < len(candidates) && running < maxParallel && !ok && ctx.Err() == nil {
			cand := candidates[next]
			next++
			running++
			due = false
			stagger.Reset(headStart)
			go func() {
				result, failure := try(ctx, cand)
				outcomes <- outcome[T]{result, failure}
			}()
		}
		done := ok || next == len(candidates) || ctx.Err() != nil
		if running == 0 && done {
			break
		}
		select {
		case o := <-outcomes:
			running--
			due = true
			switch {
			case o.failure != nil:
				failures = append(failures, o.failure)
			case ok:
				discard(o.result)
			default:
				result, ok = o.result, true
				cancel() // the others have lost
			}
		case <-stagger.C:
			due = true
		}
	}
	if ok {
		return result, true, nil
	}
	for _, cand := range candidates[next:] {
		failures = append(failures, &Error{Reason: ReasonUnreachable, Addr: cand.addr, Err: errors.New("there was no time left to try it")})
	}
	return result, false, failures
}

// endpointURL is how addr is written as the base of URLs.
func endpointURL(addr netip.AddrPort) string {
	return (&url.URL{Scheme: "https", Host: addr.String()}).String()
}
