//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

const (
	// bindDir has everything that named reads and writes. Debian's AppArmor profile allows it that.
	bindDir = "/var/cache/bind"
	// bindRun is where the key is that nsupdate and named share.
	bindRun = "/run/named"
	// rndcKey is what rndc and named share.
	rndcKey = bindDir + "/rndc.key"
)

// Zone is a zone that BIND serves.
type Zone struct {
	// Name is that of the zone, without a trailing dot.
	Name string
	// Text is the master file. Names without a trailing dot are below Name. Without $TTL it is 60 s.
	// Without an SOA record it gets one, whose serial grows with every Rewrite and whose negative TTL
	// is 5 s, and an NS record.
	Text string
	// Dynamic allows Update.
	Dynamic bool
	// Options are further statements for the zone, such as "dnssec-policy default; inline-signing yes;".
	Options string
}

// BINDConfig is what named is told besides its zones.
type BINDConfig struct {
	// Options are statements for the options block, such as "recursion yes; forwarders { 10.77.0.2; };".
	// Without them it answers for its zones only, and does not validate.
	Options string
	// Statements are further ones for the top level, such as trust-anchors.
	Statements string
}

// BIND is a running named. Its methods may be called from any goroutine.
type BIND struct {
	host    *Host
	process *Process

	mu      sync.Mutex
	serials map[string]uint32 // that we gave to zones
}

// StartBIND starts BIND 9 on the host: an authoritative server for the zones, for everybody, on port 53
// of all addresses that the host has now, or gets later within a second. It returns as soon as all zones
// are served.
func (h *Host) StartBIND(ctx context.Context, zones ...Zone) *BIND {
	h.bed.t.Helper()
	return h.StartBINDWith(ctx, BINDConfig{}, zones...)
}

// StartBINDWith is StartBIND with a configuration of one's own.
func (h *Host) StartBINDWith(ctx context.Context, config BINDConfig, zones ...Zone) *BIND {
	h.bed.t.Helper()
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	b, err := h.startBIND(ctx, config, zones)
	if err != nil {
		h.bed.t.Fatalf("bed: %v", err)
	}
	return b
}

