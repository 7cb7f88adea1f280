package allow

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxCommand  = 256 // words of a command
	maxPorts    = 16
	maxContinue = 4 << 10 // bytes of the token of a list that goes on
)

// param is a parameter that a query may have.
type param struct {
	name string
	many int // how often; 0: once
	// read returns the value as it is sent on, "" for not at all, or what is wrong
	// with it, as the end of a sentence.
	read func(value string) (string, error)
	bare bool // an empty value means something
}

// The parameters of the routes.
var (
	listParams = []param{
		{name: "allowWatchBookmarks", read: boolean},
		{name: "continue", read: continuation},
		{name: "fieldSelector", read: oneByName},
		{name: "limit", read: number(0, 10_000)},
		{name: "resourceVersion", read: number(0, 1<<63-1)},
		{name: "resourceVersionMatch", read: oneOf("Exact", "NotOlderThan")},
		{name: "sendInitialEvents", read: boolean},
		{name: "timeoutSeconds", read: number(0, 24*60*60)},
		{name: "watch", read: boolean},
	}
	// Who writes is a peer, whatever it calls itself.
	writeParams = []param{
		{name: "fieldManager", read: nothing},
		{name: "force", read: nothing},
	}
	logParams = []param{
		{name: "container", read: label},
		{name: "follow", read: boolean},
		{name: "limitBytes", read: number(1, 1<<40)},
		{name: "previous", read: boolean},
		{name: "sinceSeconds", read: number(1, 1<<40)},
		{name: "sinceTime", read: instant},
		{name: "tailLines", read: number(0, 1<<40)},
		{name: "timestamps", read: boolean},
	}
	attachParams = []param{
		{name: "container", read: label},
		{name: "stderr", read: boolean},
		{name: "stdin", read: boolean},
		{name: "stdout", read: boolean},
		{name: "tty", read: boolean},
	}
	execParams    = append([]param{{name: "command", many: maxCommand, read: argument, bare: true}}, attachParams...)
	forwardParams = []param{{name: "ports", many: maxPorts, read: number(1, 65535)}}
)

// parseQuery reads a query that may have these parameters and no others. What it
// returns are their values as they are to be sent on.
func parseQuery(raw string, allowed []param) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errors.New("it is not well-formed")
	}
	out := url.Values{}
	known := 0
	for _, p := range allowed {
		all, ok := values[p.name]
		if !ok {
			continue
		}
		known++
		if len(all) > max(1, p.many) {
			return nil, fmt.Errorf("it has %s %d times", p.name, len(all))
		}
		for _, value := range all {
			clean, err := p.read(value)
			if err != nil {
				return nil, fmt.Errorf("its %s %w", p.name, err)
			}
			if clean != "" || p.bare {
				out.Add(p.name, clean)
			}
		}
	}
	if known != len(values) {
		return nil, errors.New("it has a parameter that is not known here")
	}
	return out, nil
}

func nothing(string) (string, error) { return "", nil }

func boolean(value string) (string, error) {
	switch value {
	case "", "true", "false":
		return value, nil
	case "1":
		return "true", nil
	case "0":
		return "false", nil
	}
	return "", errors.New("is neither true nor false")
}

func number(least, most int64) func(string) (string, error) {
	return func(value string) (string, error) {
		if value == "" {
			return "", nil
		}
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || int64(n) < least || int64(n) > most {
			return "", fmt.Errorf("is not a number from %d to %d", least, most)
		}
		return strconv.FormatUint(n, 10), nil
	}
}

func oneOf(words ...string) func(string) (string, error) {
	return func(value string) (string, error) {
		for _, word := range words {
			if value == word {
				return value, nil
			}
		}
		return "", fmt.Errorf("is none of %s", strings.Join(words, ", "))
	}
}

// continuation is the token of a list that goes on. It says where, in base64.
func continuation(value string) (string, error) {
	if len(value) > maxContinue || strings.ContainsFunc(value, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_=+/", c)
	}) {
		return "", errors.New("is not one that was given out here")
	}
	return value, nil
}

// oneByName is a field selector for the one object of a name.
func oneByName(value string) (string, error) {
	if value == "" {
		return "", nil
	}
	if name, ok := strings.CutPrefix(value, "metadata.name="); ok && IsName(name) {
		return value, nil
	}
	return "", errors.New("is not of the form metadata.name=NAME")
}

func label(value string) (string, error) {
	if value != "" && !IsLabel(value) {
		return "", errors.New("is not the name of a container")
	}
	return value, nil
}

func instant(value string) (string, error) {
	if value == "" {
		return "", nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil || t.Year() < 1 || t.Year() > 9999 {
		return "", errors.New("is not a time of RFC 3339")
	}
	return t.UTC().Format(time.RFC3339Nano), nil
}

// argument is a word of a command.
func argument(value string) (string, error) {
	if !utf8.ValidString(value) || strings.Contains(value, "\x00") {
		return "", errors.New("is no text")
	}
	return value, nil
}

// encodeQuery writes parameters in the order of allowed.
func encodeQuery(values url.Values, allowed []param) string {
	var b strings.Builder
	for _, p := range allowed {
		for _, value := range values[p.name] {
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			b.WriteString(p.name + "=" + url.QueryEscape(value))
		}
	}
	return b.String()
}
