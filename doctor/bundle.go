package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/api"
	"liqo.io/agent/doctor/bundle"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/peering/install"
)

const (
	// maxPart bounds one file of an archive in bytes.
	maxPart = 8 << 20
	// partTime is how long one of them may take.
	partTime = 15 * time.Second
	// historyTail and journalTail are how much of the past is told.
	historyTail = 1000
	journalTail = "2000"
)

// BundleOptions say how to write a support archive.
type BundleOptions struct {
	// Redact replaces the names of clusters and this machine, and IP addresses, the
	// same by the same.
	Redact bool
}

// material is one file of the archive, and how to come by it.
type material struct {
	name string
	make func(ctx context.Context) ([]byte, error)
}

// Bundle writes a support archive with a report and what helps to understand it, and
// returns what is in it. There are no secrets in it; what could not be had is left out
// and listed. The error says that there is no archive.
func Bundle(ctx context.Context, b *Box, report Report, path string, opts BundleOptions) (bundle.Manifest, error) {
	all := b.materials(report)
	parts := make([]bundle.Part, len(all))
	reasons := make([]string, len(all))
	var group sync.WaitGroup
	for i, m := range all {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, partTime)
			defer cancel()
			content, err := m.make(ctx)
			if err != nil {
				reasons[i] = err.Error()
			}
			parts[i] = bundle.Part{Name: m.name, Content: content}
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return bundle.Manifest{}, err
	}
	manifest := bundle.Manifest{Program: "liqo-agent " + b.opts.Version, At: b.now().UTC(), Redacted: opts.Redact}
	var there []bundle.Part
	for i, p := range parts {
		if reasons[i] != "" {
			manifest.LeftOut = append(manifest.LeftOut, bundle.LeftOut{Name: p.Name, Reason: reasons[i]})
		}
		if reasons[i] == "" || len(p.Content) > 0 {
			there = append(there, p)
		}
	}
	scrubber := bundle.NewScrubber(b.secrets())
	if opts.Redact {
		scrubber.Redact(b.names())
	}
	return bundle.Write(path, manifest, there, scrubber)
}

// materials lists what goes into the archive. Whatever is not here does not.
func (b *Box) materials(report Report) []material {
	out := []material{
		{"doctor.json", func(context.Context) ([]byte, error) { return asJSON(report, nil) }},
		{"status.json", func(ctx context.Context) ([]byte, error) { return asJSON(b.agent.Status(ctx)) }},
		{"peers.json", func(ctx context.Context) ([]byte, error) { return asJSON(b.agent.Peers(ctx, true)) }},
		{"config.toml", b.configText},
		{"versions.txt", b.versions},
		{"links.json", func(context.Context) ([]byte, error) { return asJSON(b.ask.links()) }},
		{"network.json", func(ctx context.Context) ([]byte, error) { return asJSON(b.agent.Network(ctx)) }},
		{"network-routes.txt", func(ctx context.Context) ([]byte, error) {
			return commands(ctx, []string{"ip", "-4", "route", "show", "table", "all", "proto", "241"}, []string{"ip", "-6", "route", "show", "table", "all", "proto", "241"},
				[]string{"ip", "-statistics", "link", "show", connect.Device})
		}},
		{"network-rules.txt", func(ctx context.Context) ([]byte, error) {
			return commands(ctx, []string{"nft", "list", "table", "ip", "liqo"}, []string{"nft", "list", "table", "ip6", "liqo"})
		}},
		{"routes.txt", func(context.Context) ([]byte, error) { return asLines(look.Routes()) }},
		{"unit.txt", func(ctx context.Context) ([]byte, error) {
			return look.Command(ctx, maxPart, "systemctl", "cat", unitName)
		}},
		{"journal.txt", func(ctx context.Context) ([]byte, error) {
			return look.Command(ctx, maxPart, "journalctl", "--unit="+unitName, "--lines="+journalTail, "--no-pager", "--output=short-iso")
		}},
	}
	if client, ok := b.agent.(*client.Client); ok {
		out = append(out,
			material{"history.json", func(ctx context.Context) ([]byte, error) {
				return asJSON(client.History(ctx, "", time.Time{}, historyTail))
			}},
			material{"metrics.txt", func(ctx context.Context) ([]byte, error) { return client.Fetch(ctx, "/metrics", maxPart) }},
			material{"peering.txt", func(ctx context.Context) ([]byte, error) { return client.Fetch(ctx, "/debug/peering", maxPart) }},
			material{"goroutines.txt", func(ctx context.Context) ([]byte, error) {
				return client.Fetch(ctx, "/debug/pprof/goroutine?debug=1", maxPart)
			}})
	}
	for _, m := range api.CRDs() {
		out = append(out, material{"kubernetes/crd-" + m.Name + ".yaml", func(ctx context.Context) ([]byte, error) {
			return b.object(ctx, install.CRDPath+"/"+m.Name)
		}})
		plural, group, _ := strings.Cut(m.Name, ".")
		out = append(out, material{"kubernetes/" + plural + ".yaml", func(ctx context.Context) ([]byte, error) {
			return b.object(ctx, "/apis/"+group+"/v1alpha1/"+plural)
		}})
	}
	return out
}

