package workload

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shifted has pods of 10.42.0.0/24 and fd42::/64 reached by other addresses.
func shifted(down string) *Network {
	return &Network{Down: down, Here: func(a netip.Addr) (netip.Addr, bool) {
		switch {
		case netip.MustParsePrefix("10.42.0.0/24").Contains(a):
			b := a.As4()
			return netip.AddrFrom4([4]byte{241, 7, 0, b[3]}), true
		case netip.MustParsePrefix("fd42::/64").Contains(a):
			b := a.As16()
			b[2] = 7
			return netip.AddrFrom16(b), true
		}
		return netip.Addr{}, false
	}}
}

func TestMirrorAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		network *Network
		theirs  []string
		mine    []string
		want    []string
		ready   corev1.ConditionStatus
		reason  string
	}{
		"without a network":    {theirs: []string{"10.42.0.7"}, ready: corev1.ConditionTrue},
		"by another address":   {network: shifted(""), theirs: []string{"10.42.0.7"}, want: []string{"241.7.0.7"}, ready: corev1.ConditionTrue},
		"nothing is known":     {network: &Network{Unknown: true}, theirs: []string{"10.42.0.7"}, mine: []string{"241.9.9.9"}, want: []string{"241.9.9.9"}, ready: corev1.ConditionTrue},
		"nothing passes yet":   {network: &Network{Unknown: true, Down: "Away."}, theirs: []string{"10.42.0.7"}, mine: []string{"241.9.9.9"}, want: []string{"241.9.9.9"}, ready: corev1.ConditionFalse, reason: ReasonNetworkDown},
		"there was none":       {network: &Network{Unknown: true, Down: "Away."}, theirs: []string{"10.42.0.7"}, ready: corev1.ConditionTrue},
		"of both families":     {network: shifted(""), theirs: []string{"fd42::9", "10.42.0.7"}, want: []string{"fd42:700::9", "241.7.0.7"}, ready: corev1.ConditionTrue},
		"while nothing passes": {network: shifted("The cable is out."), theirs: []string{"10.42.0.7"}, want: []string{"241.7.0.7"}, ready: corev1.ConditionFalse, reason: ReasonNetworkDown},
		"none, and down":       {network: shifted("The cable is out."), ready: corev1.ConditionTrue},
		"of somebody else":     {network: shifted(""), theirs: []string{"10.77.0.1", "10.42.1.7", "nonsense", ""}, ready: corev1.ConditionTrue},
		"many":                 {network: shifted(""), theirs: []string{"10.42.0.7", "10.42.0.8", "fd42::9", "fd42::a"}, want: []string{"241.7.0.7", "fd42:700::9"}, ready: corev1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			mine := podOf(t, "{}")
			theirs := running(t, mine)
			theirs.Status.PodIPs = nil
			for _, ip := range tc.theirs {
				theirs.Status.PodIPs = append(theirs.Status.PodIPs, corev1.PodIP{IP: ip})
			}
			for _, ip := range tc.mine {
				mine.Status.PodIPs = append(mine.Status.PodIPs, corev1.PodIP{IP: ip})
			}
			in := origin
			in.Network = tc.network
			got := Mirror(mine, theirs, in, now)
			var ips []string
			for _, ip := range got.PodIPs {
				ips = append(ips, ip.IP)
			}
			first := ""
			if len(tc.want) > 0 {
				first = tc.want[0]
			}
			if !slices.Equal(ips, tc.want) || got.PodIP != first || got.HostIP != "" || got.HostIPs != nil {
				t.Errorf("podIPs %v, podIP %q, hostIP %q; want %v", ips, got.PodIP, got.HostIP, tc.want)
			}
			if c := condition(got.Conditions, corev1.PodReady); c == nil || c.Status != tc.ready || c.Reason != tc.reason {
				t.Errorf("ready: %+v, want %s %s", c, tc.ready, tc.reason)
			}
			if c := condition(got.Conditions, corev1.ContainersReady); c == nil || c.Status != corev1.ConditionTrue {
				t.Errorf("containers ready: %+v", c)
			}
		})
	}
}

