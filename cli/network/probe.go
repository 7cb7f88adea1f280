package network

import (
	"context"
	"fmt"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

// Probes is what was measured of the way to a peer.
type Probes struct {
	Network  *control.NetworkPeer `json:"network,omitempty"` // while resources are shared with the peer
	Sent     int                  `json:"sent"`
	Answered int                  `json:"answered"`
	// Of those that were answered; 0 without one.
	MinMicroseconds int64 `json:"minMicroseconds"`
	AvgMicroseconds int64 `json:"avgMicroseconds"`
	MaxMicroseconds int64 `json:"maxMicroseconds"`
	// Message is why the last one that was not answered was not; "" if all were.
	Message string `json:"message"`
}

// add takes the result of a probe.
func (p *Probes) add(one control.NetworkProbe) {
	p.Sent++
	if one.RTTMicroseconds == 0 {
		p.Message = one.Message
		return
	}
	if p.Answered == 0 || one.RTTMicroseconds < p.MinMicroseconds {
		p.MinMicroseconds = one.RTTMicroseconds
	}
	p.MaxMicroseconds = max(p.MaxMicroseconds, one.RTTMicroseconds)
	p.AvgMicroseconds = (p.AvgMicroseconds*int64(p.Answered) + one.RTTMicroseconds) / int64(p.Answered+1)
	p.Answered++
}

const (
	maxCount    = 1000
	minInterval = 100 * time.Millisecond
)

func probeCommand() command.Command {
	return command.Command{
		Name:  "probe",
		Usage: "measure the network to a peer",
		Args:  "PEER",
		About: "Measure the way of packets to the agent of a peer and back, one probe at a time, until all are sent\n" +
			"or Ctrl-C. The exit code is 0 if any is answered.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent network probe barn", "liqo-agent network probe barn --count 60 -o json"},
		Min:      1, Max: 1,
		Agent: true,
		Flags: []urfave.Flag{
			&urfave.IntFlag{Name: "count", Value: 5, Usage: "how many probes to send: `NUMBER`"},
			&urfave.DurationFlag{Name: "interval", Value: time.Second, Usage: "pause for `DURATION` between two"},
		},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   peerNames,
		Run:     probe,
	}
}

func probe(c *command.Call) error {
	count, interval := c.Int("count"), c.Duration("interval")
	if count < 1 || count > maxCount {
		return command.UsageError(fmt.Sprintf("--count %d: want a number from 1 to %d", count, maxCount), c.Name()+" barn --count 5")
	}
	if interval < minInterval {
		return command.UsageError(fmt.Sprintf("--interval %s: want at least %s", interval, minInterval), c.Name()+" barn --interval 1s")
	}
	client := c.Client()
	defer client.Close()
	q, err := client.Peer(c.Ctx(), c.Args[0])
	if err != nil {
		return err
	}
	var out Probes
	for out.Sent < count && c.Ctx().Err() == nil {
		if out.Sent > 0 {
			select {
			case <-c.Ctx().Done():
				continue
			case <-time.After(interval):
			}
		}
		one, err := client.ProbeNetwork(c.Ctx(), q.ID)
		if err != nil && c.Ctx().Err() == nil {
			return err
		}
		if err == nil {
			out.add(one)
		}
	}
	// What was measured is shown after Ctrl-C, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Ctx()), time.Second)
	defer cancel()
	if after, err := client.Peer(ctx, q.ID); err == nil {
		q = after
	}
	out.Network = q.Network
	if !c.Out.Value(control.Filled(out)) {
		printProbes(c.Out, q.Label(), out)
	}
	if out.Answered == 0 {
		if err := c.Out.Flush(); err != nil {
			return err
		}
		return &command.Error{Message: "no answer from " + render.Clean(q.Label()), Advice: command.Name + " network list", Code: command.ExitError}
	}
	return nil
}

func printProbes(p *render.Printer, label string, out Probes) {
	lost := 0
	if out.Sent > 0 {
		lost = 100 * (out.Sent - out.Answered) / out.Sent
	}
	p.Printf("%s to %s: %d answered, %d%% lost\n", render.Count(out.Sent, "probe", "probes"), render.Clean(label), out.Answered, lost)
	trip := ""
	if out.Answered > 0 {
		ms := func(us int64) string { return fmt.Sprintf("%.2f", float64(us)/1000) }
		trip = ms(out.MinMicroseconds) + " / " + ms(out.AvgMicroseconds) + " / " + ms(out.MaxMicroseconds) + " ms (min / avg / max)"
	}
	engine, carries := "", ""
	if n := out.Network; n != nil && n.MTU > 0 {
		engine, carries = engineText(*n), fmt.Sprintf("packets of up to %d bytes", n.MTU)
	}
	p.Fields("  ", [2]string{"Round trip", trip}, [2]string{"Engine", engine}, [2]string{"Carries", carries}, [2]string{"Last failure", out.Message})
}

// peerNames offers the peers with which resources are shared.
func peerNames(ctx context.Context, t command.Typed) []command.Candidate {
	return command.Listed(ctx, t, func(c *client.Client, ctx context.Context) ([]control.NetworkPeer, error) {
		known, err := c.Network(ctx)
		return known.Peers, err
	}, func(p control.NetworkPeer) command.Candidate { return command.Candidate{Value: p.Name, Text: p.State} })
}
