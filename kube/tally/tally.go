package tally

import (
	"net/http"
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
	r.counts[verb][result].Add(1)
	if verbs[verb] != Watch && results[result] != Cancelled {
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

func verbOf(req *http.Request) int {
	switch req.Method {
	case http.MethodPost:
		return 2
	case http.MethodPut:
		return 3
	case http.MethodPatch:
		return 4
	case http.MethodDelete:
		return 5
	}
	if req.URL != nil && (strings.Contains(req.URL.RawQuery, "watch=true") || strings.Contains(req.URL.RawQuery, "watch=1")) {
		return 1
	}
	return 0
}

func resultOf(req *http.Request, resp *http.Response) int {
	if resp == nil {
		if err := req.Context().Err(); err != nil && isCancelled(err) {
			return 8
		}
		return 7
	}
	switch status := resp.StatusCode; {
	case status < 400:
		return 0
	case status == http.StatusNotFound, status == http.StatusGone:
		return 1
	case status == http.StatusConflict:
		return 2
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return 3
	case status == http.StatusTooManyRequests:
		return 4
	case status < 500:
		return 5
	}
	return 6
}
