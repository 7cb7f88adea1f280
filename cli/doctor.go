package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/doctor"
	"liqo.io/agent/doctor/bundle"
	"liqo.io/agent/trust"
)

// examiner looks at this box. Tests put another one in its place: the real one asks
// on the network.
type examiner interface {
	examine(ctx context.Context, opts doctor.Options, archive string, redact bool) (doctor.Report, *bundle.Manifest, error)
}

func doctorCommand(e examiner) command.Command {
	return command.Command{
		Name:  "doctor",
		Usage: "find problems, and what to do about them",
		About: "Check this machine: network interfaces, port 5353, multicast, the port of the endpoint as peers\n" +
			"see it, the clock, the API server and its objects, the disk, the agent, its configuration and\n" +
			"its peers. Each finding says what is wrong, why it matters and what to do.\n" +
			"\n" +
			"Works with and without a running agent. Without root, some checks are skipped. --bundle writes a\n" +
			"support archive without secrets.\n" +
			"\n" +
			"Exit code: 0 no problems, 8 only warnings, 1 errors.",
		Examples: []string{"sudo liqo-agent doctor", "sudo liqo-agent doctor --bundle support.tar.gz --redact",
			`liqo-agent doctor -o json | jq '.checks[].findings[] | select(.status == "error")'`},
		Agent: true,
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: bundleFlag, Usage: "write a support archive (tar.gz) to `FILE`"},
			&urfave.BoolFlag{Name: "redact", Usage: "with --bundle: replace cluster names and addresses"},
		},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Values:  command.FileValues(bundleFlag),
		Run:     func(c *command.Call) error { return seeDoctor(c, e) },
	}
}

const bundleFlag = "bundle"

func seeDoctor(c *command.Call, e examiner) error {
	archive := c.String(bundleFlag)
	if c.Bool("redact") && archive == "" {
		return command.UsageError("--redact needs --bundle", c.Name()+" --bundle support.tar.gz --redact")
	}
	opts := doctor.Options{
		Version: c.Options.Version, Built: trust.Built(),
		Load:   c.Load,
		Socket: c.String(command.SocketFlag), StateDir: c.String(command.StateDirFlag), Environ: c.Options.Environ, Root: os.Geteuid() == 0,
	}
	report, manifest, err := e.examine(c.Ctx(), opts, archive, c.Bool("redact"))
	if report.Checks != nil && !c.Out.Value(report) {
		printReport(c.Out, report)
	}
	// What was found is shown also when the archive could not be written.
	if err := errors.Join(c.Out.Flush(), err); err != nil {
		return err
	}
	if manifest != nil {
		if full, err := filepath.Abs(archive); err == nil {
			archive = full
		}
		c.Note("wrote %s: %s, %s left out (see manifest.json); review it before you share it",
			archive, render.Count(len(manifest.Files), "file", "files"), render.Count(len(manifest.LeftOut), "file", "files"))
	}
	return diagnosis(report.Summary)
}

// diagnosis is the outcome of a report.
func diagnosis(s doctor.Summary) error {
	switch {
	case s.Errors > 0 && s.Warnings > 0:
		return &command.Error{Message: fmt.Sprintf("%s with errors and %d with warnings", render.Count(s.Errors, "check ended", "checks ended"), s.Warnings), Code: command.ExitError}
	case s.Errors > 0:
		return &command.Error{Message: render.Count(s.Errors, "check ended", "checks ended") + " with errors", Code: command.ExitError}
	case s.Warnings > 0:
		return &command.Error{Message: render.Count(s.Warnings, "check ended", "checks ended") + " with warnings", Code: command.ExitWarnings}
	}
	return nil
}

// thisBox examines the machine that the program runs on.
type thisBox struct{}

func (thisBox) examine(ctx context.Context, opts doctor.Options, archive string, redact bool) (doctor.Report, *bundle.Manifest, error) {
	box := doctor.NewBox(opts)
	defer box.Close()
	report := doctor.Run(ctx, box)
	if err := ctx.Err(); err != nil || archive == "" {
		return report, nil, err
	}
	manifest, err := doctor.Bundle(ctx, box, report, archive, doctor.BundleOptions{Redact: redact})
	return report, &manifest, err
}

// printReport writes a report for people: a line for each check that is fine, and
// paragraphs for what is not.
func printReport(p *render.Printer, r doctor.Report) {
	group, width := "", 0
	for _, c := range r.Checks {
		width = max(width, len(c.Title))
	}
	for _, c := range r.Checks {
		if c.Group != group {
			if group != "" {
				p.Printf("\n")
			}
			group = c.Group
			p.Printf("%s\n", render.Clean(group))
		}
		check(p, c, width)
	}
	s := r.Summary
	p.Printf("\n%s: %d ok", render.Count(len(r.Checks), "check", "checks"), s.OK)
	for _, part := range []struct {
		n    int
		what string
	}{{s.Info, "with information"}, {s.Warnings, "with warnings"}, {s.Errors, "with errors"}, {s.Skipped, "skipped"}} {
		if part.n > 0 {
			p.Printf(", %d %s", part.n, part.what)
		}
	}
	p.Printf("\n")
}

// marks are what a status looks like.
var marks = map[doctor.Status]struct{ text, color string }{
	doctor.OK: {"ok", ""}, doctor.Info: {"info", ""}, doctor.Skipped: {"-", render.Dim},
	doctor.Warning: {"WARNING", render.Yellow}, doctor.Error: {"ERROR", render.Red},
}

func check(p *render.Printer, c doctor.Result, width int) {
	for i, f := range c.Findings {
		title := c.Title
		if i > 0 {
			title = ""
		}
		mark := marks[f.Status]
		line := fmt.Sprintf("  %-7s  %-*s", mark.text, width, render.Clean(title))
		if f.Status != doctor.Warning && f.Status != doctor.Error {
			p.Colored(mark.color, strings.TrimRight(line+"  "+render.Clean(f.What), " "))
			continue
		}
		p.Colored(mark.color, strings.TrimRight(line+"  "+render.Clean(f.Code), " "))
		printParagraph(p, "", f.What)
		printParagraph(p, "why: ", f.Why)
		for _, do := range f.Do {
			// Not wrapped: a command is to be copied as a whole.
			p.Printf("           try: %s\n", render.Clean(do))
		}
	}
}

// printParagraph writes text below a line, with label in front of it.
func printParagraph(p *render.Printer, label, text string) {
	if text != "" {
		p.Item("           "+label, text, "")
	}
}
