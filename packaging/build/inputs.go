package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// common returns the files that all architectures share. What has to be made for them goes to dir.
func (o options) common(dir, version string) ([]entry, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	in := func(path string) string { return filepath.Join(o.root, path) }
	const noreplace = "config|noreplace"
	entries := []entry{
		{source: in("service/liqo-agent.service"), target: "/lib/systemd/system/liqo-agent.service", only: "deb"},
		{source: in("service/liqo-agent.service"), target: "/usr/lib/systemd/system/liqo-agent.service", only: "rpm"},
		{target: "/etc/liqo-agent", mode: 0o755, kind: "dir"},
		{source: in("liqo-agent.toml.example"), target: "/etc/liqo-agent/liqo-agent.toml", kind: noreplace},
		{source: in("service/sysusers.conf"), target: "/usr/lib/sysusers.d/liqo-agent.conf"},
		{source: in("packaging/liqo-agent.tmpfiles"), target: "/usr/lib/tmpfiles.d/liqo-agent.conf"},
		{target: docDir, mode: 0o755, kind: "dir", only: "rpm"},
		{target: docDir + "/monitoring", mode: 0o755, kind: "dir", only: "rpm"},
		{source: in("packaging/copyright"), target: docDir + "/copyright"},
		{source: in("README.md"), target: docDir + "/README.md"},
		{source: in("liqo-agent.toml.example"), target: docDir + "/liqo-agent.toml.example"},
		{source: in("packaging/monitoring/alerts.yaml"), target: docDir + "/monitoring/alerts.yaml"},
		{source: in("packaging/monitoring/dashboard.json"), target: docDir + "/monitoring/dashboard.json"},
		{source: in("packaging/lintian-overrides"), target: "/usr/share/lintian/overrides/liqo-agent", only: "deb"},
	}

	for _, shell := range []struct{ name, path, only string }{
		{"bash", "/usr/share/bash-completion/completions/liqo-agent", ""},
		{"zsh", "/usr/share/zsh/vendor-completions/_liqo-agent", "deb"},
		{"zsh", "/usr/share/zsh/site-functions/_liqo-agent", "rpm"},
		{"fish", "/usr/share/fish/vendor_completions.d/liqo-agent.fish", ""},
	} {
		script, err := exec.Command(o.host, "completion", shell.name).Output()
		if err != nil {
			return nil, fmt.Errorf("%s completion %s: %w", o.host, shell.name, err)
		}
		file := filepath.Join(dir, "completion."+shell.name)
		if err := os.WriteFile(file, script, 0o644); err != nil {
			return nil, err
		}
		entries = append(entries, entry{source: file, target: shell.path, only: shell.only})
	}

	pages, err := o.manual(dir)
	if err != nil {
		return nil, err
	}
	logs, err := o.changelogs(dir, version)
	return append(append(entries, pages...), logs...), err
}

// manual compresses the manual pages.
func (o options) manual(dir string) ([]entry, error) {
	pages, err := filepath.Glob(filepath.Join(o.man, "*.[1-9]"))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(page) + ".gz"
		if err := writeGzip(filepath.Join(dir, name), text); err != nil {
			return nil, err
		}
		entries = append(entries, entry{
			source: filepath.Join(dir, name),
			target: "/usr/share/man/man" + strings.TrimPrefix(filepath.Ext(page), ".") + "/" + name,
		})
	}
	for _, want := range []string{"liqo-agent.1", "liqo-agent.toml.5"} {
		if _, err := os.Stat(filepath.Join(o.man, want)); err != nil {
			return nil, fmt.Errorf("manual page: %w", err)
		}
	}
	return entries, nil
}

// changelogs are the project's own, and Debian's, which has only to name this version.
func (o options) changelogs(dir, version string) ([]entry, error) {
	own, err := os.ReadFile(filepath.Join(o.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	var debian bytes.Buffer
	fmt.Fprintf(&debian, "liqo-agent (%s-1) unstable; urgency=medium\n\n  * Built from the commit of %s.\n    What is new: changelog.gz.\n\n -- %s  %s\n",
		version, o.time.Format("2006-01-02 15:04:05 UTC"), o.maintainer, o.time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	plain, packaged := filepath.Join(dir, "changelog.gz"), filepath.Join(dir, "changelog.Debian.gz")
	if err := writeGzip(plain, own); err != nil {
		return nil, err
	}
	if err := writeGzip(packaged, debian.Bytes()); err != nil {
		return nil, err
	}
	return []entry{
		{source: plain, target: docDir + "/changelog.gz"},
		{source: packaged, target: docDir + "/changelog.Debian.gz", only: "deb"},
	}, nil
}
