package remote

import (
	"bytes"
	"maps"
	"reflect"
	"slices"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// isZero reports whether nothing is to do with the peer.
func isZero(d plan.RemoteSpec) bool { return sameSpec(d, plan.RemoteSpec{}) }

// sameSpec reports whether d and o want the same.
func sameSpec(d, o plan.RemoteSpec) bool {
	return sameTarget(d.Target, o.Target) && d.Contact == o.Contact && d.Ask == o.Ask && d.Fresh == o.Fresh && d.Token == o.Token &&
		d.RequestGone == o.RequestGone && d.AdvertisementGone == o.AdvertisementGone && d.Reason == o.Reason &&
		(d.Request == nil) == (o.Request == nil) && (d.Request == nil || sameRequest(*d.Request, *o.Request)) &&
		(d.Advertisement == nil) == (o.Advertisement == nil) && (d.Advertisement == nil || sameOffer(*d.Advertisement, *o.Advertisement))
}

// contacts reports whether the peer is asked for its state now and then.
func contacts(d plan.RemoteSpec) bool {
	return d.Contact || d.Request != nil || d.Advertisement != nil
}

// deletes reports whether something is to be gone.
func deletes(d plan.RemoteSpec) bool { return d.RequestGone || d.AdvertisementGone }

// leftover returns what is owed to the peer when nothing else is wanted any more:
// the deletions that were not confirmed.
func leftover(d plan.RemoteSpec, m memo) plan.RemoteSpec {
	left := plan.RemoteSpec{
		Target: d.Target, Reason: d.Reason,
		RequestGone: d.RequestGone && !m.requestGone, AdvertisementGone: d.AdvertisementGone && !m.advertisementGone,
	}
	if !deletes(left) {
		return plan.RemoteSpec{}
	}
	return left
}

func sameTarget(a, b peer.Target) bool {
	return a.ID == b.ID && a.Fingerprint == b.Fingerprint && a.URL == b.URL && slices.Equal(a.Addrs, b.Addrs) &&
		slices.EqualFunc(a.Places, b.Places, peer.Place.Equal)
}

// sameRequest reports whether two requests say the same.
func sameRequest(a, b api.PeeringRequestSpec) bool { return a == b }

// sameOffer reports whether two offers say the same. Of times that is so to the
// second: more does not survive being written.
func sameOffer(a, b api.AdvertisementSpec) bool {
	return a.ClusterID == b.ClusterID && maps.Equal(a.ResourceQuota.Hard, b.ResourceQuota.Hard) && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Prices, b.Prices) && slices.EqualFunc(a.Images, b.Images, sameImage) &&
		a.Timestamp.Unix() == b.Timestamp.Unix() && a.TimeToLive.Unix() == b.TimeToLive.Unix()
}

func sameImage(a, b api.ContainerImage) bool {
	return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
}

// sameStatus reports whether o says the same, apart from when it was seen.
func sameStatus(o, other plan.RemoteStatus) bool {
	return o.Failures == other.Failures && o.Denied == other.Denied && bytes.Equal(o.CA, other.CA) &&
		(o.Asked == nil) == (other.Asked == nil) && (o.Asked == nil || *o.Asked == *other.Asked) &&
		(o.Err == nil) == (other.Err == nil) && (o.Err == nil || o.Err.Error() == other.Err.Error()) &&
		(o.State == other.State || reflect.DeepEqual(o.State, other.State))
}
