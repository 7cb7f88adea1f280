package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"

	"liqo.io/agent/internal/bubble"
)

var errAny = errors.New("no")

// run has a queue run while test does, and then checks that its goroutines end.
func run(t *testing.T, q *Queue[string], workers int, reconcile func(context.Context, string) Outcome, test func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx, workers, reconcile) })
	synctest.Wait()
	test()
	cancel()
	running.Wait()
}

// TestOutcomes maps each outcome to when the key is reconciled again.
func TestOutcomes(t *testing.T) {
	config := Config[string]{Backoff: Backoff{First: time.Second, Max: 10 * time.Second}, Permanent: time.Minute}
	seconds := func(s ...float64) (out []time.Duration) {
		for _, s := range s {
			out = append(out, time.Duration(s*float64(time.Second)))
		}
		return out
	}
	for name, tc := range map[string]struct {
		outcome Outcome
		pauses  []time.Duration // at most; and a quarter less at least
		exact   bool
	}{
		"done":             {outcome: Done()},
		"the zero value":   {},
		"again":            {outcome: Again(3 * time.Second), pauses: seconds(3, 3, 3), exact: true},
		"again at once":    {outcome: Again(0), pauses: seconds(0, 0, 0), exact: true},
		"result: done":     {outcome: Result(0, nil)},
		"result: again":    {outcome: Result(time.Second, nil), pauses: seconds(1, 1), exact: true},
		"result: retry":    {outcome: Result(time.Hour, errAny), pauses: seconds(1, 2)},
		"retry":            {outcome: Retry(errAny), pauses: seconds(1, 2, 4, 8, 10, 10)},
		"retry, soon":      {outcome: Retry(errAny).AtMost(3 * time.Second), pauses: seconds(1, 2, 3, 3)},
		"retry after":      {outcome: Retry(apierrors.NewTooManyRequests("later", 5)), pauses: seconds(5, 5, 5, 8, 10)},
		"retry in a year":  {outcome: Retry(apierrors.NewTooManyRequests("later", 31536000)), pauses: seconds(60, 60), exact: true},
		"permanent":        {outcome: Permanent(errAny), pauses: seconds(60, 60, 60)},
		"permanent, asked": {outcome: Permanent(apierrors.NewTooManyRequests("later", 5)), pauses: seconds(60)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var at []time.Time
				var told []Attempt
				config := config
				config.Observe = func(_ string, a Attempt) { told = append(told, a) }
				q := New(config)
				q.Add("a")
				run(t, q, 2, func(context.Context, string) Outcome {
					if at = append(at, time.Now()); len(at) > len(tc.pauses) {
						return Done()
					}
					return tc.outcome
				}, func() { time.Sleep(time.Hour) })
				if len(at) != len(tc.pauses)+1 || len(told) != len(at) {
					t.Fatalf("%d attempts, of which %d were told", len(at), len(told))
				}
				for i, want := range tc.pauses {
					got, least := at[i+1].Sub(at[i]), want
					if !tc.exact {
						least = want * 3 / 4
					}
					if got < least || got > want || told[i].Next != got {
						t.Errorf("pause %d is %v, want %v; %v was told", i, got, want, told[i].Next)
					}
					if failures := told[i].Failures; tc.outcome.err != nil && !tc.outcome.permanent && failures != i+1 || tc.outcome.err == nil && failures != 0 {
						t.Errorf("attempt %d is failure %d", i, failures)
					}
				}
				if at, waits := q.Due("a"); q.Failures("a") != 0 || waits {
					t.Errorf("after the last attempt it is due at %v, after %d failures", at, q.Failures("a"))
				}
			})
		})
	}
}

// TestNotBefore: what was asked for earlier does not cut short a pause that was decided
// about later.
func TestNotBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		begun := time.Now()
		var at []time.Duration
		outcomes := []Outcome{Again(10 * time.Second), Retry(apierrors.NewTooManyRequests("later", 60)), Done()}
		q := New(Config[string]{Backoff: Backoff{First: time.Second, Max: time.Second}})
		q.Add("a")
		run(t, q, 1, func(context.Context, string) Outcome {
			at = append(at, time.Since(begun))
			return outcomes[len(at)-1]
		}, func() {
			time.Sleep(5 * time.Second)
			q.Add("a")
			time.Sleep(time.Hour)
		})
		if want := []time.Duration{0, 5 * time.Second, 65 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("reconciled at %v, want %v", at, want)
		}
	})
}

// TestOneAtATime: a key is never reconciled twice at a time, and once more when it is
// added meanwhile; no more keys are than there are workers.
func TestOneAtATime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		busy, most, count := make(map[string]bool), 0, make(map[string]int)
		again := "" // added while it is being reconciled
		q := New(Config[string]{})
		// Before anybody works: what is added while it is being reconciled is so once more.
		for range 3 {
			for i := range 10 {
				q.Add(fmt.Sprint(i))
			}
		}
		run(t, q, 3, func(_ context.Context, key string) Outcome {
			mu.Lock()
			if busy[key] {
				t.Errorf("%s is reconciled twice at a time", key)
			}
			busy[key] = true
			count[key]++
			most = max(most, len(busy))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			delete(busy, key)
			mu.Unlock()
			return Done()
		}, func() {
			synctest.Wait()
			if q.Len() != 7 {
				t.Errorf("%d keys wait", q.Len())
			}
			mu.Lock()
			for again = range busy {
				break
			}
			mu.Unlock()
			for range 3 {
				q.Add(again)
			}
			time.Sleep(time.Minute)
		})
		if most != 3 {
			t.Errorf("%d keys at a time", most)
		}
		for i := range 10 {
			want := 1
			if fmt.Sprint(i) == again {
				want = 2
			}
			if got := count[fmt.Sprint(i)]; got != want {
				t.Errorf("%d was reconciled %d times, want %d", i, got, want)
			}
		}
	})
}

