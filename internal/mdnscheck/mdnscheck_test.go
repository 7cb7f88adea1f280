//go:build linux

package mdnscheck

import (
	"context"
	"net/netip"
	"strconv"
	"testing"

	"liqo.io/agent/internal/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// The agent meets every requirement. Most of a check is waiting, so they are spread
// over several labs.
func TestAgent(t *testing.T) {
	const labs = 3
	shares := make([][]Check, labs)
	for i, c := range Checks() {
		shares[i%labs] = append(shares[i%labs], c)
	}
	for i, share := range shares {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			t.Parallel()
			checkAgent(t, share)
		})
	}
}

func checkAgent(t *testing.T, checks []Check) {
	b := bed.New(t)
	addr := netip.MustParseAddr("10.77.0.2")
	box := b.AddHost("box", addr.String()+"/24")
	bin := bed.Binary(t, "liqo-agent")
	eth0 := box.Link("eth0")
	lab := newLab(t, b, Subject{
		Name: "liqo-agent", Service: "_liqo._tcp.local.", Addr: addr, AddAddress: eth0.AddAddress, DelAddress: eth0.DelAddress,
		Start: func(context.Context) (func() error, error) {
			p := box.Start(bed.Cmd{Args: []string{bin, "run", "--kubeconfig", "none", "--set", "discovery.enable_discovery=false"}})
			return p.Stop, nil
		},
	})
	results, err := lab.Run(t.Context(), checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(checks) {
		t.Fatalf("%d checks ran, want %d", len(results), len(checks))
	}
	for _, r := range results {
		if r.Err != nil {
			t.Errorf("%s: %v", r.Check, r.Err)
		}
	}
}

// The checks can fail: avahi 0.8 is known to break some of these rules and to
// keep others.
func TestChecksTellGoodFromBad(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	addr := netip.MustParseAddr("10.77.0.2")
	box := b.AddHost("box", addr.String()+"/24")
	lab := newLab(t, b, Subject{
		Name: "avahi", Service: "_liqo._tcp.local.", Addr: addr,
		Start: func(ctx context.Context) (func() error, error) {
			daemon := box.StartAvahi(ctx)
			p, err := box.AvahiPublish(ctx, "avahi", "_liqo._tcp", 6447, "txtvers=1")
			if err != nil {
				return nil, err
			}
			return func() error {
				if err := p.Stop(); err != nil {
					return err
				}
				return daemon.Stop()
			}, nil
		},
	})
	breaks := map[string]bool{
		"denies with NSEC a type that a name of its own does not have": true,
		"waits for known answers that follow a truncated query":        true,
		"answers a shared question by multicast after 20 to 120 ms":    false,
		"announces at least twice":                                     false,
		"does not repeat an answer that the querier knows":             false,
		"sees no conflict in its own data from another mouth":          false,
	}
	var some []Check
	for _, c := range Checks() {
		if _, known := breaks[c.Name]; known {
			some = append(some, c)
		}
	}
	results, err := lab.Run(t.Context(), some, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(breaks) {
		t.Fatalf("%d checks ran, want %d", len(results), len(breaks))
	}
	for _, r := range results {
		if (r.Err != nil) != breaks[r.Name] {
			t.Errorf("%s: avahi fails %v, want %v: %v", r.Check, r.Err != nil, breaks[r.Name], r.Err)
		}
	}
}

func newLab(t *testing.T, b *bed.Bed, subject Subject) *Lab {
	t.Helper()
	host := b.AddHost("lab", "10.77.0.1/24")
	lab, err := NewLab(host, netip.MustParseAddr("10.77.0.1"), b.LAN(), subject)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}
