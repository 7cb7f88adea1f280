package fields

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
)

// The fields of a status that people may set. A peer cannot: it reaches its objects
// without their status.
const (
	fieldDecision = "f:advertisementStatus"
	fieldPhase    = "f:phase"
)

// TrimAdvertisement keeps of the list of field managers, which is most of the object, only
// the people who decided about it.
func TrimAdvertisement(adv *api.Advertisement) {
	adv.ManagedFields = people(adv.ManagedFields, ManagerAdvertisement, fieldDecision)
}

// DecidedBy returns who set the decision about an Advertisement, "" if nobody but the
// agent did. If several did, it is one that is not ManagerIntent.
func DecidedBy(adv *api.Advertisement) string {
	by := ""
	for _, m := range people(adv.ManagedFields, ManagerAdvertisement, fieldDecision) {
		if by == "" || by == ManagerIntent {
			by = m.Manager
		}
	}
	return by
}

// TrimRequest keeps of the list of field managers only the people who set the phase.
func TrimRequest(r *api.PeeringRequest) {
	r.ManagedFields = people(r.ManagedFields, ManagerPeeringRequest, fieldPhase)
}

// PhaseBy returns who accepted or refused a request by its status, "" for nobody.
func PhaseBy(r *api.PeeringRequest) string {
	if by := people(r.ManagedFields, ManagerPeeringRequest, fieldPhase); len(by) > 0 && (r.Status.Phase == api.RequestAccepted || r.Status.Phase == api.RequestRefused) {
		return by[0].Manager
	}
	return ""
}

// people returns the managers, except us, that own a field of the status, with nothing
// but that field.
func people(managed []metav1.ManagedFieldsEntry, us, field string) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, m := range managed {
		if m.Subresource == "status" && m.Manager != us && api.FieldsOf(m.FieldsV1).Has("f:status", field) {
			out = append(out, metav1.ManagedFieldsEntry{
				Manager: m.Manager, Subresource: m.Subresource, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"` + field + `":{}}}`),
			})
		}
	}
	return out
}
