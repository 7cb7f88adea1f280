package refusal

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/endpoint/wire"
)

// Refusal is why a request is not served.
type Refusal struct {
	Status  int
	Counted Reason
	Reason  string        // for the caller's program
	Text    string        // for people: what happened, and what to do
	Retry   time.Duration // when trying again makes sense; 0: unsaid
	Allow   string        // the methods that there are, with status 405
	Cause   error         // for the log of this cluster, nil: none; callers are not told
}

// Body is what tells the caller.
func (no *Refusal) Body() wire.Refusal { return wire.Refusal{Error: no.Text, Reason: no.Reason} }

// AsStatus is Body where the API server would answer, in the form in which that does.
func (no *Refusal) AsStatus() metav1.Status {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Message: no.Text, Code: int32(no.Status),
		Reason: statusReasons[no.Status],
		Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: metav1.CauseType(no.Reason), Message: no.Text}},
		},
	}
	if no.Retry > 0 {
		status.Details.RetryAfterSeconds = int32(math.Ceil(no.Retry.Seconds()))
	}
	return status
}

// statusReasons are the words of the API server for HTTP status codes. A refusal is
// never NotFound: that would mean that something is gone.
var statusReasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusRequestTimeout:        metav1.StatusReasonTimeout,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError:   metav1.StatusReasonInternalError,
	http.StatusBadGateway:            metav1.StatusReasonServiceUnavailable,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}

// NoSuchPath refuses a path that nothing is at.
func NoSuchPath() *Refusal {
	return &Refusal{
		Status: http.StatusNotFound, Counted: Path, Reason: wire.ReasonNoSuchPath,
		Text: "there is nothing at this path; a cluster says who it is at " + wire.PathIDs,
	}
}

// NotAllowed refuses a method where there are only these, "GET, HEAD".
func NotAllowed(methods string) *Refusal {
	return &Refusal{
		Status: http.StatusMethodNotAllowed, Counted: Method, Reason: wire.ReasonBadRequest, Allow: methods,
		Text: "use " + strings.ReplaceAll(methods, ", ", " or "),
	}
}

// BadBody refuses a body, or a query, for what it is.
func BadBody(text string) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Counted: Body, Reason: wire.ReasonBadRequest, Text: text}
}

// NotPermitted refuses what no peer may send to the API server.
func NotPermitted(text string) *Refusal {
	return &Refusal{Status: http.StatusForbidden, Counted: Gateway, Reason: wire.ReasonNotPermitted, Text: text}
}

// TooOften refuses what is beyond a rate. who says whose, "from your address".
func TooOften(wait time.Duration, who string) *Refusal {
	return &Refusal{
		Status: http.StatusTooManyRequests, Counted: Rate, Reason: wire.ReasonBusy, Retry: wait,
		Text: "too many requests came " + who + "; wait as long as Retry-After says",
	}
}

// TooMany refuses what is beyond a number at a time. what says of what, "calls".
func TooMany(what string) *Refusal {
	return &Refusal{
		Status: http.StatusTooManyRequests, Counted: Busy, Reason: wire.ReasonBusy, Retry: time.Second,
		Text: "too many " + what + " are under way; wait for their answers, then try again",
	}
}

// OverBudget refuses what is beyond a budget.
func OverBudget(wait time.Duration) *Refusal {
	return &Refusal{
		Status: http.StatusTooManyRequests, Counted: Budget, Reason: wire.ReasonBudget, Retry: wait,
		Text: "your cluster has had more written here lately than anybody may; wait as long as Retry-After says",
	}
}

// NoAPIServer says that the API server cannot be asked now.
func NoAPIServer(status int, text string) *Refusal {
	return &Refusal{
		Status: status, Counted: APIServer, Reason: wire.ReasonNoAPIServer, Retry: 5 * time.Second, Text: text + "; try again later",
	}
}

// NoMetrics says that this cluster does not measure what pods use.
func NoMetrics() *Refusal {
	return &Refusal{
		Status: http.StatusServiceUnavailable, Counted: Metrics, Reason: wire.ReasonNoMetrics, Retry: 30 * time.Second,
		Text: "this cluster has no metrics API (metrics.k8s.io), or it does not answer; install metrics-server here, or see why it does not run",
	}
}

// LostUpstream says that the API server did not answer, because of err.
func LostUpstream(err error) *Refusal {
	no := NoAPIServer(http.StatusServiceUnavailable, "this cluster's API server did not answer")
	if errors.Is(err, context.DeadlineExceeded) {
		no = NoAPIServer(http.StatusGatewayTimeout, "this cluster's API server did not answer in time")
	}
	no.Cause = err
	return no
}

// BadUpstream says that the API server gave an answer that is not passed on. what
// says which, "status 307".
func BadUpstream(what string) *Refusal {
	return &Refusal{
		Status: http.StatusBadGateway, Counted: Upstream, Reason: wire.ReasonNoAPIServer, Retry: 5 * time.Second,
		Text: "this cluster's API server answered with " + what + ", which is not passed on; try again later",
	}
}

// Internal refuses what the agent fails to do through no fault of the caller's.
func Internal(text string) *Refusal {
	return &Refusal{Status: http.StatusInternalServerError, Counted: Failed, Reason: wire.ReasonFailed, Text: text}
}
