package reference

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
)

// Page is one manual page.
type Page struct {
	File string // such as liqo-agent-peers.1
	Text string // roff
}

// Manual says what is printed around the pages.
type Manual struct {
	Version string    // of the program; "" leaves it out
	Date    time.Time // the zero time leaves it out
}

const (
	book       = "liqo-agent"
	configPage = "liqo-agent.toml"
)

// Pages returns the overview, a page for each command, and that of the
// configuration file, in this order.
func (m Manual) Pages() []Page {
	commands := cli.Describe()
	out := []Page{m.overview(commands)}
	for _, c := range commands {
		out = append(out, m.command(c))
	}
	return append(out, m.config())
}

func (m Manual) begin(page string, section int, about string) *roff {
	r := new(roff)
	date := ""
	if !m.Date.IsZero() {
		date = m.Date.UTC().Format(time.DateOnly)
	}
	r.title(strings.ToUpper(page), section, date, strings.TrimSpace(command.Name+" "+m.Version), book)
	r.section("NAME")
	fmt.Fprintf(r, "%s \\- %s\n", verbatim(page), line(about))
	return r
}

func pageOf(c cli.Command) string { return command.Name + "-" + c.Path[0] }

func reference(page string, section int) string {
	return fmt.Sprintf("%s(%d)", boldText(page), section)
}

func (m Manual) overview(commands []cli.Command) Page {
	r := m.begin(command.Name, 1, "find the clusters around this one, and let them find it")
	r.section("SYNOPSIS")
	r.WriteString(boldText(command.Name) + " " + italicText("COMMAND") + " [" + italicText("options") + "] [" + italicText("arguments") + "]\n")
	r.section("DESCRIPTION")
	r.paragraphs("Runs beside K3s on an edge device. Finds other clusters on the same network and in DNS domains, creates a ForeignCluster for each " +
		"in the local API server, and peers with the clusters that people choose: one is then a node of the other.\n\n" +
		"Options can be before or after arguments; -- ends them. Every command has --help.")
	r.section("COMMANDS")
	for _, c := range commands {
		r.item(reference(pageOf(c), 1), c.Usage)
	}
	findingTheAgent(r)
	r.section("EXIT STATUS")
	for _, code := range cli.ExitCodes() {
		r.item(boldText(fmt.Sprint(code.Code)), code.Meaning)
	}
	r.paragraph("A second Ctrl-C ends the program at once, with exit code 128 plus the signal number.")
	r.section("ENVIRONMENT")
	r.item(boldText(config.EnvPrefix)+italicText("SECTION_KEY"), "A key of the configuration; it overrides the file. See "+configPage+"(5).")

	for _, name := range variables(commands) {
		r.item(boldText(name), "See the commands with this option.")
	}
	r.item(boldText("NO_COLOR"), "No colour on a terminal.")
	r.section("FILES")
	def := config.Default()
	r.item(italicText(config.DefaultPath), "The configuration (optional).")
	r.item(italicText(def.State.Dir), "The database and the key of this cluster.")
	r.item(italicText(def.State.Socket), "The control socket.")
	r.section("SEE ALSO")
	refs := make([]string, 0, len(commands)+1)
	for _, c := range commands {
		refs = append(refs, reference(pageOf(c), 1))
	}
	r.WriteString(strings.Join(append(refs, reference(configPage, 5)), ",\n") + "\n")
	return Page{command.Name + ".1", r.String()}
}

// paragraph begins a paragraph of text.
func (r *roff) paragraph(text string) {
	r.WriteString(".PP\n")
	r.paragraphs(text)
}

