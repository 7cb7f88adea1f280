package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
)

// tolerable is by how much two clocks may differ before anything is said. Answers are
// a few seconds old, and an API server tells whole seconds.
const tolerable = time.Minute

// clocks is what is known about the time.
type clocks struct {
	now, built time.Time
	synced     bool
	syncError  error
	server     *time.Duration // the API server's clock is ahead by; nil = not known
	peers      []control.Reach
}

func checkClock(ctx context.Context, b *Box) []Finding {
	facts := clocks{now: b.now(), built: b.opts.Built}
	facts.synced, facts.syncError = b.ask.synced()
	if api, err := b.kubernetes(ctx); err == nil && api.skew != nil {
		facts.server = api.skew
	}
	if _, err := b.agentSays(ctx); err == nil {
		facts.peers, _ = b.callsBack(ctx) // else the peers say nothing about the time
	}
	return judgeClock(facts)
}

// judgeClock says what the clocks mean.
func judgeClock(c clocks) []Finding {
	const why = "certificates and tokens seem expired or not yet valid, logs of two boxes do not match, and leases end too early or too late"
	remedy := []string{"check the synchronisation: timedatectl", "enable it: sudo timedatectl set-ntp true, or install chrony"}
	var out []Finding
	if !c.built.IsZero() && c.now.Before(c.built) {
		out = append(out, Finding{Code: "clock-off", Status: Error,
			What: fmt.Sprintf("the clock shows %s, which is before this program was built (%s)", c.now.UTC().Format(time.DateOnly), c.built.UTC().Format(time.DateOnly)),
			Why:  why, Do: remedy})
		return out
	}
	var apart []string
	if c.server != nil && c.server.Abs() > tolerable {
		apart = append(apart, "that of the API server is "+ahead(*c.server))
	}
	asked := 0
	for _, p := range c.peers {
		if p.SkewSeconds == nil {
			continue
		}
		asked++
		if skew := time.Duration(*p.SkewSeconds * float64(time.Second)); skew.Abs() > tolerable {
			apart = append(apart, fmt.Sprintf("that of %s is %s", p.Name, ahead(skew)))
		}
	}
	switch {
	case len(apart) > 0:
		out = append(out, Finding{Code: "clock-off", Status: Warning, What: "the clock of this box differs from others: " + strings.Join(apart, ", "), Why: why,
			Do: append(remedy, "do the same on the others, if theirs is wrong")})
	case c.syncError == nil && !c.synced:
		out = append(out, info("clock-unsynchronised", "the clock is not synchronised (NTP); it agrees with those that could be queried"))
	case c.server == nil && asked == 0:
		out = append(out, fine("synchronised; there is no other clock to compare with"))
	default:
		out = append(out, fine("agrees with the API server and the peers, as far as they could be queried"))
	}
	return out
}

// ahead says by how much a clock differs.
func ahead(d time.Duration) string {
	word := "ahead"
	if d < 0 {
		d, word = -d, "behind"
	}
	if d > 48*time.Hour {
		return fmt.Sprintf("%d days %s", int(d.Hours()/24), word)
	}
	return fmt.Sprintf("%s %s", d.Round(time.Second), word)
}
