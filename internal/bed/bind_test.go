//go:build linux

package bed

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// fleet is the zone of the user documentation, as it stands there except for the addresses and the
// second line's type, see TestBINDRefusesALineWithoutType.
const fleet = `example.com.                   PTR     liqo-cluster.example.com.
                               PTR     liqo-cluster-2.example.com.
liqo-cluster.example.com.      SRV     0 0 443 auth.server.example.com.
liqo-cluster-2.example.com.    SRV     0 0 8443 auth.server-2.example.com.
auth.server.example.com.       A       10.77.0.1
auth.server-2.example.com.     A       10.77.0.2
`

// dig asks the server at an address from a host and returns the lines of the answer, sorted.
func dig(t *testing.T, ctx context.Context, from *Host, args ...string) []string {
	t.Helper()
	out, err := from.Run(ctx, append([]string{"dig", "+short", "+time=60"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	return lines
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBINDServesAFleet(t *testing.T) {
	b := New(t)
	server, box := b.AddHost("ns", "10.77.0.53/24"), b.AddHost("box", "10.77.0.1/24")
	ctx := within(t, Hang)
	zone := Zone{Name: "example.com", Text: fleet}
	moving := Zone{Name: "example.net", Text: "box A 192.0.2.1", Dynamic: true}
	bind := server.StartBIND(ctx, zone, moving)

	expect(t, dig(t, ctx, box, "@10.77.0.53", "example.com", "PTR"), "liqo-cluster-2.example.com.", "liqo-cluster.example.com.")
	expect(t, dig(t, ctx, box, "@10.77.0.53", "liqo-cluster-2.example.com", "SRV"), "0 0 8443 auth.server-2.example.com.")
	expect(t, dig(t, ctx, box, "@10.77.0.53", "+tcp", "auth.server.example.com", "A"), "10.77.0.1")

	zone.Text = strings.Replace(fleet, "10.77.0.1", "10.77.0.9", 1)
	if err := bind.Rewrite(ctx, zone); err != nil {
		t.Fatal(err)
	}
	expect(t, dig(t, ctx, box, "@10.77.0.53", "auth.server.example.com", "A"), "10.77.0.9")

	for i, step := range []struct{ commands, want string }{
		{"update delete box.example.net A\nupdate add box.example.net 60 A 192.0.2.2", "192.0.2.2"},
		{"update delete box.example.net A", ""},
	} {
		if err := bind.Update(ctx, step.commands); err != nil {
			t.Fatal(err)
		}
		expect(t, dig(t, ctx, box, "@10.77.0.53", "box.example.net", "A"), step.want)
		if serial, err := bind.Serial(ctx, "example.net"); err != nil || serial != uint32(2+i) {
			t.Errorf("serial %d (%v) after %d updates", serial, err, i+1)
		}
	}
	moving.Text = "box A 192.0.2.3"
	if err := bind.Rewrite(ctx, moving); err != nil {
		t.Fatal(err)
	}
	expect(t, dig(t, ctx, box, "@10.77.0.53", "box.example.net", "A"), "192.0.2.3")

	if err := bind.Update(ctx, "update add box.example.com 60 A 192.0.2.2"); err == nil {
		t.Error("a zone that is not dynamic was updated")
	}
	if err := bind.Stop(); err != nil {
		t.Error(err)
	}
	// It starts again, with what it is told now.
	server.StartBIND(ctx, Zone{Name: "example.com", Text: "@ PTR other.example.com."})
	expect(t, dig(t, ctx, box, "@10.77.0.53", "example.com", "PTR"), "other.example.com.")
}

// The documentation has a second PTR line of which only the name is left. In a master file it begins
// with blanks and has no type: not a record.
func TestBINDRefusesALineWithoutType(t *testing.T) {
	b := New(t)
	bind := b.AddHost("ns", "10.77.0.53/24").StartBIND(within(t, Hang), Zone{Name: "example.com", Text: fleet})
	before, err := bind.Serial(t.Context(), "example.com")
	if err != nil {
		t.Fatal(err)
	}
	printed := strings.Replace(fleet, "        PTR     liqo-cluster-2", "                liqo-cluster-2", 1)
	if printed == fleet {
		t.Fatal("the line is not there")
	}
	err = bind.Rewrite(t.Context(), Zone{Name: "example.com", Text: printed})
	if err == nil || !strings.Contains(err.Error(), "unknown RR type 'liqo-cluster-2.example.com.'") {
		t.Errorf("error %v", err)
	}
	if after, err := bind.Serial(t.Context(), "example.com"); err != nil || after != before {
		t.Errorf("serial %d (%v), before %d", after, err, before)
	}
}
