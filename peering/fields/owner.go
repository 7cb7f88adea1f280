package fields

import "strings"

// Owners says who set the fields of a ForeignCluster that belong to people.
type Owners struct {
	Join, TrustMode Owner
	Identity        IdentityOwners
}

// IdentityOwners says whose spec.clusterIdentity, spec.namespace and spec.authUrl are.
type IdentityOwners struct {
	// Filled: the agent completed the object of somebody else with the cluster's ID, and at
	// most its name and namespace.
	Filled bool
	// Name and Namespace: somebody else set clusterName, or the namespace.
	Name, Namespace bool
	// DiscoveredURL: only the agent set authUrl, so it is not a person's decision, whoever
	// created the object.
	DiscoveredURL bool
}

// Owner is who set a field, as metadata.managedFields tells.
type Owner struct {
	// Manager is the field manager; "" when nobody set the field (the schema's
	// default). When several own it, it is one that is not ManagerIntent.
	Manager string
	// Stamp tells edits apart: it is made of the object's UID, the manager, its
	// time and the value.
	Stamp string
}

// ByPerson reports whether somebody but the agent set the field.
func (o Owner) ByPerson() bool { return o.Manager != "" && o.Manager != ManagerIntent }

// Edited reports whether a person set the field since the edit with that stamp.
func (o Owner) Edited(stamp string) bool { return o.ByPerson() && o.Stamp != stamp }

// Recorded returns o with the stamp by which an earlier run or connection recorded the
// same edit, if it is the same.
func (o Owner) Recorded(stamp string) Owner {
	if baseStamp(stamp) == o.Stamp {
		o.Stamp = stamp
	}
	return o
}

// Follow returns who owns a field, given the owner before, and past, the person from whom the
// agent last took it. Times of edits have a precision of a second: an edit in the second of the
// one before, with a write of the agent in between, gets a stamp of its own. A field without an
// owner that a person owned before was removed by that person: the agent only sets fields.
func Follow(before, past, now Owner) (owner, taken Owner) {
	switch {
	case now.Manager == "" && before.ByPerson():
		stamp := strings.TrimSuffix(baseStamp(before.Stamp), removedMark) + removedMark
		return Owner{Manager: before.Manager, Stamp: stamp}, Owner{}
	case !now.ByPerson() && before.ByPerson():
		return now, before
	case !now.ByPerson():
		return now, past
	case before.ByPerson():
		switch base := baseStamp(before.Stamp); {
		case base == now.Stamp:
			now.Stamp = before.Stamp
		case base == now.Stamp+removedMark:
			now.Stamp += againMark
		}
	case baseStamp(past.Stamp) == now.Stamp:
		now.Stamp = past.Stamp + againMark
	}
	return now, Owner{}
}

// againMark is at the end of a stamp, once for each time that the same stamp was
// there before.
const againMark = "+"

// removedMark is at the end of the stamp of an edit that removed a field.
const removedMark = " removed"

func baseStamp(stamp string) string { return strings.TrimRight(stamp, againMark) }
