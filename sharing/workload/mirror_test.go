package workload

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

func mustEncode(t rapid.TB, v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return raw
}

func running(t testing.TB, mine *corev1.Pod) *corev1.Pod {
	theirs := copyOf(t, mine)
	theirs.Spec.NodeName = "theirs-1"
	yes := true
	started := metav1.Time{Time: now.Add(-10 * time.Minute)}
	theirs.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.42.0.7", PodIPs: []corev1.PodIP{{IP: "10.42.0.7"}, {IP: "fd42::7"}}, HostIP: "192.168.0.9",
		HostIPs: []corev1.HostIP{{IP: "192.168.0.9"}}, StartTime: &started, QOSClass: corev1.PodQOSGuaranteed,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}, {Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: "example.com/theirs", Status: corev1.ConditionTrue},
		},
	}
	for _, c := range theirs.Spec.Containers {
		theirs.Status.ContainerStatuses = append(theirs.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "sha256:1", ContainerID: "containerd://1", Ready: true, Started: &yes, RestartCount: 2,
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "line 1\nline 2"}},
			Resources:            &corev1.ResourceRequirements{}, User: &corev1.ContainerUser{},
		})
	}
	return theirs
}

func TestMirror(t *testing.T) {
	mine := podOf(t, "{}")
	mine.Generation = 3
	mine.Status = corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: metav1.Time{Time: now.Add(-time.Hour)}},
			{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Time{Time: now.Add(-time.Hour)}},
		},
	}
	theirs := running(t, mine)
	got := Mirror(mine, theirs, origin, now)
	at := metav1.Time{Time: now}
	want := corev1.PodStatus{
		ObservedGeneration: 3, Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort, StartTime: theirs.Status.StartTime,
		Conditions: []corev1.PodCondition{
			mine.Status.Conditions[0],
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: at},
			{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: at},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: at},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: at},
		},
		ContainerStatuses: theirs.DeepCopy().Status.ContainerStatuses,
	}
	want.ContainerStatuses[0].Resources, want.ContainerStatuses[0].User = nil, nil
	if d := cmp.Diff(want, got, cmp.Transformer("none", func(in []corev1.ContainerStatus) []corev1.ContainerStatus {
		if len(in) == 0 {
			return nil
		}
		return in
	})); d != "" && !SameStatus(&want, &got) {
		t.Errorf("Mirror (-want +got):\n%s", d)
	}
}

