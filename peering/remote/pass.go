package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peering/plan"
)

// errInterrupted: something else is wanted now, or the end has come. It says
// nothing about the peer.
var errInterrupted = errors.New("interrupted")

// memo is what one look at a peer leaves to the next.
type memo struct {
	asked     uint64            // the terms.ask that were answered
	fresh     uint64            // the terms.fresh that were used up
	token     [sha256.Size]byte // hash of the one that was answered for good
	waits     int               // looks in a row that ended in having to wait
	passing   int               // failures in a row that may be over in a moment
	stateSum  [sha256.Size]byte // of the body that RemoteStatus.State was read from
	withdrawn plan.RemoteSpec   // what the peer's agent was told to be gone
	// The last State in which these were looked for did not have them, and nothing
	// was written since.
	requestGone, advertisementGone bool
	// Objects that are not as they were written, although the peer's API server
	// took them.
	request *insisted[api.PeeringRequestSpec]
	offer   *insisted[api.AdvertisementSpec]
}

// pass is one look at one peer. It belongs to one goroutine; seen and memo are
// copies that become the entry's afterwards.
type pass struct {
	s       *Syncer
	e       *entry
	ctx     context.Context
	version uint64
	want    plan.RemoteSpec
	terms   terms
	owes    bool // deletions are to be tried
	seen    plan.RemoteStatus
	memo    memo

	result       *client.Result // of the last call that was answered
	tokenUsed    bool
	wroteRequest *written // nil: not in this look
	wroteOffer   *written
	waiting      time.Duration // the longest pause if the peer is waited for, 0 if it is not
}

// look does what is to be done with the peer now.
func (p *pass) look() error {
	outside := false // it does not let us in
	if p.want.Ask && (p.memo.asked != p.terms.ask || p.seen.Asked == nil || p.seen.Asked.Auth != api.AuthAccepted) {
		if err := p.ask(); err != nil {
			return err
		}
		if p.seen.Asked.Auth != api.AuthAccepted {
			if p.seen.Asked.Auth == api.AuthPending {
				p.waiting = maxPersonPause
			}
			if p.want.Advertisement == nil && !p.want.AdvertisementGone {
				return nil
			}
			// Whether it lets us in has nothing to do with what it gets from us.
			p.want.Request, p.want.RequestGone = nil, false
			outside = true
		}
	}
	state, err := p.state()
	var no *refusal
	if outside && errors.As(err, &no) && no.denies() {
		p.seen.Denied = no.said.Reason
		return nil // it does not know us at all, and its answer says more about that
	}
	if err != nil {
		return err
	}
	if !state.Kubernetes {
		if p.want.Request != nil || p.want.Advertisement != nil || p.owes {
			p.waiting = maxPause
		}
		return p.withdraw()
	}
	changed, err := p.apply(state)
	if changed {
		// Also what was done before something failed is worth knowing.
		again, stateErr := p.state()
		if err == nil {
			err = stateErr
		}
		if stateErr == nil && again.Kubernetes {
			p.compare(again)
		}
	}
	return err
}

// call sends one request, unless something else is wanted by now.
func (p *pass) call(r client.Request) (client.Response, error) {
	p.s.mu.Lock()
	outdated := p.e.version != p.version
	p.s.mu.Unlock()
	if outdated || p.ctx.Err() != nil {
		return client.Response{}, errInterrupted
	}
	resp, err := p.s.cfg.Peers.Exchange(p.ctx, p.want.Target, r)
	if err != nil {
		if p.ctx.Err() != nil {
			return client.Response{}, errInterrupted
		}
		return client.Response{}, err
	}
	p.result = &resp.Result
	if ca := resp.Result.Shown.CA; ca != nil && !bytes.Equal(ca.Raw, p.seen.CA) {
		p.seen.CA = bytes.Clone(ca.Raw)
	}
	if no := unspeakable(resp.Result.Protocol); no != nil {
		return client.Response{}, no
	}
	return resp, nil
}

