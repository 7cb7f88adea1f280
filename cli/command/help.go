package command

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/cli/render"
)

// help writes what there is to know about the command at path, which is the program of that version if it is "". The
// library for options would write the same, but with text/template: a program that contains it has all methods of all of
// its types, because a template might call any of them.
func (c *Command) help(out *render.Printer, path, version string) {
	out.Printf("NAME:\n   %s - %s\n", strings.TrimSpace(Name+" "+path), c.Usage)
	above, _ := strings.CutSuffix(path, c.Name)
	out.Printf("\nUSAGE:\n   %s\n", strings.TrimSpace(c.Synopsis(strings.TrimSpace(Name+" "+above))))
	options := "OPTIONS"
	if path == "" {
		out.Printf("\nVERSION:\n   %s\n", version)
		options = "GLOBAL OPTIONS"
	}
	out.Printf("\nDESCRIPTION:\n%s", indented(c.About))
	if len(c.Examples) > 0 {
		out.Printf("\n   Example:\n\n%s", indented(indented(strings.Join(c.Examples, "\n"))))
	}
	if c.Group() {
		var lines [][2]string
		for _, sub := range commandCandidates(c.Commands) {
			lines = append(lines, [2]string{sub.Value, sub.Text})
		}
		out.Printf("\nCOMMANDS:\n%s", aligned(lines))
	}
	var lines [][2]string
	for _, f := range c.options() {
		lines = append(lines, describe(f))
	}
	out.Printf("\n%s:\n%s", options, aligned(lines))
}

// describe returns the names of an option with the placeholder of its value, and what it does.
func describe(f urfave.Flag) [2]string {
	d := f.(urfave.DocGenerationFlag)
	var placeholder string
	usage := d.GetUsage()
	if d.TakesValue() {
		placeholder = " value"
		if before, rest, ok := strings.Cut(usage, "`"); ok {
			name, after, _ := strings.Cut(rest, "`")
			placeholder, usage = " "+name, before+name+after
		}
	}
	names := make([]string, 0, 2)
	for _, name := range f.Names() {
		names = append(names, Dashed(name)+placeholder)
	}
	if text := strings.TrimSpace(d.GetDefaultText()); text != "" && f != urfave.HelpFlag && f != urfave.VersionFlag {
		usage += " (default: " + text + ")"
	}
	return [2]string{strings.Join(names, ", "), usage}
}

// indented returns lines of text with three spaces in front.
func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString("   ")
		}
		b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}

// aligned returns lines of two columns.
func aligned(lines [][2]string) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		_, _ = fmt.Fprintf(w, "   %s\t%s\n", line[0], line[1]) // to memory
	}
	_ = w.Flush()
	return b.String()
}
