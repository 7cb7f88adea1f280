package workload

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNamesAtHome(t *testing.T) {
	mine := podOf(t, "{nodeName: liqo-birch, containers: [{name: birch, image: i}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}")
	theirs := &corev1.Pod{}
	theirs.UID, theirs.Spec.NodeName = "b0b0b0b0-0000-4000-8000-000000000000", "birch"
	theirs.Status.PodIPs = []corev1.PodIP{{IP: "10.42.0.7"}}
	in := origin
	in.Claim = func(_, name string) (string, *Refusal) { return name + "-7k2f9d1c", nil }
	in.Network = &Network{Here: func(a netip.Addr) (netip.Addr, bool) { return netip.MustParseAddr("241.7.0.7"), a.Is4() }}
	names := namesOf(mine, theirs, theirs.UID, in)
	for said, want := range map[string]string{
		"Back-off restarting failed container birch in pod web_liqo-11111111-shop(b0b0b0b0-0000-4000-8000-000000000000)": "Back-off restarting failed container birch in pod web_shop(6f2b1c1e-2a52-4b0c-9a55-0d6f0a3c9b11)",
		"couldn't find key x in ConfigMap liqo-11111111-shop/settings":                                                   "couldn't find key x in ConfigMap shop/settings",
		"liqo-11111111-shop-2 and my-liqo-11111111-shop":                                                                 "liqo-11111111-shop-2 and my-liqo-11111111-shop",
		"liqo-11111111-shopliqo-11111111-shop liqo-11111111-shop":                                                        "liqo-11111111-shopliqo-11111111-shop shop",
		`Get "http://10.42.0.7:9999/": dial tcp 10.42.0.7:9999: no; 10.42.0.77`:                                          `Get "http://241.7.0.7:9999/": dial tcp 241.7.0.7:9999: no; 10.42.0.77`,
		`claim "data-7k2f9d1c" on node birch and "birch", said birch`:                                                    `claim "data" on node liqo-birch and "liqo-birch", said birch`,
		"": "",
	} {
		if got := names.in(said); got != want {
			t.Errorf("%q reads %q, want %q", said, got, want)
		}
	}
	if got := names.in(strings.Repeat("liqo-11111111-shop ", 10_000)); len(got) > maxReplaced {
		t.Errorf("%d bytes", len(got))
	}
	if got := namesOf(mine, nil, "u", origin).in("in liqo-11111111-shop, u"); got != "in shop, "+string(mine.UID) {
		t.Errorf("without the copy: %q", got)
	}
}

func TestMirrorReadsAsAtHome(t *testing.T) {
	mine := podOf(t, "{nodeName: liqo-birch, containers: [{name: app, image: i}]}")
	theirs := running(t, mine)
	said, want := "in pod web_liqo-11111111-shop("+string(theirs.UID)+")", "in pod web_shop("+string(mine.UID)+")"
	theirs.Status.Message = said
	theirs.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: said}}
	theirs.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: said}}
	theirs.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: said}
	before := theirs.DeepCopy()
	got := Mirror(mine, theirs, origin, now)
	s := got.ContainerStatuses[0]
	if got.Message != want || condition(got.Conditions, corev1.PodReady).Message != want || s.State.Waiting.Message != want {
		t.Errorf("%+v", got)
	}
	if s.LastTerminationState.Terminated.Message != said {
		t.Errorf("what a container said itself is changed to %q", s.LastTerminationState.Terminated.Message)
	}
	if !SameStatus(&before.Status, &theirs.Status) {
		t.Error("the copy is changed")
	}
	theirs.Status.Phase, theirs.Status.Reason = corev1.PodRunning, "Preempting"
	if got := DeletedByProvider(mine, theirs, origin, now); strings.Contains(got.Message, "liqo-1111") || !strings.Contains(got.Message, want) {
		t.Errorf("%q", got.Message)
	}
}
