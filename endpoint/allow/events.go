package allow

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/endpoint/wire"
)

// MaxEventAnswer bounds one event of a watch, in bytes.
const MaxEventAnswer = 1 << 20

// involved is whom an event is about.
type involved struct {
	Object struct {
		Kind string    `json:"kind"`
		Name string    `json:"name"`
		UID  types.UID `json:"uid"`
	} `json:"involvedObject"`
}

// Events is a list of events as the API server sends it.
type Events struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   json.RawMessage   `json:"metadata,omitempty"`
	Items      []json.RawMessage `json:"items"`
}

// About returns the list without the events that are about something else than these
// pods.
func (e Events) About(pods map[types.UID]bool) ([]byte, error) {
	kept := e.Items[:0]
	for _, item := range e.Items {
		var about involved
		if json.Unmarshal(item, &about) == nil && about.Object.Kind == "Pod" && pods[about.Object.UID] {
			kept = append(kept, item)
		}
	}
	e.Items = kept
	return wire.Encode(e)
}

// eventWatch reads a watch of events and leaves out what is about something else than
// the caller's pods. It is read line by line, by one goroutine.
type eventWatch struct {
	from *bufio.Scanner
	own  func(name string, uid types.UID) (bool, error)
	left []byte // of the line that is being read
}

// NewEventWatch returns what a watch of events reads of from. own tells the caller's pods
// from others.
func NewEventWatch(from io.Reader, own func(name string, uid types.UID) (bool, error)) io.Reader {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, MaxEventAnswer)
	return &eventWatch{from: lines, own: own}
}

// Read is io.Reader.Read. It returns at most one line at a time.
func (e *eventWatch) Read(b []byte) (int, error) {
	for len(e.left) == 0 {
		if !e.from.Scan() {
			if err := e.from.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		line := e.from.Bytes()
		pass, err := e.passes(line)
		if err != nil {
			return 0, err
		}
		if pass {
			e.left = append(bytes.Clone(line), '\n')
		}
	}
	n := copy(b, e.left)
	e.left = e.left[n:]
	return n, nil
}

func (e *eventWatch) passes(line []byte) (bool, error) {
	var one struct {
		Type   string   `json:"type"`
		Object involved `json:"object"`
	}
	if err := json.Unmarshal(line, &one); err != nil {
		return false, fmt.Errorf("a line of a watch is no event: %w", err)
	}
	switch one.Type {
	case "BOOKMARK", "ERROR":
		return true, nil
	}
	about := one.Object.Object
	if about.Kind != "Pod" || !IsName(about.Name) || about.UID == "" {
		return false, nil
	}
	return e.own(about.Name, about.UID)
}
