package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/contact"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
)

const (
	// lookEvery is how often is looked for what nobody tells: a full disk, a clock, a
	// date that has come.
	lookEvery = time.Minute
	// lookPause is the least time between two looks because of something that was told.
	lookPause = 2 * time.Second
	// settled is for how long something may be the matter that is not shown yet, and
	// still keep the ClusterConfig from saying that all is well again.
	settled = 3 * time.Minute

	// diskFull and diskLow are the room, in bytes, below which a disk is full, or nearly
	// so. The agent itself needs a few megabytes.
	diskFull = 8 << 20
	diskLow  = 64 << 20
	// clockTolerance is by how much clocks may differ.
	clockTolerance = time.Minute
	// fewDrops is how many packets the kernel may lose in a minute.
	fewDrops = 20
)

// ills is what followHealth knows from one look to the next.
type ills struct {
	again chan struct{} // something may be the matter, or no longer; capacity 1
	// drops and refused are the counters at the last look of the minute.
	drops, refused uint64
	shown          []health.Problem // what the ClusterConfig is to say is about these
	message        string           // and says this
}

// followHealth looks what is the matter, and tells of what begins and ends: in the
// log once each, to the service manager and in the ClusterConfig.
func (s *session) followHealth(ctx context.Context) error {
	minute, grace := time.NewTimer(0), time.NewTimer(0)
	defer minute.Stop()
	defer grace.Stop()
	var soon <-chan time.Time // nil while no look is due; what begins or ends is told meanwhile
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-minute.C:
			s.lookAtCounters()
			s.lookAtDisk()
			s.look()
			minute.Reset(lookEvery)
		case <-s.ills.again:
			if soon == nil {
				soon = time.After(lookPause)
			}
		case <-soon:
			soon = nil
			s.look()
		case <-grace.C:
		case <-s.health.Changed():
		}
		if next := s.tellHealth(); next.IsZero() {
			grace.Stop()
		} else {
			grace.Reset(max(0, time.Until(next)))
		}
	}
}

// tellHealth tells of what began and ended since the last time, and returns when the
// grace of something else ends.
func (s *session) tellHealth() time.Time {
	began, ended, next := s.health.Update()
	for _, p := range began {
		level := slog.LevelWarn
		if p.Kind.Severity == health.Error {
			level = slog.LevelError
		}
		s.unrecorded.Log(context.Background(), level, "problem: "+p.Text, "code", p.Kind.Code, "try", p.Remedy)
	}
	for _, p := range ended {
		s.unrecorded.Info("the problem is over: "+p.Kind.Title, "code", p.Kind.Code, "was", p.Text, "lasted", time.Since(p.Since).Round(time.Second))
	}
	if len(began)+len(ended) > 0 {
		wake(s.told)
	}
	s.peering.HealthChanged()
	return next
}

// healthShown is what the ClusterConfig is to say; false for what it says already.
func (s *session) healthShown() (peering.Health, bool) {
	now := s.health.Current()
	if len(now) == 0 {
		// While something may yet turn out to be the matter, what was shown before, and be
		// it before a restart, is not taken back.
		if !s.lookedOnce.Load() || s.health.Pending(settled) {
			return peering.Health{}, false
		}
		return peering.Health{Healthy: true, Reason: "NoProblems", Message: "Nothing is the matter."}, true
	}
	s.shownHealth.Lock()
	defer s.shownHealth.Unlock()
	// Texts contain errors, which differ from one try to the next: as long as it is the
	// same problems, the same is said about them.
	if s.ills.message == "" || !slices.EqualFunc(now, s.ills.shown, func(a, b health.Problem) bool { return a.Kind == b.Kind && a.About == b.About }) {
		s.ills.shown, s.ills.message = now, healthMessage(now)
	}
	return peering.Health{Reason: now[0].Kind.Reason(), Message: s.ills.message}, true
}

// healthMessage says what the worst problem is and what to do about it, and how many
// others there are of what kind.
func healthMessage(now []health.Problem) string {
	worst := now[0]
	message := fmt.Sprintf("%s. Try: %s.", worst.Text, worst.Remedy)
	var others []string
	for _, p := range now[1:] {
		if !slices.Contains(others, p.Kind.Title) && p.Kind != worst.Kind {
			others = append(others, p.Kind.Title)
		}
	}
	switch {
	case len(others) > 0:
		message += fmt.Sprintf(" And %d more: %s.", len(now)-1, strings.Join(others, ", "))
	case len(now) > 1:
		message += fmt.Sprintf(" And %d more like it.", len(now)-1)
	}
	return message + " See: liqo-agent status"
}