// variables are those that stand for options, and for no key of the configuration.
func variables(commands []cli.Command) []string {
	var out []string
	for _, c := range commands {
		for _, o := range c.Options {
			if o.Key == "" {
				out = append(out, o.Environment...)
			}
		}
		out = append(out, variables(c.Commands)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (m Manual) command(c cli.Command) Page {
	page := pageOf(c)
	r := m.begin(page, 1, c.Usage)
	leaves := leavesOf(c)
	r.section("SYNOPSIS")
	for i, l := range leaves {
		if i > 0 {
			r.WriteString(".br\n")
		}
		typed := strings.Join(append([]string{command.Name}, l.Path...), " ")
		fmt.Fprintf(r, "%s%s\n", boldText(typed), verbatim(strings.TrimPrefix(l.Synopsis, typed)))
	}
	r.section("DESCRIPTION")
	r.paragraphs(c.About)
	asks := false
	if len(c.Commands) == 0 {
		asks = r.options(c, func() { r.section("OPTIONS") })
	} else {
		r.section("COMMANDS")
		for _, l := range leaves {
			r.subsection(strings.Join(l.Path, " ") + " - " + l.Usage)
			r.paragraphs(l.About)
			if r.options(l, func() {}) {
				asks = true
			}
			r.WriteString(".PP\n")
			r.example(l.Examples...)
		}
	}
	if asks {
		findingTheAgent(r)
	}
	r.section("EXAMPLES")
	r.example(c.Examples...)
	r.section("EXIT STATUS")
	r.WriteString("See " + reference(command.Name, 1) + ".\n")
	r.section("SEE ALSO")
	r.WriteString(reference(command.Name, 1) + ",\n" + reference(configPage, 5) + "\n")
	return Page{page + ".1", r.String()}
}

// leavesOf returns the commands in c that do something, or c itself.
func leavesOf(c cli.Command) []cli.Command {
	if len(c.Commands) == 0 {
		return []cli.Command{c}
	}
	var out []cli.Command
	for _, sub := range c.Commands {
		out = append(out, leavesOf(sub)...)
	}
	return out
}

// options writes those that only this command has, after before when there are
// any, and reports whether it also has those by which the agent is found.
func (r *roff) options(c cli.Command, before func()) (asks bool) {
	own, asks := ownOptions(c)
	if len(own) > 0 {
		before()
	}
	for _, o := range own {
		r.option(o)
	}
	return asks
}

func (r *roff) option(o cli.Option) {
	var tag []string
	for _, n := range o.Names {
		one := boldText(n)
		if o.Value != "" {
			one += " " + italicText(o.Value)
		}
		tag = append(tag, one)
	}
	text := sentence(o.Usage) + "."
	if o.Default != "" {
		text += " Default: " + o.Default + "."
	}
	if len(o.Environment) > 0 {
		text += " Environment: " + strings.Join(o.Environment, ", ") + "."
	}
	r.item(strings.Join(tag, ", "), text)
}

func findingTheAgent(r *roff) {
	r.section("FINDING THE AGENT")
	r.paragraphs("Commands that use the running agent or its database have these options:")
	for _, o := range cli.AgentOptions() {
		r.option(o)
	}
}

func (m Manual) config() Page {
	r := m.begin(configPage, 5, "configuration of liqo-agent")
	r.section("SYNOPSIS")
	r.WriteString(italicText(config.DefaultPath) + "\n")
	r.section("DESCRIPTION")
	r.paragraphs("A TOML file. It is optional, and every key has a default. The first of these sources that has a key wins: the ClusterConfig " +
		"liqo-configuration of the cluster, for some keys; an option of its own; --set section.key=value; the environment variable of the key; " +
		"the file; the default.\n\n" +
		"liqo-agent config check lists all errors, liqo-agent config show prints the values in use and the source of each. If a reload finds " +
		"errors, the agent logs them and keeps the old settings. Durations have a unit: " +
		`"30s", "15m", "36h", "90d".`)
	for _, s := range config.Describe() {
		if s.Array {
			r.section("[[" + s.Name + "]]")
			r.paragraphs(s.Doc + " Only in the file.")
		} else {
			r.section("[" + s.Name + "]")
			r.paragraphs(s.Doc)
		}
		for _, k := range s.Keys {
			r.item(boldText(k.Name)+" = "+verbatim(k.Default), k.Doc)
			facts := "Allowed: " + k.Allowed + "."
			if k.Env != "" {
				facts += " Environment: " + k.Env + "."
			}
			r.more(facts + " " + reloads(k.Reload))
		}
	}
	r.section("SEE ALSO")
	r.WriteString(reference(command.Name, 1) + ",\n" + reference(command.Name+"-config", 1) + "\n")
	return Page{configPage + ".5", r.String()}
}

// reloads says when a change of a key takes effect.
func reloads(when string) string {
	switch when {
	case "yes":
		return "A reload changes it."
	case "no":
		return "A change needs a restart."
	}
	return "A reload changes it, by a " + when + "."
}
