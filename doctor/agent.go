package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/service"
)

// unitName is the agent's service.
const unitName = "liqo-agent.service"

func checkAgent(ctx context.Context, b *Box) []Finding {
	says, err := b.agentSays(ctx)
	switch {
	case errors.Is(err, control.ErrNotRunning):
		return []Finding{{Code: "agent-stopped", Status: Error, What: fmt.Sprintf("the agent is not running (nothing answers on %s)", b.socket),
			Why: "this cluster finds no clusters, and none finds it; other clusters keep existing peerings for a while",
			Do:  []string{service.StartCommand(), "if it was running, check its log: journalctl -u liqo-agent -n 50"}}}
	case errors.Is(err, control.ErrPermission):
		return []Finding{unasked(err)}
	case err != nil:
		return []Finding{{Code: "agent-hangs", Status: Error, What: fmt.Sprintf("the agent does not answer on %s: %v", b.socket, err),
			Why: "its state is not known; the watchdog of the service restarts an agent that hangs",
			Do:  []string{"journalctl -u liqo-agent -n 50", "sudo systemctl restart liqo-agent"}}}
	}
	return judgeAgent(says.status, b.opts.Version)
}

// judgeAgent says what the agent reports of itself.
func judgeAgent(st control.Status, version string) []Finding {
	var out []Finding
	if st.Version != version {
		out = append(out, Finding{Code: "agent-version", Status: Warning, What: fmt.Sprintf("the running agent is version %s, and this program is %s", st.Version, version),
			Why: "after an update, the old version runs until a restart, without the fixes of the new one", Do: []string{"sudo systemctl restart liqo-agent"}})
	}
	for _, p := range st.Problems {
		f := Finding{Code: p.Code, Status: Warning, What: p.Text, Why: "the agent itself reports this problem"}
		if p.Severity == string(Error) {
			f.Status = Error
		}
		if p.Remedy != "" {
			f.Do = []string{p.Remedy}
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		out = append(out, fine("version %s has been running for %s and reports no problems", st.Version, (time.Duration(st.UptimeSeconds)*time.Second).String()))
	}
	return out
}

func checkService(ctx context.Context, b *Box) []Finding {
	unit, err := b.ask.unit(ctx, unitName)
	if err != nil {
		return []Finding{skipped("%v", err)}
	}
	_, running := b.agentSays(ctx)
	return judgeUnit(unit, running == nil)
}

// manyRestarts is how often an agent may have been started again by itself before
// somebody should look.
const manyRestarts = 3

// judgeUnit says what systemd knows about the agent.
func judgeUnit(u look.Unit, agentRuns bool) []Finding {
	const logs = "journalctl -u liqo-agent -n 100"
	var out []Finding
	switch {
	case !u.Loaded && agentRuns:
		return []Finding{info("service-missing", "the agent runs, but not as a service, so it does not start at boot (sudo liqo-agent service install)")}
	case !u.Loaded:
		return []Finding{skipped("the agent is not installed as a service (sudo liqo-agent service install)")}
	case u.Active == "failed":
		out = append(out, Finding{Code: "service-failed", Status: Error, What: "systemd gave up on the agent: " + u.Result, Why: "systemd does not restart it until you start it",
			Do: []string{"find out why: " + logs, "sudo systemctl reset-failed liqo-agent && sudo systemctl start liqo-agent"}})
	case u.Restarts > manyRestarts:
		out = append(out, Finding{Code: "service-restarts", Status: Warning, What: fmt.Sprintf("systemd restarted the agent %d times", u.Restarts),
			Why: "each time, peers lose their connections, and do not see this box for a moment", Do: []string{"find out why: " + logs}})
	}
	if u.Enabled != "enabled" && u.Enabled != "enabled-runtime" && u.Enabled != "static" && u.Enabled != "generated" {
		out = append(out, Finding{Code: "service-disabled", Status: Warning, What: "the service is " + orNone(u.Enabled) + ", so it does not start at boot",
			Why: "after a power cut, other clusters do not find this one", Do: []string{"sudo systemctl enable liqo-agent"}})
	}
	if len(out) == 0 {
		out = append(out, fine("enabled and %s, restarted %d times", u.Active, u.Restarts))
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "not enabled"
	}
	return s
}

func checkConfig(ctx context.Context, b *Box) []Finding {
	if unreadable(b.loadError) && !b.opts.Root {
		return []Finding{skipped("this user may not read the configuration: use sudo")}
	}
	if b.loadError != nil {
		return []Finding{{Code: "config-bad", Status: Error, What: "the configuration is invalid: " + strings.ReplaceAll(strings.TrimSpace(b.loadError.Error()), "\n", "; "),
			Why: "a running agent keeps its old configuration, and does not start again with this one", Do: []string{"list the mistakes and correct them: liqo-agent config check"}}}
	}
	var used *control.Config
	if _, err := b.agentSays(ctx); err == nil {
		if in, err := b.agent.Config(ctx); err == nil {
			used = &in
		}
	}
	return judgeConfig(b.loaded, used)
}

// unreadable reports whether the only fault of a configuration is that this user may not read it.
func unreadable(err error) bool {
	var faults config.Faults
	return errors.As(err, &faults) && !slices.ContainsFunc(faults, func(f config.Fault) bool { return !errors.Is(f, fs.ErrPermission) })
}

// judgeConfig says what the configuration means. used is what the agent runs with, nil
// without one.
func judgeConfig(loaded *config.Loaded, used *control.Config) []Finding {
	var out []Finding
	sources := loaded.Sources
	if used != nil {
		sources = used.Sources
		if differ := unlike(loaded, *used); len(differ) > 0 {
			out = append(out, Finding{Code: "restart-needed", Status: Warning, What: "the agent does not use the current values of " + strings.Join(differ, ", "),
				Why: "the file changed after the agent had read it, or the settings need a restart", Do: []string{"sudo systemctl reload liqo-agent", "if that does not help: sudo systemctl restart liqo-agent"}})
		}
	}
	if open := openSwitches(loaded.Config); len(open) > 0 {
		out = append(out, Finding{Code: "open-to-anybody", Status: Warning, What: "whoever can reach this box may use it, because of " + strings.Join(open, ", "),
			Why: "any machine on the network can run its pods here, or receive pods of this cluster",
			Do:  []string{"except in a playground, undo this in the configuration, or with kubectl edit clusterconfigs liqo-configuration"}})
	}
	var overridden []string
	for key, source := range sources {
		if strings.HasPrefix(source, "environment ") {
			overridden = append(overridden, key)
		}
	}
	if len(overridden) > 0 {
		slices.Sort(overridden)
		out = append(out, info("config-environment", "environment variables override the file: %s", strings.Join(overridden, ", ")))
	}
	if len(out) == 0 {
		if loaded.Path == "" {
			return []Finding{fine("there is no file; the agent uses the defaults")}
		}
		out = append(out, fine("%s is valid and in use", loaded.Path))
		if used == nil {
			out[0].What = loaded.Path + " is valid"
		}
	}
	return out
}

// openSwitches are the settings that let anybody in.
func openSwitches(c config.Config) []string {
	var out []string
	if c.Trust.AllowEmptyToken {
		out = append(out, "trust.allow_empty_token = true")
	}
	if c.Trust.Accept == "all" {
		out = append(out, `trust.accept = "all"`)
	}
	if c.Discovery.AutojoinUntrusted {
		out = append(out, "discovery.autojoin_untrusted = true")
	}
	return out
}

// unlike returns the keys whose values in use are not those of the file. What is set
// by the ClusterConfig, or by options of the agent's own command line, is no
// difference.
func unlike(loaded *config.Loaded, used control.Config) []string {
	var text strings.Builder
	if err := loaded.WriteTOML(&text, false); err != nil {
		return nil
	}
	want, have := values(text.String()), values(used.TOML)
	counts := func(key string) bool { return strings.HasPrefix(key, "[[") }
	for key := range have {
		if _, there := want[key]; !there && counts(key) {
			want[key] = "0"
		}
	}
	var out []string
	for key, value := range want {
		source := used.Sources[key]
		if source == "flag" || source == "--set" || strings.HasPrefix(source, "ClusterConfig ") || strings.HasPrefix(source, "environment ") ||
			strings.HasPrefix(loaded.Sources[key], "environment ") || loaded.Sources[key] == "flag" || loaded.Sources[key] == "--set" {
			continue
		}
		if now, known := have[key]; (known || counts(key)) && now != value {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// values reads the keys of a configuration as this program writes it: log.level, peer[0].url, and [[peer]] for how many
// of these there are.
func values(toml string) map[string]string {
	out := make(map[string]string)
	section, counts := "", make(map[string]int)
	for _, line := range lines(toml) {
		switch {
		case strings.HasPrefix(line, "[["):
			name := strings.Trim(line, "[]")
			section = fmt.Sprintf("%s[%d]", name, counts[name])
			counts[name]++
			out[line] = strconv.Itoa(counts[name])
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			if name, value, ok := strings.Cut(line, " = "); ok {
				out[section+"."+name] = value
			}
		}
	}
	return out
}

// soonExpired is when somebody should be told that a certificate is about to end.
const soonExpired = 30 * 24 * time.Hour

func checkTrust(ctx context.Context, b *Box) []Finding {
	t := b.config().Trust
	if t.FleetCA == "" {
		return []Finding{fine("no fleet CA: peers are trusted one by one")}
	}
	own := t.FleetCertificate
	if own == "" {
		own = filepath.Join(b.stateDir, "fleet.crt")
	}
	var out []Finding
	for _, file := range []struct{ path, what, code string }{{t.FleetCA, "the fleet CA", "fleet-ca"}, {own, "the fleet certificate of this cluster", "fleet-certificate"}} {
		raw, err := b.ask.readFile(file.path)
		out = append(out, judgeCertificate(file.path, file.what, file.code, raw, err, b.now(), b.opts.Root))
	}
	if !slices.ContainsFunc(out, func(f Finding) bool { return f.Status != OK }) {
		out = []Finding{fine("the fleet CA and the certificate of this cluster are valid")}
	}
	return out
}

// judgeCertificate says how long the first certificate of a PEM file is valid.
func judgeCertificate(path, what, code string, raw []byte, err error, now time.Time, root bool) Finding {
	const why = "the clusters of the fleet trust each other because of it; without it, they must be trusted one by one"
	remedy := []string{"renew it, with the key of the fleet CA: liqo-agent fleet sign", "install the new one as " + path + ", and reload the agent"}
	if err != nil && !root {
		return skipped("%s: %v", what, err)
	}
	var cert *x509.Certificate
	if err == nil {
		block, _ := pem.Decode(raw)
		if block == nil {
			err = errors.New("it contains no certificate")
		} else {
			cert, err = x509.ParseCertificate(block.Bytes)
		}
	}
	switch {
	case err != nil:
		return Finding{Code: code + "-unusable", Status: Error, What: fmt.Sprintf("%s (%s) cannot be used: %v", what, path, err), Why: why, Do: remedy}
	case now.After(cert.NotAfter):
		return Finding{Code: code + "-expired", Status: Error, What: fmt.Sprintf("%s (%s) expired on %s", what, path, cert.NotAfter.UTC().Format(time.DateOnly)), Why: why, Do: remedy}
	case now.Add(soonExpired).After(cert.NotAfter):
		return Finding{Code: code + "-expiring", Status: Warning, What: fmt.Sprintf("%s (%s) expires on %s", what, path, cert.NotAfter.UTC().Format(time.DateOnly)), Why: why, Do: remedy}
	}
	return fine("%s is valid until %s", what, cert.NotAfter.UTC().Format(time.DateOnly))
}

func checkPeers(ctx context.Context, b *Box) []Finding {
	says, err := b.agentSays(ctx)
	if err != nil {
		return []Finding{unasked(err)}
	}
	return judgePeers(says.peers, b.now())
}

// judgePeers says how those stand with whom there is, or should be, a peering.
func judgePeers(peers []control.Peer, now time.Time) []Finding {
	var out []Finding
	var there []string
	for _, p := range peers {
		if !p.Outgoing.Wanted && !p.Outgoing.Joined && !p.Incoming.Joined {
			continue
		}
		if p.Outgoing.Reason == reason.Incompatible || p.Incoming.Reason == reason.Incompatible {
			out = append(out, Finding{Code: "peer-version", Status: Error, What: fmt.Sprintf("%s and this cluster have no protocol version in common", p.Label()),
				Why: "they cannot agree on anything new, and do not maintain their peering", Do: []string{"update the older one of the two"}})
			continue
		}
		if p.Phase == string(peer.PhasePresent) {
			there = append(there, p.Label())
			continue
		}
		what := fmt.Sprintf("%s is not reachable", p.Label())
		if !p.LastSeen.IsZero() {
			what += fmt.Sprintf(", and was last seen %s ago", now.Sub(p.LastSeen).Round(time.Second))
		}
		if p.Reason != "" {
			what += ": " + p.Reason
		}
		out = append(out, Finding{Code: "peer-unreachable", Status: Warning, What: what,
			Why: "there is or should be a peering with it; the agent cannot follow what runs there, or send anything new",
			Do: []string{"check whether it is on, and on the network: liqo-agent peers show " + p.ID,
				"if it is gone for good: liqo-agent peers disconnect " + p.ID}})
	}
	if len(out) == 0 {
		if len(there) == 0 {
			return []Finding{fine("there are no peerings")}
		}
		out = append(out, fine("%s: %s", plural(len(there), "reachable", "all reachable"), strings.Join(there, ", ")))
	}
	return out
}