// ask asks to be let in.
func (p *pass) ask() error {
	ask := wire.Ask{Greeting: p.s.cfg.Greeting(), Fresh: p.want.Fresh}
	if p.want.Token != "" && sha256.Sum256([]byte(p.want.Token)) != p.memo.token {
		ask.Token = p.want.Token
	}
	r, err := post(wire.PathAsk, ask)
	if err != nil {
		return err
	}
	resp, err := p.call(r)
	if err != nil {
		return err
	}
	if no := refused(resp, "let us in"); no != nil {
		// A peer that repeats the secret must not have us log it.
		no.said.Error = cut(no.said.Error, p.want.Token)
		return no
	}
	answer, err := wire.ParseAnswer(resp.Body)
	if err != nil {
		return errors.New(cut("the peer "+err.Error(), p.want.Token))
	}
	answer.Message = cut(answer.Message, p.want.Token)
	if ask.Token != "" && (answer.Auth == api.AuthAccepted || answer.Reason == wire.ReasonBadToken) {
		p.memo.token = sha256.Sum256([]byte(ask.Token))
		p.tokenUsed = true
	}
	p.seen.Asked, p.seen.Answered = &answer, time.Now()
	switch {
	case answer.Auth == api.AuthAccepted:
		p.seen.Denied = ""
	case p.seen.Denied != "":
		p.seen.Denied = wire.ReasonNotTrusted // why it does not let us in, its answer says
	}
	p.memo.asked = p.terms.ask
	return nil
}

// state asks the peer what there is.
func (p *pass) state() (*wire.State, error) {
	r, err := post(wire.PathState, p.s.cfg.Greeting())
	if err != nil {
		return nil, err
	}
	resp, err := p.call(r)
	if err != nil {
		return nil, err
	}
	if no := refused(resp, "say what is between us"); no != nil {
		return nil, no
	}
	// Most of the time it says what it said before.
	if sum := sha256.Sum256(resp.Body); p.seen.State == nil || sum != p.memo.stateSum {
		state, err := wire.ParseState(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("the peer %w", err)
		}
		if id := state.Identity.ClusterID; id != p.e.id {
			return nil, fmt.Errorf("the peer says it is cluster %s, not %s", id, p.e.id)
		}
		p.seen.State, p.memo.stateSum = &state, sum
	}
	p.seen.At, p.seen.Answered, p.seen.Denied = time.Now(), time.Now(), ""
	state := p.seen.State
	if a := p.seen.Asked; a != nil && a.Auth != api.AuthAccepted && state.Request != nil {
		p.seen.Asked = nil // it does not matter any more, and nobody would ask again
	}
	if state.Kubernetes {
		p.memo.requestGone = p.want.RequestGone && state.Request == nil
		p.memo.advertisementGone = p.want.AdvertisementGone && state.Advertisement == nil
		p.memo.withdrawn = plan.RemoteSpec{}
	}
	return state, nil
}

// withdraw says to the peer's agent what is owed, while its API server is down.
func (p *pass) withdraw() error {
	left := leftover(p.want, p.memo)
	if !p.owes || sameSpec(left, p.memo.withdrawn) {
		return nil
	}
	r, err := post(wire.PathWithdraw, wire.Withdrawal{Request: left.RequestGone, Advertisement: left.AdvertisementGone, Reason: left.Reason})
	if err != nil {
		return err
	}
	resp, err := p.call(r)
	if err != nil {
		return err
	}
	if no := refused(resp, "take note of what we give up"); no != nil {
		return no
	}
	p.memo.withdrawn = left
	return nil
}

