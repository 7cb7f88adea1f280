package events

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer/text"
)

// Manager owns the Events.
const Manager = "liqo-agent-events"

// eventNamespace is where the API server keeps Events about what is in no namespace.
const eventNamespace = metav1.NamespaceDefault

const (
	// maxPending bounds what waits to be written.
	maxPending = 256
	// maxSeries bounds the Events that are remembered to count repetitions.
	maxSeries = 512
	// writePause is the shortest time between two Events: writes are not for free on
	// small boxes.
	writePause = 200 * time.Millisecond
	// repeatPause is the shortest time between two writes of the same Event. What
	// happens more often is counted.
	repeatPause = time.Minute
	// seriesEnd is how long the same thing must not have happened for it to be a new
	// Event: the API server keeps them for an hour.
	seriesEnd = time.Hour
	// maxEventMessage is the limit of the API server for newer kinds of Events, in bytes.
	maxEventMessage = 1000
)

// Config is what a Recorder needs.
type Config struct {
	// Client speaks to the local API server.
	Client *kube.Client
	// Now is the clock.
	Now    func() time.Time
	Logger *slog.Logger
	// Refused is told that the API server takes no Events, with the reason. It must not
	// block.
	Refused func(error)
}

// Recorder writes Events about ForeignClusters.
type Recorder struct {
	Config
	queue   chan pending
	written map[eventKey]*series // of Run
}

// pending is an Event to be written.
type pending struct {
	Event
	about string // the ForeignCluster
	uid   types.UID
	at    time.Time
}

type eventKey struct {
	uid    types.UID
	reason string
}

// series is an Event and its repetitions.
type series struct {
	name        string
	first, last time.Time // when it happened
	writtenAt   time.Time
	count       int32
}

// NewRecorder returns a Recorder that writes nothing until Run is called.
func NewRecorder(cfg Config) *Recorder {
	return &Recorder{Config: cfg, queue: make(chan pending, maxPending), written: make(map[eventKey]*series)}
}

// Record has Events written about what changed in a ForeignCluster. It never blocks: when
// too much happens at once, what comes last is left out.
func (r *Recorder) Record(before, after *api.ForeignCluster) {
	for _, o := range Between(before, after) {
		select {
		case r.queue <- pending{o, after.Name, after.UID, r.Now()}:
		default:
			r.Logger.Debug("too many Events at once; one is dropped", "foreigncluster", after.Name, "reason", o.Reason)
		}
	}
}

// Run writes until ctx ends. What fails is not tried again: an Event is worth less
// than what it would hold up.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-r.queue:
			if !r.write(ctx, one) {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(writePause):
			}
		}
	}
}

// write writes one, and reports whether a request was made.
func (r *Recorder) write(ctx context.Context, one pending) bool {
	key := eventKey{one.uid, one.Reason}
	known := r.written[key]
	if known == nil || one.at.Sub(known.last) >= seriesEnd {
		r.makeRoom(one.at)
		known = &series{name: eventName(one), first: one.at}
		r.written[key] = known
	}
	known.last = one.at
	known.count++
	if !known.writtenAt.IsZero() && one.at.Sub(known.writtenAt) < repeatPause {
		return false
	}
	known.writtenAt = one.at
	err := r.Client.Apply(ctx, "/api/v1/namespaces/"+eventNamespace+"/events/"+known.name, Manager, true, one.object(known), nil)
	if err != nil && ctx.Err() == nil {
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			r.Refused(err)
		}
		r.Logger.Debug("an Event is dropped", "foreigncluster", one.about, "reason", one.Reason, "error", err)
	}
	return true
}

// makeRoom forgets what happened long ago, and everything when that is not enough.
func (r *Recorder) makeRoom(now time.Time) {
	if len(r.written) < maxSeries {
		return
	}
	for key, known := range r.written {
		if now.Sub(known.last) >= seriesEnd {
			delete(r.written, key)
		}
	}
	if len(r.written) >= maxSeries {
		clear(r.written)
	}
}

// eventName is unique for what happens, and the same for each write of it.
func eventName(one pending) string {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s %s %d", one.uid, one.Reason, one.at.UnixNano())
	about := strings.TrimRight(one.about[:min(len(one.about), 200)], ".-")
	return fmt.Sprintf("%s.%016x", about, sum.Sum64())
}

// eventObject is as much of an Event as is written. (core/v1; its newer form has nothing
// that would be shown.)
type eventObject struct {
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

// object returns what is written.
func (p pending) object(known *series) eventObject {
	kind := "Normal"
	if p.Warning {
		kind = "Warning"
	}
	return eventObject{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		Metadata: eventMeta{Name: known.name, Namespace: eventNamespace, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		InvolvedObject: api.ObjectReference{
			APIVersion: api.GroupVersion.String(), Kind: api.KindForeignCluster, Name: p.about, UID: string(p.uid),
		},
		Reason: p.Reason, Message: text.Clip(p.Message, maxEventMessage), Type: kind, Count: known.count,
		FirstTimestamp: metav1.NewTime(known.first), LastTimestamp: metav1.NewTime(known.last),
		Source: eventSource{api.ManagedByAgent}, ReportingComponent: api.ManagedByAgent,
	}
}