// look takes in everything that the parts know. It is quick and may be called from
// any goroutine.
func (s *session) look() {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.lookAtAPIServer(s.peering.Status())
	s.lookAtNetwork()
	s.lookAtPeers()
	s.lookAtCertificates(time.Now())
	s.health.Report(health.StateWrite, s.recorder.StoreError())
	if !s.lookedOnce.Swap(true) {
		s.peering.HealthChanged()
	}
}

// say sets a problem that there is once, or clears it.
func (a *Agent) say(k *health.Kind, is bool, args health.Args) {
	if is {
		a.health.Set(k, health.Finding{Args: args})
	} else {
		a.health.Clear(k, "")
	}
}

func (s *session) lookAtAPIServer(st peering.APIStatus) {
	trouble := st.Trouble
	if st.Connected {
		trouble = peering.TroubleNone
	}
	for kind, is := range map[*health.Kind]bool{
		health.APIUnreachable:     trouble == peering.TroubleUnreachable,
		health.APICredentials:     trouble == peering.TroubleCredentials,
		health.KubeconfigUnusable: trouble == peering.TroubleKubeconfig,
		health.KubeconfigMissing:  trouble == peering.TroubleNoKubeconfig,
	} {
		if !is {
			s.health.Clear(kind, "")
			continue
		}
		s.health.Set(kind, health.Finding{Since: st.Since, Args: health.Args{
			"server": st.Server, "kubeconfig": st.Kubeconfig, "error": st.LastError,
		}})
	}
	objects := st.ObjectsError
	if trouble == peering.TroubleSetup {
		objects = st.LastError
	}
	var forbidden []health.Finding
	for _, what := range st.Forbidden {
		forbidden = append(forbidden, health.Finding{About: what, Args: health.Args{"error": what}})
	}
	s.health.Replace(health.APIForbidden, forbidden...)
	// What is not there because it is forbidden is one problem, not two.
	s.say(health.ObjectsMissing, objects != "" && len(forbidden) == 0, health.Args{"error": objects})
	s.say(health.WebhookMissing, st.WebhookError != "" && len(forbidden) == 0, health.Args{"error": st.WebhookError})
	theirs, ours := s.peering.NewerCRDs()
	s.say(health.NewerDefinitions, theirs > ours, health.Args{"theirs": strconv.Itoa(theirs), "ours": strconv.Itoa(ours)})
	off := st.ClockOffset.Round(time.Second)
	relation := "behind"
	if off < 0 {
		off, relation = -off, "ahead of"
	}
	s.say(health.ClockOff, off >= clockTolerance, health.Args{"off": off.String() + " " + relation, "server": st.Server})
}

func (s *session) lookAtNetwork() {
	cfg := s.config()
	current, _, cancel := s.links.Subscribe()
	links := len(current().Links)
	cancel()
	s.say(health.NoLinks, links == 0 && (cfg.Discovery.EnableDiscovery || cfg.Discovery.EnableAdvertisement), nil)
	name := s.mdns.Stats().InstanceName
	s.say(health.InstanceRenamed, name != "" && name != string(s.id), health.Args{"instance": fmt.Sprintf("%q", name)})

	var domains, urls []health.Finding
	for _, one := range s.domains.all() {
		if r, found := s.poller.Last(one.Domain); found && !r.Outcome.Conclusive() {
			domains = append(domains, health.Finding{About: one.Domain, Args: health.Args{"domain": one.Domain, "error": r.Message}})
		}
	}
	s.health.Replace(health.SearchDomain, domains...)
	for _, state := range s.contacts.States(func(k peer.Key) bool { return k.Source == peer.Manual && strings.HasPrefix(k.Instance, givenFor) }) {
		switch state.Reason {
		case contact.OtherCluster, contact.OtherKey, contact.NoCluster, contact.Ourselves:
			id := strings.TrimPrefix(state.Lead.Key.Instance, givenFor)
			urls = append(urls, health.Finding{About: id, Args: health.Args{"id": id, "error": state.Message}})
		}
	}
	s.health.Replace(health.GivenURL, urls...)
}