func TestMirrorDetails(t *testing.T) {
	kind := func(s corev1.PodStatus, k corev1.PodConditionType) corev1.PodCondition {
		if c := condition(s.Conditions, k); c != nil {
			return *c
		}
		return corev1.PodCondition{}
	}
	t.Run("readiness gate", func(t *testing.T) {
		mine := podOf(t, "readinessGates: [{conditionType: example.com/gate}]")
		for _, test := range []struct {
			own  []corev1.PodCondition
			says string
		}{
			{nil, `corresponding condition of pod readiness gate "example.com/gate" does not exist.`},
			{[]corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionFalse}}, `the status of pod readiness gate "example.com/gate" is not "True", but False`},
		} {
			mine.Status.Conditions = test.own
			if c := kind(Mirror(mine, running(t, mine), origin, now), corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" || c.Message != test.says {
				t.Errorf("shut: %v", c)
			}
		}
		mine.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
		got := Mirror(mine, running(t, mine), origin, now)
		if c := kind(got, corev1.PodReady); c.Status != corev1.ConditionTrue {
			t.Errorf("open: %v", c)
		}
		if c := kind(got, "example.com/gate"); c.Status != corev1.ConditionTrue {
			t.Errorf("the gate itself is %v", c)
		}
	})
	t.Run("unschedulable", func(t *testing.T) {
		mine := podOf(t, "initContainers: [{name: first, image: i}]")
		theirs := copyOf(t, mine)
		theirs.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available."},
		}}
		got := Mirror(mine, theirs, origin, now)
		w := got.ContainerStatuses[0].State.Waiting
		if got.Phase != corev1.PodPending || w == nil || w.Reason != ReasonRemoteUnschedulable || !strings.Contains(w.Message, "0/1 nodes") ||
			got.InitContainerStatuses[0].State.Waiting.Reason != ReasonRemoteUnschedulable {
			t.Errorf("%+v", got)
		}
	})
	t.Run("not told yet", func(t *testing.T) {
		mine := podOf(t, "{}")
		mine.Status = Waiting(mine, &Refusal{Reason: ReasonRemoteUnschedulable, Message: "no node"}, now)
		got := Mirror(mine, copyOf(t, mine), origin, now)
		if c := kind(got, corev1.PodReady); c.Reason != "ContainersNotReady" || got.Reason != "" || got.Message != "" || got.ContainerStatuses[0].State.Waiting.Reason != "ContainerCreating" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("completed", func(t *testing.T) {
		mine := podOf(t, "{}")
		theirs := running(t, mine)
		theirs.Status.Phase = corev1.PodSucceeded
		if c := kind(Mirror(mine, theirs, origin, now), corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "PodCompleted" {
			t.Errorf("%v", c)
		}
	})
	t.Run("behind", func(t *testing.T) {
		mine := podOf(t, "{}")
		theirs := running(t, mine)
		mine.Generation, mine.Status.ObservedGeneration = 2, 1
		mine.Spec.Containers[0].Image = "registry/app:2"
		if got := Mirror(mine, theirs, origin, now).ObservedGeneration; got != 1 {
			t.Errorf("observed %d before the image went along", got)
		}
		theirs = running(t, mine)
		theirs.Generation, theirs.Status.ObservedGeneration = 2, 1
		if got := Mirror(mine, theirs, origin, now).ObservedGeneration; got != 1 {
			t.Errorf("observed %d before the provider's kubelet saw it", got)
		}
		theirs.Status.ObservedGeneration = 2
		if got := Mirror(mine, theirs, origin, now).ObservedGeneration; got != 2 {
			t.Errorf("observed %d", got)
		}
	})
	t.Run("clock", func(t *testing.T) {
		mine := podOf(t, "{}")
		for _, off := range []time.Duration{-9 * 365 * 24 * time.Hour, 9 * 365 * 24 * time.Hour} {
			theirs := running(t, mine)
			theirs.Status.StartTime = &metav1.Time{Time: now.Add(off)}
			got := Mirror(mine, theirs, origin, now).StartTime
			if got.Before(&mine.CreationTimestamp) || got.After(now) {
				t.Errorf("started at %v", got)
			}
		}
	})
	t.Run("final", func(t *testing.T) {
		for policy, kept := range map[string]bool{"Never": true, "OnFailure": true, "Always": false} {
			mine := podOf(t, "restartPolicy: "+policy)
			mine.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0}}}}
			got := Mirror(mine, running(t, mine), origin, now)
			if (got.ContainerStatuses[0].State.Terminated != nil) != kept {
				t.Errorf("%s: %+v", policy, got.ContainerStatuses[0].State)
			}
		}
	})
	t.Run("ended", func(t *testing.T) {
		mine := podOf(t, "{}")
		mine.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "x"}
		if got := Mirror(mine, running(t, mine), origin, now); !SameStatus(&got, &mine.Status) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("resize", func(t *testing.T) {
		mine := podOf(t, "containers: [{name: app, image: i, resources: {requests: {cpu: 1}}}]")
		theirs := running(t, mine)
		if c := kind(Mirror(mine, theirs, origin, now), corev1.PodResizePending); c.Type != "" {
			t.Errorf("nothing was resized, but %v", c)
		}
		mine.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = mustQuantity("2")
		if c := kind(Mirror(mine, theirs, origin, now), corev1.PodResizePending); c.Reason != corev1.PodReasonInfeasible {
			t.Errorf("%v", c)
		}
	})
}

