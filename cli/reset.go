package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent"
	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
)

const (
	// resetPause is between two questions how far a reset is.
	resetPause = 200 * time.Millisecond
	// resetSilence is how long an agent that is being reset may not answer: it ends,
	// empties its state and starts anew meanwhile.
	resetSilence = 90 * time.Second
	// shownObjects is how many objects are named before a person is asked.
	shownObjects = 20
)

func (a *App) resetCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "reset",
		usage: "forget everything: back to the state after the installation",
		about: "Take the agent back to what it was after the installation. A running agent ends all peerings and\n" +
			"tells the peers, deletes what it made in the API server and everything it knows, and goes on as a\n" +
			"fresh one. What people wrote (ForeignClusters, SearchDomains, settings) stays without --all.\n" +
			"This cluster keeps its ID and its key, so that peers know it again, but they are strangers to it;\n" +
			"--identity gives it new ones: for a box that is given away, or that is a copy of another one.\n" +
			"When no agent runs, nobody can be told.",
		examples: []string{"sudo liqo-agent reset", "sudo liqo-agent reset --yes --identity --all --stop"},
		flags: append(placeFlags(),
			&urfave.BoolFlag{Name: yesFlag, Aliases: []string{"y"}, Usage: "do not ask"},
			&urfave.BoolFlag{Name: "identity", Usage: "replace the ID and the key of this cluster, too"},
			&urfave.BoolFlag{Name: "all", Usage: "delete what people wrote, too: ForeignClusters, SearchDomains and settings"},
			&urfave.BoolFlag{Name: "crds", Usage: "delete the custom resource definitions, too; needs --all and --stop"},
			&urfave.StringFlag{Name: kubeconfigFlag, Usage: "`FILE` of an administrator, for --all and --crds, which the agent may not do"},
			&urfave.BoolFlag{Name: "stop", Usage: "end the agent afterwards, instead of going on as a fresh one"}),
		formats: []string{formatText, formatJSON, formatYAML},
		values:  fileValues(configFlag, socketFlag, stateDirFlag, kubeconfigFlag),
		run:     reset,
	})
}

func reset(c *call) error {
	opts := control.ResetOptions{Identity: c.Bool("identity"), All: c.Bool("all"), CRDs: c.Bool("crds"), Stop: c.Bool("stop")}
	if err := opts.Check(); err != nil {
		return err
	}
	client := c.client()
	defer client.Close()
	ctx := c.Context.Context
	plan, err := client.PlanReset(ctx, opts)
	stopped := errors.Is(err, control.ErrNotRunning)
	if opts.CRDs && !opts.Stop && !stopped {
		return &usageError{message: "reset: an agent that goes on would install the custom resource definitions again", try: Name + " reset --all --crds --stop"}
	}
	if stopped {
		plan = agent.PlanResetStopped(ctx, c.settings(), opts)
	} else if err != nil {
		return err
	}
	if !c.Bool(yesFlag) {
		c.showPlan(plan, opts, stopped)
	}
	if err := c.sure("Reset the agent?"); err != nil {
		return err
	}
	var done control.Reset
	if stopped {
		c.note("the agent is not running: no peer is told, they find out by themselves")
		done, err = agent.ResetStopped(ctx, c.settings(), opts, "somebody (command line)")
	} else if _, err = client.BeginReset(ctx, opts); err == nil {
		done, err = c.followReset(client, opts)
	}
	if err != nil {
		return c.stateError(c.interrupted(err))
	}
	done.Options = opts
	if opts.All {
		agent.ClearPeoples(ctx, c.settings(), c.String(kubeconfigFlag), opts, &done)
	}
	done = done.WithoutNulls()
	if !c.out.value(done) {
		c.out.reset(done)
	}
	for _, text := range done.Failed {
		c.note("%s", text)
	}
	return nil
}

// settings is the configuration of an agent that does not run, as far as it can be
// read, with the options of this call on top.
func (c *call) settings() config.Config {
	path := c.String(configFlag)
	cfg := config.Default()
	if loaded, err := config.Load(config.Options{Path: path, PathExplicit: path != "", Env: c.app.opts.Environ}); err == nil {
		cfg = loaded.Config
	}
	cfg.State.Dir = c.places().stateDir
	return cfg
}

