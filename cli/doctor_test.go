package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/doctor"
	"liqo.io/agent/doctor/bundle"
	"liqo.io/agent/internal/clitest"
	"liqo.io/agent/trust"
)

// practice is an examiner that knows what it will find.
type practice struct {
	report doctor.Report
	err    error
	opts   doctor.Options
	redact bool
}

func (p *practice) examine(_ context.Context, opts doctor.Options, archive string, redact bool) (doctor.Report, *bundle.Manifest, error) {
	p.opts, p.redact = opts, redact
	if archive == "" || p.err != nil {
		return p.report, nil, p.err
	}
	return p.report, &bundle.Manifest{Files: make([]bundle.File, 3), LeftOut: make([]bundle.LeftOut, 1)}, nil
}

// seen is a report with one finding of each kind.
func seen(errors, warnings int) doctor.Report {
	return doctor.Report{
		Version: "1.2.3", At: clitest.Now, Status: doctor.Error, Summary: doctor.Summary{OK: 1, Info: 1, Skipped: 1, Errors: errors, Warnings: warnings},
		Checks: []doctor.Result{
			{Check: "links", Group: "Network", Title: "Network interfaces", Status: doctor.OK, Findings: []doctor.Finding{{Status: doctor.OK, What: "eth0 (10.0.0.1/24)", Do: []string{}}}},
			{Check: "multicast", Group: "Network", Title: "Multicast", Status: doctor.Warning, Findings: []doctor.Finding{
				{Code: "multicast-isolated", Status: doctor.Warning, What: "barn\x1b[2J answers, but is not heard", Why: strings.Repeat("a switch keeps multicast from getting through ", 4), Do: []string{"do this", "or that"}},
				{Code: "multicast-rule", Status: doctor.Info, What: "a rule", Do: []string{}}}},
			{Check: "state", Group: "This box", Title: "State directory", Status: doctor.Skipped, Findings: []doctor.Finding{{Status: doctor.Skipped, What: "use sudo", Do: []string{}}}},
			{Check: "disk", Group: "This box", Title: "Disk", Status: doctor.Error, Findings: []doctor.Finding{
				{Code: "disk-full", Status: doctor.Error, What: "the disk is full", Why: "nothing is stored", Do: []string{"see what takes the space: sudo du -xh / | sort -h | tail -30"}}}},
		},
	}
}

const seenText = `Network
  ok       Network interfaces  eth0 (10.0.0.1/24)
  WARNING  Multicast           multicast-isolated
           barn\x1b[2J answers, but is not heard
           why: a switch keeps multicast from getting through a switch keeps multicast from getting
                through a switch keeps multicast from getting through a switch keeps multicast from
                getting through
           try: do this
           try: or that
  info                         a rule

This box
  -        State directory     use sudo
  ERROR    Disk                disk-full
           the disk is full
           why: nothing is stored
           try: see what takes the space: sudo du -xh / | sort -h | tail -30

4 checks: 1 ok, 1 with information, 1 with warnings, 1 with errors, 1 skipped
`

// diagnose runs the doctor with an examiner in place of the real one.
func diagnose(t *testing.T, w *clitest.World, p *practice, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	w.New = func(opts command.Options) *command.App { return newApp(opts, machine{examiner: p}) }
	return w.Run(t.Context(), append([]string{"doctor"}, args...)...)
}

func TestDoctor(t *testing.T) {
	w := clitest.NoAgent(t, New)
	stdout, stderr, code := diagnose(t, w, &practice{report: seen(1, 1)})
	if stdout != seenText || stderr != "liqo-agent: 1 check ended with errors and 1 with warnings\n" || code != command.ExitError {
		t.Errorf("exit code %d, stderr %q\n%s", code, stderr, stdout)
	}
	w.Color = true
	stdout, _, _ = diagnose(t, w, &practice{report: seen(1, 1)})
	for _, want := range []string{render.Yellow + "  WARNING  Multicast", render.Red + "  ERROR    Disk", render.Dim + "  -        State"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in colour:\n%q", want, stdout)
		}
	}
	for _, tc := range []struct {
		errors, warnings, code int
		stderr                 string
	}{
		{0, 0, command.ExitOK, ""},
		{0, 2, command.ExitWarnings, "liqo-agent: 2 checks ended with warnings\n"},
		{3, 0, command.ExitError, "liqo-agent: 3 checks ended with errors\n"},
	} {
		stdout, stderr, code := diagnose(t, w, &practice{report: seen(tc.errors, tc.warnings)}, "-o", "json")
		if code != tc.code || stderr != tc.stderr || !strings.Contains(stdout, `"what": "barn\u001b[2J answers`) {
			t.Errorf("%d errors, %d warnings: exit code %d, stderr %q\n%s", tc.errors, tc.warnings, code, stderr, stdout)
		}
	}
}

func TestDoctorBundle(t *testing.T) {
	w := clitest.NoAgent(t, New)
	p := &practice{report: seen(0, 0)}
	_, stderr, code := diagnose(t, w, p, "--bundle", w.Dir+"/x.tar.gz", "--redact", "--socket", "/s", "--state-dir", "/d")
	if want := "liqo-agent: wrote $DIR/x.tar.gz: 3 files, 1 file left out (see manifest.json); review it before you share it\n"; code != command.ExitOK || stderr != want {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if !p.redact || p.opts.Socket != "/s" || p.opts.StateDir != "/d" || p.opts.Version != "1.2.3" {
		t.Errorf("the doctor was told %+v", p.opts)
	}
	p.err = errors.New("there is no space left")
	stdout, stderr, code := diagnose(t, w, p, "--bundle", w.Dir+"/x.tar.gz")
	if code != command.ExitError || !strings.HasSuffix(stderr, "there is no space left\n") || !strings.HasPrefix(stdout, "Network") {
		t.Errorf("exit code %d, stderr %q\n%s", code, stderr, stdout)
	}
	if _, stderr, code := diagnose(t, w, &practice{}, "--redact"); code != command.ExitUsage || !strings.Contains(stderr, "--redact needs --bundle") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if !trust.Built().Before(time.Now()) {
		t.Error("this program is older than itself")
	}
}
