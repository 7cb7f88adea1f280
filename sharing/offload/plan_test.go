package offload

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/sharing/workload"
)

var moment = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// local returns a pod of this cluster, bound to the virtual node.
func local(change ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(30)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "mine-1", ResourceVersion: "100", CreationTimestamp: metav1.NewTime(moment)},
		Spec: corev1.PodSpec{
			NodeName: "provider", TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: "web:1"}},
		},
		Status: corev1.PodStatus{
			Phase:      corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

var here = workload.Origin{Cluster: "consumer", Namespace: "liqo-consumer-shop", Node: "provider"}

// remote returns the copy of a pod, as it is at the provider.
func remote(of *corev1.Pod, uid types.UID, change ...func(*corev1.Pod)) *corev1.Pod {
	pod, why := workload.Translate(of, here)
	if why != nil {
		panic(why)
	}
	pod.UID, pod.ResourceVersion = uid, "7"
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func deleting(grace int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		at := metav1.NewTime(moment.Add(time.Duration(grace) * time.Second))
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	}
}

func in(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func started(pod *corev1.Pod) {
	at := metav1.NewTime(moment)
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &at
}

func foreign(pod *corev1.Pod) { delete(pod.Annotations, workload.AnnotationOriginUID) }

func TestPlan(t *testing.T) {
	earlier := local(func(pod *corev1.Pod) { pod.UID = "mine-0" })
	hostNetwork := &workload.Refusal{Reason: workload.ReasonNotOffloadable, Message: "no"}
	missing := &workload.Refusal{Reason: workload.ReasonMissingReference, Message: "not yet"}
	denied := &workload.Refusal{Reason: workload.ReasonRefusedByProvider, Message: "no place"}
	seen := podState{local: "mine-1", made: "copy-1", seen: true}

	type want struct {
		verb   verb
		uid    types.UID
		grace  int64
		phase  corev1.PodPhase // of the status that is written; "" for none
		reason string          // of the status, or of the container that waits
		warn   string
	}
	for _, c := range []struct {
		name string
		view view // reachable, known and ready unless away or unknown
		away bool
		lost bool // the provider's list is not known
		want want
	}{
		{name: "new", view: view{local: local()}, want: want{verb: create}},
		{name: "new, ConfigMaps not listed yet", view: view{local: local(), state: podState{local: "unready"}}},
		{name: "new, provider away", view: view{local: local()}, away: true},
		{name: "new, list not known", view: view{local: local()}, lost: true},
		{name: "new, no namespace", view: view{local: local(), denied: denied}, lost: true, want: want{phase: corev1.PodPending, reason: denied.Reason, warn: denied.Reason}},
		{name: "no namespace any more for one that ran", view: view{local: local(started), denied: denied}, lost: true},
		{name: "not for other clusters", view: view{local: local(), refusal: hostNetwork}, away: true,
			want: want{phase: corev1.PodPending, reason: hostNetwork.Reason, warn: hostNetwork.Reason}},
		{name: "ConfigMap missing", view: view{local: local(), missing: missing}, want: want{phase: corev1.PodPending, reason: missing.Reason, warn: missing.Reason}},
		{name: "created, not in the list yet", view: view{local: local(), state: podState{local: "mine-1", made: "copy-1"}}, want: want{verb: confirm}},
		{name: "running there", view: view{local: local(), remote: remote(local(), "copy-1", started)}, want: want{phase: corev1.PodRunning}},
		{name: "running there, provider away", view: view{local: local(), remote: remote(local(), "copy-1", started)}, away: true},
		{name: "image changed", view: view{local: local(func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "web:2" }), remote: remote(local(), "copy-1", started)},
			want: want{verb: change, phase: corev1.PodRunning}},
		{name: "the earlier pod's copy is in the way", view: view{local: local(), remote: remote(earlier, "copy-0")}, want: want{verb: remove, uid: "copy-0"}},
		{name: "and is going", view: view{local: local(), remote: remote(earlier, "copy-0", deleting(30))}, want: want{verb: remove, uid: "copy-0"}},
		{name: "and was removed already", view: view{local: local(), remote: remote(earlier, "copy-0"), state: podState{removing: "copy-0"}}},
		{name: "a stranger's is in the way", view: view{local: local(), remote: remote(earlier, "copy-0", foreign)},
			want: want{phase: corev1.PodPending, reason: workload.ReasonRefusedByProvider, warn: workload.ReasonRefusedByProvider}},

		{name: "gone there, it was seen", view: view{local: local(), state: seen}, want: want{verb: confirm}},
		{name: "gone there, it ran before the agent started", view: view{local: local(started)}, want: want{verb: confirm}},
		{name: "gone there, provider away", view: view{local: local(started), state: seen}, away: true},
		{name: "gone there, list not known", view: view{local: local(started)}, lost: true},
		{name: "gone there for certain", view: view{local: local(started), state: podState{local: "mine-1", ended: true}},
			want: want{phase: corev1.PodFailed, reason: workload.ReasonDeletedByProvider, warn: workload.ReasonDeletedByProvider}},
		{name: "the provider is ending it", view: view{local: local(started), remote: remote(local(), "copy-1", started, deleting(30), in(corev1.PodSucceeded))}},
		{name: "failed here", view: view{local: local(in(corev1.PodFailed))}},
		{name: "failed here, runs there", view: view{local: local(in(corev1.PodFailed)), remote: remote(local(), "copy-1", started)},
			want: want{verb: remove, uid: "copy-1", grace: ownGrace}},
		{name: "succeeded", view: view{local: local(in(corev1.PodSucceeded)), remote: remote(local(), "copy-1", in(corev1.PodSucceeded))}},

		{name: "deleted, before anything was sent", view: view{local: local(deleting(30)), never: true}, lost: true, want: want{verb: finish}},
		{name: "deleted, came while the provider was away", view: view{local: local(deleting(30)), state: podState{local: "mine-1", unsent: true}}, away: true, lost: true,
			want: want{verb: finish}},
		{name: "deleted, came before the agent started", view: view{local: local(deleting(30))}, away: true, lost: true},
		{name: "deleted, another of its name was never sent", view: view{local: local(deleting(30)), state: podState{local: "mine-0", unsent: true}}, away: true},
		{name: "deleted, nothing there", view: view{local: local(deleting(30))}, want: want{verb: finish}},
		{name: "deleted, list not known", view: view{local: local(deleting(30))}, lost: true},
		{name: "deleted, provider away", view: view{local: local(deleting(30)), state: seen}, away: true},
		{name: "deleted, never for other clusters", view: view{local: local(deleting(30)), refusal: hostNetwork}, away: true, want: want{verb: finish}},
		{name: "deleted, runs there", view: view{local: local(started, deleting(30)), remote: remote(local(), "copy-1", func(p *corev1.Pod) { p.Status = corev1.PodStatus{} })},
			want: want{verb: remove, uid: "copy-1", grace: 30, phase: corev1.PodRunning}},
		{name: "deleted, ends there", view: view{local: local(in(corev1.PodRunning), deleting(30)), remote: remote(local(), "copy-1", started, deleting(30)), state: podState{removing: "copy-1", grace: 30}},
			want: want{phase: corev1.PodRunning}},
		{name: "deleted with less time than before", view: view{local: local(deleting(5)), remote: remote(local(), "copy-1", deleting(30)), state: podState{removing: "copy-1", grace: 30}},
			want: want{verb: remove, uid: "copy-1", grace: 5, phase: corev1.PodPending}},
		{name: "deleted there and here, and never in the list", view: view{local: local(deleting(30)), state: podState{local: "mine-1", made: "copy-1", removing: "copy-1", grace: 0}},
			want: want{verb: confirm}},
		{name: "deleted, created but not in the list yet", view: view{local: local(deleting(30)), state: podState{local: "mine-1", made: "copy-1"}},
			want: want{verb: remove, uid: "copy-1", grace: 30}},
		{name: "deleted, and not there after all", view: view{local: local(deleting(30)), state: podState{local: "mine-1", made: "copy-1", ended: true}}, want: want{verb: finish}},
		{name: "deleted, ended there well", view: view{local: local(started, deleting(30)), state: podState{local: "mine-1", made: "copy-1", seen: true, last: remote(local(), "copy-1", in(corev1.PodSucceeded))}},
			want: want{verb: finish, phase: corev1.PodSucceeded}},
		{name: "deleted, held by a Job", view: view{local: local(started, deleting(30), func(p *corev1.Pod) { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} })},
			want: want{verb: finish, phase: corev1.PodFailed}},
		{name: "deleted for good, held by others", view: view{local: local(in(corev1.PodFailed), deleting(0), func(p *corev1.Pod) { p.Finalizers = []string{"example.com/others"} })}},
		{name: "deleted for good, and the API server was cut off", view: view{local: local(deleting(0))}, want: want{verb: finish}},
		{name: "deleted, and not let in any more", view: view{local: local(started, deleting(30)), expelled: true}, away: true, want: want{verb: finish}},
		{name: "not let in any more", view: view{local: local(started), expelled: true}, away: true},
		{name: "deleted, provider given up", view: view{local: local(started, deleting(30)), remote: remote(local(), "copy-1", started), gone: true}, want: want{verb: finish}},
		{name: "provider given up", view: view{local: local(started), gone: true}},

		{name: "leftover", view: view{remote: remote(local(), "copy-1", started)}, want: want{verb: remove, uid: "copy-1", grace: ownGrace}},
		{name: "leftover, ends", view: view{remote: remote(local(), "copy-1", started, deleting(30))}},
		{name: "leftover, provider away", view: view{remote: remote(local(), "copy-1", started)}, away: true},
		{name: "a stranger's pod", view: view{remote: remote(local(), "copy-1", started, foreign)}},
		{name: "nothing", view: view{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := c.view
			v.reachable, v.known, v.ready, v.origin, v.now = !c.away, !c.lost, v.state.local != "unready", here, moment
			ended := v.state.ended
			if v.state = v.state.about(v.local, v.remote); ended && !v.state.ended {
				t.Fatal("the case contradicts itself")
			}
			got := plan(v)
			shown := want{verb: got.verb, uid: got.uid, grace: got.grace}
			if got.status != nil {
				shown.phase, shown.reason = got.status.Phase, got.status.Reason
				for _, s := range got.status.ContainerStatuses {
					if w := s.State.Waiting; w != nil && c.want.reason != "" {
						shown.reason = w.Reason
					}
				}
				if c.want.reason == "" {
					shown.reason = ""
				}
			}
			if got.warn != nil {
				shown.warn = got.warn.Reason
			}
			if shown != c.want {
				t.Errorf("got %+v, want %+v", shown, c.want)
			}
			if (got.verb == change) != (got.patch != nil) {
				t.Errorf("the patch is %s", got.patch)
			}
		})
	}
}