// followReset waits for the end of a reset, and tells on the way how far it is.
func (c *call) followReset(client *control.Client, opts control.ResetOptions) (control.Reset, error) {
	ctx := c.Context.Context
	var last control.Reset
	heard, waited := c.app.opts.Now(), time.Duration(0)
	told := make(map[string]string)
	for {
		now, err := client.ResetState(ctx)
		switch {
		case err == nil:
			last, waited = now, 0
			for _, p := range now.Peers {
				if told[p.ID] != p.State && p.State != control.ResetPeerWaits {
					c.note("peer %s: %s", p.Name+" ("+p.ID+")", p.State)
				}
				told[p.ID] = p.State
			}
			if now.Phase == control.ResetDone {
				return now, nil
			}
		case ctx.Err() != nil:
			return last, ctx.Err()
		case !errors.Is(err, control.ErrNotRunning):
			return last, err
		case opts.Stop && last.Phase == control.ResetClearing:
			// It tells nobody any more; that it is done shows by its lock.
			return c.awaitStopped(ctx, last)
		case waited > resetSilence:
			return last, &control.Error{Kind: control.ErrNotRunning, Cause: err,
				Message: fmt.Sprintf("the agent does not answer any more since %s; the reset goes on when it starts", heard.Format(time.TimeOnly)),
				Advice:  "systemctl status liqo-agent"}
		}
		select {
		case <-ctx.Done():
		case <-time.After(resetPause):
			waited += resetPause
		}
	}
}

// awaitStopped waits until an agent that is being reset and told to stop is gone.
func (c *call) awaitStopped(ctx context.Context, last control.Reset) (control.Reset, error) {
	dir := c.places().stateDir
	for waited := time.Duration(0); waited < resetSilence; waited += resetPause {
		pending, err := agent.ResetPending(dir)
		if err != nil {
			return last, err
		}
		if !pending {
			last.Phase = control.ResetDone
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(resetPause):
		}
	}
	return last, &control.Error{Kind: control.ErrUnavailable, Message: "the agent has ended, and its state is not empty yet",
		Advice: "see its log, then: " + Name + " reset"}
}

// showPlan tells a person what is about to happen.
func (c *call) showPlan(plan control.ResetPlan, opts control.ResetOptions, stopped bool) {
	w := c.app.opts.Stderr
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // what cannot be shown will not be confirmed
	say("This resets %s.", named(clean(plan.ClusterName), clean(plan.ClusterID)))
	switch {
	case stopped:
		say("The agent is not running: no peer is told.")
	case len(plan.Peers) == 0:
		say("There is no peering to be ended.")
	default:
		say("Peerings with %s are ended:", count(len(plan.Peers), "peer", "peers"))
		for _, p := range plan.Peers {
			say("  %s", named(clean(p.Name), clean(p.ID)))
		}
	}
	list := func(title string, objects []string) {
		if len(objects) == 0 {
			return
		}
		say("%s", title)
		for i, o := range objects {
			if i == shownObjects {
				say("  and %d more", len(objects)-i)
				break
			}
			say("  %s", clean(o))
		}
	}
	list("Deleted in the API server:", plan.Deletes)
	list("Kept, because people wrote it:", plan.Keeps)
	list("Not known:", plan.Unknown)
	say("Everything that the agent remembers is deleted: peers, trust, decisions, invites, history.")
	if opts.Identity {
		say("This cluster gets a new ID and a new key.")
	} else {
		say("This cluster keeps its ID and its key (%s).", clean(plan.Fingerprint))
	}
	say("A backup can be made before: %s state backup FILE", Name)
}

func (p *printer) reset(r control.Reset) {
	told := 0
	for _, peer := range r.Peers {
		if peer.State == control.ResetPeerTold {
			told++
		}
	}
	if len(r.Peers) > 0 {
		p.printf("Told %d of %s.\n", told, count(len(r.Peers), "peer", "peers"))
	}
	if len(r.Deleted) > 0 {
		p.printf("Deleted %s in the API server.\n", count(len(r.Deleted), "object", "objects"))
	}
	for _, o := range r.Kept {
		p.printf("Kept %s.\n", clean(o))
	}
	what := "with the same ID and key"
	if r.Options.Identity {
		what = "with a new ID and key"
	}
	p.printf("The agent is reset, %s: cluster %s.\n", what, clean(r.ClusterID))
}
