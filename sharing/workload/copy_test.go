package workload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/attack"
)

// A copy has all that Mirror and Change look at, and nothing of the rest.
func TestCopyHasWhatIsMirrored(t *testing.T) {
	mine := podOf(t, "{initContainers: [{name: init-0, image: i}], containers: [{name: app-0, image: i, resources: {requests: {cpu: 1}}}]}")
	theirs := running(t, mine)
	theirs.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	theirs.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	text, err := json.Marshal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var c Copy
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if c.ManagedFields != nil || c.Spec.Volumes != nil {
		t.Errorf("it has %+v", c.Pod)
	}
	origin := origin
	origin.Network = shifted("")
	if diff := cmp.Diff(Mirror(mine, theirs, origin, now), Mirror(mine, &c.Pod, origin, now)); diff != "" {
		t.Error(diff)
	}
	mine.Labels = map[string]string{"new": "label"}
	was, changes := Change(mine, theirs, origin)
	is, changed := Change(mine, &c.Pod, origin)
	if string(was) != string(is) || changes != changed || !changed {
		t.Errorf("the change is %s, want %s", is, was)
	}

	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: "n", UID: "u", ResourceVersion: "1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: mine.Name, UID: "c", FieldPath: "spec.containers{app-0}"},
		Reason:         "Pulled", Message: "so it is", Type: "Normal", Count: 3,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now.Add(time.Minute)),
		Series: &corev1.EventSeries{Count: 4, LastObservedTime: metav1.NewMicroTime(now)},
	}
	if text, err = json.Marshal(event); err != nil {
		t.Fatal(err)
	}
	var e EventCopy
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	want, _ := Event(event, mine, nil, origin)
	got, ok := Event(&e.Event, mine, nil, origin)
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Error(diff)
	}
}

// What is read of a document takes memory in proportion to its length, wherever it is
// made of things that are short when written and large when read.
func TestAttackDocumentsThatGrow(t *testing.T) {
	const size = 1 << 20
	many := func(what string) string {
		return "[" + strings.Repeat(what+",", size/(len(what)+1)) + what + "]"
	}
	for _, of := range []any{new(Copy), new(EventCopy), new(ObjectCopy)} {
		kind := reflect.TypeOf(of).Elem().Name()
		for name, document := range map[string]string{
			"managed fields": `{"metadata":{"managedFields":` + many("{}") + `}}`,
			"owners":         `{"metadata":{"ownerReferences":` + many("{}") + `}}`,
			"containers":     `{"spec":{"containers":` + many("{}") + `}}`,
			"volumes":        `{"spec":{"volumes":` + many("{}") + `}}`,
			"statuses":       `{"status":{"containerStatuses":` + many("{}") + `}}`,
			"conditions":     `{"status":{"conditions":` + many("{}") + `}}`,
			"addresses":      `{"status":{"podIPs":` + many("{}") + `}}`,
			"numbers":        `{"data":` + many("1") + `}`,
		} {
			fresh := reflect.New(reflect.TypeOf(of).Elem()).Interface()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := json.Unmarshal([]byte(document), fresh)
			runtime.ReadMemStats(&after)
			got, most := "little memory", uint64(16<<20)
			if err != nil {
				most = 96 << 20 // it was looked at value by value, which is garbage at once: 65 bytes each with the race detector
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > most {
				got = fmt.Sprintf("%d MiB, %v", used>>20, err)
			}
			attack.Attempt{
				What: fmt.Sprintf("a document of a MiB made of empty %s, read as %s", name, kind), As: "provider", Want: "little memory",
			}.Saw(t, got)
		}
	}
}
