package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/connect"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/network"
	"liqo.io/agent/service"
)

// services is what the service commands need of systemd.
type services interface {
	Install(ctx context.Context, start bool) (service.Installed, error)
	Uninstall(ctx context.Context) error
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Restart(ctx context.Context) error
	Status(ctx context.Context) (service.Status, error)
}

// systemd is the services of this machine.
func systemd() (services, error) {
	m, err := service.New("")
	return units{m}, err
}

// units are services that leave nothing behind.
type units struct{ *service.Manager }

// Uninstall also removes what outlives the agent in the network of this machine.
func (u units) Uninstall(ctx context.Context) error {
	if err := u.Manager.Uninstall(ctx); err != nil {
		return err
	}
	if err := network.Clear(connect.Device); err != nil {
		return fmt.Errorf("the service is removed, but its network is still set up, until the machine is restarted: %w", err)
	}
	return nil
}

func serviceCommand(of func() (services, error)) command.Command {
	install := command.Command{
		Name:  "install",
		Usage: "install the systemd service",
		About: "Write /etc/systemd/system/" + service.Name + ".service, create the user and the group liqo-agent if they do\n" +
			"not exist, and enable the service at boot. The service runs this binary, which must not be below\n" +
			"/home, /root or /tmp. Run it again after an update: a changed unit is replaced, and the old one is\n" +
			"kept as " + service.Name + ".service.old. The packages do all this for you.",
		Examples: []string{"sudo liqo-agent service install --start", "sudo liqo-agent service install"},
		Flags:    []urfave.Flag{&urfave.BoolFlag{Name: "start", Usage: "start the service now"}},
		Formats:  []string{render.Text, render.JSON, render.YAML},
		Run:      func(c *command.Call) error { return installService(c, of) },
	}
	uninstall := command.Command{
		Name:  "uninstall",
		Usage: "stop and remove the systemd service",
		About: "Stop the service and remove its unit from /etc/systemd/system. State, configuration, user and\n" +
			"group stay: installed again, the agent is the same cluster and knows its peers.",
		Examples: []string{"sudo liqo-agent service uninstall"},
		Run: func(c *command.Call) error {
			s, err := of()
			if err != nil {
				return err
			}
			if err := s.Uninstall(c.Ctx()); err != nil {
				return notFoundIfMissing(err)
			}
			c.Out.Printf("Removed the service. The state stays in /var/lib/liqo-agent, the configuration in /etc/liqo-agent.\n")
			return nil
		},
	}
	return command.Command{
		Name:  "service",
		Usage: "install and control the systemd service",
		About: "Install the agent as a systemd service, and control the service. systemctl and journalctl work\n" +
			"too; the unit is liqo-agent.",
		Examples: []string{"sudo liqo-agent service install --start", "liqo-agent service status"},
		Commands: []command.Command{
			install,
			uninstall,
			serviceVerb(of, "start", "start the service", "Start the service and wait until the agent is ready.", "The service is running.", services.Start),
			serviceVerb(of, "stop", "stop the service", "Stop the service and wait until the agent has said goodbye to its peers. It starts again at boot.", "The service is stopped.", services.Stop),
			serviceVerb(of, "restart", "restart the service", "Restart the service and wait until the agent is ready.", "The service is running.", services.Restart),
			serviceStatusCommand(of),
			serviceUnitCommand(),
		},
	}
}

// notFoundIfMissing gives a service that is not installed the exit code of what does not exist.
func notFoundIfMissing(err error) error {
	var missing *service.Error
	if errors.As(err, &missing) && errors.Is(err, service.ErrNotInstalled) {
		return &command.Error{Message: missing.Message, Advice: missing.Advice, Code: command.ExitNotFound}
	}
	return err
}

func installService(c *command.Call, of func() (services, error)) error {
	s, err := of()
	if err != nil {
		return err
	}
	done, err := s.Install(c.Ctx(), c.Bool("start"))
	if err != nil {
		return err
	}
	if c.Out.Value(done) {
		return nil
	}
	if done.Account {
		c.Out.Printf("Created the user and the group %s.\n", service.Name)
	}
	switch {
	case done.Replaced != "":
		c.Out.Printf("Replaced %s; the old unit is %s.\n", done.Path, done.Replaced)
	case done.Changed:
		c.Out.Printf("Wrote %s.\n", done.Path)
	default:
		c.Out.Printf("%s is up to date.\n", done.Path)
	}
	if done.Started {
		c.Out.Printf("The service is running, and starts at boot.\n")
		return nil
	}
	c.Out.Printf("The service starts at boot. To start it now: sudo liqo-agent service start\n")
	return nil
}

// serviceVerb is a command that does one thing with the service.
func serviceVerb(of func() (services, error), name, usage, about, done string, do func(services, context.Context) error) command.Command {
	return command.Command{
		Name: name, Usage: usage, About: about,
		Examples: []string{"sudo liqo-agent service " + name},
		Run: func(c *command.Call) error {
			s, err := of()
			if err != nil {
				return err
			}
			if err := do(s, c.Ctx()); err != nil {
				return notFoundIfMissing(err)
			}
			c.Out.Printf("%s\n", done)
			return nil
		},
	}
}

func serviceStatusCommand(of func() (services, error)) command.Command {
	return command.Command{
		Name:  "status",
		Usage: "show whether the service runs",
		About: "Show whether the service runs and starts at boot, as systemd sees it. Exit code: 0 it runs, 3 it\n" +
			"does not run, 4 it is not installed. For the agent itself, see liqo-agent status.",
		Examples: []string{"liqo-agent service status", "liqo-agent service status -o json"},
		Formats:  []string{render.Text, render.JSON, render.YAML},
		Run: func(c *command.Call) error {
			s, err := of()
			if err != nil {
				return err
			}
			st, err := s.Status(c.Ctx())
			if err != nil {
				return err
			}
			if c.Out.Value(st) && st.Running {
				return nil
			}
			if err := c.Out.Flush(); err != nil {
				return err
			}
			message := "the" + strings.TrimSuffix(strings.TrimPrefix(st.String(), "The"), ".")
			switch {
			case !st.Installed:
				return &command.Error{Message: message, Advice: "sudo liqo-agent service install --start", Code: command.ExitNotFound}
			case !st.Running:
				return &command.Error{Message: message, Advice: "sudo liqo-agent service start, or journalctl -u liqo-agent -n 50 --no-pager", Code: command.ExitNotRunning}
			}
			c.Out.Printf("%s\n", render.CleanLines(st.String()))
			return nil
		},
	}
}

func serviceUnitCommand() command.Command {
	return command.Command{
		Name:  "unit",
		Usage: "print the systemd unit",
		About: "Print the systemd unit, which explains every line. It is the unit that the packages install;\n" +
			"service install writes it with the path of its own binary.",
		Examples: []string{"liqo-agent service unit", "liqo-agent service unit --binary /opt/liqo/liqo-agent"},
		Flags:    []urfave.Flag{&urfave.StringFlag{Name: "binary", Usage: "`PATH` of the binary that the unit runs", Value: service.PackagedPath}},
		Values:   command.FileValues("binary"),
		Run: func(c *command.Call) error {
			c.Out.Write([]byte(service.Unit(c.String("binary"))))
			return nil
		},
	}
}
