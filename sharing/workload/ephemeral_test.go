package workload

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/attack"
)

// debugged is a pod to which kubectl debug --target=app adds a container.
func debugged(t testing.TB, more string) *corev1.Pod {
	return podOf(t, `{containers: [{name: app, image: i}], ephemeralContainers: [{name: debugger-1, image: busybox, stdin: true, tty: true, targetContainerName: app,
		terminationMessagePolicy: File, imagePullPolicy: IfNotPresent, securityContext: {capabilities: {add: [SYS_PTRACE]}},
		env: [{name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, {name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}]`+more+`}]}`)
}

func TestEphemeral(t *testing.T) {
	mine := debugged(t, "")
	theirs := copyOf(t, mine)
	name, patch, why := Ephemeral(mine, theirs, nil)
	if name != "debugger-1" || why != nil {
		t.Fatalf("%q %v", name, why)
	}
	if again, _, _ := Ephemeral(mine, theirs, map[string]*Refusal{"debugger-1": {}}); again != "" {
		t.Error("what was refused is sent again")
	}
	clean, why := AdmitEphemeral(patch, guest)
	if why != nil {
		t.Fatal(why)
	}
	if twice, why := AdmitEphemeral(clean, guest); why != nil || !bytes.Equal(twice, clean) {
		t.Errorf("admitted again: %v\n%s\n%s", why, clean, twice)
	}
	p := decode[ephemeralPatch](t, clean)
	e := p.Spec.EphemeralContainers[0]
	sc := e.SecurityContext
	switch {
	case p.Metadata.UID != theirs.UID:
		t.Errorf("for the pod %q", p.Metadata.UID)
	case e.Image != "busybox" || !e.Stdin || !e.TTY || e.TargetContainerName != "app" || e.ImagePullPolicy != corev1.PullAlways:
		t.Errorf("%s", clean)
	case len(sc.Capabilities.Add) > 0 || !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{rawSockets}) || *sc.AllowPrivilegeEscalation:
		t.Errorf("not hardened: %s", clean)
	case len(e.Resources.Limits)+len(e.Resources.Requests) > 0:
		t.Errorf("with resources: %s", clean)
	case e.Env[0].Value != "shop" || e.Env[1].ValueFrom.SecretKeyRef.Name != "password":
		t.Errorf("environment: %+v", e.Env)
	}
	if _, secrets := References(mine); !slices.Equal(secrets, []Reference{{Name: "password", Optional: true}}) {
		t.Errorf("it references %v", secrets)
	}
	if _, secrets := References(decode[corev1.Pod](t, clean)); len(secrets) != 1 {
		t.Errorf("what is to be added references %v", secrets)
	}

	// The provider has it: its state is shown, and nothing more is sent.
	theirs.Spec.EphemeralContainers = p.Spec.EphemeralContainers
	theirs.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debugger-1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	theirs = &decode[Copy](t, encode(t, theirs)).Pod
	if name, _, _ := Ephemeral(mine, theirs, nil); name != "" {
		t.Errorf("%s is sent again", name)
	}
	got := Mirror(mine, theirs, origin, now)
	if s := got.EphemeralContainerStatuses; len(s) != 1 || s[0].State.Running == nil {
		t.Errorf("it is shown as %+v", s)
	}
	mine.Status = got
	theirs.Status.EphemeralContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
	mine.Status = Mirror(mine, theirs, origin, now)
	theirs.Status.EphemeralContainerStatuses = nil
	if s := Mirror(mine, theirs, origin, now).EphemeralContainerStatuses; len(s) != 1 || s[0].State.Terminated == nil || s[0].State.Terminated.ExitCode != 3 {
		t.Errorf("after its end it is shown as %+v", s)
	}
}

// A container that is refused is never sent again, also by an agent that only knows its status.
func TestRefuseEphemeral(t *testing.T) {
	mine := debugged(t, "")
	theirs := copyOf(t, mine)
	why := &Refusal{ReasonRefusedByProvider, "Not from there: use another registry."}
	mine.Status = Mirror(mine, theirs, origin, now)
	if mine.Status.EphemeralContainerStatuses[0].State.Waiting == nil {
		t.Fatalf("before it is sent: %+v", mine.Status.EphemeralContainerStatuses)
	}
	RefuseEphemeral(&mine.Status, map[string]*Refusal{"debugger-1": why})
	for range 2 {
		s := mine.Status.EphemeralContainerStatuses[0].State.Terminated
		if s == nil || s.Reason != why.Reason || s.Message != why.Message || s.ExitCode == 0 {
			t.Errorf("%+v", s)
		}
		if name, _, _ := Ephemeral(mine, theirs, nil); name != "" {
			t.Errorf("%s is sent again", name)
		}
		mine.Status = Mirror(mine, theirs, origin, now)
	}
}

