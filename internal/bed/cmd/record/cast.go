//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// cast is a recording.
type cast struct {
	Width, Height int
	Title         string
	Events        []event
}

// event is what was printed at once.
type event struct {
	At   time.Duration // since the start
	Data string
}

// header is the first line of the file.
type header struct {
	Version       int               `json:"version"`
	Width         int               `json:"width"`
	Height        int               `json:"height"`
	IdleTimeLimit float64           `json:"idle_time_limit,omitempty"`
	Title         string            `json:"title,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
}

const formatVersion = 2

// encode returns the file.
func (c cast) encode() []byte {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	// A buffer takes everything, and these values can all be encoded.
	_ = lines.Encode(header{Version: formatVersion, Width: c.Width, Height: c.Height, Title: c.Title, Env: map[string]string{"TERM": terminal}})
	for _, e := range c.Events {
		_ = lines.Encode([]any{math.Round(e.At.Seconds()*1000) / 1000, "o", e.Data})
	}
	return b.Bytes()
}

// decode reads a file. Events that are no output are left out.
func decode(text []byte) (cast, error) {
	lines := json.NewDecoder(bytes.NewReader(text))
	var h header
	if err := lines.Decode(&h); err != nil {
		return cast{}, fmt.Errorf("read the header: %w", err)
	}
	if h.Version != formatVersion || h.Width < 1 || h.Height < 1 {
		return cast{}, fmt.Errorf("version %d, %d columns, %d rows: want version %d and a size", h.Version, h.Width, h.Height, formatVersion)
	}
	c := cast{Width: h.Width, Height: h.Height, Title: h.Title}
	for lines.More() {
		var fields []any
		if err := lines.Decode(&fields); err != nil {
			return cast{}, fmt.Errorf("read event %d: %w", len(c.Events)+1, err)
		}
		if len(fields) != 3 {
			return cast{}, fmt.Errorf("event %d has %d fields, not 3", len(c.Events)+1, len(fields))
		}
		at, isTime := fields[0].(float64)
		data, isText := fields[2].(string)
		if !isTime || !isText {
			return cast{}, fmt.Errorf("event %d is not of the form [time, kind, text]", len(c.Events)+1)
		}
		if fields[1] == "o" {
			c.Events = append(c.Events, event{time.Duration(at * float64(time.Second)), data})
		}
	}
	if len(c.Events) == 0 {
		return cast{}, errors.New("nothing was printed")
	}
	return c, nil
}

// hurry returns the recording with no wait longer than limit.
func (c cast) hurry(limit time.Duration) cast {
	events := make([]event, len(c.Events))
	var before, now time.Duration
	for i, e := range c.Events {
		now += min(e.At-before, limit)
		before = e.At
		events[i] = event{now, e.Data}
	}
	c.Events = events
	return c
}
