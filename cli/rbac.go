package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/rbac"
)

const (
	kubeconfigFlag = "kubeconfig"
	namespaceFlag  = "namespace"
	outFlag        = "out"
	applyFlag      = "apply"
	engineFlag     = "engine"
	deleteFlag     = "delete"
	forceFlag      = "force"
)

func rbacCommand() command.Command {
	return command.Command{
		Name:  "rbac",
		Usage: "print or install the agent's Kubernetes permissions",
		About: "Print a ServiceAccount with exactly the permissions that the agent uses and a reason for each,\n" +
			"and the policies that restrict how the agent can use them, as YAML. With --apply, install them\n" +
			"with an administrator's kubeconfig, and write a kubeconfig for the ServiceAccount. A running\n" +
			"agent switches to it automatically. Run it again after an upgrade: only differences are changed.\n" +
			"--delete removes what --apply installed. With --engine liqo, the permissions that it takes to\n" +
			"have Liqo 1.x peer clusters are added; see the setting peering.engine.",
		Examples: []string{"liqo-agent rbac > rbac.yaml", "sudo liqo-agent rbac --apply", "sudo liqo-agent rbac --delete",
			"liqo-agent rbac --apply --kubeconfig admin.yaml --out ./kubeconfig"},
		Flags: []urfave.Flag{
			&urfave.BoolFlag{Name: applyFlag, Usage: "install the permissions, and write the agent's kubeconfig"},
			&urfave.BoolFlag{Name: deleteFlag, Usage: "remove what --apply installed"},
			&urfave.StringFlag{Name: engineFlag, Value: string(engine.Builtin), Usage: "`ENGINE` that is to peer clusters: builtin, or liqo for permissions to drive Liqo as well"},
			&urfave.StringFlag{Name: namespaceFlag, Usage: "`NAMESPACE` of the ServiceAccount (default: cluster.namespace in the configuration)"},
			&urfave.StringFlag{Name: kubeconfigFlag, Usage: "administrator's kubeconfig `FILE` (default: $KUBECONFIG, " + conn.K3sKubeconfig + " or ~/.kube/config)"},
			&urfave.StringFlag{Name: outFlag, Value: conn.AgentKubeconfig, Usage: "`FILE` for the agent's kubeconfig"},
			&urfave.BoolFlag{Name: forceFlag, Usage: "with --apply: replace objects and files that somebody else created, and share a namespace with other service accounts"},
			command.YesOption("with --delete: do not ask"),
			&urfave.StringFlag{Name: command.ConfigFlag, Aliases: []string{"c"}, Usage: "configuration `FILE` of the agent; names its namespace"},
		},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Values:  command.FileValues(kubeconfigFlag, outFlag, command.ConfigFlag),
		Run:     runRBAC,
	}
}

func runRBAC(c *command.Call) error {
	namespace, err := rbacNamespace(c)
	if err != nil {
		return err
	}
	liqo := c.String(engineFlag) == string(engine.Liqo)
	switch {
	case !liqo && c.String(engineFlag) != string(engine.Builtin):
		return command.UsageError(fmt.Sprintf("rbac: --engine %s: builtin or liqo is wanted", c.String(engineFlag)), command.HelpOf("rbac"))
	case c.Bool(applyFlag) && c.Bool(deleteFlag):
		return command.UsageError("rbac: --apply and --delete cannot be combined", command.HelpOf("rbac"))
	case c.Bool(applyFlag):
		return installRBAC(c, namespace, rbac.Install)
	case c.Bool(deleteFlag):
		if err := c.Sure("Remove the agent's ServiceAccount? A running agent looks for another kubeconfig."); err != nil {
			return err
		}
		return installRBAC(c, namespace, rbac.Uninstall)
	}
	for _, flag := range []string{kubeconfigFlag, outFlag, forceFlag, command.YesFlag} {
		if c.IsSet(flag) {
			return command.UsageError(fmt.Sprintf("rbac: --%s needs --apply or --delete", flag), command.HelpOf("rbac"))
		}
	}
	manifest := rbac.Manifest
	if c.Format == render.JSON {
		manifest = rbac.ManifestJSON
	}
	text, err := manifest(namespace, liqo)
	if err == nil {
		c.Out.Write(text)
	}
	return err
}

// rbacNamespace is the namespace of the agent: that of the option, or that of the
// configuration.
func rbacNamespace(c *command.Call) (string, error) {
	if c.IsSet(namespaceFlag) {
		return c.String(namespaceFlag), nil
	}
	loaded, err := c.Load()
	if err != nil {
		return "", err
	}
	return loaded.Config.Cluster.Namespace, nil
}

// installRBAC runs Install or Uninstall and shows what it did, also when it failed
// halfway.
func installRBAC(c *command.Call, namespace string, do func(context.Context, rbac.Options) ([]rbac.Change, error)) error {
	places := []string{conn.K3sKubeconfig}
	if home := c.Options.Variable("HOME"); home != "" {
		places = append(places, filepath.Join(home, ".kube", "config"))
	}
	admin, err := rbac.AdminKubeconfig(c.String(kubeconfigFlag), c.Options.Variable, places...)
	if err != nil {
		return adviseRBAC(c, err)
	}
	done, err := do(c.Ctx(), rbac.Options{Admin: admin, Namespace: namespace, Out: c.String(outFlag), Liqo: c.String(engineFlag) == string(engine.Liqo), Force: c.Bool(forceFlag)})
	if err != nil {
		if c.Format == render.Text {
			changes(c.Out, done)
		}
		return errors.Join(adviseRBAC(c, err), c.Out.Flush())
	}
	if !c.Out.Value(done) {
		changes(c.Out, done)
	}
	return nil
}

func changes(p *render.Printer, done []rbac.Change) {
	for _, d := range done {
		name := d.Name
		if d.Namespace != "" {
			name = d.Namespace + "/" + name
		}
		p.Printf("%-11s  %s %s\n", d.Result, d.Kind, render.Clean(name))
	}
	if slices.ContainsFunc(done, rbac.Change.Unconfined) {
		p.Printf("\nThis API server has no ValidatingAdmissionPolicies (new in Kubernetes 1.30), so only its roles restrict the\n" +
			"agent. Protect its kubeconfig like the administrator's.\n")
	}
}

// adviseRBAC adds what to try.
func adviseRBAC(c *command.Call, err error) error {
	try := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		try = "sudo " + c.Line()
	case errors.Is(err, rbac.ErrNoKubeconfig):
		try = "the same command with the right --" + kubeconfigFlag + " FILE"
	case errors.Is(err, rbac.ErrForeign), errors.Is(err, rbac.ErrConflict), errors.Is(err, rbac.ErrShared):
		try = c.Line("--" + forceFlag)
	default:
		return err
	}
	return &command.Error{Message: err.Error(), Advice: try, Code: command.ExitError}
}
