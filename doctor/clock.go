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
	synced     bool           // as the kernel says; false with syncError
	syncError  error          // why that is not known
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
	var asked, apart []string
	if c.server != nil {
		asked = append(asked, "the API server")
		if c.server.Abs() > tolerable {
			apart = append(apart, "that of the API server is "+ahead(*c.server))
		}
	}
	for _, p := range c.peers {
		if p.SkewSeconds == nil {
			continue
		}
		asked = append(asked, p.Name)
		if skew := time.Duration(*p.SkewSeconds * float64(time.Second)); skew.Abs() > tolerable {
			apart = append(apart, fmt.Sprintf("that of %s is %s", p.Name, ahead(skew)))
		}
	}
	switch {
	case len(apart) > 0:
		out = append(out, Finding{Code: "clock-off", Status: Warning, What: "the clock of this box differs from others: " + strings.Join(apart, ", "), Why: why,
			Do: append(remedy, "do the same on the others, if theirs is wrong")})
	case c.syncError != nil && len(asked) == 0:
		out = append(out, skipped("it is unknown whether the clock is right: the kernel does not say whether it is synchronised (%v), and no other clock could be queried", c.syncError))
	case c.syncError != nil:
		out = append(out, fine("agrees with %s; it is unknown whether it is synchronised (%v)", strings.Join(asked, ", "), c.syncError))
	case !c.synced && len(asked) == 0:
		out = append(out, info("clock-unsynchronised", "the clock is not synchronised (NTP), and no other clock could be queried"))
	case !c.synced:
		out = append(out, info("clock-unsynchronised", "the clock is not synchronised (NTP), but agrees with %s", strings.Join(asked, ", ")))
	case len(asked) == 0:
		out = append(out, fine("synchronised; no other clock could be queried"))
	default:
		out = append(out, fine("synchronised, and agrees with %s", strings.Join(asked, ", ")))
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
