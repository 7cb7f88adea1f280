package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"liqo.io/agent/peer/text"
)

// maxDepth is how deep objects and arrays may be within each other.
const maxDepth = 16

// JSONRules is what else must hold for JSON to be read: what is allowed, but means
// different things to different readers.
type JSONRules struct {
	Same func(name string) string // names in one object with the same result are the same; nil: as they are
	Text func(s string) error     // of every string and name; nil: any
}

// ReadJSON reads the one JSON value that body is: into maps, slices, strings,
// json.Number, bool and nil. No two names in an object may be the same.
func ReadJSON(body []byte, rules JSONRules) (any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("it is not UTF-8")
	}
	// The decoder below reads token by token and does not look behind the end.
	if !json.Valid(body) {
		return nil, errors.New("it is not one JSON value")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return rules.value(d, 0)
}

func (rules JSONRules) value(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
		}
		if t == '[' {
			return rules.array(d, depth+1)
		}
		return rules.object(d, depth+1)
	case string:
		if rules.Text != nil {
			return t, rules.Text(t)
		}
	}
	return token, nil
}

func (rules JSONRules) array(d *json.Decoder, depth int) (any, error) {
	array := []any{}
	for d.More() {
		v, err := rules.value(d, depth)
		if err != nil {
			return nil, err
		}
		array = append(array, v)
	}
	_, err := d.Token() // the end
	return array, err
}

func (rules JSONRules) object(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // valid JSON has nothing else here
		same := name
		if rules.Same != nil {
			same = rules.Same(name)
		}
		if seen[same] {
			return nil, fmt.Errorf("it has a name twice in one object: %q", text.Sentence(name))
		}
		seen[same] = true
		if rules.Text != nil {
			if err := rules.Text(name); err != nil {
				return nil, err
			}
		}
		if object[name], err = rules.value(d, depth); err != nil {
			return nil, err
		}
	}
	_, err := d.Token() // the end
	return object, err
}

// CheckJSON checks that body is one JSON value in which no object has a name
// twice. That is allowed, but means different things to different readers, and
// names that differ only in case are the same to encoding/json.
func CheckJSON(body []byte) error {
	_, err := ReadJSON(body, JSONRules{Same: func(name string) string {
		return strings.ToLower(strings.ToUpper(name)) // Kelvin signs and long s, too
	}})
	return err
}