// TestInterrupted: what a Run does not get to is there for the next one, with its time.
func TestInterrupted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		told := 0
		q := New(Config[string]{Observe: func(string, Attempt) { told++ }})
		q.Add("now")
		q.Add("dropped")
		q.AddAfter("later", time.Minute)
		q.Drop("dropped")
		if q.Len() != 2 {
			t.Errorf("%d keys", q.Len())
		}
		run(t, q, 1, func(ctx context.Context, _ string) Outcome {
			<-ctx.Done()
			return Retry(ctx.Err())
		}, func() {})
		if told != 0 || q.Failures("now") != 0 {
			t.Errorf("an interruption is %d failures, of which %d were told", q.Failures("now"), told)
		}
		begun := time.Now()
		at := make(map[string]time.Duration)
		run(t, q, 1, func(_ context.Context, key string) Outcome {
			at[key] = time.Since(begun)
			return Done()
		}, func() { time.Sleep(time.Hour) })
		if want := map[string]time.Duration{"now": 0, "later": time.Minute}; !maps.Equal(at, want) {
			t.Errorf("reconciled at %v, want %v", at, want)
		}
	})
}

func TestFailuresAreForgotten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var last Attempt
		q := New(Config[string]{Backoff: Backoff{First: time.Second, Max: time.Hour}, Observe: func(_ string, a Attempt) { last = a }})
		q.Add("a")
		run(t, q, 1, func(context.Context, string) Outcome { return Retry(errAny) }, func() {
			time.Sleep(100 * time.Second)
			before := q.Failures("a")
			q.ForgetFailures()
			q.Add("a")
			synctest.Wait()
			if before < 5 || last.Failures != 1 || last.Next > time.Second {
				t.Errorf("after %d failures it is tried again in %v", before, last.Next)
			}
		})
	})
}

// TestEverythingIsReconciledInTime compares a queue with what is to be: after any calls,
// each key is reconciled at the earliest time that was asked for, and not otherwise.
func TestEverythingIsReconciledInTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type op struct {
			kind  string
			key   string
			pause time.Duration
		}
		ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
			return op{
				rapid.SampledFrom([]string{"add", "after", "after", "drop", "sleep", "sleep"}).Draw(t, "kind"),
				rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
				time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second,
			}
		}), 1, 40).Draw(rt, "ops")
		var want, got []string
		bubble.Test(t, func(t *testing.T) {
			begun := time.Now()
			due := make(map[string]time.Duration)
			entry := func(key string, at time.Duration) string { return fmt.Sprintf("%09d %s", at/time.Millisecond, key) }
			q := New(Config[string]{})
			run(t, q, 1, func(_ context.Context, key string) Outcome {
				got = append(got, entry(key, time.Since(begun)))
				return Done()
			}, func() {
				for _, o := range append(ops, op{kind: "sleep", pause: time.Minute}) {
					now := time.Since(begun)
					put := func(at time.Duration) {
						if before, waits := due[o.key]; !waits || at < before {
							due[o.key] = at
						}
					}
					switch o.kind {
					case "add":
						q.Add(o.key)
						put(now)
					case "after":
						q.AddAfter(o.key, o.pause)
						put(now + o.pause)
					case "drop":
						q.Drop(o.key)
						delete(due, o.key)
					case "sleep":
						// Not to a moment at which something is due: who comes first is open then.
						time.Sleep(o.pause + time.Millisecond)
						for key, at := range due {
							if at <= now+o.pause+time.Millisecond {
								want = append(want, entry(key, at))
								delete(due, key)
							}
						}
					}
					synctest.Wait()
					if o.kind == "add" { // reconciled already
						want = append(want, entry(o.key, due[o.key]))
						delete(due, o.key)
					}
				}
			})
		})
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			rt.Fatalf("reconciled at\n%v, want\n%v", got, want)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"none":        {errAny, 0},
		"status":      {fmt.Errorf("GET: %w", apierrors.NewTooManyRequests("later", 7)), 7 * time.Second},
		"too long":    {apierrors.NewTooManyRequests("later", 3600), time.Minute},
		"a method":    {fmt.Errorf("call: %w", asks(3*time.Second)), 3 * time.Second},
		"a long wait": {asks(time.Hour), time.Minute},
	} {
		if got := RetryAfter(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if Sooner(0, 0) != 0 || Sooner(time.Second, 0) != time.Second || Sooner(0, time.Second) != time.Second || Sooner(2, 1) != 1 || Sooner(-1, -1) != 0 {
		t.Error("the shorter pause is not the sooner")
	}
}

type asks time.Duration

func (a asks) Error() string { return "later" }

func (a asks) RetryAfter() time.Duration { return time.Duration(a) }
