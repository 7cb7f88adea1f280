package offload

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/workload"
)

// maxWords bounds the message of a provider's refusal, in bytes.
const maxWords = 1000

// refusal reports whether an error of an API server is permanent.
func refusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && statusCode(err)/100 == 4 && statusCode(err) != http.StatusTooManyRequests
}

// Refused returns what an API server said, without the client's prefix, and whether that is
// permanent.
func Refused(err error) (said string, permanent bool) { return words(err), refusal(err) }

func statusCode(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// words returns the message of an API server without the client's prefix. If the provider's
// agent refused, the reason comes first.
func words(err error) string {
	said := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		said = status.Status().Message
		if d := status.Status().Details; d != nil && len(d.Causes) == 1 && d.Causes[0].Message == said && reasonForm.MatchString(string(d.Causes[0].Type)) {
			said = string(d.Causes[0].Type) + ": " + said
		}
	}
	return text.Line(said, maxWords)
}

// reasonForm matches reasons of refusals.
var reasonForm = regexp.MustCompile(`^[A-Z][A-Za-z]{0,62}$`)

// turnedAway shows on a pod that the provider refuses it, and backs off.
func (pc *controller) turnedAway(ctx context.Context, k key, v view, rn *remoteNamespace, why *workload.Refusal) (again time.Duration, err error) {
	if rn.pods.Len() == 0 {
		// If the namespace is gone, our rights are too, and the answer is the same. Listing
		// its pods is then forbidden as well, which the gate notices. Other errors recur.
		_ = rn.client.Get(ctx, "/api/v1/namespaces/"+rn.name+"/pods", nil)
	}
	why.Message = workload.AtHome(why.Message, rn.name, k.namespace)
	pc.mu.Lock()
	times := pc.refused[k].times + 1
	pause := work.Backoff{First: refusedFirst, Max: refusedMax}.Pause(times)
	pc.refused[k] = refused{times: times, until: pc.s.o.cfg.Now().Add(pause)}
	pc.mu.Unlock()
	again, err = pc.show(ctx, k, v, why)
	return work.Sooner(again, pause), err
}

// admitted ends the backoff of a refused pod.
func (pc *controller) admitted(k key) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	delete(pc.refused, k)
}

// show writes to a pod, and in an event, why it waits.
func (pc *controller) show(ctx context.Context, k key, v view, why *workload.Refusal) (again time.Duration, err error) {
	s := v.waiting(why)
	if s.status != nil {
		again, err = pc.write(ctx, k, v.local, s.status)
	}
	pc.warn(ctx, k, v.local, why)
	return again, err
}

// warn writes a Warning event about a pod, once for each reason.
func (pc *controller) warn(ctx context.Context, k key, local *corev1.Pod, why *workload.Refusal) {
	m := pc.remember(k, func(*podState) {})
	if m.local != local.UID || m.warned == why.Reason {
		return
	}
	pc.remember(k, func(m *podState) { m.warned = why.Reason })
	pc.tell(ctx, "Pod", &local.ObjectMeta, why.Reason, why)
}

// tell writes a Warning event about a local object. Those about an object with the same text
// in once are one.
func (pc *controller) tell(ctx context.Context, kind string, about *metav1.ObjectMeta, once string, why *workload.Refusal) {
	pc.say(ctx, corev1.EventTypeWarning, kind, about, once, why)
}

// say is tell with a type of event.
func (pc *controller) say(ctx context.Context, level, kind string, about *metav1.ObjectMeta, once string, why *workload.Refusal) {
	event := workload.Notice(level, kind, about, once, why, pc.s.o.cfg.Now())
	err := pc.s.local.Create(ctx, "/api/v1/namespaces/"+about.Namespace+"/events", event, nil)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		pc.s.o.cfg.Logger.Debug("an event cannot be written", "namespace", about.Namespace, "about", kind, "name", about.Name, "error", err)
	}
}
