package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"liqo.io/agent/peer/text"
)

// assign stores value, which has the type target points to, without sharing
// memory with it.
func assign(target, value any) {
	switch t := target.(type) {
	case *string:
		*t = value.(string)
	case *bool:
		*t = value.(bool)
	case *int:
		*t = value.(int)
	case *time.Duration:
		*t = value.(time.Duration)
	case *[]string:
		*t = slices.Clone(value.([]string))
	default:
		panic(fmt.Sprintf("config: the table has a field of type %T", target))
	}
}

// value returns what target points to.
func value(target any) any {
	switch t := target.(type) {
	case *string:
		return *t
	case *bool:
		return *t
	case *int:
		return *t
	case *time.Duration:
		return *t
	case *[]string:
		return *t
	}
	panic(fmt.Sprintf("config: the table has a field of type %T", target))
}

// typeName completes "must be ...".
func typeName(target any) string {
	switch target.(type) {
	case *string:
		return "a string"
	case *bool:
		return "true or false"
	case *int:
		return "a whole number"
	case *time.Duration:
		return `a duration such as "30s", "15m" or "90d"`
	}
	return `a list of strings such as ["eth*"]`
}

// fromTOML converts a decoded TOML value to the type of target.
func fromTOML(target, raw any) (any, error) {
	wrong := errors.New("must be " + typeName(target))
	switch target.(type) {
	case *string:
		if s, ok := raw.(string); ok {
			return s, nil
		}
	case *bool:
		if b, ok := raw.(bool); ok {
			return b, nil
		}
	case *int:
		if n, ok := raw.(int64); ok && n >= math.MinInt32 && n <= math.MaxInt32 {
			return int(n), nil
		}
	case *time.Duration:
		if s, ok := raw.(string); ok {
			return parseDuration(s)
		}
		if _, ok := raw.(int64); ok {
			return nil, fmt.Errorf("%w, with its unit and in quotes", wrong)
		}
	case *[]string:
		list, ok := raw.([]any)
		if !ok {
			return nil, wrong
		}
		words := make([]string, 0, len(list))
		for _, item := range list {
			s, ok := item.(string)
			if !ok {
				return nil, wrong
			}
			words = append(words, s)
		}
		return words, nil
	}
	return nil, wrong
}

// fromText converts what was given on the command line or in the environment.
func fromText(target any, s string) (any, error) {
	wrong := errors.New("must be " + typeName(target))
	if !utf8.ValidString(s) {
		return nil, errors.New("must be UTF-8 text")
	}
	switch target.(type) {
	case *string:
		return s, nil
	case *bool:
		if s == "true" || s == "false" {
			return s == "true", nil
		}
	case *int:
		if n, err := strconv.ParseInt(s, 10, 32); err == nil {
			return int(n), nil
		}
	case *time.Duration:
		return parseDuration(s)
	case *[]string:
		words := []string{}
		for word := range strings.SplitSeq(s, ",") {
			if word = strings.TrimSpace(word); word != "" {
				words = append(words, word)
			}
		}
		return words, nil
	}
	return nil, wrong
}

// parseDuration reads a Go duration that may have days in front: "90d",
// "1d12h", "15m".
func parseDuration(s string) (time.Duration, error) {
	wrong := errors.New("must be " + typeName((*time.Duration)(nil)))
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "", s
	}
	var total time.Duration
	if found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, wrong
		}
		total = time.Duration(n) * day
	}
	if rest == "" && found {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || found && d < 0 || d > math.MaxInt64-total {
		return 0, wrong
	}
	return total + d, nil
}

// formatDuration writes what parseDuration reads, in the form a person would
// write it: 90d, 36h, 15m, 1m30s.
func formatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return text.Duration(d)
}

// toTOML writes a value of a setting as TOML.
func toTOML(v any) string {
	switch t := v.(type) {
	case string:
		return quote(t)
	case time.Duration:
		return quote(formatDuration(t))
	case []string:
		words := make([]string, len(t))
		for i, word := range t {
			words[i] = quote(word)
		}
		return "[" + strings.Join(words, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// quote writes a TOML basic string. Go's own quoting knows escapes that TOML
// does not.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
