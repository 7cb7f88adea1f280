package control

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// Bodies of requests, and answers that are not shown.
type (
	// ConnectBody is the body of POST /v1/connect.
	ConnectBody struct {
		Peer        string `json:"peer"`
		URL         string `json:"url"`
		Token       string `json:"token"`
		Fingerprint string `json:"fingerprint"`
		Once        bool   `json:"once"`
		Asks
	}
	// DisconnectBody is the body of POST /v1/peers/{ref}/disconnect.
	DisconnectBody struct {
		Incoming bool `json:"incoming"`
	}
	// ConfirmBody is the body of a decision about the key of a peer.
	ConfirmBody struct {
		Fingerprint string `json:"fingerprint"`
	}
	// InviteBody is the body of POST /v1/invites.
	InviteBody struct {
		TTLSeconds int64  `json:"ttlSeconds"`
		Note       string `json:"note"`
		URL        string `json:"url"`
	}
	// CSRBody is the body of POST /v1/key/csr.
	CSRBody struct {
		Names []string `json:"names"`
	}
	// CSRAnswer is the answer to it, with a request in PEM.
	CSRAnswer struct {
		CSR string `json:"csr"`
	}
)

// DomainBody is DomainOptions on the wire. The domain may be left out: it is in the
// path.
type DomainBody struct {
	DomainOptions
	MinIntervalSeconds int64 `json:"minIntervalSeconds,omitempty"`
	MaxIntervalSeconds int64 `json:"maxIntervalSeconds,omitempty"`
}

// maxAmount bounds the text of an amount in bytes.
const maxAmount = 32

// Limits of the time that an invite is valid.
const (
	MinInviteTTL = time.Minute
	MaxInviteTTL = 30 * 24 * time.Hour
)

// MaxNote is how long a note about a peer may be, in bytes.
const MaxNote = 256

// CheckNote returns an error with ErrInvalid for a note that is too long or cannot be printed.
func CheckNote(s string) error {
	switch {
	case len(s) > MaxNote:
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the note is %d bytes long, at most %d are allowed", len(s), MaxNote)}
	case !text.Printable(s):
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("note %q contains characters that cannot be printed", s)}
	}
	return nil
}

// CheckURL returns the URL of an endpoint in the form in which it is kept:
// https://host or https://host:port. "" stays so. The error wraps ErrInvalid.
func CheckURL(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := peer.ParseURL(s)
	if err != nil {
		return "", &Error{Kind: ErrInvalid, Message: fmt.Sprintf("URL %q: want https://HOST:PORT; %v", text.Excerpt(s), err)}
	}
	return u.String(), nil
}

// Check validates the amounts, and brings them into the form in which they are kept and sent:
// that of Kubernetes. The error wraps ErrInvalid.
func (a *Asks) Check() error {
	for _, one := range []struct {
		name, least, example string
		amount               **string
	}{{"CPU", "1m", "2 or 500m", &a.CPU}, {"memory", "1Mi", "4Gi", &a.Memory}} {
		if *one.amount == nil || **one.amount == "" {
			continue
		}
		kept, ok := keptAmount(**one.amount, one.least)
		if !ok {
			return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%s %q: want an amount of at least %s, as in %s", one.name, text.Excerpt(**one.amount), one.least, one.example)}
		}
		*one.amount = &kept
	}
	return nil
}

// keptAmount returns the form in which an amount is kept; false for none, for less than least, and
// for more than a PeeringRequest can say.
func keptAmount(given, least string) (kept string, ok bool) {
	if len(given) > maxAmount {
		return "", false
	}
	quantity, err := api.ParseAmount(given)
	if err != nil || quantity.Cmp(resource.MustParse(least)) < 0 {
		return "", false
	}
	kept = quantity.String()
	_, err = api.ParseAmount(kept) // 1000e99 is 1e102
	return kept, err == nil && len(kept) <= maxAmount
}

// MaxReach is how many peers are asked to call this cluster back at once.
const MaxReach = 5

// Reach is the result of a peer that was asked to call this cluster back. It shows
// whether a firewall blocks the endpoint.
type Reach struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Outcome is reached, refused, timed-out, unreachable, other-key or not-tls; ""
	// when the peer did not try, for which Error says why.
	Outcome string `json:"outcome"`
	Address string `json:"address"` // where the peer tried, "ip:port"; "" when it did not
	Detail  string `json:"detail"`  // its words, a sentence for people
	Error   string `json:"error"`   // why there is no outcome; "" when there is one
	// Unsupported: the peer's agent is of a version that cannot call back.
	Unsupported bool `json:"unsupported"`
	// SkewSeconds is by how much the peer's clock is ahead of ours; behind when
	// negative. nil when it did not say.
	SkewSeconds *float64 `json:"skewSeconds,omitempty"`
}

// ParseLevel reads debug, info, warn or error, in any case.
func ParseLevel(s string) (slog.Level, error) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, level.String()) {
			return level, nil
		}
	}
	return 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("log level %q: want debug, info, warn or error", s)}
}
