package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/reset"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
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

func resetCommand() command.Command {
	return command.Command{
		Name:  "reset",
		Usage: "reset the agent to the state after installation",
		About: "Reset the agent. A running agent ends all peerings, tells its peers, deletes its objects in the\n" +
			"API server and everything that it stored, and continues as a new agent. Objects that people\n" +
			"created (ForeignClusters, SearchDomains, settings) stay; --all deletes them too.\n" +
			"The cluster keeps its ID and its key, so its peers recognise it; it does not recognise them.\n" +
			"--identity replaces both: use it before you give a device away, or on a copy of another device.\n" +
			"If the agent is not running, its peers are not told.",
		Examples: []string{"sudo liqo-agent reset", "sudo liqo-agent reset --yes --identity --all --stop"},
		Agent:    true,
		Flags: []urfave.Flag{
			command.YesOption("do not ask"),
			&urfave.BoolFlag{Name: "identity", Usage: "also replace the ID and the key of this cluster"},
			&urfave.BoolFlag{Name: "all", Usage: "also delete what people created: ForeignClusters, SearchDomains and settings"},
			&urfave.BoolFlag{Name: "crds", Usage: "also delete the CustomResourceDefinitions; needs --all and --stop"},
			&urfave.StringFlag{Name: kubeconfigFlag, Usage: "administrator's kubeconfig `FILE`, for --all and --crds"},
			&urfave.BoolFlag{Name: "stop", Usage: "stop the agent afterwards"},
		},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Values:  command.FileValues(kubeconfigFlag),
		Run:     runReset,
	}
}

func runReset(c *command.Call) error {
	opts := control.ResetOptions{Identity: c.Bool("identity"), All: c.Bool("all"), CRDs: c.Bool("crds"), Stop: c.Bool("stop")}
	if err := opts.Check(); err != nil {
		return err
	}
	cfg, err := settingsOf(c)
	if err != nil {
		return err
	}
	client := c.Client()
	defer client.Close()
	ctx := c.Ctx()
	plan, err := client.PlanReset(ctx, opts)
	stopped := errors.Is(err, control.ErrNotRunning)
	if opts.CRDs && !opts.Stop && !stopped {
		return command.UsageError("reset: --crds needs --stop: a running agent would install the CustomResourceDefinitions again", command.Name+" reset --all --crds --stop")
	}
	if stopped {
		plan = reset.PlanStopped(ctx, cfg, opts)
	} else if err != nil {
		return c.Interrupted(err)
	}
	if !c.Bool(command.YesFlag) {
		showPlan(c, plan, opts, stopped)
	}
	if err := c.Sure("Reset the agent?"); err != nil {
		return err
	}
	var done control.Reset
	if stopped {
		c.Note("the agent is not running: its peers are not told")
		done, err = reset.Stopped(ctx, cfg, opts, "somebody (command line)")
	} else {
		if _, err := client.BeginReset(ctx, opts); err != nil {
			return c.Interrupted(err)
		}
		done, err = followReset(c, client, opts)
	}
	switch {
	case errors.Is(err, context.Canceled):
		for _, text := range done.Failed {
			c.Note("%s", text)
		}
		return leaveReset(c, opts, stopped, cfg.State.Dir)
	case err != nil:
		return stateError(c, err)
	}
	done.Options = opts
	if opts.All {
		reset.UninstallPeoples(ctx, cfg, c.String(kubeconfigFlag), opts, &done)
	}
	done = control.Filled(done)
	if !c.Out.Value(done) {
		printReset(c.Out, done)
	}
	for _, text := range done.Failed {
		c.Note("%s", text)
	}
	return nil
}

// leaveReset is for a person who does not want to wait for a reset.
func leaveReset(c *command.Call, opts control.ResetOptions, stopped bool, dir string) error {
	c.NewLine()
	// What people created is deleted by this command, after the agent's own.
	line := strings.Replace(c.Line(), " --identity", "", 1) // which is new only once
	e := &command.Error{Message: "the reset continues in the background", Advice: command.Name + " status", Code: command.ExitInterrupted}
	if stopped {
		if begun, err := reset.Pending(dir); err == nil && !begun {
			return &command.Error{Message: "interrupted; nothing was changed", Code: command.ExitInterrupted}
		}
		e.Message, e.Advice = "interrupted; the reset continues when the agent starts", line
	}
	switch {
	case opts.All:
		e.Message += "; what people created is not deleted"
		if !stopped {
			e.Advice += "; when the agent is reset: " + line
		}
	case stopped:
		e.Advice += ", or: " + c.Options.StartCommand()
	}
	return e
}

