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
	"liqo.io/agent/state"
)

// stateFlags are the options that say where the state directory is.
func stateFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: configFlag, Aliases: []string{"c"}, Usage: "configuration `FILE` of the agent, to find its state directory"},
		&urfave.StringFlag{Name: stateDirFlag, Usage: "`DIR` with the agent's state"},
	}
}

var stateValues = fileValues(configFlag, stateDirFlag)

func (a *App) stateCommand() *urfave.Command {
	return a.branch("state", "back up, restore and check the agent's state",
		"Back up what the agent knows and who this cluster is, restore it, and check that it is sound. A\n"+
			"backup has the private key of the cluster: whoever has it can be this cluster.",
		[]string{"sudo liqo-agent state backup barn.tar", "sudo liqo-agent state check"},
		a.stateBackupCommand(), a.stateRestoreCommand(), a.stateCheckCommand())
}

func (a *App) stateBackupCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "backup",
		usage: "write the state into a file",
		about: "Write the database, the key of the cluster and its certificates into one file, which only its\n" +
			"owner can read; - is standard output. The agent may be running, and does not notice: what was\n" +
			"stored at one moment is in the backup. Needs root, or the user that the agent runs as.",
		examples: []string{"sudo liqo-agent state backup /root/barn.tar", "sudo liqo-agent state backup - | ssh safe 'cat > barn.tar'"},
		args:     "FILE",
		min:      1, max: 1,
		flags:   append(stateFlags(), &urfave.BoolFlag{Name: forceFlag, Aliases: []string{"f"}, Usage: "replace the file if it is there"}),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   func(context.Context, typed) []candidate { return fixed(completeFiles) },
		values:  stateValues,
		run:     backUp,
	})
}

func backUp(c *call) error {
	dir, ctx, now := c.places().stateDir, c.Context.Context, c.app.opts.Now()
	if c.args[0] == "-" {
		if c.app.opts.Interactive {
			return &usageError{message: "state backup: the backup is not text, and standard output may be a terminal", try: Name + " state backup - > FILE"}
		}
		_, err := statedir.Backup(ctx, dir, c.app.opts.Version, now, "", c.app.opts.Stdout)
		return c.stateError(err)
	}
	m, err := statedir.BackupFile(ctx, dir, c.app.opts.Version, now, c.args[0], c.Bool(forceFlag))
	if err != nil {
		return c.stateError(err)
	}
	if !c.out.value(m) {
		c.out.printf("Wrote %s: cluster %s, key %s, schema %d.\n", clean(c.args[0]), cmp.Or(clean(m.ClusterID), "without an ID"), clean(m.Fingerprint), m.Schema)
		c.out.printf("It holds the private key of this cluster: keep it as you would keep that.\n")
	}
	return nil
}

func (a *App) stateRestoreCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "restore",
		usage: "put a backup in the place of the state",
		about: "Put a backup in the place of the state, all of it or nothing. What was there is moved to a\n" +
			"directory beside it. The agent must be stopped. With the backup this cluster is again who it was\n" +
			"then: its ID goes before the one that the API server has. Needs root, or the user that the agent\n" +
			"runs as. - reads standard input.",
		examples: []string{"sudo systemctl stop liqo-agent && sudo liqo-agent state restore /root/barn.tar && sudo systemctl start liqo-agent"},
		args:     "FILE",
		min:      1, max: 1,
		flags:   stateFlags(),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   func(context.Context, typed) []candidate { return fixed(completeFiles) },
		values:  stateValues,
		run:     restoreState,
	})
}

