package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/doctor"
	"liqo.io/agent/doctor/bundle"
	"liqo.io/agent/trust"
)

// examiner looks at this box. Tests put another one in its place: the real one asks
// on the network.
type examiner interface {
	examine(ctx context.Context, opts doctor.Options, archive string, redact bool) (doctor.Report, *bundle.Manifest, error)
}

func (a *App) doctorCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "doctor",
		usage: "find out what is wrong, and what to do about it",
		about: "Look at this box from the outside in: links, port 5353, multicast, the endpoint's port as peers\n" +
			"see it, the clock, the API server and what is in it, the disk, the agent, its configuration and\n" +
			"its peers. Each finding says what is the matter, why it matters and what to do.\n\n" +
			"Works with and without a running agent. Without root some things cannot be seen, and are skipped.\n" +
			"With --bundle, everything that helps others to help is written to an archive, without secrets.\n\n" +
			"Exit code: 0 when nothing is wrong, 8 when there are only warnings, 1 when there are errors.",
		examples: []string{"sudo liqo-agent doctor", "sudo liqo-agent doctor --bundle support.tar.gz --redact",
			`liqo-agent doctor -o json | jq '.checks[].findings[] | select(.status == "error")'`},
		flags: append(placeFlags(),
			&urfave.StringFlag{Name: bundleFlag, Usage: "write a support archive (tar.gz) to `FILE`"},
			&urfave.BoolFlag{Name: "redact", Usage: "with --bundle: replace the names of clusters, and addresses"}),
		formats: []string{formatText, formatJSON, formatYAML},
		values:  doctorValues,
		run:     seeDoctor,
	})
}

const bundleFlag = "bundle"

var doctorValues = map[string]func(context.Context) []candidate{configFlag: files, socketFlag: files, stateDirFlag: files, bundleFlag: files}

func seeDoctor(c *call) error {
	archive := c.String(bundleFlag)
	if c.Bool("redact") && archive == "" {
		return &usageError{message: "--redact is about the archive", try: c.Command.HelpName + " --bundle support.tar.gz --redact"}
	}
	path := c.String(configFlag)
	opts := doctor.Options{
		Version: c.app.opts.Version, Built: trust.Built(),
		Load: func() (*config.Loaded, error) {
			return config.Load(config.Options{Path: path, PathExplicit: path != "", Env: c.app.opts.Environ})
		},
		Socket: c.String(socketFlag), StateDir: c.String(stateDirFlag), Environ: c.app.opts.Environ, Root: os.Geteuid() == 0,
	}
	report, manifest, err := c.app.examiner.examine(c.Context.Context, opts, archive, c.Bool("redact"))
	if report.Checks != nil && !c.out.value(report) {
		c.out.report(report)
	}
	// What was found is shown also when the archive could not be written.
	if err := errors.Join(c.out.flush(), err); err != nil {
		return err
	}
	if manifest != nil {
		if full, err := filepath.Abs(archive); err == nil {
			archive = full
		}
		c.note("wrote %s: %s, %s left out (manifest.json says which); look through it before you hand it on",
			archive, count(len(manifest.Files), "file", "files"), count(len(manifest.LeftOut), "file", "files"))
	}
	return diagnosis(report.Summary)
}

// diagnosis is the outcome of a report.
func diagnosis(s doctor.Summary) error {
	switch {
	case s.Errors > 0 && s.Warnings > 0:
		return &outcome{message: fmt.Sprintf("%s with errors and %d with warnings", count(s.Errors, "check ended", "checks ended"), s.Warnings), code: ExitError}
	case s.Errors > 0:
		return &outcome{message: count(s.Errors, "check ended", "checks ended") + " with errors", code: ExitError}
	case s.Warnings > 0:
		return &outcome{message: count(s.Warnings, "check ended", "checks ended") + " with warnings", code: ExitWarnings}
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

// textWidth is where the text of findings is wrapped.
const textWidth = 100

// report writes a report for people: a line for each check that is fine, and
// paragraphs for what is not.
func (p *printer) report(r doctor.Report) {
	group, width := "", 0
	for _, c := range r.Checks {
		width = max(width, len(c.Title))
	}
	for _, c := range r.Checks {
		if c.Group != group {
			if group != "" {
				p.printf("\n")
			}
			group = c.Group
			p.printf("%s\n", clean(group))
		}
		p.check(c, width)
	}
	s := r.Summary
	p.printf("\n%s: %d ok", count(len(r.Checks), "check", "checks"), s.OK)
	for _, part := range []struct {
		n    int
		what string
	}{{s.Info, "for your information"}, {s.Warnings, "with warnings"}, {s.Errors, "with errors"}, {s.Skipped, "skipped"}} {
		if part.n > 0 {
			p.printf(", %d %s", part.n, part.what)
		}
	}
	p.printf("\n")
}

// marks are what a status looks like.
var marks = map[doctor.Status]struct{ text, color string }{
	doctor.OK: {"ok", ""}, doctor.Info: {"info", ""}, doctor.Skipped: {"-", colorDim},
	doctor.Warning: {"WARNING", colorYellow}, doctor.Error: {"ERROR", colorRed},
}

func (p *printer) check(c doctor.Result, width int) {
	for i, f := range c.Findings {
		title := c.Title
		if i > 0 {
			title = ""
		}
		mark := marks[f.Status]
		line := fmt.Sprintf("  %-7s  %-*s", mark.text, width, clean(title))
		if f.Status != doctor.Warning && f.Status != doctor.Error {
			p.colored(mark.color, strings.TrimRight(line+"  "+clean(f.What), " "))
			continue
		}
		p.colored(mark.color, strings.TrimRight(line+"  "+clean(f.Code), " "))
		p.paragraph("           ", "", f.What)
		p.paragraph("           ", "why: ", f.Why)
		for _, do := range f.Do {
			// Not wrapped: a command is to be copied as a whole.
			p.printf("           try: %s\n", clean(do))
		}
	}
}

func (p *printer) colored(color, line string) {
	if p.color && color != "" {
		line = color + line + colorReset
	}
	p.printf("%s\n", line)
}

// paragraph writes text wrapped at spaces, with label in front of its first line.
func (p *printer) paragraph(indent, label, text string) {
	if text == "" {
		return
	}
	line := label
	rest := strings.Repeat(" ", len(label))
	filled := false
	for word := range strings.FieldsSeq(clean(text)) {
		if filled && len(indent)+len(line)+1+len(word) > textWidth {
			p.printf("%s%s\n", indent, line)
			line, filled = rest, false
		}
		if filled {
			line += " "
		}
		line += word
		filled = true
	}
	p.printf("%s%s\n", indent, line)
}