// settingsOf is the configuration of the agent, with the options of this call on top. One that
// cannot be used is an error: the defaults are those of another agent, perhaps.
func settingsOf(c *command.Call) (config.Config, error) {
	loaded, err := c.Load()
	if err != nil {
		return config.Config{}, unusable(c, err)
	}
	cfg := loaded.Config
	cfg.State.Dir = c.Places().StateDir
	return cfg, nil
}

// unusable is the error of a command that cannot be undone about a configuration that cannot be used.
func unusable(c *command.Call, err error) error {
	check := command.Name + " config check"
	if path := c.String(command.ConfigFlag); path != "" {
		check += " " + render.Quoted(path)
	}
	return &command.Error{Message: err.Error(), Advice: check, Code: command.ExitError, Cause: err}
}

// followReset waits for the end of a reset, and tells on the way how far it is.
func followReset(c *command.Call, client *client.Client, opts control.ResetOptions) (control.Reset, error) {
	ctx := c.Ctx()
	var last control.Reset
	heard, waited := c.Options.Now(), time.Duration(0)
	told := make(map[string]string)
	for {
		now, err := client.ResetState(ctx)
		switch {
		case err == nil:
			last, waited = now, 0
			for _, p := range now.Peers {
				if told[p.ID] != p.State && p.State != control.ResetPeerWaits {
					c.Note("peer %s: %s", p.Name+" ("+p.ID+")", p.State)
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
			return awaitStopped(c, ctx, last)
		case waited > resetSilence:
			return last, &control.Error{Kind: control.ErrNotRunning, Cause: err,
				Message: fmt.Sprintf("the agent has not answered since %s; the reset continues when it starts", heard.Format(time.TimeOnly)),
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
func awaitStopped(c *command.Call, ctx context.Context, last control.Reset) (control.Reset, error) {
	dir := c.Places().StateDir
	for waited := time.Duration(0); waited < resetSilence; waited += resetPause {
		pending, err := reset.Pending(dir)
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
	return last, &control.Error{Kind: control.ErrUnavailable, Message: "the agent stopped, but its state is not empty",
		Advice: "see its log, then: " + command.Name + " reset"}
}

// showPlan tells a person what is about to happen.
func showPlan(c *command.Call, plan control.ResetPlan, opts control.ResetOptions, stopped bool) {
	w := c.Options.Stderr
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // what cannot be shown will not be confirmed
	say("This resets %s.", render.Named(render.Clean(plan.ClusterName), render.Clean(plan.ClusterID)))
	switch {
	case stopped:
		say("The agent is not running: its peers are not told.")
	case len(plan.Peers) == 0:
		say("No peerings to end.")
	default:
		say("Ends the peerings with %s:", render.Count(len(plan.Peers), "peer", "peers"))
		for _, p := range plan.Peers {
			say("  %s", render.Named(render.Clean(p.Name), render.Clean(p.ID)))
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
			say("  %s", render.Clean(o))
		}
	}
	list("Deletes in the API server:", plan.Deletes)
	list("Keeps, because people created it:", plan.Keeps)
	list("Unknown:", plan.Unknown)
	say("Deletes everything that the agent stored: peers, trust, decisions, invites, history.")
	if opts.Identity {
		say("This cluster gets a new ID and a new key.")
	} else {
		say("This cluster keeps its ID and its key (%s).", render.Clean(plan.Fingerprint))
	}
	say("To make a backup first: %s state backup FILE", command.Name)
}

func printReset(p *render.Printer, r control.Reset) {
	told := 0
	for _, peer := range r.Peers {
		if peer.State == control.ResetPeerTold {
			told++
		}
	}
	if len(r.Peers) > 0 {
		p.Printf("Told %d of %s.\n", told, render.Count(len(r.Peers), "peer", "peers"))
	}
	if len(r.Deleted) > 0 {
		p.Printf("Deleted %s in the API server.\n", render.Count(len(r.Deleted), "object", "objects"))
	}
	for _, o := range r.Kept {
		p.Printf("Kept %s.\n", render.Clean(o))
	}
	what := "with the same ID and key"
	if r.Options.Identity {
		what = "with a new ID and key"
	}
	p.Printf("The agent is reset, %s: cluster %s.\n", what, render.Clean(r.ClusterID))
}
