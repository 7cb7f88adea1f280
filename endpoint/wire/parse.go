package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	// maxState bounds the body of a State in bytes. It holds two specs of ours, of
	// at most MaxRequestBody each, and is remembered for every peer.
	maxState = 256 << 10
	// maxAnswerBody bounds the body of an Answer in bytes.
	maxAnswerBody = 16 << 10
	// maxReached bounds the body of a Reached in bytes.
	maxReached = 4 << 10
	// maxWord bounds what is one word for programs.
	maxWord = 64
	// maxSaid bounds a sentence that a peer says, in bytes.
	maxSaid = 1024
)

// ParseIdentity reads the body of /ids. All three values must be there, be
// strings, and keep the rules of package peer; other members are ignored.
func ParseIdentity(body []byte) (peer.Identity, error) {
	var raw struct {
		ID        *string `json:"clusterId"`
		Name      *string `json:"clusterName"`
		Namespace *string `json:"guestNamespace"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return peer.Identity{}, fmt.Errorf("answers %s with something else than an identity: %w", PathIDs, err)
	}
	if raw.ID == nil || raw.Name == nil || raw.Namespace == nil {
		return peer.Identity{}, fmt.Errorf("leaves clusterId, clusterName or guestNamespace out of %s", PathIDs)
	}
	identity := peer.Identity{ClusterID: peer.ClusterID(*raw.ID), ClusterName: *raw.Name, GuestNamespace: *raw.Namespace}
	if err := CheckIdentity(identity); err != nil {
		return peer.Identity{}, err
	}
	return identity, nil
}

// ParseAnswer reads the body of an answered Ask. Its sentences are printable and of a
// bounded length.
func ParseAnswer(body []byte) (Answer, error) {
	var a Answer
	if err := decodeAnswer(PathAsk, body, maxAnswerBody, &a); err != nil {
		return Answer{}, err
	}
	switch a.Auth {
	case api.AuthAccepted, api.AuthPending, api.AuthRefused, api.AuthEmptyRefused:
	default:
		return Answer{}, fmt.Errorf("answers %s with the unknown decision %q", PathAsk, Readable(string(a.Auth)))
	}
	a.Reason, a.Message = Word(a.Reason), Readable(a.Message)
	return a, nil
}

// ParseState reads the body of an answered Greeting. Its sentences are printable and
// of a bounded length; what is unknown while there is no API server is left out.
func ParseState(body []byte) (State, error) {
	var s State
	if err := decodeAnswer(PathState, body, maxState, &s); err != nil {
		return State{}, err
	}
	if err := CheckIdentity(s.Identity); err != nil {
		return State{}, err
	}
	if !s.Kubernetes {
		return State{Identity: s.Identity}, nil
	}
	s.Ended = Readable(s.Ended)
	if e := s.Engine; e != nil {
		e.Setting = Word(e.Setting)
		if l := e.Liqo; l != nil {
			l.ID, l.Version, l.Problem = Readable(l.ID), Readable(l.Version), Readable(l.Problem)
		}
	}
	if req := s.Request; req != nil {
		switch req.Phase {
		case api.RequestAccepted, api.RequestPending, api.RequestRefused:
		case "":
			req.Phase = api.RequestPending
		default:
			return State{}, fmt.Errorf("answers %s with the unknown phase %q", PathState, Readable(string(req.Phase)))
		}
		req.UID, req.Reason, req.Message = Readable(req.UID), Word(req.Reason), Readable(req.Message)
	}
	if offer := s.Advertisement; offer != nil {
		switch offer.Status {
		case "", api.AdvertisementAccepted, api.AdvertisementRefused:
		default:
			return State{}, fmt.Errorf("answers %s with the unknown status %q", PathState, Readable(string(offer.Status)))
		}
		offer.UID, offer.Message = Readable(offer.UID), Readable(offer.Message)
	}
	return s, nil
}

// ParseRefusal reads the body of an answer that is no success: the peer's own words,
// or those of the API server behind its gateway. They are printable and of a bounded
// length, and "" where nothing was said.
func ParseRefusal(body []byte) Refusal {
	var said struct {
		Error   string `json:"error"`
		Message string `json:"message"` // metav1.Status
		Reason  string `json:"reason"`
	}
	// A body that is something else leaves the fields empty, or some of them.
	_ = json.Unmarshal(body, &said)
	refusal := Refusal{Error: Readable(said.Error), Reason: Word(said.Reason)}
	if refusal.Error == "" {
		refusal.Error = Readable(said.Message)
	}
	return refusal
}

func decodeAnswer(path string, body []byte, limit int, into any) error {
	if len(body) > limit {
		return fmt.Errorf("answers %s with %d bytes, at most %d make sense", path, len(body), limit)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("answers %s with something else: %w", path, err)
	}
	return nil
}

// checkIdentity checks what a peer says about itself by package peer's rules.
func CheckIdentity(i peer.Identity) error {
	_, err := peer.ParseClusterID(string(i.ClusterID))
	if err == nil {
		_, err = peer.ParseClusterName(i.ClusterName)
	}
	if err == nil {
		_, err = peer.ParseNamespace(i.GuestNamespace)
	}
	if err != nil {
		return fmt.Errorf("has an unusable identity: %w", err)
	}
	return nil
}

// word returns s if it is one word for programs, and "" otherwise.
func Word(s string) string {
	if len(s) > maxWord || strings.ContainsFunc(s, func(c rune) bool { return c > unicode.MaxASCII || !unicode.IsLetter(c) }) {
		return ""
	}
	return s
}

// readable makes words from the network fit for a terminal and a log line.
func Readable(s string) string { return text.Line(s, maxSaid) }