func restoreState(c *call) (err error) {
	dir, from := c.places().stateDir, c.app.opts.Stdin
	if c.args[0] != "-" {
		f, err := os.Open(c.args[0])
		if err != nil {
			return fmt.Errorf("open the backup: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		from = f
	}
	if from == nil {
		from = strings.NewReader("")
	}
	done, err := statedir.Restore(c.Context.Context, dir, c.app.opts.Now(), from)
	if err != nil {
		return c.stateError(err)
	}
	if c.out.value(done) {
		return nil
	}
	m := done.Manifest
	c.out.printf("Restored %s from the backup of %s: cluster %s, key %s.\n", clean(dir), m.CreatedAt.Format("2006-01-02 15:04 MST"), cmp.Or(clean(m.ClusterID), "without an ID"), clean(m.Fingerprint))
	if done.Aside != "" {
		c.out.printf("What was there before is in %s.\n", clean(done.Aside))
	}
	if done.Problem != "" {
		c.note("%s", done.Problem)
	}
	c.out.printf("Start the agent: %s\n", c.app.starts())
	return nil
}

func (a *App) stateCheckCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "check",
		usage: "check that the state is sound",
		about: "Check the database, the key of the cluster, who can read and write them, and the space on the\n" +
			"disk. Nothing is changed, and the agent may be running. The exit code is 0 when all is well, 8\n" +
			"when there are warnings and 1 when there are errors.",
		examples: []string{"sudo liqo-agent state check", "sudo liqo-agent state check -o json | jq .findings"},
		flags:    stateFlags(),
		formats:  []string{formatText, formatJSON, formatYAML},
		values:   stateValues,
		run:      checkState,
	})
}

func checkState(c *call) error {
	r, err := statedir.Check(c.Context.Context, c.places().stateDir)
	if err != nil {
		return c.stateError(err)
	}
	if !c.out.value(r) {
		c.out.stateReport(r)
	}
	errs, warnings := 0, 0
	for _, f := range r.Findings {
		if f.Severity == statedir.Error {
			errs++
		} else {
			warnings++
		}
	}
	if err := c.out.flush(); err != nil {
		return err
	}
	switch {
	case errs > 0:
		return &outcome{message: "the state is not sound: " + count(errs, "error", "errors"), code: ExitError}
	case warnings > 0:
		return &outcome{message: "the state is sound, with " + count(warnings, "warning", "warnings"), code: ExitWarnings}
	}
	return nil
}

func (p *printer) stateReport(r statedir.Report) {
	database := fmt.Sprintf("schema %d of %d, %s", r.Database.Schema, r.Database.KnownSchema, size(r.Database.Bytes))
	if r.Database.WrittenBy != "" {
		database += ", written by version " + clean(r.Database.WrittenBy)
	}
	if !r.Database.Sound {
		database = "not usable"
	}
	key := "not usable"
	if r.Key.Fingerprint != "" {
		key = clean(r.Key.Fingerprint)
		if r.Key.Successions > 0 {
			key += ", with " + count(r.Key.Successions, "earlier key", "earlier keys")
		}
	}
	p.fields("",
		[2]string{"Directory", clean(r.Dir)},
		[2]string{"Cluster", cmp.Or(clean(r.Database.ClusterID), "unknown")},
		[2]string{"Database", database},
		[2]string{"Key", key},
		[2]string{"Space", size(r.UsedBytes) + " used, " + size(r.FreeBytes) + " free"},
	)
	for _, name := range r.Kept {
		p.printf("Kept: %s\n", clean(name))
	}
	for _, f := range r.Findings {
		p.printf("\n%s: %s\n", f.Severity, cleanLines(f.Text))
		if f.Remedy != "" {
			p.printf("  try: %s\n", cleanLines(f.Remedy))
		}
	}
}

// stateError adds to an error about the state what to do next.
func (c *call) stateError(err error) error {
	if err == nil {
		return nil
	}
	advice := ""
	switch {
	case errors.Is(err, statedir.ErrExists):
		advice = strings.Join(append([]string{Name, pathOf(c.Context)}, c.args...), " ") + " --force"
	case errors.Is(err, state.ErrLocked):
		advice = "systemctl stop liqo-agent, or end the process, and repeat the command"
	case errors.Is(err, os.ErrPermission), errors.Is(err, state.ErrReadOnly):
		advice = "sudo " + strings.Join(append([]string{Name, pathOf(c.Context)}, c.args...), " ")
	case errors.Is(err, state.ErrNoDatabase), errors.Is(err, os.ErrNotExist):
		advice = "name the state directory of the agent: --state-dir DIR"
	default:
		return err
	}
	return &control.Error{Message: err.Error(), Advice: advice, Cause: err}
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}