func (s *session) lookAtPeers() {
	conflict := s.recorder.SelfConflict()
	s.say(health.IDConflict, conflict != nil, func() health.Args {
		if conflict == nil {
			return nil
		}
		return health.Args{"address": conflict.Addr}
	}())
	var conflicts, away, waiting []health.Finding
	for _, p := range s.recorder.Peers() {
		if c := p.Conflict; c != nil {
			conflicts = append(conflicts, health.Finding{About: string(p.ID), Since: c.Since, Args: health.Args{
				"address": c.Addr, "peer": (*backend)(s).label(p.ID), "fingerprint": c.Fingerprint.String(),
			}})
		}
	}
	s.health.Replace(health.PeerConflict, conflicts...)
	for _, id := range s.ledger.Wanted() {
		p, known := s.recorder.Peer(id)
		if !known || p.Phase != peer.PhaseUnreachable && p.Phase != peer.PhaseLost {
			continue
		}
		if view := s.peering.View(id); view.Outgoing.Joined || view.Incoming.Joined {
			away = append(away, health.Finding{About: string(id), Args: health.Args{
				"peer": (*backend)(s).label(id), "id": string(id), "error": p.Reason,
			}})
		}
	}
	s.health.Replace(health.PeerUnreachable, away...)
	for id, r := range (*backend)(s).requests() {
		if r.State == string(api.RequestPending) {
			waiting = append(waiting, health.Finding{About: string(id), Since: r.Since, Args: health.Args{
				"peer": (*backend)(s).label(id), "id": string(id),
			}})
		}
	}
	slices.SortFunc(waiting, func(a, b health.Finding) int { return strings.Compare(a.About, b.About) })
	s.health.Replace(health.RequestWaiting, waiting...)
}

// lookAtCounters compares counters with those of a minute ago.
func (s *session) lookAtCounters() {
	drops, refused := s.mdns.Stats().SocketDrops, s.recorder.Refused()
	since := func(now, before uint64) uint64 { return max(now, before) - before } // a part that started anew counts from zero
	lost, left := since(drops, s.ills.drops), since(refused, s.ills.refused)
	s.say(health.SocketDrops, lost >= fewDrops, health.Args{"dropped": fmt.Sprint(lost)})
	s.say(health.TooManyPeers, left > 0, health.Args{"refused": fmt.Sprint(left)})
	s.ills.drops, s.ills.refused = drops, refused
}

// lookAtDisk looks how much room there is, and whether a database that was set aside
// is still there.
func (s *session) lookAtDisk() {
	dir := s.config().State.Dir
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return // what it means is learned by whoever writes there
	}
	free := int64(fs.Bavail) * int64(fs.Bsize)
	args := health.Args{"dir": dir, "free": fmt.Sprintf("%.1f MiB", float64(free)/(1<<20))}
	readOnly := fs.Flags&unix.ST_RDONLY != 0 // what nobody can write to does not fill up
	s.say(health.DiskFull, free < diskFull && !readOnly, args)
	s.say(health.DiskLow, free >= diskFull && free < diskLow && !readOnly, args)
	if aside := s.store.Recovered(); aside != "" {
		if _, err := os.Lstat(aside); errors.Is(err, os.ErrNotExist) {
			s.health.Clear(health.StateRecovered, "")
		}
	}
}

// expiry says what is the matter with a certificate of which this is left; nil for
// nothing. Some live for days only, so each problem is shown for no more than a part of
// the life, of which 0 is unknown.
func expiry(left, life time.Duration) *health.Kind {
	const day = 24 * time.Hour
	within := func(before, part time.Duration) bool {
		return left <= before && (life <= 0 || left <= life/part)
	}
	switch {
	case left <= 0:
		return health.CertificateExpired
	case within(day, 30):
		return health.CertificateAboutToExpire
	case within(7*day, 10):
		return health.CertificateExpiringSoon
	case within(30*day, 5):
		return health.CertificateExpiring
	}
	return nil
}

