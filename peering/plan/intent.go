package plan

import (
	"cmp"
	"slices"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// intent is what is wanted of the peer, and by whom.
type intent struct {
	// wanted: we are to consume the peer's resources.
	wanted bool
	// join is what spec.join of the effective object is to be. It differs from wanted while
	// the peer is blocked, or while there is no object.
	join bool
	// trustMode is what spec.trustMode is to be.
	trustMode api.TrustMode
	// connect is Policy.Connect, or what it will be once the decision store was told.
	connect Tristate
	// records are what the decision store is to record first.
	records []Action
	// replan: what the decision store makes of it is not known beforehand.
	replan bool
	// trustEdited: what spec.trustMode is to be depends on the decision store's answer.
	trustEdited bool
	// hangUp: somebody deleted the object of a peering, and meant it.
	hangUp bool
	// ended is why the provider ended our consuming its resources just now, "" when
	// it did not.
	ended string
}

// byPerson reports whether somebody but the agent set the field.
func (o Owner) byPerson() bool { return o.Manager != "" && o.Manager != ManagerIntent }

// edited reports whether a person set the field since the decision store was told of an
// edit the last time.
func (o Owner) edited(stamp string) bool { return o.byPerson() && o.Stamp != stamp }

// deriveIntent finds out what is wanted. People's edits of the object that counts go
// before what the decision store remembers, once each.
func (d *derived) deriveIntent() intent {
	in := intent{connect: d.Policy.Connect, trustMode: trustModeOf(d.Policy)}
	if !d.RequestsKnown {
		in.join = in.connect == Yes || in.connect == Unset && d.effective != nil && d.effective.Spec.Join
		in.wanted = in.join && !d.Policy.Blocked
		return in
	}
	joinEdited := false
	if d.effective != nil && !d.creating {
		if fc, o := d.author(func(o Owners) Owner { return o.TrustMode }); o.edited(d.Policy.TrustStamp) {
			// A fingerprint that cannot be read is none: then nothing can be trusted.
			shown, _ := peer.ParseFingerprint(fc.Status.Fingerprint)
			in.records = append(in.records, d.record(RecordTrustEdited, Record{Mode: fc.Spec.TrustMode, Shown: shown, By: o.Manager, Stamp: o.Stamp}))
			in.trustEdited, in.replan = true, true
			if c := fc.Condition(api.ConditionAccessRequested); fc.Spec.TrustMode == api.TrustTrusted && c != nil && c.Reason == ReasonPending {
				in.records = append(in.records, d.record(RecordDecided, Record{On: true, Shown: shown, By: o.Manager}))
			}
		}
		if fc, o := d.author(func(o Owners) Owner { return o.Join }); o.edited(d.Policy.JoinStamp) {
			in.records = append(in.records, d.record(RecordJoinEdited, Record{On: fc.Spec.Join, By: o.Manager, Stamp: o.Stamp}))
			joinEdited, in.replan, in.connect = true, true, No
			if fc.Spec.Join {
				in.connect = Yes
			}
		}
	}
	in.settle(d)
	stays := d.effective != nil && d.effective.Spec.Join && in.join // in another object
	for _, fc := range d.terminating {
		if fc.Spec.Join && !stays {
			in.hangUp = true
			if in.connect != No {
				in.records = append(in.records, d.record(RecordHungUp, Record{By: "whoever deleted ForeignCluster " + fc.Name}))
				in.connect, in.replan = No, in.replan || d.effective != nil // which is to show it
			}
		}
	}
	in.settle(d)
	if reason := d.endedByProvider(); in.wanted && d.trusted && !joinEdited && reason != "" {
		in.records = append(in.records, d.record(RecordEndedByProvider, Record{Reason: reason, Generation: d.Policy.Generation}))
		in.ended, in.connect = reason, No
		in.settle(d)
	}
	if d.Policy.Forgotten {
		d.forget(&in)
	}
	return in
}

// forget looks at what objects still say that was wanted of a peer before it was
// forgotten: the decision store is told when none of them says anything else than what is
// wanted now. An object beside the one that counts has no say.
func (d *derived) forget(in *intent) {
	recalled := false
	for _, fc := range append([]*api.ForeignCluster{d.effective, d.own}, d.terminating...) {
		if fc == nil {
			continue
		}
		trust := d.Owners[fc.Name].TrustMode
		recalled = recalled || fc.Spec.Join && !in.join ||
			cmp.Or(fc.Spec.TrustMode, api.TrustUnknown) != in.trustMode && trust.byPerson() && !trust.edited(d.Policy.TrustStamp)
	}
	in.replan = true // what this plan overrules, or tells, is looked at again
	if !recalled && len(in.records) == 0 {
		in.records = append(in.records, d.record(RecordForgot, Record{}))
	}
}

// settle derives what is wanted from the wish.
func (in *intent) settle(d *derived) {
	switch in.connect {
	case Yes:
		// While an object that somebody deleted is on its way out, it is too late.
		in.join = d.effective != nil || len(d.terminating) == 0
	case No:
		in.join = false
	case Unset:
		in.join = d.effective != nil && (d.effective.Spec.Join || d.inherits())
	}
	in.wanted = in.join && !d.Policy.Blocked
}

// inherits reports whether the object that counts takes the place of one that is
// joined, and nobody says that it is not to be. Only what the agent itself joined
// is followed from one person's object to another's.
func (d *derived) inherits() bool {
	return !d.Owners[d.effective.Name].Join.byPerson() && slices.ContainsFunc(d.live(), func(fc *api.ForeignCluster) bool {
		return fc.Spec.Join && (fc == d.own || d.Owners[fc.Name].Join.Manager == ManagerIntent)
	})
}

// staleAnswerFor is how long after a person asked to be connected again what the provider
// says may still be about the time before. Each look at a provider begins with
// asking again, which clears what it ended before.
const staleAnswerFor = 20 * time.Second

// endedByProvider says why the provider ended the peering that we have or ask
// for; "" when it did not, or when a person asked again since.
func (d *derived) endedByProvider() string {
	shown, state, asked := d.shown.Status.Outgoing, d.remoteState(), d.Remote.Asked
	if d.effective == nil {
		return ""
	}
	anew := d.Policy.Generation > d.ObservedGeneration
	if state != nil && state.Request == nil && state.Ended != "" {
		// A request that was seen there was ended; or the asking was answered, and yet
		// there is an end, which is newer than that.
		seen := shown.RemotePeeringRequestName != "" && !anew
		answered := asked != nil && asked.Auth == api.AuthAccepted && d.Remote.At.After(d.GenerationSince.Add(staleAnswerFor))
		if seen || answered {
			return text.Sentence(state.Ended)
		}
	}
	if anew || d.Advertisement != nil || d.OfferDeleted != DeletedByPeer || !shown.Joined && !d.awaitsOffer() {
		return ""
	}
	// That it offers nothing at present is no end. It is one when the provider says
	// no to the request as well.
	switch {
	case d.denied():
	case state == nil, state.Request == nil, state.Request.Phase == api.RequestAccepted:
		return ""
	case state.Request.Phase == api.RequestRefused && state.Request.Message != "":
		return text.Sentence(state.Request.Message)
	}
	return "The provider withdrew its offer."
}

// awaitsOffer reports whether the last that was shown is that the provider offers
// nothing at present.
func (d *derived) awaitsOffer() bool {
	c := d.shown.Condition(api.ConditionOutgoingPeering)
	return c != nil && c.Reason == ReasonAwaitingOffer
}

// trustModeOf is the decision about a key as spec.trustMode says it.
func trustModeOf(s Policy) api.TrustMode {
	switch {
	case s.Distrusted:
		return api.TrustUntrusted
	case s.Pin != nil:
		return api.TrustTrusted
	}
	return api.TrustUnknown
}

// intentActions returns what makes the objects say what is wanted.
func (d *derived) intentActions() []Action {
	var plan []Action
	for _, fc := range d.terminating {
		// Once it says so, nobody is told a second time.
		if d.intent.hangUp && fc.Spec.Join {
			plan = append(plan, d.applyIntent(fc, false, fc.Spec.TrustMode))
		}
	}
	// The one that counts comes first, so that nothing gets lost in between.
	first := func(a, b *api.ForeignCluster) int {
		switch d.effective {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	}
	for _, fc := range slices.SortedStableFunc(slices.Values(d.live()), first) {
		if d.deletes(fc) {
			continue
		}
		join, trustMode := fc.Spec.Join, d.intent.trustMode
		switch {
		case fc == d.effective:
			join = d.intent.join
		case fc == d.own:
			join = join && d.intent.join
		case d.Owners[fc.Name].Join.Manager == ManagerIntent:
			join = false // only one says what we want
		}
		if d.intent.trustEdited || trustMode == api.TrustUnknown && fc.Spec.TrustMode == "" {
			trustMode = fc.Spec.TrustMode
		}
		if join != fc.Spec.Join || trustMode != fc.Spec.TrustMode {
			plan = append(plan, d.applyIntent(fc, join, trustMode))
		}
	}
	return plan
}

// applyIntent sets the two fields as given. What is as it should be, and is not
// ours, stays whoever's it is.
func (d *derived) applyIntent(fc *api.ForeignCluster, join bool, trustMode api.TrustMode) Action {
	var in Intent
	owners := d.Owners[fc.Name]
	if join != fc.Spec.Join || owners.Join.Manager == ManagerIntent {
		in.Join = &join
	}
	if trustMode != fc.Spec.TrustMode || owners.TrustMode.Manager == ManagerIntent {
		in.TrustMode = &trustMode
	}
	// What a person sets at the same moment is to be seen before it is overruled.
	return Action{Kind: ApplyIntent, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Intent: &in}
}

// unneeded reports whether fc, which the agent made, is to go: the peer is not
// there any more, and nothing is between us, or somebody has an object of their own
// for it.
func (d *derived) unneeded(fc *api.ForeignCluster) bool {
	if fc != d.own || d.creating || fc.DeletionTimestamp != nil {
		return false
	}
	if !d.RequestsKnown {
		return !fc.Spec.Join && !hasFinalizer(fc) && (d.gone() || len(d.others) > 0)
	}
	switch {
	case d.superseded():
		return true
	case !d.intent.join:
		// Whoever is served is given up when its request is, and not because its agent is
		// starting just now.
		// Who asks, or was just now let in and is about to be called, is shown as well.
		asks := d.Policy.Ask != nil || d.Peer == nil && d.Policy.Asked
		return d.gone() && (d.Request == nil || d.lost) && !asks
	}
	// It comes back with the peer, if that is remembered. While another key is shown
	// for it, it stays and tells.
	return d.lost && !d.present() && (d.Peer == nil || d.Peer.Conflict == nil) && (hasFinalizer(fc) || d.intent.connect == Yes)
}

// deletes reports whether this plan deletes fc: not before its peering is undone.
func (d *derived) deletes(fc *api.ForeignCluster) bool {
	return d.unneeded(fc) && (!hasFinalizer(fc) || d.releasesFinalizer(fc))
}

// freesName reports whether this plan removes an object whose name may be needed
// for another one.
func (d *derived) freesName() bool {
	for _, fc := range d.terminating {
		if d.releasesFinalizer(fc) && len(fc.Finalizers) == 1 {
			return true
		}
	}
	return false
}

func (d *derived) record(kind ActionKind, t Record) Action {
	return Action{Kind: kind, Name: string(d.ID), Record: &t}
}
