package vnode

import (
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
)

// TestMetricsPath: a node says where it tells what its pods use, whatever others do to
// that, and leaves their annotations alone. An agent that may not say so does the rest.
func TestMetricsPath(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		a := f.start(t)
		a.Set(testProvider(barn))
		wait(time.Minute)
		said := func(want string) {
			t.Helper()
			f.with(func() {
				annotations := sub(sub(f.objects[nodePath(barnNode)], "metadata"), "annotations")
				if got := textAt(annotations, AnnotationMetricsPath); got != want {
					t.Errorf("it says %q, not %q", got, want)
				}
			})
		}
		said("/metrics/resource/" + barnNode)
		for _, theirs := range []any{nil, "/elsewhere"} {
			f.with(func() {
				o := clone(f.objects[nodePath(barnNode)])
				mergeInto(o, map[string]any{"metadata": map[string]any{"annotations": map[string]any{AnnotationMetricsPath: theirs, "example.com/rack": "7"}}})
				f.store(nodePath(barnNode), o)
			})
			wait(time.Minute)
			said("/metrics/resource/" + barnNode)
		}
		f.with(func() {
			if rack := textAt(sub(sub(f.objects[nodePath(barnNode)], "metadata"), "annotations"), "example.com/rack"); rack != "7" {
				t.Errorf("the annotation of somebody else is %q", rack)
			}
		})
		a.stop()

		f = newFake()
		f.confined = true
		a = f.start(t)
		defer a.stop()
		a.Set(testProvider(barn))
		a.Set(testProvider("mill"))
		wait(time.Hour)
		if s := a.Set(testProvider(barn)); !s.Ready {
			t.Errorf("it is %+v", s)
		}
		said("")
		if f.annotations > 2 {
			t.Errorf("it was tried %d times", f.annotations)
		}
	})
}
