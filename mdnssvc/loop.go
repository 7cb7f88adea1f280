package mdnssvc

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc/wire"
)

const (
	// goodbyeTime bounds how long goodbyes may wait for a full socket when Run
	// ends.
	goodbyeTime = 250 * time.Millisecond
	// rejoinAfter is when a group that could not be joined is tried again.
	rejoinAfter = 5 * time.Second
	// chunk is how many packets are worked on before timers get their turn.
	chunk = 64
	// minWait keeps a machine that wants to work at once from taking the CPU.
	minWait = time.Millisecond
	// maxWait is when the loop looks at the latest whether the machine slept. Timers
	// do not notice.
	maxWait = time.Minute
)

// membership is one group joined.
type membership struct {
	link   int
	family wire.Family
}

// loop is one life of the sockets.
type loop struct {
	*core
	sockets [2]*socket
	queue   *queue
	inbox   *inbox

	wanted   []wantedLink // as last asked for
	joined   map[membership]struct{}
	refused  map[membership]bool // could not be joined, and that was logged
	rejoinAt time.Time           // zero: all groups are joined
	denied   bool                // a firewall's refusal was logged
}

// run works until ctx ends, and then returns nil, or until a reader fails, and
// then returns its error.
func (l *loop) run(ctx context.Context, failed <-chan error) error {
	l.joined, l.refused = make(map[membership]struct{}), make(map[membership]bool)
	l.resume()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			l.goodbye()
			return nil
		case err := <-failed:
			return err
		case <-l.inbox.ready:
			l.obey(l.inbox.take())
		case <-l.queue.ready:
		case <-timer.C:
		}
		l.turn()
		l.schedule(timer)
	}
}

// turn does what is to be done at this moment. An answer that is here counts before the end of the
// time for it.
func (l *loop) turn() {
	l.receiveAll(l.queue.take())
	now := time.Now()
	l.woke(now)
	if !l.rejoinAt.IsZero() && !now.Before(l.rejoinAt) {
		l.setWanted(l.wanted)
	}
	l.sendAll(l.due(now), false)
	l.publish()
}

// schedule sets the timer to when something is to be done next.
func (l *loop) schedule(timer *time.Timer) {
	at := l.next()
	if !l.rejoinAt.IsZero() && (at.IsZero() || l.rejoinAt.Before(at)) {
		at = l.rejoinAt
	}
	wait := maxWait
	if !at.IsZero() {
		wait = min(maxWait, max(minWait, time.Until(at)))
	}
	timer.Reset(wait)
}

// resume takes over the links of the Run before, whose sockets are gone.
func (l *loop) resume() {
	var wanted []wantedLink
	for _, old := range l.links {
		wanted = append(wanted, old.wantedLink)
	}
	if len(wanted) > 0 {
		l.setWanted(wanted)
	}
}

// obey does what was asked for.
func (l *loop) obey(r requests) {
	now := time.Now()
	if r.browse != nil {
		l.browsing = *r.browse
		l.browser.SetEnabled(now, *r.browse)
	}
	if r.setLinks {
		l.setWanted(r.links)
	}
	if r.announce {
		l.advertise(now, r)
	}
	for key := range r.reconfirm {
		for _, k := range l.links {
			if k.Name == key.link {
				l.browser.Reconfirm(now, k.Index, key.instance)
			}
		}
	}
	if r.asking != nil {
		close(r.asking)
	}
}

func (l *loop) advertise(now time.Time, r requests) {
	if l.responder == nil {
		if r.announcement != nil {
			l.log.Error("mDNS was asked to announce something, but it was set up to browse only", "instance", r.announcement.Instance)
		}
		return
	}
	if err := l.responder.SetAnnouncement(now, r.announcement); err != nil {
		l.log.Error("mDNS cannot announce this cluster", "error", err)
	}
}

// receiveAll works on packets, with a look at the timers now and then.
func (l *loop) receiveAll(packets []datagram) {
	for i, d := range packets {
		now := time.Now()
		l.receive(now, d)
		if i%chunk == chunk-1 {
			l.sendAll(l.due(now), false)
		}
	}
}

// setWanted makes the links in use those that are wanted for something, as far
// as their groups can be joined, and tells the machines.
func (l *loop) setWanted(wanted []wantedLink) {
	l.wanted, l.rejoinAt = wanted, time.Time{}
	next := make(map[int]*link, len(wanted))
	for _, w := range wanted {
		if w.use == (Use{}) {
			continue
		}
		families := has(w.Link)
		for f := range families {
			families[f] = families[f] && l.join(w.Link, wire.Family(f))
		}
		if families != [2]bool{} {
			next[w.Index] = &link{wantedLink: w, families: families}
		}
	}
	l.abandon(next)
	for index, n := range next {
		if l.links[index] == nil {
			l.log.Debug("mDNS joined a link", "link", n.Name, "ipv4", n.families[wire.IPv4], "ipv6", n.families[wire.IPv6])
		}
	}
	for m := range l.joined {
		if n := next[m.link]; n == nil || !n.families[m.family] {
			l.sockets[m.family].leave(m.link)
			delete(l.joined, m)
		}
	}
	l.setLinks(time.Now(), next)
}

