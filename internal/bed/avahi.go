//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// busConfig lets every process of the host talk to every other one. Debian's own configuration would
// want to switch to a user that a user namespace does not have.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`

// StartAvahi starts avahi-daemon, and the dbus-daemon it needs, with the configuration that Debian
// ships, so that it shares port 5353 with other responders; write the host's
// /etc/avahi/avahi-daemon.conf before to change that. It returns the daemon's process once it is
// established on the network.
func (h *Host) StartAvahi(ctx context.Context) *Process {
	h.bed.t.Helper()
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	daemon, err := h.startAvahi(ctx)
	if err != nil {
		h.bed.t.Fatalf("bed: %v", err)
	}
	return daemon
}

func (h *Host) startAvahi(ctx context.Context) (*Process, error) {
	const busConfigFile = "/run/dbus/bed.conf"
	if err := h.Do(func() error {
		return errors.Join(
			writeFile(busConfigFile, busConfig),
			replaceLine("/etc/passwd", "avahi:", "avahi:x:0:0::/run/avahi-daemon:/usr/sbin/nologin"),
			replaceLine("/etc/group", "avahi:", "avahi:x:0:"),
		)
	}); err != nil {
		return nil, err
	}
	bus, err := h.start(Cmd{Args: []string{"dbus-daemon", "--config-file=" + busConfigFile,
		"--nofork", "--nopidfile", "--print-address"}})
	if err != nil {
		return nil, err
	}
	if err := bus.WaitLog(ctx, "unix:path="); err != nil {
		return nil, err
	}
	// The namespaces are the jail, and root in a user namespace cannot become another user, nor give
	// files to one. Therefore the user avahi is root on this host.
	daemon, err := h.start(Cmd{Args: []string{"avahi-daemon", "--no-drop-root", "--no-chroot", "--no-rlimits"}})
	if err != nil {
		return nil, err
	}
	return daemon, daemon.WaitLog(ctx, "Server startup complete.")
}

// replaceLine replaces the line of a file that starts with a prefix, or appends one. It makes a new
// file, because root in a user namespace may not write to the machine's.
func replaceLine(path, prefix, line string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) }); i >= 0 {
		lines[i] = line
	} else {
		lines = append(lines, line)
	}
	if err := writeFile(path+".new", strings.Join(lines, "\n")+"\n"); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// AvahiInstance is one resolved line of avahi-browse.
type AvahiInstance struct {
	Interface string
	// Protocol is IPv4 or IPv6: over which it was found.
	Protocol           string
	Name, Type, Domain string
	HostName, Address  string
	Port               uint16
	TXT                []string
}

// AvahiBrowse returns what avahi-browse on the host finds and resolves of a service type, such as
// "_liqo._tcp", in about a second. The host must run avahi-daemon.
func (h *Host) AvahiBrowse(ctx context.Context, service string) ([]AvahiInstance, error) {
	out, err := h.Run(ctx, "avahi-browse", "--resolve", "--parsable", "--terminate", service)
	if err != nil {
		return nil, err
	}
	return parseAvahi(out)
}

// parseAvahi reads the parsable output of avahi-browse: fields separated by semicolons, special
// characters as a backslash and three decimal digits, TXT strings quoted.
func parseAvahi(out string) ([]AvahiInstance, error) {
	var found []AvahiInstance
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ";", 10)
		if fields[0] != "=" {
			continue // only announced, resolved later
		}
		if len(fields) != 10 {
			return nil, fmt.Errorf("avahi-browse: %q", line)
		}
		port, err := strconv.ParseUint(fields[8], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("avahi-browse: port: %w", err)
		}
		i := AvahiInstance{
			Interface: fields[1], Protocol: fields[2], Name: unescapeAvahi(fields[3]), Type: fields[4], Domain: fields[5],
			HostName: fields[6], Address: fields[7], Port: uint16(port),
		}
		if txt := strings.TrimSuffix(strings.TrimPrefix(fields[9], `"`), `"`); txt != "" {
			i.TXT = strings.Split(txt, `" "`)
		}
		found = append(found, i)
	}
	return found, nil
}

func unescapeAvahi(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 10, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// AvahiPublish announces a service with avahi-publish until the returned process ends, which takes it
// back with a goodbye if ended by Stop or Kill. It returns when the service is established.
func (h *Host) AvahiPublish(ctx context.Context, name, service string, port uint16, txt ...string) (*Process, error) {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	args := append([]string{"avahi-publish", "--service", name, service, strconv.Itoa(int(port))}, txt...)
	p, err := h.start(Cmd{Args: args})
	if err != nil {
		return nil, err
	}
	return p, p.WaitLog(ctx, "Established under name")
}
