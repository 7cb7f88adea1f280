//go:build linux

package bed

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestAvahiOnTwoHosts(t *testing.T) {
	b := New(t)
	a, c := b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "10.77.0.2/24")
	ctx := within(t, time.Minute)
	a.StartAvahi(ctx)
	c.StartAvahi(ctx)
	published, err := a.AvahiPublish(ctx, "a box; with \\ and ü", "_liqo._tcp", 6447, "txtvers=1", "id=with space")
	if err != nil {
		t.Fatal(err)
	}
	find := func() error {
		all, err := c.AvahiBrowse(ctx, "_liqo._tcp")
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(i AvahiInstance) bool { return i.Interface == "eth0" && i.Protocol == "IPv4" })
		if i < 0 {
			return fmt.Errorf("not found on eth0 among %+v", all)
		}
		got := all[i]
		slices.Sort(got.TXT)
		if want := (AvahiInstance{"eth0", "IPv4", "a box; with \\ and ü", "_liqo._tcp", "local", "a.local", got.Address, 6447,
			[]string{"id=with space", "txtvers=1"}}); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("found %+v, want %+v", got, want)
		}
		return nil
	}
	if err := Poll(ctx, find); err != nil {
		t.Fatal(err)
	}
	if err := published.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := Poll(ctx, func() error {
		all, err := c.AvahiBrowse(ctx, "_liqo._tcp")
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("still there: %+v", all)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
