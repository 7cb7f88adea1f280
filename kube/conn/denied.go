package conn

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/transport"

	"liqo.io/agent/peer/text"
)

const (
	// maxForbidden bounds the missing permissions that are kept.
	maxForbidden = 16
	// forbiddenFor is for how long a missing permission counts that was not met again:
	// what needs it is tried again sooner.
	forbiddenFor = 10 * time.Minute
	// maxStatusText is how much of an answer is looked at for why something is
	// forbidden.
	maxStatusText = 8 << 10
)

// denial is a permission that the agent lacks.
type denial struct {
	what string // as the API server says it
	path string // where it was met last, with the method
	at   time.Time
}

// denied notes a request that was forbidden because of a missing permission. What
// is forbidden for another reason, such as a quota or a namespace that is going, is
// none, nor is what somebody else may not do whom the agent speaks for.
func (l *Link) denied(request *http.Request, response *http.Response) {
	body := peek(response)
	what := permission(body)
	if what == "" || request.Header.Get(transport.ImpersonateUserHeader) != "" && !strings.Contains(what, " cannot impersonate ") {
		return
	}
	path := request.Method + " " + request.URL.Path
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.denials, func(d denial) bool { return d.what == what })
	switch {
	case at >= 0:
		l.denials[at].path, l.denials[at].at = path, l.now()
		return
	case len(l.denials) >= maxForbidden:
		l.denials = slices.Delete(l.denials, 0, 1)
	}
	l.denials = append(l.denials, denial{what, path, l.now()})
	l.deniedSome.Store(true)
	l.tell()
}

// peek returns the beginning of an answer's body, which can still be read from the
// start.
func peek(response *http.Response) string {
	begin, _ := io.ReadAll(io.LimitReader(response.Body, maxStatusText)) // the reader of the body meets the error again
	response.Body = &peeked{Reader: io.MultiReader(strings.NewReader(string(begin)), response.Body), Closer: response.Body}
	return string(begin)
}

type peeked struct {
	io.Reader
	io.Closer
}

// permission returns what the API server says about a missing permission, "" when
// it says something else.
func permission(answer string) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal([]byte(answer), &status) != nil {
		return ""
	}
	message := text.Sentence(status.Message)
	if at := strings.Index(message, `User "`); at >= 0 && strings.Contains(message[at:], " cannot ") {
		return message[at:] // without the name of the object
	}
	if at := strings.Index(message, "attempting to grant RBAC permissions not currently held"); at >= 0 {
		return message
	}
	return ""
}

// allowed notes a request that was not forbidden.
func (l *Link) allowed(request *http.Request) {
	if !l.deniedSome.Load() {
		return
	}
	path := request.Method + " " + request.URL.Path
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.denials)
	l.denials = slices.DeleteFunc(l.denials, func(d denial) bool { return d.path == path })
	l.deniedSome.Store(len(l.denials) > 0)
	if len(l.denials) != before {
		l.tell()
	}
}

// forbidden returns the permissions that are missing now.
func (l *Link) forbidden() []string {
	var out []string
	for _, d := range l.denials {
		if l.now().Sub(d.at) < forbiddenFor {
			out = append(out, d.what)
		}
	}
	slices.Sort(out)
	return out
}
