package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/state"
)

// stateFlags are the options that say where the state directory is.
func stateFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: command.ConfigFlag, Aliases: []string{"c"}, Usage: "configuration `FILE` of the agent; names its state directory"},
		&urfave.StringFlag{Name: command.StateDirFlag, Usage: "`DIR` with the agent's state"},
	}
}

var stateValues = command.FileValues(command.ConfigFlag, command.StateDirFlag)

func stateCommand() command.Command {
	return command.Command{
		Name:  "state",
		Usage: "back up, restore or check the agent's state",
		About: "Back up, restore or check the database and the identity of this cluster. A backup contains the\n" +
			"private key of the cluster: whoever has it can impersonate this cluster.",
		Examples: []string{"sudo liqo-agent state backup barn.tar", "sudo liqo-agent state check"},
		Commands: []command.Command{
			stateBackupCommand(),
			stateRestoreCommand(),
			stateCheckCommand(),
		},
	}
}

func stateBackupCommand() command.Command {
	return command.Command{
		Name:  "backup",
		Usage: "back up the state to a file",
		About: "Write the database, the key of the cluster and its certificates to one file that only its owner\n" +
			"can read; - is standard output. The agent can keep running: the backup is a consistent snapshot.\n" +
			"Needs root or the agent's user.",
		Examples: []string{"sudo liqo-agent state backup /root/barn.tar", "sudo liqo-agent state backup - | ssh safe 'cat > barn.tar'"},
		Args:     "FILE",
		Min:      1, Max: 1,
		Flags:   append(stateFlags(), &urfave.BoolFlag{Name: forceFlag, Aliases: []string{"f"}, Usage: "replace an existing file"}),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   func(context.Context, command.Typed) []command.Candidate { return command.Fixed(command.CompleteFiles) },
		Values:  stateValues,
		Run:     backUp,
	}
}

func backUp(c *command.Call) error {
	dir, ctx, now := c.Places().StateDir, c.Ctx(), c.Options.Now()
	if c.Args[0] == "-" {
		if c.Options.Screen {
			return command.UsageError("state backup: a backup is binary, and standard output is a terminal", command.Name+" state backup - > FILE")
		}
		_, err := statedir.Backup(ctx, dir, c.Options.Version, now, "", c.Options.Stdout)
		return stateError(c, err)
	}
	m, err := statedir.BackupFile(ctx, dir, c.Options.Version, now, c.Args[0], c.Bool(forceFlag))
	if err != nil {
		return stateError(c, err)
	}
	if !c.Out.Value(m) {
		c.Out.Printf("Wrote %s: cluster %s, key %s, schema %d.\n", render.Clean(c.Args[0]), cmp.Or(render.Clean(m.ClusterID), "without an ID"), render.Clean(m.Fingerprint), m.Schema)
		c.Out.Printf("It contains the private key of this cluster. Keep it secret.\n")
	}
	return nil
}

func stateRestoreCommand() command.Command {
	return command.Command{
		Name:  "restore",
		Usage: "restore the state from a backup",
		About: "Replace the state with a backup, completely or not at all; - reads standard input. The previous\n" +
			"state is moved to a directory beside it. The agent must be stopped. After the restore, this\n" +
			"cluster has the ID and the key from the backup, even if the API server has another ID. Needs\n" +
			"root or the agent's user.",
		Examples: []string{"sudo systemctl stop liqo-agent && sudo liqo-agent state restore /root/barn.tar && sudo systemctl start liqo-agent"},
		Args:     "FILE",
		Min:      1, Max: 1,
		Flags:   stateFlags(),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   func(context.Context, command.Typed) []command.Candidate { return command.Fixed(command.CompleteFiles) },
		Values:  stateValues,
		Run:     restoreState,
	}
}

