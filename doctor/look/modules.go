package look

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// KernelHas reports whether the running kernel has a module, loaded, built in or to load; it does if
// that cannot be found out.
func KernelHas(name string) bool {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return true
	}
	return kernelHas("/sys/module", filepath.Join("/lib/modules", unix.ByteSliceToString(uts.Release[:])), name)
}

func kernelHas(loaded, available, name string) bool {
	if _, err := os.Stat(filepath.Join(loaded, strings.ReplaceAll(name, "-", "_"))); err == nil {
		return true
	}
	pattern := regexp.MustCompile(`(?m)(^|/)` + strings.ReplaceAll(regexp.QuoteMeta(name), "_", "[-_]") + `\.ko(\.[a-z0-9]+)?(:|$)`)
	known := false
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		text, err := os.ReadFile(filepath.Join(available, list))
		if err == nil && pattern.Match(text) {
			return true
		}
		known = known || err == nil
	}
	return !known
}
