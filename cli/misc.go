package cli

import (
	"bytes"
	"runtime"

	"liqo.io/agent/api"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

func versionCommand() command.Command {
	return command.Command{
		Name:     "version",
		Usage:    "print the version",
		About:    "Print the version of this program. liqo-agent status shows the version of the running agent.",
		Examples: []string{"liqo-agent version", "liqo-agent version -o json"},
		Formats:  []string{render.Text, render.JSON, render.YAML},
		Run: func(c *command.Call) error {
			v := struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{c.Options.Version, c.Options.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if c.Out.Value(v) {
				return nil
			}
			c.Out.Printf("%s %s", command.Name, v.Version)
			if v.Commit != "" {
				c.Out.Printf(" (%s)", v.Commit)
			}
			c.Out.Printf(", %s %s/%s\n", v.Go, v.OS, v.Arch)
			return nil
		},
	}
}

func crdsCommand() command.Command {
	return command.Command{
		Name:  "crds",
		Usage: "print the CustomResourceDefinitions",
		About: "Print the CustomResourceDefinitions that the agent applies to its API server, for example to\n" +
			"keep them in version control.",
		Examples: []string{"liqo-agent crds | kubectl apply --server-side -f -", "liqo-agent crds > crds.yaml"},
		Run: func(c *command.Call) error {
			for _, m := range api.CRDs() {
				if !bytes.HasPrefix(m.YAML, []byte("---")) {
					c.Out.Printf("---\n")
				}
				c.Out.Write(m.YAML)
				if !bytes.HasSuffix(m.YAML, []byte("\n")) {
					c.Out.Printf("\n")
				}
			}
			return nil
		},
	}
}

func helpCommand() command.Command {
	return command.Command{
		Name:     "help",
		Usage:    "show help for a command",
		Args:     "[COMMAND...]",
		About:    "Show help for a command. COMMAND --help does the same.",
		Examples: []string{"liqo-agent help", "liqo-agent help peers list"},
		Max:      -1,
		Run: func(c *command.Call) error {
			return New(c.Options).Run(c.Ctx(), append(append([]string{command.Name}, c.Args...), "--help"))
		},
	}
}
