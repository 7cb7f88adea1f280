package reference

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"liqo.io/agent/cli"
)

const intro = `# Commands

<!-- Generated from the command tree: go test ./internal/reference -update -->

All commands and options, as in ` + "`liqo-agent COMMAND --help`" + ` and in the manual pages ` + "`man liqo-agent`" + `, ` + "`man liqo-agent-peers`" + ` and so on.
For scripts (JSON, exit codes, what works without the agent), see [the command line](cli.md).

Options can be before or after arguments; ` + "`--`" + ` ends them. Every command has ` + "`--help`" + `.
`

// Markdown returns docs/commands.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("\n| command | |\n| --- | --- |\n")
	all := cli.Describe()
	for _, c := range all {
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", name(c), heading(c), cell(c.Usage))
	}
	b.WriteString("\n## Finding the agent\n\nCommands that use the running agent or its database have these options:\n\n")
	options(&b, cli.AgentOptions())
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n")
	for _, code := range cli.ExitCodes() {
		fmt.Fprintf(&b, "| %d | %s |\n", code.Code, cell(code.Meaning))
	}
	b.WriteString("\nA second Ctrl-C ends the program at once, with exit code 128 plus the signal number.\n")
	for _, c := range all {
		writeCommand(&b, c, "##")
	}
	return b.String()
}

func writeCommand(b *strings.Builder, c cli.Command, level string) {
	fmt.Fprintf(b, "\n%s %s\n", level, name(c))
	if usage := sentence(c.Usage); !strings.HasPrefix(flow(c.About), usage) {
		fmt.Fprintf(b, "\n%s.\n", prose(usage))
	}
	if len(c.Commands) == 0 {
		fmt.Fprintf(b, "\n    %s\n", c.Synopsis)
	}
	fmt.Fprintf(b, "\n%s\n", prose(flow(c.About)))
	if len(c.Commands) > 0 {
		b.WriteString("\n| command | |\n| --- | --- |\n")
		for _, sub := range c.Commands {
			fmt.Fprintf(b, "| [%s](#%s) | %s |\n", name(sub), heading(sub), cell(sub.Usage))
		}
	}
	own, asks := ownOptions(c)
	if len(own) > 0 {
		b.WriteString("\n")
		options(b, own)
	}
	if asks {
		b.WriteString("\nAnd the options for [finding the agent](#finding-the-agent).\n")
	}
	b.WriteString("\n```console\n")
	for _, example := range c.Examples {
		fmt.Fprintf(b, "$ %s\n", example)
	}
	b.WriteString("```\n")
	for _, sub := range c.Commands {
		writeCommand(b, sub, level+"#")
	}
}

func options(b *strings.Builder, all []cli.Option) {
	b.WriteString("| option | default | environment | meaning |\n| --- | --- | --- | --- |\n")
	for _, o := range all {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", spelled(o), code(o.Default), code(o.Environment...), cell(o.Usage))
	}
}

// spelled returns the names of an option, with the placeholder of its value.
func spelled(o cli.Option) string {
	var out []string
	for _, n := range o.Names {
		out = append(out, code(strings.TrimSpace(n+" "+o.Value)))
	}
	return strings.Join(out, ", ")
}

// ownOptions leaves out those by which the agent is found, and reports whether the
// command has them all.
func ownOptions(c cli.Command) (own []cli.Option, asks bool) {
	shared := cli.AgentOptions()
	has := func(all []cli.Option, o cli.Option) bool {
		return slices.ContainsFunc(all, func(other cli.Option) bool { return reflect.DeepEqual(o, other) })
	}
	for _, o := range shared {
		if !has(c.Options, o) {
			return c.Options, false
		}
	}
	return slices.DeleteFunc(slices.Clone(c.Options), func(o cli.Option) bool { return has(shared, o) }), true
}

func name(c cli.Command) string { return strings.Join(c.Path, " ") }

// heading is the fragment by which a command is linked to.
func heading(c cli.Command) string { return strings.Join(c.Path, "-") }

// flow undoes line breaks within paragraphs.
func flow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(p), " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

// sentence begins with a capital letter, unless its first word is a name.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// prose keeps text from being taken for markup.
func prose(text string) string {
	return strings.NewReplacer("*", `\*`, "<", "&lt;", "|", `\|`, "[", `\[`, "]", `\]`).Replace(text)
}

// cell is prose in a table.
func cell(text string) string { return prose(flow(text)) }

// code is one or more code spans in a table; nothing when there is no text.
func code(texts ...string) string {
	var out []string
	for _, text := range texts {
		if text != "" {
			out = append(out, "`"+strings.ReplaceAll(text, "|", `\|`)+"`")
		}
	}
	return strings.Join(out, ", ")
}
