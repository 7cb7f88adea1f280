package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

var (
	tagged = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+))?$`)
	after  = regexp.MustCompile(`^(.+)-(\d+)-g([0-9a-f]{4,40})$`)
	hash   = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
)

// packageVersion turns what git describe says into a version that dpkg and rpm order alike: pre-releases before the
// release, commits after a tag after it, and commits where there is no tag by their time and before any release.
func packageVersion(describe string, at time.Time) (string, error) {
	rest, dirty := strings.CutSuffix(describe, "-dirty")
	var suffix []string
	switch m := after.FindStringSubmatch(rest); {
	case m != nil:
		rest = m[1]
		suffix = []string{m[2], "g" + m[3]}
	case hash.MatchString(rest) || rest == "unknown":
		rest = fmt.Sprintf("0.0.0-git%s.%s", at.UTC().Format("20060102150405"), rest)
	}
	m := tagged.FindStringSubmatch(rest)
	if m == nil {
		return "", fmt.Errorf("version %q: want 1.2.3, 1.2.3-rc.1, or what git describe makes of such a tag or of a commit", describe)
	}
	version := m[1]
	if m[2] != "" {
		version += "~" + m[2]
	}
	if dirty {
		suffix = append(suffix, "dirty")
	}
	if len(suffix) > 0 {
		version += "+" + strings.Join(suffix, ".")
	}
	return version, nil
}
