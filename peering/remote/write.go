package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// written is one state of an object that we wrote.
type written struct {
	uid        string
	generation int64
}

// before reports whether a state of the object is from before it was written: the
// peer's agent hears of what its gateway passed on a moment later.
func (w *written) before(uid string, generation int64) bool {
	return uid == w.uid && generation < w.generation
}

// write applies one of our objects, and returns what it is then.
func (p *pass) write(k kind, spec any) (*written, error) {
	name, err := p.ourName()
	if err != nil {
		return nil, err
	}
	r, err := k.apply(name, spec)
	if err != nil {
		return nil, err
	}
	resp, err := p.call(r)
	if err != nil {
		return nil, err
	}
	if no := refused(resp, "take our "+k.name); no != nil {
		if no.status == http.StatusForbidden {
			// It let us in once, and has taken back what came with that: asking again
			// is how to get it.
			p.seen.Asked = nil
		}
		return nil, no
	}
	p.e.logger.Info("wrote our "+k.name+" at a peer", "created", resp.Status == http.StatusCreated)
	var object struct {
		Metadata struct {
			UID        string `json:"uid"`
			Generation int64  `json:"generation"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(resp.Body, &object); err != nil {
		return nil, fmt.Errorf("the peer's answer to our %s is no object: %w", k.name, err)
	}
	return &written{object.Metadata.UID, object.Metadata.Generation}, nil
}

// remove deletes one of our objects. That it is gone, the next State says.
func (p *pass) remove(k kind) (changed bool, err error) {
	name, err := p.ourName()
	if err != nil {
		return false, err
	}
	resp, err := p.call(k.remove(name))
	if err != nil {
		return false, err
	}
	if no := refused(resp, "delete our "+k.name); no != nil && no.status != http.StatusNotFound {
		return false, no
	}
	p.e.logger.Info("deleted our "+k.name+" at a peer", "reason", p.want.Reason)
	return true, nil
}

// ourName is what our objects are called at every peer.
func (p *pass) ourName() (peer.ClusterID, error) {
	name := p.s.cfg.Greeting().Identity.ClusterID
	if name == "" {
		return "", errors.New("our own cluster ID is not known yet")
	}
	return name, nil
}

// insisted is what became of a spec that was written, and how often in a row.
type insisted[T any] struct {
	written, found T
	times          int
}

// maxInVain is how often the same is written although somebody there insists on
// something else. Once may be an edit that came right behind it.
const maxInVain = 2

// compare remembers which objects are not what was just written: if somebody
// there insists on something else, writing it again does not change that.
func (p *pass) compare(state *wire.State) {
	if want, there := p.want.Request, state.Request; p.wroteRequest != nil && there != nil && !p.wroteRequest.before(there.UID, there.Generation) {
		p.memo.request = p.memo.request.after(*want, there.Spec, sameRequest)
		p.report(requests, p.memo.request.holds(*want, there.Spec, sameRequest))
	}
	if want, there := p.want.Advertisement, state.Advertisement; p.wroteOffer != nil && there != nil && !p.wroteOffer.before(there.UID, there.Generation) {
		p.memo.offer = p.memo.offer.after(*want, there.Spec, sameOffer)
		p.report(offers, p.memo.offer.holds(*want, there.Spec, sameOffer))
	}
}

func (p *pass) report(k kind, insisted bool) {
	if insisted {
		p.e.logger.Warn("somebody at a peer insists on another " + k.name + " than ours; it stays as it is there until one of the two changes")
	}
}

// after is what there is to remember after want was written and found was there.
func (i *insisted[T]) after(want, found T, same func(a, b T) bool) *insisted[T] {
	switch {
	case same(want, found):
		return nil
	case i != nil && same(i.written, want) && same(i.found, found):
		return &insisted[T]{want, found, i.times + 1}
	}
	return &insisted[T]{want, found, 1}
}

// holds reports whether writing want over found is in vain.
func (i *insisted[T]) holds(want, found T, same func(a, b T) bool) bool {
	return i != nil && i.times >= maxInVain && same(i.written, want) && same(i.found, found)
}
