package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"liqo.io/agent/peer/text"
)

// Fault is one thing that is wrong with the configuration.
type Fault struct {
	Source string // where: "file PATH line N", "environment NAME", "--set", ...
	Key    string // the key, such as "log.level" or "peer[0].url"; "" when the fault is about the whole source
	Err    error  // what is wrong, and what is allowed
}

// Error is one line for people.
func (f Fault) Error() string {
	if f.Key == "" {
		return fmt.Sprintf("%s: %v", f.Source, f.Err)
	}
	return fmt.Sprintf("%s: %s %v", f.Source, f.Key, f.Err)
}

// Unwrap returns Err.
func (f Fault) Unwrap() error { return f.Err }

// Faults are all that is wrong with a configuration, in the order of the file,
// the environment and the command line.
type Faults []Fault

// Error lists every fault on a line of its own.
func (f Faults) Error() string {
	if len(f) == 1 {
		return "bad configuration: " + f[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "bad configuration, with %d faults:", len(f))
	for _, one := range f {
		b.WriteString("\n  ")
		b.WriteString(strings.ReplaceAll(one.Error(), "\n", "\n    "))
	}
	return b.String()
}

// Unwrap returns the faults, for errors.Is and errors.As.
func (f Faults) Unwrap() []error {
	all := make([]error, len(f))
	for i, one := range f {
		all[i] = one
	}
	return all
}

// shown writes a value given by the user for an error message.
func shown(v any) string {
	var s string
	switch t := v.(type) {
	case string, time.Duration, []string:
		s = toTOML(t)
	default:
		s = fmt.Sprint(v)
	}
	return text.Excerpt(s)
}

// badValue says what was given and what is allowed.
func badValue(v any, err error) error { return fmt.Errorf("= %s: %w", shown(v), err) }

// unknownKey names the key that was probably meant: one of the same name in
// another section, or the one with the most similar name.
func unknownKey(key string, known []string) error {
	name := lastPart(key)
	best, distance := "", 1+max(2, len(name)/3)
	for _, k := range known {
		d := editDistance(strings.ToLower(key), k)
		// Its own name in the wrong section is nearer than any other name.
		if lastPart(k) == strings.ToLower(name) {
			d = min(d, 1)
		}
		if d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return errors.New("is no key that liqo-agent knows")
	}
	return fmt.Errorf("is no key that liqo-agent knows; did you mean %s?", best)
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// editDistance is the Levenshtein distance in bytes. It looks at the first 64
// of each: no key is longer.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
