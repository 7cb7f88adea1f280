package endpoint

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

const (
	// maxState bounds the body of a State in bytes. It holds two specs of ours, of
	// at most MaxRequestBody each, and is remembered for every peer.
	maxState = 256 << 10
	// maxAnswerBody bounds the body of an Answer in bytes.
	maxAnswerBody = 16 << 10
	// maxWord bounds what is one word for programs.
	maxWord = 64
)

// Answer reads the body of an answered Ask. Its sentences are printable and of a
// bounded length.
func (r Response) Answer() (Answer, error) {
	var a Answer
	if err := r.decode(PathAsk, maxAnswerBody, &a); err != nil {
		return Answer{}, err
	}
	switch a.Auth {
	case api.AuthAccepted, api.AuthPending, api.AuthRefused, api.AuthEmptyRefused:
	default:
		return Answer{}, fmt.Errorf("answers %s with the unknown decision %q", PathAsk, readable(string(a.Auth)))
	}
	a.Reason, a.Message = word(a.Reason), readable(a.Message)
	return a, nil
}

// State reads the body of an answered Greeting. Its sentences are printable and
// of a bounded length; what is unknown while there is no API server is left out.
func (r Response) State() (State, error) {
	var s State
	if err := r.decode(PathState, maxState, &s); err != nil {
		return State{}, err
	}
	if err := checkIdentity(s.Identity); err != nil {
		return State{}, err
	}
	if !s.Kubernetes {
		return State{Identity: s.Identity}, nil
	}
	s.Ended = readable(s.Ended)
	if req := s.Request; req != nil {
		switch req.Phase {
		case api.RequestAccepted, api.RequestPending, api.RequestRefused:
		case "":
			req.Phase = api.RequestPending
		default:
			return State{}, fmt.Errorf("answers %s with the unknown phase %q", PathState, readable(string(req.Phase)))
		}
		req.UID, req.Reason, req.Message = readable(req.UID), word(req.Reason), readable(req.Message)
	}
	if offer := s.Advertisement; offer != nil {
		switch offer.Status {
		case "", api.AdvertisementAccepted, api.AdvertisementRefused:
		default:
			return State{}, fmt.Errorf("answers %s with the unknown status %q", PathState, readable(string(offer.Status)))
		}
		offer.UID, offer.Message = readable(offer.UID), readable(offer.Message)
	}
	return s, nil
}

func (r Response) decode(path string, limit int, into any) error {
	if len(r.Body) > limit {
		return fmt.Errorf("answers %s with %d bytes, at most %d make sense", path, len(r.Body), limit)
	}
	if err := json.Unmarshal(r.Body, into); err != nil {
		return fmt.Errorf("answers %s with something else: %w", path, err)
	}
	return nil
}

// checkIdentity checks what a peer says about itself by package peer's rules.
func checkIdentity(i peer.Identity) error {
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
func word(s string) string {
	if len(s) > maxWord || strings.ContainsFunc(s, func(c rune) bool { return c > unicode.MaxASCII || !unicode.IsLetter(c) }) {
		return ""
	}
	return s
}

// readable makes words from the network fit for a terminal and a log line.
func readable(s string) string {
	var b strings.Builder
	n, gap := 0, false
	for _, c := range s {
		if unicode.IsSpace(c) || !unicode.IsPrint(c) {
			gap = n > 0
			continue
		}
		if n == maxSaid {
			b.WriteString("...")
			break
		}
		if gap {
			b.WriteByte(' ')
			gap = false
		}
		b.WriteRune(c)
		n++
	}
	return b.String()
}