// object reads what is at a path of the API server, as YAML. Only our own kinds are
// read, which hold no secrets.
func (b *Box) object(ctx context.Context, path string) ([]byte, error) {
	there, err := b.kubernetes(ctx)
	if err = errors.Join(err, there.err); err != nil {
		return nil, err
	}
	var raw map[string]any
	if err := there.client.Get(ctx, path, &raw); err != nil {
		return nil, err
	}
	return yaml.Marshal(raw)
}

// configText is the configuration in use, or else the one that would be.
func (b *Box) configText(ctx context.Context) ([]byte, error) {
	used, err := b.agent.Config(ctx)
	if err == nil {
		return []byte("# in use; read from " + used.Path + "\n" + used.TOML), nil
	}
	if b.loadError != nil {
		return nil, b.loadError
	}
	var text bytes.Buffer
	text.WriteString("# as it would be used; read from " + b.loaded.Path + "\n")
	return text.Bytes(), errors.Join(b.loaded.WriteTOML(&text, true), err)
}

// versions says what this box is made of.
func (b *Box) versions(ctx context.Context) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "liqo-agent (this program): %s\n", b.opts.Version)
	if says, err := b.agentSays(ctx); err == nil {
		fmt.Fprintf(&out, "liqo-agent (running): %s\n", says.status.Version)
	}
	if there, err := b.kubernetes(ctx); err == nil {
		fmt.Fprintf(&out, "Kubernetes: %s at %s\n", there.version, there.server)
	}
	for _, file := range []string{"/proc/sys/kernel/osrelease", "/etc/os-release", "/proc/meminfo", "/proc/loadavg"} {
		if raw, err := b.ask.readFile(file); err == nil {
			fmt.Fprintf(&out, "\n%s:\n%s", file, raw)
		}
	}
	return out.Bytes(), nil
}

// keyLine finds the lines of a PEM file and values of a kubeconfig that are secrets.
var (
	pemKey     = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----([A-Za-z0-9+/=\s]*)-----END`)
	kubeSecret = regexp.MustCompile(`(?m)(?:client-key-data|token|password):\s*"?([^\s"]+)`)
)

// secrets returns the secrets of this box as far as this user may read them, to be
// looked for in what goes into an archive.
func (b *Box) secrets() []string {
	var out []string
	add := func(path string, find *regexp.Regexp) {
		raw, err := b.ask.readFile(path)
		if err != nil {
			return // what may not be read, or is not there, cannot get into the archive that way
		}
		for _, match := range find.FindAllSubmatch(raw, -1) {
			for line := range strings.FieldsSeq(string(match[1])) {
				out = append(out, line)
			}
		}
	}
	keys, _ := filepath.Glob(filepath.Join(b.stateDir, "*.key"))
	for _, path := range keys {
		add(path, pemKey)
	}
	if there, ok := b.api.had(); ok {
		for _, path := range filepath.SplitList(there.value.place) {
			add(path, kubeSecret)
		}
	}
	add("/var/lib/rancher/k3s/server/token", regexp.MustCompile(`(?s)^\s*(\S+)`))
	for _, pair := range b.opts.Environ {
		if name, value, ok := strings.Cut(pair, "="); ok && sensitive.MatchString(name) {
			out = append(out, value)
		}
	}
	return out
}

// sensitive finds names of variables whose values are secrets.
var sensitive = regexp.MustCompile(`(?i)token|secret|passw|credential|_key$|apikey`)

// names returns what clusters and this machine are called.
func (b *Box) names() []string {
	var out []string
	if host, err := os.Hostname(); err == nil {
		out = append(out, host)
	}
	if says, ok := b.running.had(); ok && says.err == nil {
		out = append(out, says.value.status.Identity.Name)
		for _, p := range says.value.peers {
			out = append(out, p.Name, p.Alias)
		}
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" || name == "localhost" })
}

func asJSON[T any](v T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}

// commands returns what commands about the network between clusters print, one after the other, and why some did not.
func commands(ctx context.Context, all ...[]string) ([]byte, error) {
	if _, err := net.InterfaceByName(connect.Device); err != nil {
		return []byte("there is no device " + connect.Device + ": no networks are connected\n"), nil
	}
	var out []byte
	var failed []error
	for _, c := range all {
		text, err := look.Command(ctx, maxPart, c[0], c[1:]...)
		out, failed = append(out, text...), append(failed, err)
	}
	return out, errors.Join(failed...)
}

func asLines(text []string, err error) ([]byte, error) {
	if len(text) == 0 {
		return nil, err
	}
	return []byte(strings.Join(text, "\n") + "\n"), err
}
