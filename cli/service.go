package cli

import (
	"context"
	"errors"
	"strings"

	urfave "github.com/urfave/cli/v2"

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
func systemd() (services, error) { return service.New("") }

func (a *App) serviceCommand() *urfave.Command {
	install := a.leaf(leaf{
		name:  "install",
		usage: "install the agent as a service of systemd",
		about: "Write " + service.Name + ".service to /etc/systemd/system, make the user and the group liqo-agent unless\n" +
			"they are there, and have the service start at boot. It runs this very binary, which must not lie\n" +
			"below /home, /root or /tmp. It may be repeated, for example after an update: a unit that differs is\n" +
			"replaced, and set aside as " + service.Name + ".service.old. With a package this is done already.",
		examples: []string{"sudo liqo-agent service install --start", "sudo liqo-agent service install"},
		flags:    []urfave.Flag{&urfave.BoolFlag{Name: "start", Usage: "start it now, too"}},
		formats:  []string{formatText, formatJSON, formatYAML},
		run:      installService,
	})
	uninstall := a.leaf(leaf{
		name:  "uninstall",
		usage: "stop the service and remove it",
		about: "Stop the service, and remove its unit from /etc/systemd/system. State, configuration, user and\n" +
			"group stay: installed again, the agent is the same cluster and knows its peers.",
		examples: []string{"sudo liqo-agent service uninstall"},
		run: func(c *call) error {
			s, err := c.app.services()
			if err != nil {
				return err
			}
			if err := s.Uninstall(c.Context.Context); err != nil {
				return notFoundIfMissing(err)
			}
			c.out.printf("The service is removed. What the agent knows is kept in /var/lib/liqo-agent, its configuration in /etc/liqo-agent.\n")
			return nil
		},
	})
	return a.branch("service", "install and control the agent as a service of systemd",
		"Install and control the agent as a service of systemd. systemctl and journalctl do as well, with\n"+
			"liqo-agent for the name; liqo-agent config reload has the running one read its configuration.",
		[]string{"sudo liqo-agent service install --start", "liqo-agent service status"},
		install, uninstall,
		a.serviceVerb("start", "start the service", "Start the service, and wait until the agent is ready.", "The service runs.", services.Start),
		a.serviceVerb("stop", "stop the service", "Stop the service, and wait until the agent has said goodbye. It starts again at boot.", "The service is stopped.", services.Stop),
		a.serviceVerb("restart", "stop and start the service", "Stop the service if it runs, start it, and wait until the agent is ready.", "The service runs.", services.Restart),
		a.serviceStatusCommand(), a.serviceUnitCommand())
}

// notFoundIfMissing gives a service that is not installed the exit code of what does not exist.
func notFoundIfMissing(err error) error {
	var missing *service.Error
	if errors.As(err, &missing) && errors.Is(err, service.ErrNotInstalled) {
		return &outcome{message: missing.Message, try: missing.Advice, code: ExitNotFound}
	}
	return err
}

func installService(c *call) error {
	s, err := c.app.services()
	if err != nil {
		return err
	}
	done, err := s.Install(c.Context.Context, c.Bool("start"))
	if err != nil {
		return err
	}
	if c.out.value(done) {
		return nil
	}
	if done.Account {
		c.out.printf("Made the user and the group %s.\n", service.Name)
	}
	switch {
	case done.Replaced != "":
		c.out.printf("Replaced %s; the one from before is %s.\n", done.Path, done.Replaced)
	case done.Changed:
		c.out.printf("Wrote %s.\n", done.Path)
	default:
		c.out.printf("%s is as it should be.\n", done.Path)
	}
	if done.Started {
		c.out.printf("The service runs, and starts at boot.\n")
		return nil
	}
	c.out.printf("The service starts at boot. To start it now: sudo liqo-agent service start\n")
	return nil
}

// serviceVerb is a command that does one thing with the service.
func (a *App) serviceVerb(name, usage, about, done string, do func(services, context.Context) error) *urfave.Command {
	return a.leaf(leaf{
		name: name, usage: usage, about: about,
		examples: []string{"sudo liqo-agent service " + name},
		run: func(c *call) error {
			s, err := c.app.services()
			if err != nil {
				return err
			}
			if err := do(s, c.Context.Context); err != nil {
				return notFoundIfMissing(err)
			}
			c.out.printf("%s\n", done)
			return nil
		},
	})
}

func (a *App) serviceStatusCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "status",
		usage: "say whether the service runs",
		about: "Say whether the service runs and starts at boot, as systemd sees it. The exit code is that of\n" +
			"systemctl status: 0 when it runs, 3 when it does not, 4 when it is not installed. How the agent itself\n" +
			"is, liqo-agent status tells.",
		examples: []string{"liqo-agent service status", "liqo-agent service status -o json"},
		formats:  []string{formatText, formatJSON, formatYAML},
		run: func(c *call) error {
			s, err := c.app.services()
			if err != nil {
				return err
			}
			st, err := s.Status(c.Context.Context)
			if err != nil {
				return err
			}
			if c.out.value(st) && st.Running {
				return nil
			}
			if err := c.out.flush(); err != nil {
				return err
			}
			message := "the" + strings.TrimSuffix(strings.TrimPrefix(st.String(), "The"), ".")
			switch {
			case !st.Installed:
				return &outcome{message: message, try: "sudo liqo-agent service install --start", code: ExitNotFound}
			case !st.Running:
				return &outcome{message: message, try: "sudo liqo-agent service start, or journalctl -u liqo-agent -n 50 --no-pager", code: ExitNotRunning}
			}
			c.out.printf("%s\n", cleanLines(st.String()))
			return nil
		},
	})
}

func (a *App) serviceUnitCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "unit",
		usage: "print the unit file",
		about: "Print the unit file, in which every line is explained. It is the one that packages install, and\n" +
			"service install writes with the path of its own binary.",
		examples: []string{"liqo-agent service unit", "liqo-agent service unit --binary /opt/liqo/liqo-agent"},
		flags:    []urfave.Flag{&urfave.StringFlag{Name: "binary", Usage: "`PATH` of the binary to run", Value: service.PackagedPath}},
		values:   fileValues("binary"),
		run: func(c *call) error {
			c.out.write([]byte(service.Unit(c.String("binary"))))
			return nil
		},
	})
}
