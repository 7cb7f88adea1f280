package tally

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func request(t *testing.T, ctx context.Context, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestWhatARequestCountsAs(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, c := range []struct {
		ctx    context.Context
		method string
		query  string
		status int // 0: no answer
		verb   Verb
		result Result
		timed  bool
	}{
		{t.Context(), "GET", "", 200, Get, OK, true},
		{t.Context(), "GET", "?limit=500", 206, Get, OK, true},
		{t.Context(), "GET", "?resourceVersion=7&watch=true", 200, Watch, OK, false},
		{t.Context(), "GET", "?watch=1", 410, Watch, NotFound, false},
		{t.Context(), "GET", "", 301, Get, OK, true},
		{t.Context(), "POST", "", 101, Create, OK, true},
		{t.Context(), "POST", "", 409, Create, Conflict, true},
		{t.Context(), "PUT", "", 422, Update, Invalid, true},
		{t.Context(), "PATCH", "?fieldManager=x", 403, Patch, Forbidden, true},
		{t.Context(), "PATCH", "", 401, Patch, Forbidden, true},
		{t.Context(), "DELETE", "", 404, Delete, NotFound, true},
		{t.Context(), "DELETE", "", 429, Delete, TooMany, true},
		{t.Context(), "GET", "", 503, Get, ServerError, true},
		{t.Context(), "GET", "", 700, Get, ServerError, true},
		{t.Context(), "BREW", "", 200, Get, OK, true},
		{t.Context(), "GET", "", 0, Get, NoAnswer, true},
		{late, "GET", "", 0, Get, NoAnswer, true},
		{ended, "GET", "", 0, Get, Cancelled, false},
	} {
		var r Requests
		var resp *http.Response
		if c.status != 0 {
			resp = &http.Response{StatusCode: c.status}
		}
		r.Answered(request(t, c.ctx, c.method, "https://api.test/x"+c.query), resp, time.Millisecond)
		if diff := cmp.Diff([]Count{{c.verb, c.result, 1}}, r.Counts()); diff != "" {
			t.Errorf("%s %s: %d (-want +got):\n%s", c.method, c.query, c.status, diff)
		}
		if timed := r.Took().Count == 1; timed != c.timed {
			t.Errorf("%s %s: %d: its time counts %t", c.method, c.query, c.status, timed)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{-time.Second, 0, 5 * time.Millisecond, 6 * time.Millisecond, time.Second, time.Hour} {
		h.Observe(d)
	}
	got := h.Distribution()
	if got.Count != 6 || got.Seconds != 3601.011 {
		t.Errorf("%d durations, %v seconds", got.Count, got.Seconds)
	}
	want := map[float64]uint64{
		0.005: 3, 0.01: 4, 0.025: 4, 0.05: 4, 0.1: 4, 0.25: 4, 0.5: 4, 1: 5, 2.5: 5, 5: 5, 10: 5, 30: 5,
	}
	if diff := cmp.Diff(want, got.Buckets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if empty := new(Histogram).Distribution(); len(empty.Buckets) != len(bounds) {
		t.Error("the buckets of an empty histogram are missing, so that they would appear only with the first duration")
	}
}

func TestManyCountAtOnce(t *testing.T) {
	var r Requests
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				r.Answered(request(t, t.Context(), "GET", "https://api.test/"), &http.Response{StatusCode: 200}, time.Millisecond)
				r.Counts()
				r.Took()
			}
		})
	}
	all.Wait()
	if got := r.Counts(); len(got) != 1 || got[0].N != 800 || r.Took().Count != 800 {
		t.Errorf("%+v, %d", got, r.Took().Count)
	}
}
