package plan

import (
	"cmp"
	"slices"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// intent is what is wanted of the peer, and by whom.
type intent struct {
	// wanted: we are to consume the peer's resources.
	wanted bool
	// join is the desired spec.join of the effective object. It differs from wanted while the
	// peer is blocked, or there is no object.
	join bool
	// trustMode is the desired spec.trustMode.
	trustMode api.TrustMode
	// connect is Policy.Connect after the records.
	connect Tristate
	// records are the actions on the decision store, which come first.
	records []Action
	// replan: the records change Policy in a way that is not known beforehand.
	replan bool
	// trustEdited: the desired spec.trustMode depends on the decision store's answer.
	trustEdited bool
	// hangUp: somebody deleted the object of a peering, which ends it.
	hangUp bool
	// ended is why the provider ended the outgoing peering just now, "" if it did not.
	ended string
}

// deriveIntent derives the intent. Each edit of the effective object by a person overrules the
// decision store once.
func (d *derived) deriveIntent() intent {
	in := intent{connect: d.Policy.Connect, trustMode: trustModeOf(d.Policy)}
	if !d.RequestsKnown {
		in.join = in.connect == Yes || in.connect == Unset && d.effective != nil && d.effective.Spec.Join
		in.wanted = in.join && !d.Policy.Blocked
		return in
	}
	joinEdited := false
	if d.effective != nil && !d.creating {
		if fc, o := d.author(func(o fields.Owners) fields.Owner { return o.TrustMode }); o.Edited(d.Policy.TrustStamp) {
			// A fingerprint that cannot be read is none: then nothing can be trusted.
			shown, _ := peer.ParseFingerprint(fc.Status.Fingerprint)
			in.records = append(in.records, d.record(RecordTrustEdited, Record{Mode: fc.Spec.TrustMode, Shown: shown, By: o.Manager, Stamp: o.Stamp}))
			in.trustEdited, in.replan = true, true
			if c := fc.Condition(api.ConditionAccessRequested); fc.Spec.TrustMode == api.TrustTrusted && c != nil && c.Reason == reason.Pending {
				in.records = append(in.records, d.record(RecordDecided, Record{On: true, Shown: shown, By: o.Manager}))
			}
		}
		if fc, o := d.author(func(o fields.Owners) fields.Owner { return o.Join }); o.Edited(d.Policy.JoinStamp) {
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

// forget looks for objects that still contain decisions from before the peer was forgotten. The
// decision store learns when there are none left. Redundant objects do not matter.
func (d *derived) forget(in *intent) {
	recalled := false
	for _, fc := range append([]*api.ForeignCluster{d.effective, d.own}, d.terminating...) {
		if fc == nil || fc.DeletionTimestamp != nil && !hasFinalizer(fc) {
			continue // one that somebody else holds is never planned with again
		}
		trust := d.Owners[fc.Name].TrustMode
		recalled = recalled || fc.Spec.Join && !in.join ||
			fc.DeletionTimestamp == nil && cmp.Or(fc.Spec.TrustMode, api.TrustUnknown) != in.trustMode && trust.ByPerson() && !trust.Edited(d.Policy.TrustStamp)
	}
	in.replan = true // to check what this plan changes
	if !recalled && len(in.records) == 0 {
		in.records = append(in.records, d.record(RecordForgot, Record{}))
	}
}

// settle derives join and wanted from connect.
func (in *intent) settle(d *derived) {
	switch in.connect {
	case Yes:
		// Not while an object that somebody deleted is terminating.
		in.join = d.effective != nil || len(d.terminating) == 0
	case No:
		in.join = false
	case Unset:
		in.join = d.effective != nil && (d.effective.Spec.Join || d.inherits())
	}
	in.wanted = in.join && !d.Policy.Blocked
}

// inherits reports whether the effective object replaces a joined one, and no person set its
// spec.join. From another person's object, only a join of the agent is inherited.
func (d *derived) inherits() bool {
	return !d.Owners[d.effective.Name].Join.ByPerson() && slices.ContainsFunc(d.live(), func(fc *api.ForeignCluster) bool {
		return fc.Spec.Join && (fc == d.own || d.Owners[fc.Name].Join.Manager == fields.ManagerIntent)
	})
}

// staleAnswerFor is for how long after a person connected again the reported state may be from
// before. Each contact with a provider begins with a request for access, which clears an
// earlier end.
const staleAnswerFor = 20 * time.Second

// endedByProvider returns why the provider ended the outgoing peering; "" if it did not, or a
// person connected again since.
func (d *derived) endedByProvider() string {
	shown, state, asked := d.shown.Status.Outgoing, d.remoteState(), d.Remote.Asked
	if d.effective == nil {
		return ""
	}
	anew := d.Policy.Generation > d.ObservedGeneration
	if state != nil && state.Request == nil && state.Ended != "" {
		// Either a request that was seen there is gone, or the provider accepted us and ended
		// it after that.
		seen := shown.RemotePeeringRequestName != "" && !anew
		answered := asked != nil && asked.Auth == api.AuthAccepted && d.Remote.At.After(d.GenerationSince.Add(staleAnswerFor))
		if seen || answered {
			return text.Sentence(state.Ended)
		}
	}
	if anew || d.Advertisement != nil || d.OfferDeleted != DeletedByPeer || !shown.Joined && !d.awaitsOffer() {
		return ""
	}
	// A missing offer alone is no end. It is one if the provider refuses the request as well.
	switch {
	case d.denied():
	case state == nil, state.Request == nil, state.Request.Phase == api.RequestAccepted:
		return ""
	case state.Request.Phase == api.RequestRefused && state.Request.Message != "":
		return text.Sentence(state.Request.Message)
	}
	return "The provider withdrew its offer."
}

// awaitsOffer reports whether the condition shows that the provider offers nothing.
func (d *derived) awaitsOffer() bool {
	c := d.shown.Condition(api.ConditionOutgoingPeering)
	return c != nil && c.Reason == reason.AwaitingOffer
}

// trustModeOf returns the spec.trustMode for the decision about a key.
func trustModeOf(s Policy) api.TrustMode {
	switch {
	case s.Distrusted:
		return api.TrustUntrusted
	case s.Pin != nil:
		return api.TrustTrusted
	}
	return api.TrustUnknown
}

// intentActions returns the actions that write the intent to the objects.
func (d *derived) intentActions() []Action {
	var plan []Action
	for _, fc := range d.terminating {
		// spec.join = false marks it as handled.
		if d.intent.hangUp && fc.Spec.Join {
			plan = append(plan, d.applyIntent(fc, false, fc.Spec.TrustMode))
		}
	}
	// The effective one comes first, so that the intent is never lost in between.
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
		case d.Owners[fc.Name].Join.Manager == fields.ManagerIntent:
			join = false // only the effective one has our intent
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

// applyIntent sets the two fields. A field that has the value already keeps its owner.
func (d *derived) applyIntent(fc *api.ForeignCluster, join bool, trustMode api.TrustMode) Action {
	var in Intent
	owners := d.Owners[fc.Name]
	if join != fc.Spec.Join || owners.Join.Manager == fields.ManagerIntent {
		in.Join = &join
	}
	if trustMode != fc.Spec.TrustMode || owners.TrustMode.Manager == fields.ManagerIntent {
		in.TrustMode = &trustMode
	}
	// The version makes an edit of the same moment visible before it is overruled.
	return Action{Kind: ApplyIntent, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Intent: &in}
}

// unneeded reports whether to delete fc, which the agent created: the peer is gone and there is
// no peering, or a person's object replaces it.
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
		// A consumer keeps its object as long as its request, also while its agent restarts. A
		// cluster that asks for access, or just got it and was not called yet, has one too.
		asks := d.Policy.Ask != nil || d.Peer == nil && d.Policy.Asked
		return d.gone() && (d.Request == nil || d.lost) && !asks
	}
	// The peer creates it again when it is back, if the intent is remembered. While there is a
	// key conflict, it stays to show that.
	return d.lost && !d.present() && (d.Peer == nil || d.Peer.Conflict == nil) && (hasFinalizer(fc) || d.intent.connect == Yes)
}

// deletes reports whether this plan deletes fc, which has to wait for the end of its peering.
func (d *derived) deletes(fc *api.ForeignCluster) bool {
	return d.unneeded(fc) && (!hasFinalizer(fc) || d.releasesFinalizer(fc))
}

// freesName reports whether this plan removes an object whose name another one may need.
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
