package clitest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
)

// SiloKey is the key of a peer that is not trusted.
var SiloKey = strings.Repeat("cd", 32)

// Neighbours are two peers that are there: barn, whose key is trusted, and silo,
// whose key is not.
func Neighbours(t *testing.T) *Memory {
	m := &Memory{Has: Has{Status: Farm().Has.Status}}
	for _, p := range []control.Peer{
		{ID: Barn, Name: "barn", Fingerprint: BarnKey, Addresses: []string{"192.0.2.7:6447"}, Trust: control.Trust{Mode: control.Trusted, Fingerprint: BarnKey}},
		{ID: Silo, Name: "silo", Fingerprint: SiloKey, Addresses: []string{"192.0.2.8:6447"}},
	} {
		p.Phase, p.Verified, p.Code = "Present", true, CodeOf(t, p.Fingerprint)
		m.Has.Peers = append(m.Has.Peers, p)
	}
	return m
}

// Quick says at once what is being waited for.
var Quick = command.Pace{Settle: time.Millisecond, Believe: 50 * time.Millisecond}

// Act runs a command and changes a peer as the output goes on: every line of
// output that contains a key of turns has its function called, once.
func Act(t *testing.T, w *World, turns map[string]func(), args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return ActUntil(t, t.Context(), w, turns, args...)
}

// ActUntil is Act until a context ends.
func ActUntil(t *testing.T, parent context.Context, w *World, turns map[string]func(), args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(parent, Patience)
	defer cancel()
	var mu sync.Mutex
	var out strings.Builder
	stderr, code = w.RunTo(ctx, Lines(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		out.WriteString(line + "\n")
		for text, turn := range turns {
			if strings.Contains(line, text) {
				delete(turns, text)
				turn()
			}
		}
	}), args...)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("%v did not end", args)
	}
	for text := range turns {
		t.Errorf("no line of the output contains %q", text)
	}
	return out.String(), stderr, code
}

// Outgoing sets the direction towards a peer.
func Outgoing(m *Memory, id string, done int, reason, message string) func() {
	return func() {
		m.Change(PeerID(id), func(p *control.Peer) {
			p.Outgoing = control.Direction{Wanted: true, Joined: done == 7, Reason: reason, Message: message, Steps: Steps(done), Since: Now.Add(time.Duration(done))}
		})
	}
}

// Lines calls each for every line written to the writer it returns.
func Lines(each func(string)) io.Writer { return &lineWriter{each: each} }

type lineWriter struct {
	each func(string)
	rest bytes.Buffer
}

func (l *lineWriter) Write(b []byte) (int, error) {
	l.rest.Write(b)
	for {
		line, err := l.rest.ReadString('\n')
		if err != nil {
			l.rest.WriteString(line)
			return len(b), nil
		}
		l.each(strings.TrimSuffix(line, "\n"))
	}
}