func TestWithdraw(t *testing.T) {
	blocks := &Network{Blocks: []netip.Prefix{netip.MustParsePrefix("241.7.0.0/24"), netip.MustParsePrefix("fd42:700::/64")}}
	for name, tc := range map[string]struct {
		network    *Network
		mine, want []string // want nil: as it is
	}{
		"nothing is shown":        {network: nil},
		"the network is off":      {network: nil, mine: []string{"241.7.0.7"}, want: []string{}},
		"nothing is known":        {network: &Network{Unknown: true}, mine: []string{"241.7.0.7"}},
		"its own":                 {network: blocks, mine: []string{"241.7.0.7", "fd42:700::9"}},
		"of another block":        {network: blocks, mine: []string{"241.8.0.7"}, want: []string{}},
		"of another block, first": {network: blocks, mine: []string{"241.8.0.7", "fd42:700::9"}, want: []string{"fd42:700::9"}},
		"nonsense":                {network: blocks, mine: []string{"nonsense"}, want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			status := &corev1.PodStatus{Phase: corev1.PodRunning, Message: "kept"}
			for _, ip := range tc.mine {
				status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
			}
			got := tc.network.Withdraw(status)
			if tc.want == nil {
				if got != nil {
					t.Errorf("%+v", got)
				}
				return
			}
			if got == nil || len(got.PodIPs) != len(tc.want) || got.Message != "kept" || len(status.PodIPs) != len(tc.mine) {
				t.Fatalf("%+v, want %v", got, tc.want)
			}
			first := ""
			for i, ip := range tc.want {
				first = tc.want[0]
				if got.PodIPs[i].IP != ip {
					t.Errorf("%+v, want %v", got, tc.want)
				}
			}
			if got.PodIP != first {
				t.Errorf("podIP %s, want %s", got.PodIP, first)
			}
		})
	}
}

// Of a pod whose copy is not known, as after a start of the agent, only what this cluster can tell is said anew.
func TestUnheard(t *testing.T) {
	before, now := metav1.NewTime(time.Unix(1000, 0)), time.Unix(2000, 0)
	blocks := []netip.Prefix{netip.MustParsePrefix("241.7.0.0/24")}
	down, up := &Network{Blocks: blocks, Down: "The cable is out."}, &Network{Blocks: blocks}
	for name, tc := range map[string]struct {
		network *Network
		ip      string
		is      corev1.ConditionStatus
		changes bool
		reason  string // of Ready then
	}{
		"packets pass":                 {up, "241.7.0.7", corev1.ConditionTrue, false, ""},
		"none pass":                    {down, "241.7.0.7", corev1.ConditionTrue, true, ReasonNetworkDown},
		"none pass, after a start":     {&Network{Unknown: true, Down: "The cable is out."}, "241.7.0.7", corev1.ConditionTrue, true, ReasonNetworkDown},
		"it is not ready anyway":       {down, "241.7.0.7", corev1.ConditionFalse, false, ""},
		"it shows no address":          {down, "", corev1.ConditionTrue, false, ""},
		"its address is another one's": {down, "241.8.0.7", corev1.ConditionTrue, true, "Own"},
		"there is no network":          {nil, "", corev1.ConditionTrue, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			mine := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: tc.is, Reason: "Own", LastTransitionTime: before}}}}
			if tc.ip != "" {
				mine.Status.PodIP, mine.Status.PodIPs = tc.ip, []corev1.PodIP{{IP: tc.ip}}
			}
			was := mine.DeepCopy()
			got := tc.network.Unheard(mine, now)
			if !reflect.DeepEqual(mine, was) {
				t.Errorf("the pod was changed: %+v", mine)
			}
			if !tc.changes {
				if got != nil {
					t.Errorf("%+v", got)
				}
				return
			}
			if got == nil {
				t.Fatal("nothing is said")
			}
			ready := condition(got.Conditions, corev1.PodReady)
			if ready.Reason != tc.reason || condition(got.Conditions, corev1.ContainersReady).Status != corev1.ConditionTrue || got.Phase != corev1.PodRunning {
				t.Errorf("%+v", got)
			}
			if tc.reason == ReasonNetworkDown && (ready.Status != corev1.ConditionFalse || !ready.LastTransitionTime.Time.Equal(now) || ready.Message != tc.network.Down) {
				t.Errorf("%+v", ready)
			}
		})
	}
}
