package workload

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"liqo.io/agent/peer/text"
)

// Copy is a pod of another cluster. Use it to decode what a peer sends: unlike that of a
// corev1.Pod, the cost of decoding is proportional to the length of the document. It has only
// the fields that are compared and mirrored.
type Copy struct {
	corev1.Pod
}

// copyDocument are the fields of a pod that are decoded. Others take no memory.
type copyDocument struct {
	Metadata copyMeta `json:"metadata"`
	Spec     struct {
		NodeName                      string          `json:"nodeName"`
		ActiveDeadlineSeconds         *int64          `json:"activeDeadlineSeconds"`
		TerminationGracePeriodSeconds *int64          `json:"terminationGracePeriodSeconds"`
		InitContainers                []copyContainer `json:"initContainers"`
		Containers                    []copyContainer `json:"containers"`
		EphemeralContainers           []copyContainer `json:"ephemeralContainers"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration    int64                 `json:"observedGeneration"`
		Phase                 corev1.PodPhase       `json:"phase"`
		Reason                string                `json:"reason"`
		Message               string                `json:"message"`
		PodIPs                []corev1.PodIP        `json:"podIPs"`
		StartTime             *metav1.Time          `json:"startTime"`
		Conditions            []corev1.PodCondition `json:"conditions"`
		InitContainerStatuses []copyStatus          `json:"initContainerStatuses"`
		ContainerStatuses     []copyStatus          `json:"containerStatuses"`
		EphemeralStatuses     []copyStatus          `json:"ephemeralContainerStatuses"`
	} `json:"status"`
}

type copyMeta struct {
	Name                       string            `json:"name"`
	Namespace                  string            `json:"namespace"`
	UID                        types.UID         `json:"uid"`
	ResourceVersion            string            `json:"resourceVersion"`
	Generation                 int64             `json:"generation"`
	CreationTimestamp          metav1.Time       `json:"creationTimestamp"`
	DeletionTimestamp          *metav1.Time      `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds *int64            `json:"deletionGracePeriodSeconds"`
	Labels                     map[string]string `json:"labels"`
	Annotations                map[string]string `json:"annotations"`
}

type copyContainer struct {
	Name      string                      `json:"name"`
	Image     string                      `json:"image"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

type copyStatus struct {
	Name                 string                `json:"name"`
	State                corev1.ContainerState `json:"state"`
	LastTerminationState corev1.ContainerState `json:"lastState"`
	Ready                bool                  `json:"ready"`
	RestartCount         int32                 `json:"restartCount"`
	Image                string                `json:"image"`
	ImageID              string                `json:"imageID"`
	ContainerID          string                `json:"containerID"`
	Started              *bool                 `json:"started"`
}

var copyShape = shapeOf(reflect.TypeFor[copyDocument](), map[reflect.Type]*shape{})

// UnmarshalJSON implements json.Unmarshaler.
func (c *Copy) UnmarshalJSON(raw []byte) error {
	if err := scan(raw, copyShape, maxNestedCopy); err != nil {
		return fmt.Errorf("the document %w", err)
	}
	var d copyDocument
	if err := utiljson.Unmarshal(raw, &d); err != nil {
		return fmt.Errorf("the document is not a pod: %w", err)
	}
	for _, n := range []int{
		len(d.Spec.InitContainers), len(d.Spec.Containers), len(d.Spec.EphemeralContainers),
		len(d.Status.InitContainerStatuses), len(d.Status.ContainerStatuses), len(d.Status.EphemeralStatuses),
	} {
		if n > maxCopyContainers {
			return fmt.Errorf("the document has %d containers, more than %d", n, maxCopyContainers)
		}
	}
	c.Pod = corev1.Pod{
		ObjectMeta: d.Metadata.object(),
		Spec: corev1.PodSpec{
			NodeName: d.Spec.NodeName, ActiveDeadlineSeconds: d.Spec.ActiveDeadlineSeconds, TerminationGracePeriodSeconds: d.Spec.TerminationGracePeriodSeconds,
			InitContainers: containersOf(d.Spec.InitContainers), Containers: containersOf(d.Spec.Containers),
		},
		Status: corev1.PodStatus{
			ObservedGeneration: d.Status.ObservedGeneration, Phase: d.Status.Phase, Reason: d.Status.Reason, Message: d.Status.Message,
			PodIPs:    d.Status.PodIPs[:min(len(d.Status.PodIPs), maxPodIPs)],
			StartTime: d.Status.StartTime, Conditions: d.Status.Conditions,
			InitContainerStatuses: statusesOf(d.Status.InitContainerStatuses), ContainerStatuses: statusesOf(d.Status.ContainerStatuses),
			EphemeralContainerStatuses: statusesOf(d.Status.EphemeralStatuses),
		},
	}
	for _, e := range d.Spec.EphemeralContainers {
		c.Spec.EphemeralContainers = append(c.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: e.Name, Image: e.Image}})
	}
	return nil
}

func (m copyMeta) object() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation, CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Labels: m.Labels, Annotations: m.Annotations,
	}
}

func containersOf(in []copyContainer) []corev1.Container {
	var out []corev1.Container
	for _, c := range in {
		out = append(out, corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources})
	}
	return out
}

func statusesOf(in []copyStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, s := range in {
		out = append(out, corev1.ContainerStatus{
			Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState, Ready: s.Ready, RestartCount: s.RestartCount,
			Image: s.Image, ImageID: s.ImageID, ContainerID: s.ContainerID, Started: s.Started,
		})
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (c *Copy) DeepCopyObject() runtime.Object { return &Copy{Pod: *c.DeepCopy()} }

// EventCopy is an event of another cluster, with the fields that [Event] repeats. It is
// decoded at the cost of a [Copy].
type EventCopy struct {
	corev1.Event
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *EventCopy) UnmarshalJSON(raw []byte) error {
	var d struct {
		Metadata       copyMeta `json:"metadata"`
		InvolvedObject struct {
			Kind      string    `json:"kind"`
			Name      string    `json:"name"`
			UID       types.UID `json:"uid"`
			FieldPath string    `json:"fieldPath"`
		} `json:"involvedObject"`
		Source struct {
			Component string `json:"component"`
		} `json:"source"`
		Reporting      string              `json:"reportingComponent"`
		Reason         string              `json:"reason"`
		Message        string              `json:"message"`
		Type           string              `json:"type"`
		FirstTimestamp metav1.Time         `json:"firstTimestamp"`
		LastTimestamp  metav1.Time         `json:"lastTimestamp"`
		EventTime      metav1.MicroTime    `json:"eventTime"`
		Count          int32               `json:"count"`
		Series         *corev1.EventSeries `json:"series"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return fmt.Errorf("the document is not an event: %w", err)
	}
	meta := d.Metadata
	c.Event = corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion},
		InvolvedObject: corev1.ObjectReference{
			Kind: d.InvolvedObject.Kind, Name: d.InvolvedObject.Name, UID: d.InvolvedObject.UID, FieldPath: d.InvolvedObject.FieldPath,
		},
		Source: corev1.EventSource{Component: text.Line(d.Source.Component, maxReason)}, ReportingController: text.Line(d.Reporting, maxReason),
		Reason: text.Line(d.Reason, maxReason), Message: text.Lines(d.Message, maxEventMessage), Type: d.Type,
		FirstTimestamp: d.FirstTimestamp, LastTimestamp: d.LastTimestamp, EventTime: d.EventTime, Count: d.Count, Series: d.Series,
	}
	return nil
}

// DeepCopyObject implements runtime.Object.
func (c *EventCopy) DeepCopyObject() runtime.Object { return &EventCopy{Event: *c.DeepCopy()} }

// ObjectCopy is the name, the resource version and the annotations of an object of another
// cluster. It is decoded at the cost of a [Copy].
type ObjectCopy struct {
	metav1.ObjectMeta
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *ObjectCopy) UnmarshalJSON(raw []byte) error {
	var d struct {
		Metadata struct {
			Name            string            `json:"name"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return fmt.Errorf("the document is not an object: %w", err)
	}
	c.ObjectMeta = metav1.ObjectMeta{Name: d.Metadata.Name, ResourceVersion: d.Metadata.ResourceVersion, Annotations: d.Metadata.Annotations}
	return nil
}

// GetObjectKind implements runtime.Object.
func (c *ObjectCopy) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (c *ObjectCopy) DeepCopyObject() runtime.Object {
	return &ObjectCopy{ObjectMeta: *c.DeepCopy()}
}
