package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
)

// goal is what a waiter waits for.
type goal int

const (
	connecting    goal = iota // we consume the peer's resources
	disconnecting             // we no longer do
	evicting                  // the peer no longer consumes ours
	forgetting                // as disconnecting, before it is forgotten
)

func (g goal) direction(p control.Peer) control.Direction {
	if g == evicting {
		return p.Incoming
	}
	return p.Outgoing
}

// waiter follows one peer until the goal is reached, and tells about each step.
type waiter struct {
	*command.Call
	client *client.Client
	peer   control.Peer // as it is now
	goal   goal
	before *control.Peer // as it was before the goal was set; nil = not known

	begun  time.Time
	news   time.Time       // when a step was last told
	wanted bool            // it was seen to be wanted
	done   map[string]bool // the steps that were told
	said   string          // what was told last to be waited for
}

// wait returns when the goal is reached, cannot be reached, or nobody waits any
// longer.
func (w *waiter) wait() error {
	w.begun, w.done, w.wanted = time.Now(), make(map[string]bool), w.goal.direction(w.peer).Wanted
	w.news = w.begun
	parent := w.Ctx()
	ctx, stop := context.WithCancel(parent)
	updates := make(chan control.WatchEvent)
	var lost error // why there are no more updates
	go func() {
		defer close(updates)
		lost = w.client.Follow(ctx, w.peer.ID, func(ev control.WatchEvent) error {
			select {
			case updates <- ev:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	defer func() {
		stop()
		for range updates { // until the goroutine is gone
		}
	}()

	deadline, release := w.Deadline()
	defer release()
	settle := time.NewTimer(w.Options.Pace.Settle)
	defer settle.Stop()
	believe := time.NewTimer(w.Options.Pace.Believe)
	defer believe.Stop()
	w.tellDone()
	for {
		select {
		case <-parent.Done():
			return w.leave()
		case <-deadline:
			if w.goal == connecting && w.peer.Outgoing.Joined {
				return w.finish()
			}
			return w.late()
		case <-settle.C:
			w.tellWaiting()
		case <-believe.C:
			if over, err := w.judge(); over {
				return err
			}
		case ev, ok := <-updates:
			switch {
			case !ok && parent.Err() != nil:
				return w.leave()
			case !ok && errors.Is(lost, control.ErrNotFound), ok && ev.Event == control.WatchLost:
				return &command.Error{Message: w.label() + " was forgotten meanwhile", Advice: command.Name + " peers history", Code: command.ExitError}
			case !ok:
				return w.alone(lost)
			case ev.Peer == nil:
				continue
			}
			w.peer = *ev.Peer
			w.tellDone()
			if over, err := w.judge(); over {
				return err
			}
			settle.Reset(w.Options.Pace.Settle)
			believe.Reset(w.Options.Pace.Believe)
		}
		if err := w.Out.Flush(); err != nil {
			return err
		}
	}
}

func (w *waiter) label() string { return render.Clean(w.peer.Label()) }

// text reports whether people read the output.
func (w *waiter) text() bool { return w.Format == render.Text }

// tellDone tells about the steps that were taken since it was called last.
func (w *waiter) tellDone() {
	if w.goal != connecting {
		return
	}
	for _, s := range w.peer.Outgoing.Steps {
		if s.Done && !w.done[s.Name] {
			w.news = time.Now()
			if w.text() {
				w.Out.Printf("INFO %s\n", render.Clean(s.Text))
			}
		}
		// A step that is undone, as when the peer goes away, is told again.
		w.done[s.Name] = s.Done
	}
}

// tellWaiting tells what it waits for and what a person can do, if that was not
// told yet.
func (w *waiter) tellWaiting() {
	d := w.goal.direction(w.peer)
	what := "WAIT " + w.waitingFor(d)
	if message := w.telling(d); message != "" {
		what += "\n     " + render.Clean(message)
	}
	if w.goal == connecting && d.Reason == control.ReasonAwaitingAcceptance {
		what += fmt.Sprintf("\n     on %s, run: %s peers accept %s", w.label(), command.Name, render.Quoted(ownName(w.Call, w.client)))
		if !strings.Contains(d.Message, w.peer.Code) {
			what += fmt.Sprintf(" (code %s)", render.Clean(w.peer.Code))
		}
	}
	if what == w.said || !w.text() {
		return
	}
	w.said = what
	w.Out.Printf("%s\n", what)
}

// telling is the agent's message, if it is about what is waited for.
func (w *waiter) telling(d control.Direction) string {
	if w.goal == connecting && !d.Joined || d.Reason == control.ReasonDraining || d.Reason == control.ReasonUnknown {
		return d.Message
	}
	return ""
}

// waitingFor is the first step that is not done.
func (w *waiter) waitingFor(d control.Direction) string {
	switch {
	case w.goal != connecting && d.Reason == control.ReasonDraining:
		return "(local) our pods have left"
	case w.goal != connecting:
		return "(local) both sides are cleaned up"
	}
	for _, s := range d.Steps {
		if !s.Done {
			return render.Clean(s.Text)
		}
	}
	return "(local) the agent starts"
}

// judge reports whether there is nothing more to wait for, and writes the end of
// the output.
func (w *waiter) judge() (over bool, err error) {
	d := w.goal.direction(w.peer)
	if w.goal != connecting {
		again := d.Wanted && !w.wanted && w.goal != evicting
		w.wanted = d.Wanted
		switch {
		case d.Over() || w.hopeless(d):
			return true, w.finish()
		case again:
			return true, &command.Error{Message: "somebody connected to " + w.label() + " again meanwhile",
				Advice: command.Name + " peers history " + render.Quoted(w.peer.Label()), Code: command.ExitError}
		}
		return false, nil
	}
	if d.Joined {
		if w.goesOn(d) {
			return false, nil
		}
		return true, w.finish()
	}
	old := w.wanted
	w.wanted = w.wanted || d.Wanted
	if w.stale(d) {
		return false, nil
	}
	switch d.Reason {
	case control.ReasonRefused:
		return true, w.refused("the cluster refused", d)
	case control.ReasonEndedByProvider:
		return true, w.refused("the cluster ended the peering", d)
	case control.ReasonBlocked:
		return true, w.refused("the cluster is blocked here", d)
	}
	if old && !d.Wanted {
		return true, &command.Error{Message: w.notConnected("somebody disconnected from it meanwhile", d),
			Advice: command.Name + " peers history " + render.Quoted(w.peer.Label()), Code: command.ExitError}
	}
	return false, nil
}

// goesOn reports whether steps that nobody needs to wait for, as those that connect networks, are being taken.
func (w *waiter) goesOn(d control.Direction) bool {
	return len(d.Steps) > 0 && d.Steps[0].Done && !d.Steps[len(d.Steps)-1].Done && time.Since(w.news) < w.Options.Pace.Believe
}

// hopeless reports whether there is no point in waiting for the end of a peering with a
// cluster that is to be forgotten: it is told by nobody then.
func (w *waiter) hopeless(d control.Direction) bool {
	return w.goal == forgetting && (d.Reason == control.ReasonUnknown || w.peer.Phase != string(peer.PhasePresent))
}

// stale reports whether a direction looks as it did before anything was asked
// for, and may not have caught up yet.
func (w *waiter) stale(d control.Direction) bool {
	if w.before == nil || time.Since(w.begun) >= w.Options.Pace.Believe {
		return false
	}
	b := w.goal.direction(*w.before)
	return d.Reason == b.Reason && d.Message == b.Message && d.Since.Equal(b.Since)
}

func (w *waiter) refused(why string, d control.Direction) error {
	return &command.Error{Message: w.notConnected(why, d), Advice: fmt.Sprintf("%s info %s", command.Name, render.Quoted(w.peer.Label())), Code: command.ExitRefused}
}

// notConnected says why it is not connected: in the words that the agent has for
// it, or as why says.
func (w *waiter) notConnected(why string, d control.Direction) string {
	if d.Message != "" {
		why = d.Message
	}
	return fmt.Sprintf("%s is not connected: %s", w.label(), why)
}

func (w *waiter) finish() error {
	if w.goal == forgetting || w.Out.Value(w.peer) {
		return nil
	}
	name := render.Quoted(w.peer.Label())
	switch w.goal {
	case connecting:
		w.Out.Printf("Connected to %s.\n", w.label())
	case disconnecting:
		w.Out.Printf("Disconnected from %s. To connect again: %s peers connect %s\n", w.label(), command.Name, name)
	case evicting:
		w.Out.Printf("%s no longer uses this cluster. To accept it again: %s peers accept %s\n", w.label(), command.Name, name)
	}
	return nil
}

// doing is what goes on in the background, and how to undo it.
func (w *waiter) doing() (what, undo string) {
	name := render.Quoted(w.peer.Label())
	switch w.goal {
	case disconnecting:
		return "disconnecting from " + w.label(), command.Name + " peers connect " + name
	case forgetting:
		return "disconnecting from " + w.label() + " (not forgotten yet)", command.Name + " peers connect " + name
	case evicting:
		return "ending the incoming peering with " + w.label(), command.Name + " peers accept " + name
	}
	return "connecting to " + w.label(), command.Name + " peers disconnect " + name
}

// leave is for a person who does not want to wait any longer.
func (w *waiter) leave() error {
	w.NewLine()
	what, undo := w.doing()
	return &command.Error{Message: what + " continues in the background", Advice: fmt.Sprintf("%s info %s; to undo: %s", command.Name, render.Quoted(w.peer.Label()), undo), Code: command.ExitInterrupted}
}

// late is for when the time is up.
func (w *waiter) late() error {
	d := w.goal.direction(w.peer)
	what, undo := w.doing()
	message := fmt.Sprintf("%s takes longer than %s and continues in the background; waiting for: %s", what, w.Duration(command.TimeoutFlag), w.waitingFor(d))
	if told := w.telling(d); told != "" {
		message += ". " + told
	}
	return &command.Error{Message: message, Advice: fmt.Sprintf("%s info %s; to undo: %s", command.Name, render.Quoted(w.peer.Label()), undo), Code: command.ExitTimeout}
}

// alone is for when the agent does not answer any more.
func (w *waiter) alone(why error) error {
	what, _ := w.doing()
	return &control.Error{Kind: control.ErrNotRunning, Cause: why, Message: fmt.Sprintf("the agent stopped while %s: %v", what, why),
		Advice: fmt.Sprintf("start the agent; it continues. Then: %s info %s", command.Name, render.Quoted(w.peer.Label()))}
}
