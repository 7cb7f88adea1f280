package decisions

import (
	"errors"
	"testing"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/endpoint"
)

// What the configuration does not vouch for any more is not trusted, whether or not that can be stored.
func TestPolicyOnAFullDisk(t *testing.T) {
	x := newBox(t, barn)
	fp := x.fp()
	named := statics(config.StaticPeer{ID: string(barn), Fingerprint: fp.String()})
	full := errors.New("no space left")

	// A reload: the person who removed the entry is told that it was reloaded.
	b := newBed(t, named)
	b.cfg.Database = failing{b.store, full}
	_ = b.SetPolicy(t.Context(), asks()) // policy.Source.Apply logs the error, and nobody calls it again
	if got := b.Admit(barn, x.shown()); got == endpoint.Known {
		t.Error("after a reload on a full disk, the peer is let in by the key that no entry names any more")
	}
	b.cfg.Database = b.store // there is space again
	b.Lapse(t.Context())
	if got := b.Admit(barn, x.shown()); got == endpoint.Known {
		t.Error("and when there is space again, too")
	}

	// A start with the changed file.
	b = newBed(t, named)
	cfg := b.config(asks())
	cfg.Database = failing{b.store, full}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("the agent does not start: %v", err)
	}
	if got := s.Admit(barn, x.shown()); got == endpoint.Known {
		t.Error("after a start on a full disk, the peer is let in")
	}
}
