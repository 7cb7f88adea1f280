package config

import (
	"maps"
	"reflect"
	"slices"
)

// Override returns a copy of l in which the keys in values, as Keys names them,
// have these values and source as where they come from. A value has the type of
// the field, which is bool, int, string, time.Duration or []string, or the one
// that a TOML file has for it. What breaks a rule is left out, so that l's own
// value stays, and returned: the copy is valid whatever the values are. l is left as it is, and shares nothing that changes
// with the copy.
func (l *Loaded) Override(source string, values map[string]any) (*Loaded, Faults) {
	to := loader{Loaded: *l}
	to.Sources = maps.Clone(l.Sources)
	if to.Sources == nil {
		to.Sources = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, ok := find(settings, key); !ok {
			to.fault(source, key, unknownKey(key, Keys()))
		}
	}
	var changed []setting[Config]
	for _, s := range settings { // in this order, for the same faults every time
		v, given := values[s.key]
		if !given {
			continue
		}
		field := s.field(&to.Config)
		if reflect.TypeOf(v) != reflect.TypeOf(field).Elem() {
			typed, err := fromTOML(field, v)
			if err != nil {
				to.fault(source, s.key, badValue(v, err))
				continue
			}
			v = typed
		}
		before := len(to.faults)
		to.set(source, s, v)
		if len(to.faults) == before {
			changed = append(changed, s)
		}
	}
	to.revert(l, source, changed)
	return &to.Loaded, to.faults
}

// Held returns a copy of l in which the settings that wait for a restart are as in
// start, with where they came from there.
func (l *Loaded) Held(start *Loaded) *Loaded {
	held, original := *l, start.Config
	held.Sources = maps.Clone(l.Sources)
	for _, s := range settings {
		if field, before := s.field(&held.Config), s.field(&original); s.restart && !reflect.DeepEqual(field, before) {
			assign(field, value(before))
			held.Sources[s.key] = start.Sources[s.key]
		}
	}
	return &held
}

// revert takes back those of the changed keys that do not go together with the
// rest, until what is left does: where it comes from, which is valid, at the
// latest.
func (l *loader) revert(from *Loaded, source string, changed []setting[Config]) {
	original := from.Config
	for {
		wrong := together(l.Config)
		if len(wrong) == 0 {
			return
		}
		one := wrong[0]
		l.fault(source, one.key, one.err)
		keys := append([]string{one.key}, one.with...)
		left := slices.DeleteFunc(slices.Clone(changed), func(s setting[Config]) bool { return slices.Contains(keys, s.key) })
		if len(left) == len(changed) {
			return // it was wrong before
		}
		for _, s := range changed {
			if slices.Contains(keys, s.key) {
				assign(s.field(&l.Config), value(s.field(&original)))
				l.Sources[s.key] = from.Sources[s.key]
			}
		}
		changed = left
	}
}