func TestEphemeralThatCannotBeSent(t *testing.T) {
	for _, more := range []string{", command: [" + strings.Repeat("x", MaxEphemeral) + "]", ", volumeDevices: [{name: a, devicePath: /dev/a}]"} {
		mine := debugged(t, more)
		name, patch, why := Ephemeral(mine, copyOf(t, mine), nil)
		if name != "debugger-1" || patch != nil || why == nil || why.Reason != ReasonNotOffloadable || sentence(why) != "" {
			t.Errorf("%.60s: %q %.100s %+v", more, name, patch, why)
		}
	}
	privileged := debugged(t, "")
	yes := true
	privileged.Spec.EphemeralContainers[0].SecurityContext.Privileged = &yes
	if _, _, why := Ephemeral(privileged, copyOf(t, privileged), nil); why == nil || !strings.Contains(why.Message, "privileged") {
		t.Errorf("%+v", why)
	}
}

func TestAttackEphemeralContainers(t *testing.T) {
	patch := func(more string) string {
		return `{"spec":{"ephemeralContainers":[{"name":"e","image":"nginx"` + more + `}]}}`
	}
	for _, tc := range []struct{ what, patch, reason string }{
		{"an ephemeral container that is privileged", patch(`,"securityContext":{"privileged":true}`), ReasonForbidden},
		{"one with SYS_PTRACE", patch(`,"securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}`), ReasonForbidden},
		{"one without seccomp", patch(`,"securityContext":{"seccompProfile":{"type":"Unconfined"}}`), ReasonForbidden},
		{"one from a registry that is not allowed", `{"spec":{"ephemeralContainers":[{"name":"e","image":"evil.example.com/x"}]}}`, ReasonRegistryNotAllowed},
		{"one with a port of the host", patch(`,"ports":[{"containerPort":80,"hostPort":80}]`), ReasonForbidden},
		{"one with resources", patch(`,"resources":{"requests":{"cpu":"1"}}`), ReasonForbidden},
		{"one with an endless quantity", patch(`,"resources":{"limits":{"cpu":"1e-999999999"}}`), ReasonInvalid},
		{"two at a time", `{"spec":{"ephemeralContainers":[{"name":"e","image":"nginx"},{"name":"f","image":"nginx"}]}}`, ReasonInvalid},
		{"a directive instead of one", `{"spec":{"ephemeralContainers":[{"$patch":"replace"}]}}`, ReasonInvalid},
		{"one without a name", `{"spec":{"ephemeralContainers":[{"image":"nginx"}]}}`, ReasonInvalid},
		{"none, but the host's network", `{"spec":{"hostNetwork":true}}`, ReasonInvalid},
		{"one of a megabyte", patch(`,"command":["` + strings.Repeat("x", 1<<20) + `"]`), ReasonInvalid},
		{"one that is nested deeply", strings.Repeat("[", 10_000), ReasonInvalid},
	} {
		_, why := AdmitEphemeral([]byte(tc.patch), guest)
		got := "admitted"
		if why != nil {
			got = why.Reason
			if s := sentence(why); s != "" {
				t.Errorf("%s: %q: %s", tc.what, why.Message, s)
			}
		}
		attack.Attempt{What: "add to a pod " + tc.what, As: "guest", Want: tc.reason}.Saw(t, got)
	}
	// What the provider enforces is in it, whatever else is in the patch.
	clean, why := AdmitEphemeral([]byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"hostNetwork":true,"ephemeralContainers":[{"name":"e","image":"nginx","hostPID":true}]}}`), guest)
	if why != nil || strings.Contains(string(clean), "host") || strings.Contains(string(clean), "labels") {
		t.Errorf("%s %v", clean, why)
	}
}

func FuzzAdmitEphemeral(f *testing.F) {
	_, patch, _ := Ephemeral(debugged(f, ""), copyOf(f, debugged(f, "")), nil)
	f.Add(patch)
	f.Add([]byte(`{"metadata":{"uid":"u"},"spec":{"ephemeralContainers":[{"name":"e","image":"nginx","$patch":"delete"}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		clean, r := AdmitEphemeral(raw, guest)
		if r != nil {
			if s := sentence(r); s != "" {
				t.Fatalf("%q: %s", r.Message, s)
			}
			return
		}
		if twice, r := AdmitEphemeral(clean, guest); r != nil || !bytes.Equal(twice, clean) {
			t.Fatalf("admitted again: %v\n%s\n%s", r, clean, twice)
		}
		p := decode[ephemeralPatch](t, clean)
		spec := &corev1.PodSpec{Containers: ephemerals(&corev1.PodSpec{EphemeralContainers: p.Spec.EphemeralContainers})}
		if s, r := unportable(spec), admitImages(spec, guest); s != "" || r != nil {
			t.Fatalf("admitted %s: %s %v", clean, s, r)
		}
	})
}
