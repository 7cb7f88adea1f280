package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"unicode"
)

var noticeFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors|copyright)([.-].*)?$`)

// thirdParty returns the licences and notices of everything that is linked into the binary, which most of them ask to be
// handed on. A module without any is an error: somebody has to look at it.
func thirdParty(info *buildinfo.BuildInfo) ([]byte, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	places := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(places) != 2 {
		return nil, fmt.Errorf("go env GOMODCACHE GOROOT printed %q", out)
	}
	var text bytes.Buffer
	if err := notices(&text, "the Go standard library and runtime, "+info.GoVersion, places[1]); err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if err := notices(&text, m.Path+" "+m.Version, filepath.Join(places[0], moduleDir(m))); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

func notices(text *bytes.Buffer, title, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the source of %s is not at hand for its licence; run go mod download: %w", title, err)
	}
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !noticeFile.MatchString(e.Name()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(text, "==== %s: %s ====\n\n%s\n", title, e.Name(), bytes.TrimRight(b, "\n"))
		text.WriteByte('\n')
	}
	if !found {
		return fmt.Errorf("%s has no licence file in %s", title, dir)
	}
	return nil
}

// moduleDir is where a module is in the module cache: there, "!" and the small letter stand for a capital one.
func moduleDir(m *debug.Module) string {
	var b strings.Builder
	for _, r := range m.Path + "@" + m.Version {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}
