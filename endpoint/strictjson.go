package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// jsonRules is what else must hold for JSON to be read.
type jsonRules struct {
	depth int                      // of objects and arrays in each other
	same  func(name string) string // names in one object with the same result are the same; nil: as they are
	text  func(s string) error     // of every string and name; nil: any
}

// readJSON reads the one JSON value that body is: into maps, slices, strings,
// json.Number, bool and nil. No two names in an object may be the same.
func readJSON(body []byte, rules jsonRules) (any, error) {
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

func (rules jsonRules) value(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if depth == rules.depth {
			return nil, fmt.Errorf("it is nested more than %d deep", rules.depth)
		}
		if t == '[' {
			return rules.array(d, depth+1)
		}
		return rules.object(d, depth+1)
	case string:
		if rules.text != nil {
			return t, rules.text(t)
		}
	}
	return token, nil
}

func (rules jsonRules) array(d *json.Decoder, depth int) (any, error) {
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

func (rules jsonRules) object(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // valid JSON has nothing else here
		same := name
		if rules.same != nil {
			same = rules.same(name)
		}
		if seen[same] {
			return nil, fmt.Errorf("it has a name twice in one object: %q", sentence(name))
		}
		seen[same] = true
		if rules.text != nil {
			if err := rules.text(name); err != nil {
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
