package domains

import (
	"fmt"
	"slices"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

// lookEvery is how often the agent is asked for what it found.
const lookEvery = 100 * time.Millisecond

// look waits until the agent has looked at a domain since before, and asked who
// is at what the domain lists, and prints the result.
func look(c *command.Call, client *client.Client, d control.Domain, before time.Time) error {
	if c.Bool(command.NoWaitFlag) {
		if !c.Out.Value(d) {
			c.Out.Printf("Querying %s in the background. Result: %s domains show %s\n", render.Clean(d.Name), command.Name, render.Clean(d.Name))
		}
		return nil
	}
	deadline, release := c.Deadline()
	defer release()
	settle := time.NewTimer(c.Options.Pace.Settle)
	defer settle.Stop()
	next := time.NewTicker(lookEvery)
	defer next.Stop()
	for !settled(d, before) {
		select {
		case <-c.Ctx().Done():
			c.NewLine()
			return &command.Error{Message: "querying " + render.Clean(d.Name) + " continues in the background", Advice: command.Name + " domains show " + render.Clean(d.Name), Code: command.ExitInterrupted}
		case <-deadline:
			return lookedTooLong(c, d, before)
		case <-settle.C:
			if c.Format == render.Text {
				c.Out.Printf("WAIT %s\n", waitingForLook(d, before))
				if err := c.Out.Flush(); err != nil {
					return err
				}
			}
			continue
		case <-next.C:
		}
		known, err := client.Domains(c.Ctx())
		if c.Ctx().Err() != nil {
			continue // the interrupt is handled above, whatever it interrupted
		}
		if err != nil {
			return err
		}
		now, ok := control.FindDomain(known, d.Name)
		if !ok {
			return &command.Error{Message: render.Clean(d.Name) + " is no longer a search domain: it was removed meanwhile", Advice: command.Name + " domains list", Code: command.ExitError}
		}
		d = now
	}
	if !c.Out.Value(d) {
		printDomain(c.Out, d)
	}
	return nil
}

// settled reports whether a look since before is over, and everybody that it
// found was asked.
func settled(d control.Domain, before time.Time) bool {
	return looked(d, before) && !slices.ContainsFunc(d.Entries, pendingEntry)
}

// looked reports whether the last look is another one than that of before. By a clock that was set back in between,
// it is an earlier one.
func looked(d control.Domain, before time.Time) bool {
	return !d.LastQuery.IsZero() && !d.LastQuery.Equal(before)
}

// reasonAsking is that of an entry at which nobody was asked yet.
const reasonAsking = "NotAskedYet"

func pendingEntry(e control.DomainEntry) bool {
	return e.ClusterID == "" && (e.Reason == "" || e.Reason == reasonAsking)
}

func waitingForLook(d control.Domain, before time.Time) string {
	if !looked(d, before) {
		return "an answer from the DNS servers"
	}
	pending := 0
	for _, e := range d.Entries {
		if pendingEntry(e) {
			pending++
		}
	}
	return "an answer from " + render.Count(pending, "entry", "entries")
}

func lookedTooLong(c *command.Call, d control.Domain, before time.Time) error {
	return &command.Error{Message: fmt.Sprintf("querying %s takes longer than %s and continues in the background; waiting for: %s",
		render.Clean(d.Name), c.Duration(command.TimeoutFlag), waitingForLook(d, before)), Advice: command.Name + " domains show " + render.Clean(d.Name), Code: command.ExitTimeout}
}
