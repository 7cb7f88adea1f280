package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestStatusPatch(t *testing.T) {
	condition := func(kind, status string) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodConditionType(kind), Status: corev1.ConditionStatus(status)}
	}
	from := &corev1.PodStatus{
		Phase: corev1.PodPending, Reason: "Waiting", PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, QOSClass: corev1.PodQOSBestEffort,
		Conditions: []corev1.PodCondition{condition("PodScheduled", "True"), condition("Ready", "False"), condition("Gone", "True")},
	}
	to := from.DeepCopy()
	to.Phase, to.Reason, to.PodIP, to.PodIPs = corev1.PodRunning, "", "10.0.0.2", []corev1.PodIP{{IP: "10.0.0.2"}}
	to.Conditions = []corev1.PodCondition{condition("PodScheduled", "True"), condition("Ready", "True")}
	text, err := statusPatch("u", from, to)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"metadata": {"uid": "u"}, "status": {
		"phase": "Running", "reason": null, "podIP": "10.0.0.2", "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}],
		"conditions": [
			{"type": "Ready", "status": "True", "reason": null, "message": null, "lastTransitionTime": null, "lastProbeTime": null, "observedGeneration": null},
			{"$patch": "delete", "type": "Gone"}]}}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewForbidden(pods, "web", errors.New("exceeded quota")), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), true},
		{apierrors.NewBadRequest("no"), true},
		{apierrors.NewRequestEntityTooLargeError("too long"), true},
		{apierrors.NewGenericServerResponse(http.StatusTeapot, "post", pods, "web", "", 0, false), true},
		{apierrors.NewTooManyRequests("later", 1), false},
		{apierrors.NewConflict(pods, "web", errors.New("quota changed")), false},
		{apierrors.NewAlreadyExists(pods, "web"), false},
		{apierrors.NewInternalError(errors.New("no etcd")), false},
		{apierrors.NewServiceUnavailable("starting"), false},
		{errors.New("connection refused"), false},
	} {
		if got := refusal(fmt.Errorf("POST: %w", c.err)); got != c.want {
			t.Errorf("%v: got %t, want %t", c.err, got, c.want)
		}
	}
}

func TestEventsAreLimited(t *testing.T) {
	rn := &remoteNamespace{posted: make(map[string]*posted)}
	event := func(n int, count int32) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("e", n)}, Count: count}
	}
	if !rn.post("web", event(0, 1), moment) || rn.post("web", event(0, 1), moment) || !rn.post("web", event(0, 2), moment) {
		t.Error("an event is to be written once for each count")
	}
	for range 2 * maxEvents {
		rn.unpost("web", event(0, 2))
		if !rn.post("web", event(0, 2), moment) {
			t.Fatal("an event that could not be written is not written again")
		}
	}
	written := 0
	for n := range 100 {
		if rn.post("web", event(n+1, 1), moment) {
			written++
		}
	}
	if written != maxEvents-2 {
		t.Errorf("%d more were written in that minute, want %d", written, maxEvents-2)
	}
	if !rn.post("web", event(200, 1), moment.Add(time.Minute)) || !rn.post("db", event(1, 1), moment) {
		t.Error("neither another minute nor another pod counts anew")
	}
	for n := range 20 * maxEvents {
		rn.post("web", event(n, 9), moment.Add(time.Duration(n)*time.Minute))
	}
	if n := len(rn.posted["web"].names); n > 10*maxEvents+1 {
		t.Errorf("%d names are remembered", n)
	}
}

// TestWords: what a provider's agent refuses something for is in what people read.
func TestWords(t *testing.T) {
	status := func(message, cause, said string) error {
		return fmt.Errorf("POST: %w", &apierrors.StatusError{ErrStatus: metav1.Status{
			Message: message, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseType(cause), Message: said}}},
		}})
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{status("not from there", "RegistryNotAllowed", "not from there"), "RegistryNotAllowed: not from there"},
		{status("quota", "FieldValueInvalid", "another"), "quota"},
		{status("no", "\x1b[2J", "no"), "no"},
		{status("no", strings.Repeat("A", 100), "no"), "no"},
		{errors.New("no status"), "no status"},
		{status(strings.Repeat("x", 2*maxWords), "Forbidden", "y"), strings.Repeat("x", maxWords-3) + "..."},
	} {
		if got := words(tc.err); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