func TestWaiting(t *testing.T) {
	mine := podOf(t, "{}")
	why := Missing([]string{"b", "a"}, []string{"s"})
	if why.Message != `The pod needs objects that do not exist: ConfigMap "a", ConfigMap "b", Secret "s". It starts when they are created.` || sentence(why) != "" {
		t.Errorf("%q", why.Message)
	}
	got := Waiting(mine, why, now)
	w := got.ContainerStatuses[0].State.Waiting
	if got.Phase != corev1.PodPending || w == nil || w.Reason != ReasonMissingReference || w.Message != why.Message || condition(got.Conditions, corev1.PodReady).Status != corev1.ConditionFalse {
		t.Errorf("%+v", got)
	}
	mine.Status = *stored(t, &got)
	if again := Waiting(mine, why, now.Add(time.Hour)); !SameStatus(&again, &mine.Status) {
		t.Errorf("not the same an hour later: %s", cmp.Diff(mine.Status, again))
	}
	mine.Status.Phase = corev1.PodSucceeded
	if again := Waiting(mine, why, now); again.Phase != corev1.PodSucceeded {
		t.Errorf("a pod that had ended is %s", again.Phase)
	}
}

func TestDeletedByProvider(t *testing.T) {
	mine := podOf(t, "{}")
	for _, tc := range []struct {
		name, reason string
		last         func(*corev1.Pod) *corev1.Pod
	}{
		{"never seen", ReasonDeletedByProvider, func(*corev1.Pod) *corev1.Pod { return nil }},
		{"running", ReasonDeletedByProvider, func(p *corev1.Pod) *corev1.Pod { return p }},
		{"evicted", ReasonEvictedByProvider, func(p *corev1.Pod) *corev1.Pod {
			p.Status.Reason, p.Status.Message = "NodeShutdown", "the node goes"
			return p
		}},
		{"disrupted", ReasonEvictedByProvider, func(p *corev1.Pod) *corev1.Pod {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"})
			return p
		}},
		{"failed by itself", "Evicted", func(p *corev1.Pod) *corev1.Pod {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
			return p
		}},
		{"unscheduled", ReasonDeletedByProvider, func(p *corev1.Pod) *corev1.Pod {
			p.Spec.NodeName, p.Status = "", corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}}
			return p
		}},
	} {
		got := DeletedByProvider(mine, tc.last(running(t, mine)), origin, now)
		if got.Phase != corev1.PodFailed || got.Reason != tc.reason {
			t.Errorf("%s: %s %s: %s", tc.name, got.Phase, got.Reason, got.Message)
		}
		if c := condition(got.Conditions, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
			t.Errorf("%s: still ready", tc.name)
		}
		if tc.reason != "Evicted" && (len(got.ContainerStatuses) != 1 || got.ContainerStatuses[0].State.Terminated == nil) {
			t.Errorf("%s: containers %+v", tc.name, got.ContainerStatuses)
		}
		after := mine.DeepCopy()
		after.Status = *stored(t, &got)
		if again := DeletedByProvider(after, nil, origin, now.Add(time.Hour)); again.Phase != corev1.PodFailed || again.Reason != tc.reason {
			t.Errorf("%s: later %s %s", tc.name, again.Phase, again.Reason)
		}
	}
}

// checkStatus reports what of a status an API server or a terminal would not bear.
func checkStatus(mine *corev1.Pod, s *corev1.PodStatus) string {
	if s.PodIP+s.HostIP != "" || len(s.PodIPs)+len(s.HostIPs) > 0 {
		return "addresses"
	}
	known := map[corev1.PodConditionType]bool{}
	for _, c := range s.Conditions {
		if known[c.Type] || len(validation.IsQualifiedName(string(c.Type))) > 0 || c.ObservedGeneration < 0 {
			return "condition " + string(c.Type)
		}
		known[c.Type] = true
	}
	for _, pair := range []struct {
		spec   []corev1.Container
		status []corev1.ContainerStatus
	}{{mine.Spec.InitContainers, s.InitContainerStatuses}, {mine.Spec.Containers, s.ContainerStatuses}} {
		if len(pair.spec) != len(pair.status) && len(pair.status) > 0 {
			return "containers"
		}
		for i := range pair.status {
			st := pair.status[i].State
			n := 0
			for _, set := range []bool{st.Waiting != nil, st.Running != nil, st.Terminated != nil} {
				if set {
					n++
				}
			}
			if pair.status[i].Name != pair.spec[i].Name || n != 1 || pair.status[i].RestartCount < 0 {
				return "container " + pair.status[i].Name
			}
		}
	}
	if !slices.Contains([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}, s.Phase) {
		return "phase"
	}
	return checkText(reflect.ValueOf(s).Elem())
}

