package peering

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
)

// ManagerEvents owns the Events.
const ManagerEvents = "liqo-agent-events"

// eventNamespace is where the API server keeps Events about what is in no namespace.
const eventNamespace = metav1.NamespaceDefault

const (
	// maxAnnouncements bounds what waits to be written.
	maxAnnouncements = 256
	// maxAnnounced bounds what is remembered of what was written.
	maxAnnounced = 512
	// announcePause is the shortest time between two Events: writes are not for free on
	// small boxes.
	announcePause = 200 * time.Millisecond
	// announceAgain is the shortest time between two writes of the same Event. What
	// happens more often is counted.
	announceAgain = time.Minute
	// announceAnew is how long the same thing must not have happened for it to be a new
	// Event: the API server keeps them for an hour.
	announceAnew = time.Hour
	// maxEventMessage is the limit of the API server for newer kinds of Events, in bytes.
	maxEventMessage = 1000
)

// announcer writes Events. One goroutine runs it; announce may be called from any.
type announcer struct {
	*session
	queue chan announcement
	told  map[announcedKey]*announced // of run
}

// announcement is an Event to be written.
type announcement struct {
	occurrence
	about string // the ForeignCluster
	uid   types.UID
	at    time.Time
}

type announcedKey struct {
	uid    types.UID
	reason string
}

// announced is an Event that was written.
type announced struct {
	name        string
	first, last time.Time // when it happened
	written     time.Time
	count       int32
}

func newAnnouncer(s *session) *announcer {
	return &announcer{session: s, queue: make(chan announcement, maxAnnouncements), told: make(map[announcedKey]*announced)}
}

// announce has what happened to a ForeignCluster told. It never blocks: when too much
// happens at once, what comes last is not told.
func (a *announcer) announce(before, after *foreignCluster) {
	var was *api.ForeignCluster
	if before != nil {
		was = &before.ForeignCluster
	}
	for _, o := range occurrences(was, &after.ForeignCluster) {
		select {
		case a.queue <- announcement{o, after.Name, after.UID, a.cfg.Now()}:
		default:
			a.cfg.Logger.Debug("too much happens at once; an Event is left out", "foreigncluster", after.Name, "reason", o.reason)
		}
	}
}

// run writes until ctx ends. What fails is not tried again: an Event is worth less
// than what it would hold up.
func (a *announcer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-a.queue:
			if a.write(ctx, one) && sleep(ctx, announcePause) != nil {
				return
			}
		}
	}
}

// write writes one, and reports whether a request was made.
func (a *announcer) write(ctx context.Context, one announcement) bool {
	key := announcedKey{one.uid, one.reason}
	known := a.told[key]
	if known == nil || one.at.Sub(known.last) >= announceAnew {
		a.makeRoom(one.at)
		known = &announced{name: eventName(one), first: one.at}
		a.told[key] = known
	}
	known.last = one.at
	known.count++
	if !known.written.IsZero() && one.at.Sub(known.written) < announceAgain {
		return false
	}
	known.written = one.at
	err := a.client.applyJSON(ctx, "/api/v1/namespaces/"+eventNamespace+"/events/"+known.name, one.event(known), ManagerEvents, true)
	if err != nil && ctx.Err() == nil {
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			a.complainOnce("events", "what happens to peers cannot be told by Events", err)
		}
		a.cfg.Logger.Debug("an Event is left out", "foreigncluster", one.about, "reason", one.reason, "error", err)
	}
	return true
}

// makeRoom forgets what happened long ago, and everything when that is not enough.
func (a *announcer) makeRoom(now time.Time) {
	if len(a.told) < maxAnnounced {
		return
	}
	for key, known := range a.told {
		if now.Sub(known.last) >= announceAnew {
			delete(a.told, key)
		}
	}
	if len(a.told) >= maxAnnounced {
		clear(a.told)
	}
}

// eventName is unique for what happens, and the same for each write of it.
func eventName(one announcement) string {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s %s %d", one.uid, one.reason, one.at.UnixNano())
	about := strings.TrimRight(one.about[:min(len(one.about), 200)], ".-")
	return fmt.Sprintf("%s.%016x", about, sum.Sum64())
}

// event is as much of an Event as is written. (core/v1; its newer form has nothing
// that would be shown.)
type event struct {
	metav1.TypeMeta    `json:",inline"`
	Metadata           eventMeta           `json:"metadata"`
	InvolvedObject     api.ObjectReference `json:"involvedObject"`
	Reason             string              `json:"reason"`
	Message            string              `json:"message"`
	Type               string              `json:"type"`
	Count              int32               `json:"count"`
	FirstTimestamp     metav1.Time         `json:"firstTimestamp"`
	LastTimestamp      metav1.Time         `json:"lastTimestamp"`
	Source             eventSource         `json:"source"`
	ReportingComponent string              `json:"reportingComponent"`
}

type eventMeta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels,omitempty"`
}

type eventSource struct {
	Component string `json:"component"`
}

// event returns what is written.
func (one announcement) event(known *announced) event {
	kind := "Normal"
	if one.warning {
		kind = "Warning"
	}
	gvk := foreignClusterKind().gvk
	return event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		Metadata: eventMeta{Name: known.name, Namespace: eventNamespace, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		InvolvedObject: api.ObjectReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: one.about, UID: string(one.uid),
		},
		Reason: one.reason, Message: clipTo(one.message, maxEventMessage), Type: kind, Count: known.count,
		FirstTimestamp: metav1.NewTime(known.first), LastTimestamp: metav1.NewTime(known.last),
		Source: eventSource{api.ManagedByAgent}, ReportingComponent: api.ManagedByAgent,
	}
}
