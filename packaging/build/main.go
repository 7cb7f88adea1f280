package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packager:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	root       string // of the repository
	out        string // where packages go; its files of an earlier run are replaced
	man        string // the directory of the manual pages
	host       string // a liqo-agent that runs here, for the completions
	version    string // as git describe says it
	maintainer string // Name <address>
	time       time.Time
	binaries   []target
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("packager", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the root of the repository")
	flags.StringVar(&o.out, "out", "dist", "the directory to write to")
	flags.StringVar(&o.man, "man", "bin/man", "the directory of the manual pages")
	flags.StringVar(&o.host, "host", "bin/liqo-agent", "a liqo-agent that runs on this machine")
	flags.StringVar(&o.version, "version", "", "the version, as git describe --tags --always --dirty prints it")
	flags.StringVar(&o.maintainer, "maintainer", "", "the maintainer, as Name <address>")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: packager [flags] ARCH=BINARY...   (ARCH: amd64, arm64 or armv7)\nSOURCE_DATE_EPOCH is the time of everything.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return o, errors.New("SOURCE_DATE_EPOCH must be set, to the time of the commit in seconds")
	}
	o.time = time.Unix(seconds, 0).UTC()
	if !strings.Contains(o.maintainer, "<") {
		return o, fmt.Errorf("-maintainer %q: want Name <address>", o.maintainer)
	}
	for _, arg := range flags.Args() {
		name, path, _ := strings.Cut(arg, "=")
		t, known := targets[name]
		if !known || path == "" {
			return o, fmt.Errorf("%q: want ARCH=BINARY, with amd64, arm64 or armv7", arg)
		}
		t.name, t.binary = name, path
		o.binaries = append(o.binaries, t)
	}
	if len(o.binaries) == 0 {
		return o, errors.New("no binary was named: want ARCH=BINARY")
	}
	return o, nil
}

func run(args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	version, err := packageVersion(o.version, o.time)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	staging, err := os.MkdirTemp("", "packager-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging)
	common, err := o.common(filepath.Join(staging, "common"), version)
	if err != nil {
		return err
	}

	var group sync.WaitGroup
	errs := make([]error, len(o.binaries))
	for i, t := range o.binaries {
		group.Go(func() {
			if err := o.build(t, version, common, filepath.Join(staging, t.name)); err != nil {
				errs[i] = fmt.Errorf("%s: %w", t.name, err)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(o.root, "packaging/install.sh"), filepath.Join(o.out, "install.sh"), 0o755); err != nil {
		return err
	}
	return writeSums(o.out)
}

// build makes everything there is for one architecture.
func (o options) build(t target, version string, common []entry, staging string) error {
	info, err := t.check()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return err
	}
	text, err := bom(t.binary, info, version, o.time)
	if err != nil {
		return err
	}
	sbom := filepath.Join(staging, "liqo-agent.cdx.json")
	if err := os.WriteFile(sbom, text, 0o644); err != nil {
		return err
	}
	notices, err := thirdParty(info)
	if err != nil {
		return err
	}
	licences := filepath.Join(staging, "third-party.gz")
	if err := writeGzip(licences, notices); err != nil {
		return err
	}
	if err := copyFile(sbom, filepath.Join(o.out, "liqo-agent-linux-"+t.name+".cdx.json"), 0o644); err != nil {
		return err
	}
	if err := copyFile(t.binary, filepath.Join(o.out, "liqo-agent-linux-"+t.name), 0o755); err != nil {
		return err
	}
	entries := append([]entry{
		{source: t.binary, target: "/usr/bin/liqo-agent", mode: 0o755},
		{source: sbom, target: docDir + "/liqo-agent.cdx.json"},
		{source: licences, target: docDir + "/third-party.gz"},
	}, common...)
	return o.pack(t, version, entries)
}