func (h *Host) startBIND(ctx context.Context, config BINDConfig, zones []Zone) (*BIND, error) {
	b := &BIND{host: h, serials: make(map[string]uint32)}
	if err := h.Do(func() error {
		// The directory belongs to the machine, whose files root in a user namespace may not replace.
		if err := unix.Mount("tmpfs", bindDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w (install bind9: hack/setup.sh)", bindDir, err)
		}
		return os.MkdirAll(bindRun, 0o755)
	}); err != nil {
		return nil, err
	}
	if _, err := h.Run(ctx, "rndc-confgen", "-a", "-c", rndcKey); err != nil {
		return nil, err
	}
	files := map[string]string{"named.conf": namedConf(config, zones)}
	for _, z := range zones {
		files[zoneFile(z.Name)] = b.complete(z)
	}
	if err := h.Do(func() error {
		for name, text := range files {
			if err := writeFile(filepath.Join(bindDir, name), text); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	// It says which line of which zone is wrong, where named would serve the others.
	if out, err := h.Run(ctx, "named-checkconf", "-z", bindDir+"/named.conf"); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	// The namespaces are the jail; -g is: in the foreground, log to standard error.
	var err error
	if b.process, err = h.start(Cmd{Args: []string{"named", "-g", "-c", bindDir + "/named.conf"}}); err != nil {
		return nil, err
	}
	if err := b.process.WaitLog(ctx, "all zones loaded"); err != nil {
		return nil, err
	}
	for _, z := range zones {
		if _, err := b.Serial(ctx, z.Name); err != nil {
			return nil, err
		}
	}
	return b, b.process.WaitLog(ctx, "running\n")
}

func zoneFile(name string) string { return "db." + name }

func namedConf(config BINDConfig, zones []Zone) string {
	options := config.Options
	if options == "" {
		options = "recursion no; dnssec-validation no;"
	}
	var c strings.Builder
	fmt.Fprintf(&c, `include "%s";
controls { inet 127.0.0.1 port 953 allow { 127.0.0.1; } keys { "rndc-key"; }; };
options {
	directory "%s";
	listen-on { any; };
	listen-on-v6 { any; };
	interface-interval 0;
	automatic-interface-scan yes;
	allow-query { any; };
	notify no;
	minimal-responses no-auth-recursive;
	max-records-per-type 0; // 100 by default, which a domain with more clusters needs to be changed
	%s
};
%s
`, rndcKey, bindDir, options, config.Statements)
	for _, z := range zones {
		fmt.Fprintf(&c, "zone %q {\n\ttype primary;\n\tfile %q;\n", z.Name, zoneFile(z.Name))
		if z.Dynamic {
			c.WriteString("\tupdate-policy local;\n")
		}
		fmt.Fprintf(&c, "\t%s\n};\n", z.Options)
	}
	return c.String()
}

// soaRecord finds an SOA record in a master file.
var soaRecord = regexp.MustCompile(`(?im)^[^;\n"]*\sSOA\s`)

// complete adds to a zone's text what it lacks.
func (b *BIND) complete(z Zone) string {
	text := z.Text
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if soaRecord.MatchString(text) {
		return "$TTL 60\n" + text
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serials[z.Name]++
	return fmt.Sprintf("$TTL 60\n@ SOA ns.bed.invalid. hostmaster.bed.invalid. %d 60 60 3600 5\n@ NS ns.bed.invalid.\n%s",
		b.serials[z.Name], text)
}

// Process returns the process of named.
func (b *BIND) Process() *Process { return b.process }

// Stop ends named.
func (b *BIND) Stop() error { return b.process.Stop() }

// Update changes a dynamic zone with commands of nsupdate(1), such as "update add a.example.com 60 A 192.0.2.1",
// one a line. They take effect together and before it returns.
func (b *BIND) Update(ctx context.Context, commands string) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	_, err := b.host.RunInput(ctx, strings.TrimSpace(commands)+"\nsend\n", "nsupdate", "-l")
	return err
}

// Rewrite replaces the text of a zone that is served, and returns when the new one is. An SOA record in it
// must have a greater serial than the one before. A text that BIND refuses is an error and changes nothing.
func (b *BIND) Rewrite(ctx context.Context, z Zone) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	before, err := b.Serial(ctx, z.Name)
	if err != nil {
		return err
	}
	b.mu.Lock()
	if own, ok := b.serials[z.Name]; ok {
		b.serials[z.Name] = max(own, before) // updates have counted it up, too
	}
	b.mu.Unlock()
	text := b.complete(z)
	wanted, err := serialOf(z.Name, text)
	if err != nil {
		return err
	}
	// A scratch file, so that a text with a mistake never is the zone's.
	scratch := filepath.Join(bindDir, "new."+z.Name)
	if err := b.host.Do(func() error { return writeFile(scratch, text) }); err != nil {
		return err
	}
	if out, err := b.host.Run(ctx, "named-checkzone", z.Name, scratch); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	after := []string{"reload", z.Name}
	if z.Dynamic {
		if err := b.freeze(ctx, z.Name); err != nil {
			return err
		}
		after = []string{"thaw", z.Name}
	}
	if err := b.host.Do(func() error { return os.Rename(scratch, filepath.Join(bindDir, zoneFile(z.Name))) }); err != nil {
		return err
	}
	if err := b.rndc(ctx, after...); err != nil {
		return err
	}
	return Poll(ctx, func() error {
		serial, err := b.Serial(ctx, z.Name)
		if err == nil && int32(serial-wanted) < 0 { // RFC 1982; a signed zone's serial runs ahead
			err = fmt.Errorf("zone %s has serial %d, and not yet %d", z.Name, serial, wanted)
		}
		return err
	})
}

// freeze stops updates of a dynamic zone, and returns when its master file has all of them. rndc returns
// while named is still writing that file, which would then take the place of one that is put there.
func (b *BIND) freeze(ctx context.Context, zone string) error {
	if err := b.rndc(ctx, "freeze", zone); err != nil {
		return err
	}
	served, err := b.Serial(ctx, zone)
	if err != nil {
		return err
	}
	return Poll(ctx, func() error {
		var text []byte
		err := b.host.Do(func() (err error) {
			text, err = os.ReadFile(filepath.Join(bindDir, zoneFile(zone)))
			return err
		})
		if err != nil {
			return err
		}
		written, err := serialOf(zone, string(text))
		if err == nil && written != served {
			err = fmt.Errorf("zone %s is written with serial %d, and served with %d", zone, written, served)
		}
		return err
	})
}

// Serial returns the serial number of the zone as it is served now.
func (b *BIND) Serial(ctx context.Context, zone string) (uint32, error) {
	out, err := b.host.Run(ctx, "dig", "@127.0.0.1", "+short", "+norecurse", "+time=2", zone, "SOA")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(out)
	if len(fields) != 7 {
		return 0, fmt.Errorf("zone %s is not served: %q", zone, out)
	}
	n, err := strconv.ParseUint(fields[2], 10, 32)
	return uint32(n), err
}

func (b *BIND) rndc(ctx context.Context, args ...string) error {
	_, err := b.host.Run(ctx, append([]string{"rndc", "-s", "127.0.0.1", "-k", rndcKey}, args...)...)
	return err
}

// serialOf returns the serial number in a master file.
func serialOf(zone, text string) (uint32, error) {
	p := dns.NewZoneParser(strings.NewReader(text), dns.Fqdn(zone), "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa.Serial, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("no SOA record in the new text of zone %s", zone), p.Err())
}
