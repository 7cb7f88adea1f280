package tally

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Verb is what a request does, in the words of the Kubernetes API.
type Verb string

// The verbs. Reading one object and listing many are both get.
const (
	Get    Verb = "get"
	Watch  Verb = "watch"
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Result is what came of a request.
type Result string

// The results.
const (
	OK          Result = "ok"           // any status below 400
	NotFound    Result = "not-found"    // 404, 410
	Conflict    Result = "conflict"     // 409
	Forbidden   Result = "forbidden"    // 401, 403
	TooMany     Result = "too-many"     // 429
	Invalid     Result = "invalid"      // any other status from 400 to 499
	ServerError Result = "server-error" // 500 and above
	NoAnswer    Result = "no-answer"    // there was no answer, or not in time
	Cancelled   Result = "cancelled"    // nobody waited for the answer any more
)

var (
	verbs   = [...]Verb{Get, Watch, Create, Update, Patch, Delete}
	results = [...]Result{OK, NotFound, Conflict, Forbidden, TooMany, Invalid, ServerError, NoAnswer, Cancelled}
)

// Count is how many requests of a verb had a result.
type Count struct {
	Verb   Verb
	Result Result
	N      uint64
}

// Requests counts requests. The zero value is ready for use, by any number of
// goroutines; it must not be copied.
type Requests struct {
	counts [len(verbs)][len(results)]atomic.Uint64
	took   Histogram
}

// Answered counts a request with how it ended, as a transport sees it: resp is nil
// when there was no answer. took is the time until the head of the answer was
// there; that of a watch says nothing and is left out, like that of a request
// that was cancelled.
func (r *Requests) Answered(req *http.Request, resp *http.Response, took time.Duration) {
	verb, result := verbOf(req), resultOf(req, resp)
	r.counts[slices.Index(verbs[:], verb)][slices.Index(results[:], result)].Add(1)
	if verb != Watch && result != Cancelled {
		r.took.Observe(took)
	}
}

// Counts returns what was counted, without what never happened, in the order of
// verbs and results.
func (r *Requests) Counts() []Count {
	var out []Count
	for v := range r.counts {
		for k := range r.counts[v] {
			if n := r.counts[v][k].Load(); n > 0 {
				out = append(out, Count{verbs[v], results[k], n})
			}
		}
	}
	return out
}

// Took returns how long the requests took.
func (r *Requests) Took() Distribution { return r.took.Distribution() }

func verbOf(req *http.Request) Verb {
	switch req.Method {
	case http.MethodPost:
		return Create
	case http.MethodPut:
		return Update
	case http.MethodPatch:
		return Patch
	case http.MethodDelete:
		return Delete
	}
	if strings.Contains(req.URL.RawQuery, "watch=true") || strings.Contains(req.URL.RawQuery, "watch=1") {
		return Watch
	}
	return Get
}

func resultOf(req *http.Request, resp *http.Response) Result {
	if resp == nil {
		if errors.Is(req.Context().Err(), context.Canceled) {
			return Cancelled
		}
		return NoAnswer
	}
	switch status := resp.StatusCode; {
	case status < 400:
		return OK
	case status == http.StatusNotFound, status == http.StatusGone:
		return NotFound
	case status == http.StatusConflict:
		return Conflict
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Forbidden
	case status == http.StatusTooManyRequests:
		return TooMany
	case status < 500:
		return Invalid
	}
	return ServerError
}
