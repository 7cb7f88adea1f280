package main

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
)

// target is an architecture that packages are made for.
type target struct {
	name    string // as the Makefile calls it
	binary  string
	deb     string
	rpm     string
	machine elf.Machine
	class   elf.Class
	goarch  string
}

var targets = map[string]target{
	"amd64": {deb: "amd64", rpm: "x86_64", machine: elf.EM_X86_64, class: elf.ELFCLASS64, goarch: "amd64"},
	"arm64": {deb: "arm64", rpm: "aarch64", machine: elf.EM_AARCH64, class: elf.ELFCLASS64, goarch: "arm64"},
	"armv7": {deb: "armhf", rpm: "armv7hl", machine: elf.EM_ARM, class: elf.ELFCLASS32, goarch: "arm"},
}

// check reads what the Go tool noted in the binary, and refuses one that is not a static program for the architecture.
func (t target) check() (*buildinfo.BuildInfo, error) {
	f, err := elf.Open(t.binary)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Machine != t.machine || f.Class != t.class {
		return nil, fmt.Errorf("%s is for %v, not for %v", t.binary, f.Machine, t.machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is linked dynamically; build it with CGO_ENABLED=0", t.binary)
		}
	}
	info, err := buildinfo.ReadFile(t.binary)
	if err != nil {
		return nil, err
	}
	want := map[string]string{"GOOS": "linux", "GOARCH": t.goarch, "CGO_ENABLED": "0", "-trimpath": "true"}
	if t.goarch == "arm" {
		want["GOARM"] = "7"
	}
	for _, s := range info.Settings {
		if value, ok := want[s.Key]; ok && value != s.Value {
			return nil, fmt.Errorf("%s was built with %s=%s, want %s", t.binary, s.Key, s.Value, value)
		}
		delete(want, s.Key)
	}
	if len(want) > 0 {
		return nil, errors.New(t.binary + " does not say how it was built (-trimpath, GOARCH and others)")
	}
	return info, nil
}
