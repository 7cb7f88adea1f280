package service

import (
	_ "embed"
	"strings"
)

// Name is the name of the service, of its user and of its group.
const Name = "liqo-agent"

// PackagedPath is where packages install the binary.
const PackagedPath = "/usr/bin/liqo-agent"

//go:embed liqo-agent.service
var unit string

//go:embed sysusers.conf
var sysusers string

// Unit returns the unit file for the binary at path, an absolute path (systemd.service(5)). That for
// PackagedPath is the one that packages install.
func Unit(path string) string {
	// A percent sign would begin a specifier (systemd.unit(5)).
	return strings.ReplaceAll(unit, PackagedPath, strings.ReplaceAll(path, "%", "%%"))
}

// Sysusers returns the sysusers.d(5) file that makes the user and the group.
func Sysusers() string { return sysusers }