func checkText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		for _, r := range v.String() {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar) {
				return "control characters in " + v.String()
			}
		}
		if v.Len() > maxMessage {
			return "a text is too long"
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return checkText(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if s := checkText(v.Index(i)); s != "" {
				return s
			}
		}
	case reflect.Struct:
		if at, ok := v.Addr().Interface().(*metav1.Time); ok {
			if y := at.UTC().Year(); y > 9999 || at.Nanosecond() != 0 {
				return "a time"
			}
			return ""
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				if s := checkText(v.Field(i)); s != "" {
					return s
				}
			}
		}
	}
	return ""
}

func TestMirrorOfAnything(t *testing.T) {
	mine := podOf(t, "{restartPolicy: Never, initContainers: [{name: init-0, image: i}], containers: [{name: app-0, image: i}, {name: app-1, image: i}]}")
	theirs := running(t, mine)
	rapid.Check(t, func(t *rapid.T) {
		mine, theirs := mine.DeepCopy(), theirs.DeepCopy()
		clock := now
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			clock = clock.Add(time.Minute)
			theirs.Status = randomStatus(rapid.Int64().Draw(t, "status"))
			var got corev1.PodStatus
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0:
				got = DeletedByProvider(mine, theirs, origin, clock)
			case 1:
				got = Waiting(mine, &Refusal{Reason: hostile[3], Message: theirs.Status.Message}, clock)
			default:
				got = Mirror(mine, theirs, origin, clock)
			}
			if s := checkStatus(mine, &got); s != "" {
				t.Fatalf("%s in %+v", s, got)
			}
			before := mine.Status
			mine.Status = corev1.PodStatus{}
			if err := json.Unmarshal(mustEncode(t, got), &mine.Status); err != nil {
				t.Fatal(err)
			}
			if !SameStatus(&got, &mine.Status) {
				t.Fatalf("not the same when stored: %s", cmp.Diff(got, mine.Status))
			}
			if Ended(before.Phase) && mine.Status.Phase != before.Phase {
				t.Fatalf("%s after %s", mine.Status.Phase, before.Phase)
			}
			for i, c := range before.ContainerStatuses {
				if c.State.Terminated != nil && mine.Status.ContainerStatuses[i].State.Terminated == nil {
					t.Fatal("a container is back from its end")
				}
			}
			again := Mirror(mine, theirs, origin, clock.Add(time.Hour))
			mine2 := mine.DeepCopy()
			mine2.Status = again
			if twice := Mirror(mine2, theirs, origin, clock.Add(2*time.Hour)); !SameStatus(&twice, &again) {
				t.Fatalf("not idempotent: %s", cmp.Diff(again, twice))
			}
		}
	})
}

func TestMirrorOfDoubles(t *testing.T) {
	mine := podOf(t, "{}")
	mine.Status.Conditions = []corev1.PodCondition{
		{Type: "a", Status: corev1.ConditionTrue}, {Type: "a", Status: corev1.ConditionFalse}, {Type: corev1.PodResizePending, Status: corev1.ConditionTrue},
	}
	theirs := running(t, mine)
	theirs.Status.ContainerStatuses = append(theirs.Status.ContainerStatuses, corev1.ContainerStatus{Name: "app", RestartCount: 99})
	got := Mirror(mine, theirs, origin, now)
	if s := checkStatus(mine, &got); s != "" || got.ContainerStatuses[0].RestartCount != 2 || condition(got.Conditions, corev1.PodResizePending) != nil {
		t.Errorf("%s: %+v", s, got)
	}
	other := *got.DeepCopy()
	slices.Reverse(other.Conditions)
	if !SameStatus(&got, &other) {
		t.Error("conditions in another order are another status")
	}
}
