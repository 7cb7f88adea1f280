package workload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/peer/text"
)

// Limits of ephemeral containers (kubectl debug), which Kubernetes never removes from a pod.
const (
	// MaxEphemeral is the limit of the patch that adds one, in bytes.
	MaxEphemeral = 16 << 10
	// MaxEphemeralContainers is how many a pod may have.
	MaxEphemeralContainers = 32
)

// processTracing is the capability that kubectl debug adds by default. Pod Security baseline
// does not allow it.
const processTracing corev1.Capability = "SYS_PTRACE"

// ephemeralPatch is the strategic merge patch that adds an ephemeral container to a pod.
type ephemeralPatch struct {
	Metadata struct {
		UID types.UID `json:"uid,omitempty"` // a precondition
	} `json:"metadata"`
	Spec struct {
		EphemeralContainers []corev1.EphemeralContainer `json:"ephemeralContainers"`
	} `json:"spec"`
}

var ephemeralShape = shapeOf(reflect.TypeFor[ephemeralPatch](), map[reflect.Type]*shape{})

// Ephemeral returns the first ephemeral container of mine that theirs, the provider's copy, does
// not have, and that was not refused, by name or by the status of mine: its name, and the patch of
// type [PatchType] of the subresource ephemeralcontainers that adds it, or why it cannot be sent.
// The name is empty if there is none. The patch is without SYS_PTRACE, which kubectl debug adds
// unasked and guests may not have.
func Ephemeral(mine, theirs *corev1.Pod, refused map[string]*Refusal) (name string, patch []byte, why *Refusal) {
	for i := range mine.Spec.EphemeralContainers {
		name := mine.Spec.EphemeralContainers[i].Name
		if refused[name] != nil || terminatedIn(mine.Status.EphemeralContainerStatuses, name) ||
			slices.ContainsFunc(theirs.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name }) {
			continue
		}
		e := mine.Spec.EphemeralContainers[i].DeepCopy()
		c := corev1.Container(e.EphemeralContainerCommon)
		if s := c.SecurityContext; s != nil && s.Capabilities != nil {
			s.Capabilities.Add = slices.DeleteFunc(s.Capabilities.Add, func(c corev1.Capability) bool { return c == processTracing })
		}
		if s := unportableContainer(&c); s != "" {
			return name, nil, notOffloadable(s)
		}
		resolveEnv(c.Env, mine)
		patch, err := json.Marshal(ephemeralOf(&c, e.TargetContainerName, theirs.UID))
		if err != nil {
			return name, nil, &Refusal{ReasonInvalid, fmt.Sprintf("Container %q cannot be encoded: %v.", name, err)}
		}
		if len(patch) > MaxEphemeral {
			return name, nil, notOffloadable(fmt.Sprintf("Container %q has %d bytes, and providers accept %d KiB: shorten its command and environment.", name, len(patch), MaxEphemeral>>10))
		}
		return name, patch, nil
	}
	return "", nil, nil
}

func ephemeralOf(c *corev1.Container, target string, uid types.UID) *ephemeralPatch {
	clean := containers([]corev1.Container{*c})[0]
	clean.Resources = corev1.ResourceRequirements{}
	p := new(ephemeralPatch)
	p.Metadata.UID = uid
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(clean), TargetContainerName: target}}
	return p
}

// AdmitEphemeral checks a patch that adds an ephemeral container to a pod of a consumer, and
// returns the patch that may be applied instead, or why it is refused. It adds one container,
// which is checked and hardened as one of a new pod.
func AdmitEphemeral(raw []byte, in Guest) (clean []byte, r *Refusal) {
	if len(raw) > MaxEphemeral {
		return nil, invalid("The patch is larger than %d KiB: shorten command and environment of the container.", MaxEphemeral>>10)
	}
	if err := scan(raw, ephemeralShape, maxNested); err != nil {
		return nil, invalid("The patch %s: send a JSON object.", text.Line(err.Error(), 200))
	}
	var p ephemeralPatch
	if err := utiljson.Unmarshal(raw, &p); err != nil {
		return nil, invalid("The patch is not valid for a pod: %s.", text.Line(err.Error(), 200))
	}
	switch {
	case p.Metadata.UID != "" && !uidPattern.MatchString(string(p.Metadata.UID)):
		return nil, invalid("The UID in the patch is invalid: use that of the pod here, or remove it.")
	case len(p.Spec.EphemeralContainers) != 1:
		return nil, invalid("The patch has %d ephemeral containers: add one at a time.", len(p.Spec.EphemeralContainers))
	}
	e := &p.Spec.EphemeralContainers[0]
	c := corev1.Container(e.EphemeralContainerCommon)
	who := fmt.Sprintf("Container %q", text.Line(c.Name, 63))
	switch {
	case len(validation.IsDNS1123Label(c.Name)) > 0:
		return nil, invalid("%s has no valid name: use one like debugger-1.", who)
	case len(c.Resources.Requests) > 0, len(c.Resources.Limits) > 0:
		return nil, forbidden("%s requests resources, which ephemeral containers cannot have: remove them.", who)
	case e.TargetContainerName != "" && len(validation.IsDNS1123Label(e.TargetContainerName)) > 0:
		return nil, invalid("%s has an invalid targetContainerName: use the name of a container of the pod.", who)
	}
	if s := unportableContainer(&c); s != "" {
		return nil, forbidden("%s", s)
	}
	if r := admitImage(who, c.Image, in); r != nil {
		return nil, r
	}
	if !in.LocalImages {
		c.ImagePullPolicy = corev1.PullAlways
	}
	hardenContainer(&c, Guest{}) // without limits, which API servers refuse
	clean, err := json.Marshal(ephemeralOf(&c, e.TargetContainerName, p.Metadata.UID))
	if err != nil {
		return nil, invalid("The patch cannot be encoded: %s.", text.Line(err.Error(), 200))
	}
	return clean, nil
}

// ephemerals returns the ephemeral containers of a pod as containers, which never restart.
func ephemerals(spec *corev1.PodSpec) []corev1.Container {
	never := corev1.ContainerRestartPolicyNever
	var out []corev1.Container
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		c.RestartPolicy, c.RestartPolicyRules = &never, nil
		out = append(out, c)
	}
	return out
}

// RefuseEphemeral sets the state of ephemeral containers that are refused, by name, in a status of
// mine: terminated, as they will never run, so that kubectl debug does not wait for them.
func RefuseEphemeral(out *corev1.PodStatus, refused map[string]*Refusal) {
	for i := range out.EphemeralContainerStatuses {
		s := &out.EphemeralContainerStatuses[i]
		why := refused[s.Name]
		if why == nil || s.State.Waiting == nil {
			continue
		}
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exitNotStarted, Reason: text.Line(why.Reason, maxReason), Message: text.Lines(why.Message, maxMessage),
		}}
	}
}

// exitNotStarted is the exit code of a container that a runtime cannot start.
const exitNotStarted = 128

func terminatedIn(list []corev1.ContainerStatus, name string) bool {
	return slices.ContainsFunc(list, func(c corev1.ContainerStatus) bool { return c.Name == name && c.State.Terminated != nil })
}
