package remote

import (
	"fmt"
	"strings"
	"time"

	"liqo.io/agent/peer"
)

// Explain returns the desired state at one peer, what is known about its side and when
// it is looked at again, as lines for people who look for a fault. There are no
// secrets in them.
func (s *Syncer) Explain(id peer.ClusterID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.peers[id]
	if e == nil {
		return "remote: nothing is to be done there\n"
	}
	now := time.Now()
	var out strings.Builder
	w, seen := e.want, e.seen
	fmt.Fprintf(&out, "remote: wants contact=%v ask=%v fresh=%v request=%v request-gone=%v advertisement=%v advertisement-gone=%v; places=%d addresses=%d url=%s key=%s\n",
		w.Contact, w.Ask, w.Fresh, w.Request != nil, w.RequestGone, w.Advertisement != nil, w.AdvertisementGone,
		len(w.Target.Places), len(w.Target.Addrs), w.Target.URL, w.Target.Fingerprint)
	fmt.Fprintf(&out, "remote: look %s, notice %s; waited %d times, %d failures\n", s.explain(job{id: id}, e.look, now), s.explain(job{id, true}, e.notice, now), e.memo.waits, seen.Failures)
	fmt.Fprintf(&out, "remote: tried %s, error %v, denied %q\n", ago(seen.Tried, now), seen.Err, seen.Denied)
	if a := seen.Asked; a != nil {
		fmt.Fprintf(&out, "remote: let in? %s, %s: %s\n", a.Auth, a.Reason, a.Message)
	}
	if st := seen.State; st != nil {
		fmt.Fprintf(&out, "remote: said %s kubernetes=%v consumes=%v welcome=%v ended=%q", ago(seen.At, now), st.Kubernetes, st.Consumes, st.AdvertisementWelcome, st.Ended)
		if r := st.Request; r != nil {
			fmt.Fprintf(&out, " request=%s generation=%d phase=%s", r.UID, r.Generation, r.Phase)
		}
		if a := st.Advertisement; a != nil {
			fmt.Fprintf(&out, " advertisement=%s generation=%d status=%q", a.UID, a.Generation, a.Status)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// explain says when a job was begun and when it is due.
func (s *Syncer) explain(j job, a attempt, now time.Time) string {
	text := "begun " + ago(a.started, now)
	if a.running {
		text += " and running"
	}
	if at, waits := s.queue.Due(j); waits {
		return text + ", due in " + at.Sub(now).Round(time.Millisecond).String()
	}
	return text + ", not due"
}

// ago says how long ago something was.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return now.Sub(at).Round(time.Millisecond).String() + " ago"
}
