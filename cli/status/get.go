package status

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

// get prints the field of v that a dotted path names, as its JSON names it:
// "outgoing.steps.0.text".
func get(c *command.Call, path string, v any) error {
	field, err := lookUp(reflect.ValueOf(v), path)
	if err != nil {
		return command.UsageError("--get "+strconv.Quote(path)+": "+err.Error(), strings.Join(append([]string{c.Name()}, c.Args...), " ")+" -o json")
	}
	if c.Out.Value(field) {
		return nil
	}
	switch f := field.(type) {
	case nil:
		c.Out.Printf("\n") // it has no value now
	case string:
		c.Out.Printf("%s\n", render.Clean(f))
	default:
		c.Out.Line(f)
	}
	return nil
}

// lookUp follows path. A field that exists but has no value now is nil.
func lookUp(v reflect.Value, path string) (any, error) {
	walked := ""
	for _, name := range strings.Split(path, ".") {
		var err error
		if v, err = step(v, name); err != nil {
			if walked != "" {
				err = fmt.Errorf("%s: %w", walked, err)
			}
			return nil, err
		}
		if !v.IsValid() {
			return nil, nil
		}
		walked = strings.TrimPrefix(walked+"."+name, ".")
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil, nil
		}
		v = v.Elem()
	}
	switch v := v.Interface().(type) {
	case time.Time:
		if v.IsZero() {
			return nil, nil
		}
		return v.Format(time.RFC3339), nil
	default:
		return plain(v)
	}
}

// plain is a value as its JSON says it: a kind of string becomes a string.
func plain(v any) (any, error) {
	if reflect.ValueOf(v).Kind() == reflect.String {
		return reflect.ValueOf(v).String(), nil
	}
	return v, nil
}

// step returns the part of v that is called name; the zero Value when there is
// none now, and an error when there never is.
func step(v reflect.Value, name string) (reflect.Value, error) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			// Whether the path is right does not depend on what there is now.
			if _, err := step(reflect.New(v.Type().Elem()).Elem(), name); err != nil {
				return v, err
			}
			return reflect.Value{}, nil
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			return structField(v, name)
		}
	case reflect.Map:
		keys := make([]string, 0, v.Len())
		for _, k := range v.MapKeys() {
			keys = append(keys, k.String())
		}
		if slices.Contains(keys, name) {
			return v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key())), nil
		}
		return reflect.Value{}, nil
	case reflect.Slice:
		n, err := strconv.Atoi(name)
		if err != nil || n < 0 {
			return v, fmt.Errorf("%q: want the number of an element, from 0", name)
		}
		if n >= v.Len() {
			return reflect.Value{}, nil
		}
		return v.Index(n), nil
	}
	return v, fmt.Errorf("%q: it has no parts", name)
}

func structField(v reflect.Value, name string) (reflect.Value, error) {
	var names []string
	for i := range v.NumField() {
		called, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if strings.EqualFold(called, name) {
			return v.Field(i), nil
		}
		names = append(names, called)
	}
	err := fmt.Errorf("there is no field %q", name)
	if n := command.Nearest(name, names); n != "" {
		return v, fmt.Errorf("%w; did you mean %q?", err, n)
	}
	return v, fmt.Errorf("%w; there are %s", err, strings.Join(names, ", "))
}