func TestRemaining(t *testing.T) {
	for _, c := range []struct {
		whole int64
		after time.Duration
		want  int64
	}{
		{30, 0, 30}, {30, 10 * time.Second, 20}, {30, time.Hour, 1}, {30, -time.Hour, 30}, {1, 0, 1}, {0, 0, 0}, {0, time.Hour, 0},
	} {
		if got := remaining(local(deleting(c.whole)), moment.Add(c.after)); got != c.want {
			t.Errorf("%d seconds, %v later: got %d, want %d", c.whole, c.after, got, c.want)
		}
	}
}

// TestHowACopyEndsThatTheProviderEnds: a clean exit because the provider deleted
// the pod is no success of the pod.
func TestHowACopyEndsThatTheProviderEnds(t *testing.T) {
	m := podState{}.about(local(started), remote(local(), "copy-1", started))
	m = m.about(local(started), remote(local(), "copy-1", started, deleting(30), in(corev1.PodSucceeded)))
	m.confirmed(local(started), nil)
	s := plan(view{local: local(started), state: m, known: true, reachable: true, ready: true, origin: here, now: moment})
	if s.status == nil || s.status.Phase != corev1.PodFailed || s.status.Reason != workload.ReasonDeletedByProvider {
		t.Errorf("got %+v", s.status)
	}
}
