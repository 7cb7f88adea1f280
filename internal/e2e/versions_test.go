//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
)

// One of two peers is updated to a version that speaks a newer protocol, and then
// to one that does not speak the old one any more; at last it goes back.
func (p *pair) versionsMeet(t *testing.T, before map[string]string) {
	present := p.b.bin
	speaks := func(x *box, id, version string) {
		t.Helper()
		// The peering may work again before its owner has looked at the peer anew.
		x.eventually(x.host.Name+" says what the other one speaks", func() error {
			if p, err := x.peer(id); err != nil || p.Version != version {
				return errors.Join(err, fmt.Errorf("version %s, not %s", p.Version, version))
			}
			return nil
		})
	}
	speaks(p.a, p.bID, "1")

	p.b.stop()
	p.b.bin = bed.Binary(t, "liqo-agent-speaks-1-2")
	p.b.start()
	p.works()
	speaks(p.a, p.bID, "2")
	speaks(p.b, p.aID, "1")

	p.b.stop()
	p.b.bin = bed.Binary(t, "liqo-agent-speaks-2")
	p.b.start()
	says := func(x *box, id, kind, older string) {
		t.Helper()
		x.awaitStatus("says that the two cannot talk", id, func(fc *api.ForeignCluster) error {
			err := condition(fc, kind, api.ConditionTrue, "Incompatible")
			if err != nil {
				return err
			}
			if message := fc.Condition(kind).Message; !strings.Contains(message, "update liqo-agent "+older) || !strings.Contains(message, "version 2") {
				return errors.New(message)
			}
			return nil
		})
		x.eventually("peers show says so", func() error {
			out, err := x.cli("peers", "show", id)
			if err == nil && !strings.Contains(out, "update liqo-agent "+older) {
				err = errors.New(out)
			}
			return err
		})
	}
	says(p.a, p.bID, api.ConditionOutgoingPeering, "here")
	says(p.b, p.aID, api.ConditionIncomingPeering, "there")
	p.same(before)

	p.b.stop()
	p.b.bin = present
	p.b.start()
	p.works()
	p.same(before)
}