// lookAtCertificates looks at dates: of our own certificates, and of those by which
// peers are trusted with which there is a peering.
func (s *session) lookAtCertificates(now time.Time) {
	found := make(map[*health.Kind][]health.Finding)
	add := func(kind *health.Kind, about, what, remedy string, ends time.Time) {
		if kind != nil {
			found[kind] = append(found[kind], health.Finding{About: about, Args: health.Args{
				"what": what, "at": ends.UTC().Format("2006-01-02 15:04 MST"), "remedy": remedy,
			}})
		}
	}
	own := func(what, remedy string, cert *x509.Certificate) {
		if cert != nil {
			add(expiry(cert.NotAfter.Sub(now), cert.NotAfter.Sub(cert.NotBefore)), what, what, remedy, cert.NotAfter)
		}
	}
	if fleet := s.fleet.Load(); fleet != nil {
		for _, ca := range *fleet {
			own("the fleet CA "+ca.Subject.CommonName, "make a new one (liqo-agent fleet init), add it to trust.fleet_ca everywhere and certify the clusters with it", ca)
		}
	}
	own("our fleet certificate", "make a new one with liqo-agent fleet sign, from the output of liqo-agent key show --pem", s.fleetCert.Load())
	own("the public certificate", "get a new one with the request that liqo-agent key csr prints, and reload the configuration", s.namedCert.Load())
	dates := false
	for _, pin := range s.ledger.Pins() {
		if pin.Method != peer.TrustFleet {
			continue
		}
		dates = true
		standing := s.ledger.Standing(pin.ID)
		if pin := standing.Pin; pin != nil && !pin.NotAfter.IsZero() && (s.ledger.Partner(pin.ID) || standing.Connect == peering.WishYes) {
			add(peerExpiry(*pin, now), string(pin.ID), "the fleet certificate of "+(*backend)(s).label(pin.ID),
				"make a new one for it with liqo-agent fleet sign, put it in place there, and run there: liqo-agent config reload", pin.NotAfter)
		}
	}
	for _, kind := range []*health.Kind{health.CertificateExpired, health.CertificateAboutToExpire, health.CertificateExpiringSoon, health.CertificateExpiring} {
		s.health.Replace(kind, found[kind]...)
	}
	var doubt error
	if dates {
		doubt = s.checkClock("")
	}
	s.health.Report(health.ClockUntrusted, doubt)
}

// peerExpiry says what is the matter with the certificate by which a peer is trusted.
// That it has expired, a clock says that can be believed.
func peerExpiry(pin peer.Pin, now time.Time) *health.Kind {
	life := time.Duration(0)
	if !pin.NotBefore.IsZero() {
		life = pin.NotAfter.Sub(pin.NotBefore)
	}
	kind := expiry(pin.NotAfter.Sub(now), life)
	switch suspended := !pin.Suspended.IsZero(); {
	case suspended:
		return health.CertificateExpired
	case kind == health.CertificateExpired:
		return health.CertificateAboutToExpire
	}
	return kind
}

// partFailed keeps how the parts are.
func (s *session) partFailed(name string, err error) {
	s.measures.failed(name, err)
	held := name == partMDNS && errors.Is(err, syscall.EADDRINUSE)
	if name == partMDNS {
		s.health.Report(health.MDNSPort, map[bool]error{true: err}[held])
	}
	if err == nil || held {
		s.health.Clear(health.PartFailing, name)
		return
	}
	text := err.Error()
	if !strings.HasPrefix(text, name) {
		text = name + ": " + text
	}
	s.health.Set(health.PartFailing, health.Finding{About: name, Args: health.Args{"part": name, "error": text}})
}

// opened says by which setting anybody is trusted, if one says so.
func (s *session) opened(cfg config.Config) {
	why := openness(cfg)
	s.say(health.Open, why != "", health.Args{"setting": why})
}

// allProblems lists what is the matter now, the worst first.
func (b *backend) allProblems() []control.Problem {
	(*session)(b).look()
	out := make([]control.Problem, 0)
	for _, p := range b.health.Current() {
		out = append(out, control.Problem{
			Code: p.Kind.Code, Severity: string(p.Kind.Severity), Text: p.Text, Remedy: p.Remedy, Since: p.Since.UTC().Truncate(time.Second),
		})
	}
	return out
}
