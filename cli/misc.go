package cli

import (
	"bytes"
	"runtime"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/api"
)

// tree is every command there is.
func (a *App) tree() []*urfave.Command {
	return []*urfave.Command{
		a.runCommand(), a.serviceCommand(),
		a.peersCommand(), a.peerCommand(), a.unpeerCommand(),
		a.inviteCommand(),
		a.infoCommand(),
		a.domainsCommand(), a.advertsCommand(),
		a.scanCommand(),
		a.statusCommand(),
		a.doctorCommand(),
		a.keyCommand(),
		a.fleetCommand(),
		a.logCommand(),
		a.configCommand(), a.stateCommand(), a.resetCommand(),
		a.crdsCommand(),
		a.rbacCommand(),
		a.completionCommand(),
		a.versionCommand(),
		a.helpCommand(),
	}
}

func (a *App) versionCommand() *urfave.Command {
	return a.leaf(leaf{
		name:     "version",
		usage:    "print the version",
		about:    "Print the version of this program. That of the running agent is in liqo-agent status.",
		examples: []string{"liqo-agent version", "liqo-agent version -o json"},
		formats:  []string{formatText, formatJSON, formatYAML},
		run: func(c *call) error {
			v := struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{a.opts.Version, a.opts.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if c.out.value(v) {
				return nil
			}
			c.out.printf("%s %s", Name, v.Version)
			if v.Commit != "" {
				c.out.printf(" (%s)", v.Commit)
			}
			c.out.printf(", %s %s/%s\n", v.Go, v.OS, v.Arch)
			return nil
		},
	})
}

func (a *App) crdsCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "crds",
		usage: "print the custom resource definitions",
		about: "Print the CustomResourceDefinitions that the agent applies to its API server, for those who\n" +
			"keep them under version control.",
		examples: []string{"liqo-agent crds | kubectl apply --server-side -f -", "liqo-agent crds > crds.yaml"},
		run: func(c *call) error {
			for _, m := range api.CRDs() {
				if !bytes.HasPrefix(m.YAML, []byte("---")) {
					c.out.printf("---\n")
				}
				c.out.write(m.YAML)
				if !bytes.HasSuffix(m.YAML, []byte("\n")) {
					c.out.printf("\n")
				}
			}
			return nil
		},
	})
}

func (a *App) helpCommand() *urfave.Command {
	return a.leaf(leaf{
		name:     "help",
		usage:    "show the help of a command",
		args:     "[COMMAND...]",
		about:    "Show the help of a command. It is the same as COMMAND --help.",
		examples: []string{"liqo-agent help", "liqo-agent help peers list"},
		max:      -1,
		run: func(c *call) error {
			return New(a.opts).Run(c.Context.Context, append(append([]string{Name}, c.args...), "--help"))
		},
	})
}