// apply makes our objects at the peer what they are to be, and reports whether it
// wrote something. That one of them is refused does not keep the other from being
// tried; that nobody answers, or wants to know us, does.
func (p *pass) apply(state *wire.State) (changed bool, err error) {
	request, requestErr := p.applyRequest(state)
	var no *refusal
	if requestErr != nil && (!errors.As(requestErr, &no) || no.denies()) {
		return request, requestErr
	}
	offer, offerErr := p.applyOffer(state)
	switch {
	case requestErr == nil || errors.Is(offerErr, errInterrupted):
		err = offerErr
	case offerErr == nil:
		err = requestErr
	default:
		err = fmt.Errorf("%w; and %w", requestErr, offerErr)
	}
	return request || offer, err
}

func (p *pass) applyRequest(state *wire.State) (changed bool, err error) {
	if p.want.Request != nil && !state.TakesResources {
		older := *p.want.Request
		older.Resources = api.RequestedResources{}
		p.want.Request = &older
	}
	switch want, there := p.want.Request, state.Request; {
	case want != nil && there == nil:
		if state.Ended != "" && !(p.want.Fresh && p.memo.fresh != p.terms.fresh) {
			return false, nil // a person has to want it again
		}
	case want != nil:
		if p.want.Fresh {
			p.memo.fresh = p.terms.fresh
		}
		if sameRequest(*want, there.Spec) {
			p.memo.request = nil // nobody insists on anything else any more
			return false, nil
		}
		if p.memo.request.holds(*want, there.Spec, sameRequest) {
			return false, nil
		}
	case p.want.RequestGone && there != nil:
		return p.remove(requests)
	default:
		return false, nil
	}
	p.memo.requestGone = false
	if p.wroteRequest, err = p.write(requests, p.want.Request); err != nil {
		return false, err
	}
	if p.want.Fresh {
		p.memo.fresh = p.terms.fresh
	}
	return true, nil
}

func (p *pass) applyOffer(state *wire.State) (changed bool, err error) {
	switch want, there := p.want.Advertisement, state.Advertisement; {
	case want != nil && !state.AdvertisementWelcome:
		return false, nil
	case want != nil && there != nil && sameOffer(*want, there.Spec):
		p.memo.offer = nil // nobody insists on anything else any more
		return false, nil
	case want != nil:
		if there != nil && p.memo.offer.holds(*want, there.Spec, sameOffer) {
			return false, nil
		}
	case p.want.AdvertisementGone && there != nil:
		return p.remove(offers)
	default:
		return false, nil
	}
	p.memo.advertisementGone = false
	if p.wroteOffer, err = p.write(offers, p.want.Advertisement); err != nil {
		return false, err
	}
	return true, nil
}

// settle turns the outcome of a look into what is seen, and says how long to wait
// for the next one.
func (p *pass) settle(err error) (pause time.Duration) {
	if errors.Is(err, errInterrupted) {
		return 0
	}
	p.seen.Err, p.seen.Tried = err, time.Now()
	if err == nil {
		p.seen.Failures, p.memo.passing = 0, 0
		if p.waiting > 0 {
			p.memo.waits++
			return work.Backoff{First: firstPause, Max: p.waiting}.Pause(p.memo.waits)
		}
		p.memo.waits = 0
		return wait.Jitter(p.s.interval()*9/10, 2./9)
	}
	p.memo.waits = 0
	p.seen.Failures++
	if p.seen.Denied == wire.ReasonProtocol {
		p.seen.Denied = "" // it says so with each answer; without one we do not know
	}
	var no *refusal
	if !errors.As(err, &no) {
		p.memo.passing = 0
		return failing.Pause(p.seen.Failures)
	}
	if no.denies() {
		p.seen.Denied, p.seen.Asked, p.seen.Answered = no.said.Reason, nil, p.seen.Tried
	}
	if no.passes() {
		p.memo.passing++
		pause = passing.Pause(p.memo.passing)
	} else {
		p.memo.passing = 0
		pause = failing.Pause(p.seen.Failures)
	}
	return max(pause, min(no.after, maxRetryAfter))
}
