package config

import "strings"

// Section is one table of the file, for references that are made of it.
type Section struct {
	Name string
	Doc  string // sentences
	// Array: it can be repeated, and is set in the file only.
	Array bool
	Keys  []Key // in the order of the file
}

// Key is one key of a section.
type Key struct {
	Name    string // without the section's
	Doc     string // sentences
	Default string // as the file has it
	Allowed string // completes "must be ..."
	Env     string // the environment variable that sets it; "" is none
	// Reload says when a change takes effect: "yes" is at the next reload, "restart of
	// discovery" likewise, "no" is the next start.
	Reload string
}

// Describe returns the whole configuration, section by section. Nothing in the
// program calls it, so that the program does not contain it.
func Describe() []Section {
	var out []Section
	for _, s := range sections {
		section := Section{Name: s.name, Doc: s.doc}
		for _, one := range settings {
			if name, key, _ := strings.Cut(one.key, "."); name == s.name {
				k := describeKey(key, one)
				k.Env = EnvName(one.key)
				section.Keys = append(section.Keys, k)
			}
		}
		out = append(out, section)
	}
	return append(out,
		describeTable(peerTable, peerDoc, peerSettings),
		describeTable(searchDomainTable, searchDomainDoc, searchDomainSettings),
		describeTable(networkTable, networkDoc, networkSettings))
}

func describeTable[T any](name, doc string, table []setting[T]) Section {
	out := Section{Name: name, Doc: doc, Array: true}
	for _, s := range table {
		out.Keys = append(out.Keys, describeKey(s.key, s))
	}
	return out
}

func describeKey[T any](name string, s setting[T]) Key {
	k := Key{Name: name, Doc: s.doc, Default: toTOML(s.def), Allowed: s.rule.allowed, Reload: "yes"}
	switch {
	case s.rebuild:
		k.Reload = "restart of discovery"
	case s.restart:
		k.Reload = "no"
	}
	if k.Allowed == "" {
		var t T
		k.Allowed = typeName(s.field(&t))
	}
	return k
}
