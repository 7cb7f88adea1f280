package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const (
	docDir = "/usr/share/doc/liqo-agent"

	summary     = "finds the Liqo clusters around this one and peers with them"
	description = `Runs beside K3s on an edge device. It finds other clusters on the same
network by multicast DNS and in DNS domains, makes them known to the local
API server as ForeignClusters, and peers with those that a person or the
configuration trusts, so that they share their resources.

It is one static program with one configuration file; it works without an
API server, too, and waits for one.`
)

// entry is a file of the packages.
type entry struct {
	source, target string
	mode           fs.FileMode // 0: 0644
	kind           string      // of nfpm; empty: a plain file
	only           string      // "deb" or "rpm"; empty: both
}

// pack writes the .deb and the .rpm.
func (o options) pack(t target, version string, entries []entry) error {
	debInfo, rpmInfo := o.info(version, entries, "deb"), o.info(version, entries, "rpm")
	script := func(name string) string { return filepath.Join(o.root, "packaging", name) }

	debInfo.Arch, debInfo.Deb.Arch = t.deb, t.deb
	debInfo.Section, debInfo.Priority = "net", "optional"
	debInfo.Description = summary + "\n" + description
	debInfo.Scripts = nfpm.Scripts{
		PreInstall: script("deb/preinst"), PostInstall: script("deb/postinst"),
		PreRemove: script("deb/prerm"), PostRemove: script("deb/postrm"),
	}
	debName := fmt.Sprintf("liqo-agent_%s-1_%s.deb", version, t.deb)

	rpmInfo.Arch, rpmInfo.RPM.Arch = t.rpm, t.rpm
	rpmInfo.Description, rpmInfo.RPM.Summary = description, summary
	rpmInfo.License = "LicenseRef-none-chosen-yet"
	rpmInfo.RPM.BuildHost = "localhost"
	rpmInfo.RPM.Compression = "zstd"
	rpmInfo.Scripts = nfpm.Scripts{
		PostInstall: script("rpm/post.sh"), PreRemove: script("rpm/preun.sh"), PostRemove: script("rpm/postun.sh"),
	}
	rpmName := fmt.Sprintf("liqo-agent-%s-1.%s.rpm", version, t.rpm)

	return errors.Join(
		write(deb.Default, debInfo, filepath.Join(o.out, debName)),
		write(rpm.DefaultRPM, rpmInfo, filepath.Join(o.out, rpmName)),
	)
}

// info is what both kinds of package have in common.
func (o options) info(version string, entries []entry, kind string) *nfpm.Info {
	info := &nfpm.Info{
		Name: "liqo-agent", Platform: "linux", Version: version, VersionSchema: "none", Release: "1",
		Maintainer: o.maintainer, MTime: o.time, DisableGlobbing: true,
	}
	for _, e := range entries {
		if e.only != "" && e.only != kind {
			continue
		}
		mode := e.mode
		if mode == 0 {
			mode = 0o644
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: e.source, Destination: e.target, Type: e.kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: o.time},
		})
	}
	return info
}

func write(p nfpm.Packager, info *nfpm.Info, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := p.Package(nfpm.WithDefaults(info), f); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return f.Close()
}
