package peering

import (
	"cmp"
	"slices"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// intent is what is wanted of the peer, and by whom.
type intent struct {
	// wanted: we are to consume the peer's resources.
	wanted bool
	// join is what spec.join of the decider is to be. It differs from wanted while
	// the peer is blocked, or while there is no object.
	join bool
	// trustMode is what spec.trustMode is to be.
	trustMode api.TrustMode
	// connect is Standing.Connect, or what it will be once the ledger was told.
	connect Wish
	// tells are what the ledger is to be told first.
	tells []Action
	// replan: what the ledger makes of it is not known beforehand.
	replan bool
	// trustEdited: what spec.trustMode is to be depends on the ledger's answer.
	trustEdited bool
	// hangUp: somebody deleted the object of a peering, and meant it.
	hangUp bool
	// ended is why the provider ended our consuming its resources just now, "" when
	// it did not.
	ended string
}

// byPerson reports whether somebody but the agent set the field.
func (o Owner) byPerson() bool { return o.Manager != "" && o.Manager != ManagerIntent }

// edited reports whether a person set the field since the ledger was told of an
// edit the last time.
func (o Owner) edited(stamp string) bool { return o.byPerson() && o.Stamp != stamp }

// intend finds out what is wanted. People's edits of the object that counts go
// before what the ledger remembers, once each.
func (f *facts) intend() intent {
	in := intent{connect: f.Standing.Connect, trustMode: trustModeOf(f.Standing)}
	if !f.RequestsKnown {
		in.join = in.connect == WishYes || in.connect == WishNone && f.decider != nil && f.decider.Spec.Join
		in.wanted = in.join && !f.Standing.Blocked
		return in
	}
	joinEdited := false
	if f.decider != nil && !f.creating {
		if fc, o := f.voice(func(o Owners) Owner { return o.TrustMode }); o.edited(f.Standing.TrustStamp) {
			// A fingerprint that cannot be read is none: then nothing can be trusted.
			shown, _ := peer.ParseFingerprint(fc.Status.Fingerprint)
			in.tells = append(in.tells, f.tell(TellTrustEdited, Tell{Mode: fc.Spec.TrustMode, Shown: shown, By: o.Manager, Stamp: o.Stamp}))
			in.trustEdited, in.replan = true, true
			if c := fc.Condition(api.ConditionAccessRequested); fc.Spec.TrustMode == api.TrustTrusted && c != nil && c.Reason == ReasonPending {
				in.tells = append(in.tells, f.tell(TellDecided, Tell{On: true, Shown: shown, By: o.Manager}))
			}
		}
		if fc, o := f.voice(func(o Owners) Owner { return o.Join }); o.edited(f.Standing.JoinStamp) {
			in.tells = append(in.tells, f.tell(TellJoinEdited, Tell{On: fc.Spec.Join, By: o.Manager, Stamp: o.Stamp}))
			joinEdited, in.replan, in.connect = true, true, WishNo
			if fc.Spec.Join {
				in.connect = WishYes
			}
		}
	}
	in.settle(f)
	stays := f.decider != nil && f.decider.Spec.Join && in.join // in another object
	for _, fc := range f.leaving {
		if fc.Spec.Join && !stays {
			in.hangUp = true
			if in.connect != WishNo {
				in.tells = append(in.tells, f.tell(TellHungUp, Tell{By: "whoever deleted ForeignCluster " + fc.Name}))
				in.connect, in.replan = WishNo, in.replan || f.decider != nil // which is to show it
			}
		}
	}
	in.settle(f)
	if reason := f.endedByProvider(); in.wanted && f.trusted && !joinEdited && reason != "" {
		in.tells = append(in.tells, f.tell(TellEndedByProvider, Tell{Reason: reason}))
		in.ended, in.connect = reason, WishNo
		in.settle(f)
	}
	if f.Standing.Forgotten {
		f.forget(&in)
	}
	return in
}

// forget looks at what objects still say that was wanted of a peer before it was
// forgotten: the ledger is told when none of them says anything else than what is
// wanted now. An object beside the one that counts has no say.
func (f *facts) forget(in *intent) {
	recalled := false
	for _, fc := range append([]*api.ForeignCluster{f.decider, f.own}, f.leaving...) {
		if fc == nil {
			continue
		}
		trust := f.Owners[fc.Name].TrustMode
		recalled = recalled || fc.Spec.Join && !in.join ||
			cmp.Or(fc.Spec.TrustMode, api.TrustUnknown) != in.trustMode && trust.byPerson() && !trust.edited(f.Standing.TrustStamp)
	}
	in.replan = true // what this plan overrules, or tells, is looked at again
	if !recalled && len(in.tells) == 0 {
		in.tells = append(in.tells, f.tell(TellForgot, Tell{}))
	}
}

// settle derives what is wanted from the wish.
func (in *intent) settle(f *facts) {
	switch in.connect {
	case WishYes:
		// While an object that somebody deleted is on its way out, it is too late.
		in.join = f.decider != nil || len(f.leaving) == 0
	case WishNo:
		in.join = false
	case WishNone:
		in.join = f.decider != nil && (f.decider.Spec.Join || f.inherits())
	}
	in.wanted = in.join && !f.Standing.Blocked
}

// inherits reports whether the object that counts takes the place of one that is
// joined, and nobody says that it is not to be. Only what the agent itself joined
// is followed from one person's object to another's.
func (f *facts) inherits() bool {
	return !f.Owners[f.decider.Name].Join.byPerson() && slices.ContainsFunc(f.live(), func(fc *api.ForeignCluster) bool {
		return fc.Spec.Join && (fc == f.own || f.Owners[fc.Name].Join.Manager == ManagerIntent)
	})
}

// freshFor is how long after a person asked to be connected anew what the provider
// says may still be about the time before. Each look at a provider begins with
// asking anew, which clears what it ended before.
const freshFor = 20 * time.Second

// endedByProvider says why the provider ended the peering that we have or ask
// for; "" when it did not, or when a person asked again since.
func (f *facts) endedByProvider() string {
	shown, heard, asked := f.shown.Status.Outgoing, f.heard(), f.Remote.Asked
	if f.decider == nil {
		return ""
	}
	anew := f.Standing.Anew > f.Begun
	if heard != nil && heard.Request == nil && heard.Ended != "" {
		// A request that was seen there was ended; or the asking was answered, and yet
		// there is an end, which is newer than that.
		seen := shown.RemotePeeringRequestName != "" && !anew
		answered := asked != nil && asked.Auth == api.AuthAccepted && f.Remote.At.After(f.AnewSince.Add(freshFor))
		if seen || answered {
			return sentence(heard.Ended)
		}
	}
	if anew || f.Advertisement != nil || f.OfferDeleted != DeletedByPeer || !shown.Joined && !f.awaitsOffer() {
		return ""
	}
	// That it offers nothing at present is no end. It is one when the provider says
	// no to the request as well.
	switch {
	case f.denied():
	case heard == nil, heard.Request == nil, heard.Request.Phase == api.RequestAccepted:
		return ""
	case heard.Request.Phase == api.RequestRefused && heard.Request.Message != "":
		return sentence(heard.Request.Message)
	}
	return "The provider withdrew its offer."
}

// awaitsOffer reports whether the last that was shown is that the provider offers
// nothing at present.
func (f *facts) awaitsOffer() bool {
	c := f.shown.Condition(api.ConditionOutgoingPeering)
	return c != nil && c.Reason == ReasonAwaitingOffer
}

// trustModeOf is the decision about a key as spec.trustMode says it.
func trustModeOf(s Standing) api.TrustMode {
	switch {
	case s.Distrusted:
		return api.TrustUntrusted
	case s.Pin != nil:
		return api.TrustTrusted
	}
	return api.TrustUnknown
}

// intentActions returns what makes the objects say what is wanted.
func (f *facts) intentActions() []Action {
	var plan []Action
	for _, fc := range f.leaving {
		// Once it says so, nobody is told a second time.
		if f.intent.hangUp && fc.Spec.Join {
			plan = append(plan, f.applyIntent(fc, false, fc.Spec.TrustMode))
		}
	}
	// The one that counts comes first, so that nothing gets lost in between.
	first := func(a, b *api.ForeignCluster) int {
		switch f.decider {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	}
	for _, fc := range slices.SortedStableFunc(slices.Values(f.live()), first) {
		if f.goes(fc) {
			continue
		}
		join, trustMode := fc.Spec.Join, f.intent.trustMode
		switch {
		case fc == f.decider:
			join = f.intent.join
		case fc == f.own:
			join = join && f.intent.join
		case f.Owners[fc.Name].Join.Manager == ManagerIntent:
			join = false // only one says what we want
		}
		if f.intent.trustEdited || trustMode == api.TrustUnknown && fc.Spec.TrustMode == "" {
			trustMode = fc.Spec.TrustMode
		}
		if join != fc.Spec.Join || trustMode != fc.Spec.TrustMode {
			plan = append(plan, f.applyIntent(fc, join, trustMode))
		}
	}
	return plan
}

// applyIntent sets the two fields as given. What is as it should be, and is not
// ours, stays whoever's it is.
func (f *facts) applyIntent(fc *api.ForeignCluster, join bool, trustMode api.TrustMode) Action {
	var in Intent
	owners := f.Owners[fc.Name]
	if join != fc.Spec.Join || owners.Join.Manager == ManagerIntent {
		in.Join = &join
	}
	if trustMode != fc.Spec.TrustMode || owners.TrustMode.Manager == ManagerIntent {
		in.TrustMode = &trustMode
	}
	// What a person sets at the same moment is to be seen before it is overruled.
	return Action{Kind: ApplyIntent, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Intent: &in}
}

// doomed reports whether fc, which the agent made, is to go: the peer is not
// there any more, and nothing is between us, or somebody has an object of their own
// for it.
func (f *facts) doomed(fc *api.ForeignCluster) bool {
	if fc != f.own || f.creating || fc.DeletionTimestamp != nil {
		return false
	}
	if !f.RequestsKnown {
		return !fc.Spec.Join && !hasFinalizer(fc) && (f.gone() || len(f.others) > 0)
	}
	switch {
	case f.replaced():
		return true
	case !f.intent.join:
		// Whoever is served is given up when its request is, and not because its agent is
		// started anew just now.
		// Who asks, or was just now let in and is about to be called, is shown as well.
		asks := f.Standing.Ask != nil || f.Peer == nil && f.Standing.Asked
		return f.gone() && (f.Request == nil || f.lost) && !asks
	}
	// It comes back with the peer, if that is remembered. While another key is shown
	// for it, it stays and tells.
	return f.lost && !f.present() && (f.Peer == nil || f.Peer.Conflict == nil) && (hasFinalizer(fc) || f.intent.connect == WishYes)
}

// goes reports whether this plan deletes fc: not before its peering is undone.
func (f *facts) goes(fc *api.ForeignCluster) bool {
	return f.doomed(fc) && (!hasFinalizer(fc) || f.releases(fc))
}

// makesRoom reports whether this plan removes an object whose name may be needed
// for another one.
func (f *facts) makesRoom() bool {
	for _, fc := range f.leaving {
		if f.releases(fc) && len(fc.Finalizers) == 1 {
			return true
		}
	}
	return false
}

func (f *facts) tell(kind ActionKind, t Tell) Action {
	return Action{Kind: kind, Name: string(f.ID), Tell: &t}
}
