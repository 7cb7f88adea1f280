package cli

import (
	"fmt"
	"slices"
	"time"

	"liqo.io/agent/agent/control"
)

// lookEvery is how often the agent is asked for what it found.
const lookEvery = 100 * time.Millisecond

// look waits until the agent has looked at a domain since before, and asked who
// is at what the domain lists, and prints the result.
func (c *call) look(client *control.Client, d control.Domain, before time.Time) error {
	if c.Bool(noWaitFlag) {
		if !c.out.value(d) {
			c.out.printf("Looking in %s goes on in the background. See what was found: %s domains show %s\n", clean(d.Name), Name, clean(d.Name))
		}
		return nil
	}
	var deadline <-chan time.Time
	if limit := c.Duration(timeoutFlag); limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		deadline = t.C
	}
	settle := time.NewTimer(c.app.pace.settle)
	defer settle.Stop()
	next := time.NewTicker(lookEvery)
	defer next.Stop()
	for !settled(d, before) {
		select {
		case <-c.Context.Context.Done():
			c.newLine()
			return &outcome{message: "looking in " + clean(d.Name) + " goes on in the background", try: Name + " domains show " + clean(d.Name), code: ExitInterrupted}
		case <-deadline:
			return c.lookedTooLong(d, before)
		case <-settle.C:
			if c.format == formatText {
				c.out.printf("WAIT %s\n", waitingForLook(d, before))
				if err := c.out.flush(); err != nil {
					return err
				}
			}
			continue
		case <-next.C:
		}
		known, err := client.Domains(c.Context.Context)
		if err != nil {
			return c.interrupted(err)
		}
		now, ok := control.FindDomain(known, d.Name)
		if !ok {
			return &outcome{message: clean(d.Name) + " is no search domain any more: somebody removed it meanwhile", try: Name + " domains list", code: ExitError}
		}
		d = now
	}
	if !c.out.value(d) {
		c.out.domain(d)
	}
	return nil
}

// settled reports whether a look since before is over, and everybody that it
// found was asked.
func settled(d control.Domain, before time.Time) bool {
	return d.LastQuery.After(before) && !slices.ContainsFunc(d.Entries, pendingEntry)
}

// reasonAsking is that of an entry at which nobody was asked yet.
const reasonAsking = "NotAskedYet"

func pendingEntry(e control.DomainEntry) bool {
	return e.ClusterID == "" && (e.Reason == "" || e.Reason == reasonAsking)
}

func waitingForLook(d control.Domain, before time.Time) string {
	if !d.LastQuery.After(before) {
		return "the DNS servers answer"
	}
	pending := 0
	for _, e := range d.Entries {
		if pendingEntry(e) {
			pending++
		}
	}
	return fmt.Sprintf("%s that it lists %s", count(pending, "place", "places"), map[bool]string{true: "answers", false: "answer"}[pending == 1])
}

func (c *call) lookedTooLong(d control.Domain, before time.Time) error {
	return &outcome{message: fmt.Sprintf("looking in %s takes longer than %s and goes on in the background; what is missing: %s",
		clean(d.Name), c.Duration(timeoutFlag), waitingForLook(d, before)), try: Name + " domains show " + clean(d.Name), code: ExitTimeout}
}
