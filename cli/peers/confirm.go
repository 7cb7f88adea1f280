package peers

import (
	"cmp"
	"errors"
	"fmt"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
)

const fingerprintFlag = "fingerprint"

// confirmFlags are the options of commands that may ask whether a key is the
// right one.
func confirmFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: fingerprintFlag, Usage: "trust the key with this `FINGERPRINT`; do not ask"},
		command.YesOption("trust the key that the cluster shows now; do not ask"),
	}
}

// confirming calls decide, and again with the fingerprint that a person confirmed
// if the key has to be. replace allows another key than the trusted one.
func confirming(c *command.Call, client *client.Client, replace bool, decide func(peer.Fingerprint) (control.Peer, error)) (control.Peer, error) {
	var given peer.Fingerprint
	if text := c.String(fingerprintFlag); text != "" {
		var err error
		if given, err = peer.ParseFingerprint(text); err != nil {
			return control.Peer{}, command.UsageError("--"+fingerprintFlag+": "+err.Error(), command.Name+" peers list -o wide")
		}
	}
	p, err := decide(given)
	var asks *control.Error
	if !errors.Is(err, control.ErrNotTrusted) || !errors.As(err, &asks) || asks.Shown == nil {
		return p, c.Interrupted(err)
	}
	if !given.IsZero() || asks.Shown.Pinned != "" && !replace {
		return p, err // it is another key than the one that was named or trusted
	}
	shown, parseErr := peer.ParseFingerprint(asks.Shown.Fingerprint)
	switch {
	case parseErr != nil:
		return p, fmt.Errorf("the agent's answer: %w", parseErr)
	case c.Bool(command.YesFlag):
	case !c.Options.Interactive:
		return p, err // it shows the code, and says what to do
	default:
		present(c, client, *asks.Shown)
		if err := c.Ask("Are they the same?"); err != nil {
			return p, err
		}
	}
	p, err = decide(shown)
	return p, c.Interrupted(err)
}

// present shows what is to be confirmed.
func present(c *command.Call, client *client.Client, s control.Shown) {
	out := render.New(c.Options.Stderr, "", c.Options.Color, c.Out.Now)
	name := cmp.Or(s.Name, s.ID)
	if s.Pinned != "" {
		out.Printf("%s shows a different key than the trusted one.\n\n", render.Clean(name))
	} else {
		out.Printf("The key of %s is not trusted yet.\n\n", render.Clean(name))
	}
	out.Fields("  ", [2]string{"Name", s.Name}, [2]string{"ID", s.ID}, [2]string{"Address", s.Address}, [2]string{"Trusted key", s.Pinned},
		[2]string{"Fingerprint", s.Fingerprint}, [2]string{"Code", s.Code})
	out.Printf("\nCompare the code with the one on the other cluster:  %s peers show %s\nor the fingerprint:  %s key show\n", command.Name,
		render.Quoted(ownName(c, client)), command.Name)
	// What cannot be shown will not be confirmed.
	_ = out.Flush()
}

// ownName is what this cluster is called by others.
func ownName(c *command.Call, client *client.Client) string {
	st, err := client.Status(c.Ctx())
	if err != nil {
		return "NAME" // it is only part of an advice
	}
	return cmp.Or(st.Identity.Name, st.Identity.ClusterID)
}
