package workload

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer/text"
)

const (
	// EventSource is the source component of our own events, and of repeated ones that are not of
	// a kubelet.
	EventSource = "liqo-agent"

	componentKubelet   = "kubelet"
	componentScheduler = "default-scheduler"

	// maxEventMessage is the limit of API servers for the message of an event.
	maxEventMessage = 1024
	maxEventName    = 253
)

// fieldPath matches the fieldPath of an event about a container.
var fieldPath = regexp.MustCompile(`^spec\.(containers|initContainers|ephemeralContainers)\{[a-z0-9-]{1,63}\}$`)

// Event returns the consumer's version of the provider's event theirs about the copy of mine,
// or false if it is not repeated. The caller checks that theirs is about that copy
// (involvedObject.uid). there is the copy, nil if it is not known any more. The same event has the
// same name, so a later count is an update. The result can be created or applied as it is. It reads
// as at home: of the kubelet of the virtual node, and with the names of this cluster. Its times are
// from the provider's clock.
func Event(theirs *corev1.Event, mine, there *corev1.Pod, in Origin) (*corev1.Event, bool) {
	about, from := theirs.InvolvedObject, cmp.Or(theirs.ReportingController, theirs.Source.Component)
	reason := text.Line(theirs.Reason, maxReason)
	if about.Kind != "Pod" || about.Name != mine.Name || theirs.UID == "" || reason == "" ||
		theirs.Type != corev1.EventTypeNormal && theirs.Type != corev1.EventTypeWarning {
		return nil, false
	}
	if from == componentScheduler && theirs.Type == corev1.EventTypeNormal {
		return nil, false // the scheduler here said where the pod is
	}
	component := EventSource
	if from == componentKubelet {
		component = componentKubelet
	}
	first, last, count := theirs.FirstTimestamp, theirs.LastTimestamp, theirs.Count
	if first.IsZero() { // set by clients of events.k8s.io/v1 in eventTime
		first = metav1.Time{Time: theirs.EventTime.Time}
	}
	if s := theirs.Series; s != nil {
		last, count = metav1.Time{Time: s.LastObservedTime.Time}, s.Count
	}
	if last.IsZero() {
		last = first
	}
	where := ""
	if fieldPath.MatchString(about.FieldPath) {
		where = about.FieldPath
	}
	sum := sha256.Sum256([]byte(string(mine.UID) + "/" + string(theirs.UID)))
	suffix := "." + hex.EncodeToString(sum[:8])
	name := strings.TrimRight(mine.Name[:min(len(mine.Name), maxEventName-len(suffix))], "-.") + suffix
	return &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: mine.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: mine.Namespace, Name: mine.Name, UID: mine.UID, FieldPath: where,
		},
		Type: theirs.Type, Reason: reason, Message: text.Lines(namesOf(mine, there, about.UID, in).in(theirs.Message), maxEventMessage),
		Source:         corev1.EventSource{Component: component, Host: mine.Spec.NodeName},
		FirstTimestamp: moment(first), LastTimestamp: moment(last), Count: max(count, 1),
		ReportingController: component, ReportingInstance: mine.Spec.NodeName,
	}, true
}

// Notice returns an event of our own about an object of this cluster. Those about an object with
// the same text in once are one.
func Notice(level, kind string, about *metav1.ObjectMeta, once string, why *Refusal, now time.Time) *corev1.Event {
	sum := sha256.Sum256([]byte(string(about.UID) + once))
	return &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, Name: strings.TrimRight(about.Name[:min(len(about.Name), 200)], ".-") + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID,
		},
		Type: level, Reason: why.Reason, Message: text.Line(why.Message, maxEventMessage),
		Source: corev1.EventSource{Component: EventSource}, ReportingController: EventSource,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Count: 1,
	}
}
