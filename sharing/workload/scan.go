package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"liqo.io/agent/api"
)

const (
	// maxDepth is how deeply a document may be nested; a pod needs some 15 levels.
	maxDepth = 50
	// maxNested is how many objects and lists a document of a consumer may have, and
	// maxNestedCopy one of a provider, which adds fields. An empty object of two bytes can
	// decode into a container of a thousand.
	maxNested     = 10_000
	maxNestedCopy = 50_000
	// maxValues is how many values a document may have for each of them.
	maxValues = 10
	// maxCopyContainers is how many containers of one kind the copy of a pod may have.
	maxCopyContainers = 1000
	// maxQuantity is the longest quantity, in bytes.
	maxQuantity = 64
)

// shape says where a type has quantities, which are checked before a document is decoded.
type shape struct {
	quantity bool
	fields   map[string]*shape // of a struct, by its name in JSON
	each     *shape            // elements of a list or a map
}

var podShape = shapeOf(reflect.TypeFor[corev1.Pod](), map[reflect.Type]*shape{})

// shapeOf returns the shape of a type, nil if it has no quantities. No type in a pod contains
// itself.
func shapeOf(t reflect.Type, known map[reflect.Type]*shape) *shape {
	if t == reflect.TypeFor[resource.Quantity]() {
		return &shape{quantity: true}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem(), known)
	case reflect.Slice, reflect.Array, reflect.Map:
		if each := shapeOf(t.Elem(), known); each != nil {
			return &shape{each: each}
		}
	case reflect.Struct:
		if s, ok := known[t]; ok {
			return s
		}
		known[t] = nil
		s := &shape{fields: make(map[string]*shape)}
		for i := range t.NumField() {
			f := t.Field(i)
			of := shapeOf(f.Type, known)
			if of == nil {
				continue
			}
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				s.fields[name] = of
			} else {
				for name, inlined := range of.fields {
					s.fields[name] = inlined
				}
			}
		}
		if len(s.fields) > 0 {
			known[t] = s
			return s
		}
	}
	return nil
}

// field returns the shape of a field, by the rules of encoding/json, which ignores case.
func (s *shape) field(name string) *shape {
	switch {
	case s == nil:
		return nil
	case s.each != nil:
		return s.each
	}
	if f, ok := s.fields[name]; ok {
		return f
	}
	for known, f := range s.fields {
		if strings.EqualFold(known, name) {
			return f
		}
	}
	return nil
}

// scan returns an error unless raw is a JSON document with at most that many objects and lists,
// which can be decoded into a type of that shape at a cost proportional to its length.
func scan(raw []byte, of *shape, most int) error {
	type level struct {
		of     *shape
		object bool
		name   bool // the next token is a name
		next   *shape
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	stack := []level{{of: &shape{each: of}, next: of}}
	for values := maxValues * most; ; values-- {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(stack) == 1 && decoder.InputOffset() > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("is not JSON: %w", err)
		}
		if values == 0 {
			return errors.New("has too many values")
		}
		top := &stack[len(stack)-1]
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if top.name {
			top.next, top.name = top.of.field(token.(string)), false
			continue
		}
		at := top.next
		if !top.object {
			at = top.of.field("")
		}
		top.name = top.object
		switch value := token.(type) {
		case json.Delim:
			if len(stack) > maxDepth {
				return fmt.Errorf("is nested more than %d levels deep", maxDepth)
			}
			if most--; most < 0 {
				return errors.New("has too many objects and lists")
			}
			stack = append(stack, level{of: at, object: value == '{', name: value == '{'})
		case string:
			err = at.checkQuantity(value)
		case json.Number:
			err = at.checkQuantity(value.String())
		}
		if err != nil {
			return err
		}
	}
}

// checkQuantity checks a value, if s is a quantity.
func (s *shape) checkQuantity(value string) error {
	if s == nil || !s.quantity {
		return nil
	}
	if len(value) > maxQuantity {
		return fmt.Errorf("has a quantity of %d characters, more than %d", len(value), maxQuantity)
	}
	if api.LongExponent(value) {
		return fmt.Errorf("has the quantity %q, which is out of range", value)
	}
	return nil
}

// decodePod decodes an untrusted pod. Names are case-sensitive, as for an API server.
func decodePod(raw []byte) (*corev1.Pod, error) {
	if err := scan(raw, podShape, maxNested); err != nil {
		return nil, err
	}
	pod := new(corev1.Pod)
	if err := utiljson.Unmarshal(raw, pod); err != nil {
		return nil, fmt.Errorf("is not a pod: %w", err)
	}
	return pod, nil
}