// abandon takes the links that do not continue, or not for everything, out of
// the machines' hands while their names are still known. Where they still work,
// neighbours get a goodbye.
func (l *loop) abandon(next map[int]*link) {
	all := l.links
	less, stay := make(map[int]*link, len(all)), make(map[int]*link, len(all))
	reduced := false
	for index, old := range all {
		rest := *old
		less[index] = &rest
		if n := next[index]; n != nil && n.Name == old.Name {
			rest.use = Use{Advertise: old.use.Advertise && n.use.Advertise, Browse: old.use.Browse && n.use.Browse}
			stay[index] = &rest
		} else {
			l.log.Debug("mDNS left a link", "link", old.Name)
			// On a link that is gone browsing goes on until the link is taken away,
			// because that is why its instances are lost.
			rest.use = Use{Browse: old.use.Browse && !l.silenced(old)}
		}
		reduced = reduced || stay[index] == nil || rest.use != old.use
	}
	if !reduced {
		return
	}
	now := time.Now()
	l.setLinks(now, less)
	l.sendAll(l.due(now), false)
	if len(stay) == len(all) {
		return
	}
	l.setLinks(now, stay)
	l.links = all // until the browser has told what was lost with them
	l.sendAll(l.due(now), false)
	l.links = stay
}

// silenced reports whether a link is still there but wanted for nothing.
func (l *loop) silenced(old *link) bool {
	return slices.ContainsFunc(l.wanted, func(w wantedLink) bool {
		return w.Index == old.Index && w.Name == old.Name && w.use == (Use{})
	})
}

// join makes sure that a group is joined, and reports whether it is.
func (l *loop) join(w ifwatch.Link, family wire.Family) bool {
	m := membership{w.Index, family}
	if _, ok := l.joined[m]; ok {
		return true
	}
	k := l.sockets[family]
	if k == nil {
		return false
	}
	err := k.join(w.Index)
	if err != nil && !errors.Is(err, unix.EADDRINUSE) { // EADDRINUSE: a member already
		if !l.refused[m] && !errors.Is(err, unix.ENODEV) { // ENODEV: it vanished; the next snapshot says so
			l.refused[m] = true
			l.log.Warn("mDNS cannot join its group on a link and tries again every few seconds",
				"link", w.Name, "family", family, "error", err, "advice", joinAdvice(err))
		}
		l.rejoinAt = time.Now().Add(rejoinAfter)
		return false
	}
	l.joined[m] = struct{}{}
	delete(l.refused, m)
	return true
}

func joinAdvice(err error) string {
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) {
		return "there are more links than the sysctl net.ipv4.igmp_max_memberships allows; raise it or choose fewer interfaces"
	}
	return "leave the link out with exclude_interfaces if it is not meant to be used"
}

// goodbye tells the neighbours that we go. The goodbyes wait for a full
// socket, but not for long.
func (l *loop) goodbye() {
	if l.responder == nil {
		return
	}
	for _, k := range l.sockets {
		if k != nil {
			// Should it fail, sending waits until the caller's patience ends; it does
			// not fail on an open socket.
			_ = k.conn.SetWriteDeadline(time.Now().Add(goodbyeTime))
		}
	}
	l.sendAll(l.responder.Goodbye(time.Now()), true)
}

// sendAll sends packets, each split as its link demands. What cannot be sent is
// counted: the protocol repeats whatever matters.
func (l *loop) sendAll(packets []wire.Packet, wait bool) {
	for _, p := range packets {
		k, out := l.links[p.Link], l.sockets[p.Family]
		if k == nil || out == nil || !k.families[p.Family] {
			l.count.drop(DropSendFailed)
			continue
		}
		parts, err := wire.EncodeAll(p.Msg, k.payload())
		if err != nil {
			l.count.drop(DropSendEncode)
			l.log.Debug("mDNS message cannot be encoded", "link", k.Name, "error", err)
			continue
		}
		to := p.Unicast
		if !to.IsValid() {
			to = netip.AddrPortFrom(groups[p.Family], wire.Port)
		}
		for _, part := range parts {
			l.send(out, k, part, to, wait)
		}
	}
}

func (l *loop) send(out *socket, k *link, part []byte, to netip.AddrPort, wait bool) {
	now := time.Now()
	err := out.send(part, k.Index, k.source(), to, wait)
	switch {
	case err == nil:
		l.count.sent.Add(1)
		if to.Addr().IsMulticast() {
			l.echoes.sent(now, part, k.Index)
		}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		l.count.drop(DropSendFull)
	default:
		l.count.drop(DropSendFailed)
		if (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) && !l.denied {
			l.denied = true
			l.log.Warn("mDNS packets are refused by this machine's firewall; allow UDP port 5353 to 224.0.0.251 and ff02::fb",
				"link", k.Name, "to", to, "error", err)
		}
	}
}
