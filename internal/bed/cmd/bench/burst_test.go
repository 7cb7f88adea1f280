//go:build linux

package main

import (
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/sharing/workload"
)

// A burst that loses a pod, or has it twice, is found out.
func TestExact(t *testing.T) {
	type pod struct{ name, uid, origin, node string }
	bound := []pod{{name: "wave-1", uid: "1", node: "n"}, {name: "wave-2", uid: "2", node: "n"}}
	once := []pod{{name: "wave-1", uid: "a", origin: "1"}, {name: "wave-2", uid: "b", origin: "2"}}
	for _, test := range []struct {
		name         string
		mine, theirs []pod
		gone         int // the first ones at the provider, before the others came
		ok           bool
	}{
		{name: "each once", mine: bound, theirs: once, ok: true},
		{name: "each once, and over", mine: bound, theirs: once, gone: 2, ok: true},
		{name: "one that was not bound", mine: append(bound[:2:2], pod{name: "wave-3", uid: "3"}), theirs: once, ok: true},
		{name: "others do not count", mine: bound, theirs: append(once[:2:2], pod{name: "first", uid: "c", origin: "4"}), ok: true},
		{name: "lost", mine: bound, theirs: once[:1]},
		{name: "twice", mine: bound, theirs: append(once[:2:2], pod{name: "wave-2", uid: "c", origin: "2"})},
		{name: "twice, one after the other", mine: bound, theirs: append(once[:2:2], pod{name: "wave-1", uid: "c", origin: "1"}), gone: 2},
		{name: "of nobody", mine: bound, theirs: append(once[:2:2], pod{name: "wave-3", uid: "c", origin: "3"})},
		{name: "none at all", mine: nil, theirs: once},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := bed.Script(t.Context(), "burst", io.Discard, func(tb bed.TB) {
				p := &pair{scenarioRun: &scenarioRun{TB: tb}}
				p.mine, p.theirs = &podWatch{pods: make(map[string]sighting)}, &podWatch{pods: make(map[string]sighting)}
				for i, from := range [][]pod{test.mine, test.theirs} {
					for n, one := range from {
						object := &corev1.Pod{
							ObjectMeta: metav1.ObjectMeta{Name: one.name, UID: types.UID(one.uid), Annotations: map[string]string{workload.AnnotationOriginUID: one.origin}},
							Spec:       corev1.PodSpec{NodeName: one.node},
						}
						w := []*podWatch{p.mine, p.theirs}[i]
						w.take(false, object)
						if i == 1 && n < test.gone {
							w.take(true, object)
						}
					}
				}
				p.exact("wave")
			})
			if (err == nil) != test.ok {
				t.Errorf("exact says %v", err)
			}
		})
	}
}
