package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/peering"
	"liqo.io/agent/rbac"
)

const (
	kubeconfigFlag = "kubeconfig"
	namespaceFlag  = "namespace"
	outFlag        = "out"
	applyFlag      = "apply"
	deleteFlag     = "delete"
	forceFlag      = "force"
)

func (a *App) rbacCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "rbac",
		usage: "print or install what the agent may do in Kubernetes",
		about: "Print a ServiceAccount for the agent with exactly the rights that it uses, as YAML with a reason\n" +
			"for each rule, and the policy that confines it to what the agent does with them, for those who keep\n" +
			"it under version control. With --apply, install that with an administrator's kubeconfig, and write\n" +
			"a kubeconfig for the ServiceAccount to a place where the agent looks before it takes the\n" +
			"administrator's. A running agent changes over by itself. It can be run again, after an upgrade for\n" +
			"example, and changes only what differs. --delete is the way back.",
		examples: []string{"liqo-agent rbac > rbac.yaml", "sudo liqo-agent rbac --apply", "sudo liqo-agent rbac --delete",
			"liqo-agent rbac --apply --kubeconfig admin.yaml --out ./kubeconfig"},
		flags: []urfave.Flag{
			&urfave.BoolFlag{Name: applyFlag, Usage: "install it, and write the agent's kubeconfig"},
			&urfave.BoolFlag{Name: deleteFlag, Usage: "take what --apply made away again"},
			&urfave.StringFlag{Name: namespaceFlag, Usage: "`NAMESPACE` of the ServiceAccount (default: cluster.namespace of the configuration)"},
			&urfave.StringFlag{Name: kubeconfigFlag, Usage: "`FILE` of an administrator (default: $KUBECONFIG, " + peering.K3sKubeconfig + " or ~/.kube/config)"},
			&urfave.StringFlag{Name: outFlag, Value: peering.AgentKubeconfig, Usage: "`FILE` of the agent"},
			&urfave.BoolFlag{Name: forceFlag, Usage: "with --apply, take over what somebody else made"},
			&urfave.BoolFlag{Name: yesFlag, Aliases: []string{"y"}, Usage: "with --delete, do not ask"},
			&urfave.StringFlag{Name: configFlag, Aliases: []string{"c"}, Usage: "configuration `FILE` of the agent, to find its namespace"},
		},
		formats: []string{formatText, formatJSON, formatYAML},
		values:  fileValues(kubeconfigFlag, outFlag, configFlag),
		run:     runRBAC,
	})
}

func runRBAC(c *call) error {
	namespace, err := c.rbacNamespace()
	if err != nil {
		return err
	}
	switch {
	case c.Bool(applyFlag) && c.Bool(deleteFlag):
		return &usageError{message: "rbac: --apply and --delete exclude each other", try: helpOf("rbac")}
	case c.Bool(applyFlag):
		return c.installRBAC(namespace, rbac.Install)
	case c.Bool(deleteFlag):
		if !c.Bool(yesFlag) && !c.app.opts.Interactive {
			return &usageError{message: "rbac --delete: there is no terminal to ask on whether you are sure", try: Name + " rbac --delete --yes"}
		}
		if err := c.sure("Take the agent's user away? An agent that runs looks for another kubeconfig."); err != nil {
			return err
		}
		return c.installRBAC(namespace, rbac.Uninstall)
	}
	for _, flag := range []string{kubeconfigFlag, outFlag, forceFlag, yesFlag} {
		if c.IsSet(flag) {
			return &usageError{message: fmt.Sprintf("rbac: --%s goes with --apply or --delete", flag), try: helpOf("rbac")}
		}
	}
	manifest := rbac.Manifest
	if c.format == formatJSON {
		manifest = rbac.ManifestJSON
	}
	text, err := manifest(namespace)
	if err == nil {
		c.out.write(text)
	}
	return err
}

// rbacNamespace is the namespace of the agent: that of the option, or that of the
// configuration.
func (c *call) rbacNamespace() (string, error) {
	if c.IsSet(namespaceFlag) {
		return c.String(namespaceFlag), nil
	}
	path := c.String(configFlag)
	loaded, err := config.Load(config.Options{Path: path, PathExplicit: path != "", Env: c.app.opts.Environ})
	if err != nil {
		return "", err
	}
	return loaded.Config.Cluster.Namespace, nil
}

// installRBAC runs Install or Uninstall and shows what it did, also when it failed
// halfway.
func (c *call) installRBAC(namespace string, do func(context.Context, rbac.Options) ([]rbac.Change, error)) error {
	places := []string{peering.K3sKubeconfig}
	if home := c.app.variable("HOME"); home != "" {
		places = append(places, filepath.Join(home, ".kube", "config"))
	}
	admin, err := rbac.AdminKubeconfig(c.String(kubeconfigFlag), c.app.variable, places...)
	if err != nil {
		return c.adviseRBAC(err)
	}
	done, err := do(c.Context.Context, rbac.Options{Admin: admin, Namespace: namespace, Out: c.String(outFlag), Force: c.Bool(forceFlag)})
	if err != nil {
		if c.format == formatText {
			c.out.changes(done)
		}
		return errors.Join(c.adviseRBAC(err), c.out.flush())
	}
	if !c.out.value(done) {
		c.out.changes(done)
	}
	return nil
}

func (p *printer) changes(done []rbac.Change) {
	for _, d := range done {
		name := d.Name
		if d.Namespace != "" {
			name = d.Namespace + "/" + name
		}
		p.printf("%-11s  %s %s\n", d.Result, d.Kind, clean(name))
	}
	if slices.ContainsFunc(done, rbac.Change.Unconfined) {
		p.printf("\nThis API server has no ValidatingAdmissionPolicies (Kubernetes 1.30 has), so nothing confines the agent's user\n" +
			"beyond its roles. Guard its kubeconfig like the administrator's.\n")
	}
}

// adviseRBAC adds what to try.
func (c *call) adviseRBAC(err error) error {
	try := Name + " rbac --" + applyFlag
	if c.Bool(deleteFlag) {
		try = Name + " rbac --" + deleteFlag
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		try = "sudo " + try
	case errors.Is(err, rbac.ErrNoKubeconfig):
		try += " --" + kubeconfigFlag + " FILE"
	case errors.Is(err, rbac.ErrForeign), errors.Is(err, rbac.ErrConflict):
		try += " --" + forceFlag
	default:
		return err
	}
	return &outcome{message: err.Error(), try: try, code: ExitError}
}

// variable returns what the environment says, "" for nothing.
func (a *App) variable(name string) string {
	for _, pair := range a.opts.Environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}
