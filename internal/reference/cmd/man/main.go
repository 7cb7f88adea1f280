// Command man writes the manual pages into a folder, which it makes if it is
// missing:
//
//	go run ./internal/reference/cmd/man [-version VERSION] DIR
//
// With SOURCE_DATE_EPOCH in the environment the pages have that date
// (https://reproducible-builds.org/specs/source-date-epoch), else none: the same
// sources give the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"liqo.io/agent/internal/reference"
)

func main() {
	version := flag.String("version", "", "`VERSION` that the pages name")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: man [-version VERSION] DIR")
		os.Exit(2)
	}
	if err := write(flag.Arg(0), *version, os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(dir, version, epoch string) error {
	manual := reference.Manual{Version: version}
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		manual.Date = time.Unix(seconds, 0)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, page := range manual.Pages() {
		if err := os.WriteFile(filepath.Join(dir, page.File), []byte(page.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