func restoreState(c *command.Call) (err error) {
	if _, err := c.Load(); err != nil && c.String(command.StateDirFlag) == "" {
		return unusable(c, err) // the usual directory is that of another agent, perhaps
	}
	dir, from := c.Places().StateDir, c.Options.Stdin
	if c.Args[0] != "-" {
		f, err := os.Open(c.Args[0])
		if err != nil {
			return fmt.Errorf("open the backup: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		from = f
	}
	if from == nil {
		from = strings.NewReader("")
	}
	done, err := statedir.Restore(c.Ctx(), dir, c.Options.Now(), from)
	if err != nil {
		return stateError(c, err)
	}
	if c.Out.Value(done) {
		return nil
	}
	m := done.Manifest
	c.Out.Printf("Restored %s from the backup of %s: cluster %s, key %s.\n", render.Clean(dir), text.Time(m.CreatedAt), cmp.Or(render.Clean(m.ClusterID), "without an ID"), render.Clean(m.Fingerprint))
	if done.Aside != "" {
		c.Out.Printf("The previous state is in %s.\n", render.Clean(done.Aside))
	}
	if done.Problem != "" {
		c.Note("%s", done.Problem)
	}
	c.Out.Printf("Start the agent: %s\n", c.Options.StartCommand())
	return nil
}

func stateCheckCommand() command.Command {
	return command.Command{
		Name:  "check",
		Usage: "check the state for errors",
		About: "Check the database, the key of the cluster, file permissions and free disk space. Nothing is\n" +
			"changed, and the agent can keep running. Exit code: 0 no problems, 8 only warnings, 1 errors.",
		Examples: []string{"sudo liqo-agent state check", "sudo liqo-agent state check -o json | jq .findings"},
		Flags:    stateFlags(),
		Formats:  []string{render.Text, render.JSON, render.YAML},
		Values:   stateValues,
		Run:      checkState,
	}
}

func checkState(c *command.Call) error {
	r, err := statedir.Check(c.Ctx(), c.Places().StateDir)
	if err != nil {
		return stateError(c, err)
	}
	if !c.Out.Value(r) {
		stateReport(c.Out, r)
	}
	errs, warnings := 0, 0
	for _, f := range r.Findings {
		if f.Severity == statedir.Error {
			errs++
		} else {
			warnings++
		}
	}
	if err := c.Out.Flush(); err != nil {
		return err
	}
	switch {
	case errs > 0:
		return &command.Error{Message: "the state has " + render.Count(errs, "error", "errors"), Code: command.ExitError}
	case warnings > 0:
		return &command.Error{Message: "the state is usable, with " + render.Count(warnings, "warning", "warnings"), Code: command.ExitWarnings}
	}
	return nil
}

func stateReport(p *render.Printer, r statedir.Report) {
	database := fmt.Sprintf("schema %d of %d, %s", r.Database.Schema, r.Database.KnownSchema, render.Bytes(r.Database.Bytes))
	if r.Database.WrittenBy != "" {
		database += ", written by version " + render.Clean(r.Database.WrittenBy)
	}
	if !r.Database.Sound {
		database = "not usable"
	}
	key := "not usable"
	if r.Key.Fingerprint != "" {
		key = render.Clean(r.Key.Fingerprint)
		if r.Key.Successions > 0 {
			key += ", with " + render.Count(r.Key.Successions, "earlier key", "earlier keys")
		}
	}
	p.Fields("",
		[2]string{"Directory", render.Clean(r.Dir)},
		[2]string{"Cluster", cmp.Or(render.Clean(r.Database.ClusterID), "unknown")},
		[2]string{"Database", database},
		[2]string{"Key", key},
		[2]string{"Space", render.Bytes(r.UsedBytes) + " used, " + render.Bytes(r.FreeBytes) + " free"},
	)
	for _, name := range r.Kept {
		p.Printf("Kept: %s\n", render.Clean(name))
	}
	for _, f := range r.Findings {
		p.Printf("\n%s: %s\n", f.Severity, render.CleanLines(f.Text))
		if f.Remedy != "" {
			p.Printf("  try: %s\n", render.CleanLines(f.Remedy))
		}
	}
}

// stateError adds to an error about the state what to do next.
func stateError(c *command.Call, err error) error {
	if err == nil {
		return nil
	}
	advice := ""
	switch {
	case errors.Is(err, statedir.ErrExists):
		advice = c.Line("--force")
	case errors.Is(err, state.ErrLocked):
		advice = "systemctl stop liqo-agent, or end the process, and repeat the command"
	case errors.Is(err, os.ErrPermission), errors.Is(err, state.ErrReadOnly):
		advice = "sudo " + c.Line()
	case errors.Is(err, state.ErrNoDatabase), errors.Is(err, os.ErrNotExist):
		advice = "name the state directory of the agent: --state-dir DIR"
	default:
		return err
	}
	return &control.Error{Message: err.Error(), Advice: advice, Cause: err}
}
