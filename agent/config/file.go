package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// maxFileSize in bytes is a thousand times what anybody writes.
const maxFileSize = 1 << 20

// file reads the configuration file.
func (l *loader) file(opts Options) {
	path := opts.Path
	if path == "" {
		path = DefaultPath
	}
	text, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) && !opts.PathExplicit {
		return
	}
	source := "file " + path
	if err != nil {
		l.fault(source, "", err)
		return
	}
	l.Path = path
	l.parse(source, text)
}

// readFile reads a regular file of bounded size that holds text.
func readFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", withoutPath(err)
	}
	if info.IsDir() {
		return "", errors.New("is a directory; name the file in it")
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", withoutPath(err)
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return "", withoutPath(err)
	}
	if len(b) > maxFileSize {
		return "", fmt.Errorf("is larger than %d KiB; is it the right file?", maxFileSize>>10)
	}
	return string(b), nil
}

// withoutPath keeps the path from being named twice.
func withoutPath(err error) error {
	var pathErr *fs.PathError
	if !errors.As(err, &pathErr) {
		return err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("does not exist: %w", pathErr.Err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("may not be read by this user: %w", pathErr.Err)
	}
	return pathErr.Err
}

// parse takes over what the text of a file says.
func (l *loader) parse(source, text string) {
	if at := invalidUTF8(text); at >= 0 {
		l.fault(fmt.Sprintf("%s line %d", source, 1+strings.Count(text[:at], "\n")), "",
			fmt.Errorf("byte 0x%02x is not UTF-8 text; save the file as UTF-8", text[at]))
		return
	}
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		var parse toml.ParseError
		if errors.As(err, &parse) {
			source = fmt.Sprintf("%s line %d", source, parse.Position.Line)
			err = errors.New(parse.Message)
		}
		l.fault(source, "", fmt.Errorf("not TOML: %w", err))
		return
	}
	lines := keyLines(text)
	where := func(key string) string {
		if line := lines[key]; line > 0 {
			return fmt.Sprintf("%s line %d", source, line)
		}
		return source
	}
	before := len(l.faults)
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		switch name {
		case peerTable:
			l.Config.Peers = elements(l, where, name, tree[name], peerSettings, nil)
		case searchDomainTable:
			l.Config.SearchDomains = elements(l, where, name, tree[name], searchDomainSettings, intervals)
		case networkTable:
			l.Config.Networks = elements(l, where, name, tree[name], networkSettings, nil)
		default:
			l.section(where, name, tree[name])
		}
	}
	slices.SortStableFunc(l.faults[before:], func(a, b Fault) int { return lines[a.Key] - lines[b.Key] })
}

// section takes over one table of the file.
func (l *loader) section(where func(string) string, name string, raw any) {
	known := slices.ContainsFunc(sections, func(s struct{ name, doc string }) bool { return s.name == name })
	table, isTable := raw.(map[string]any)
	switch {
	case known && !isTable:
		l.fault(where(name), name, fmt.Errorf("must be a table: write [%s] on a line of its own, and its keys below", name))
		return
	case !known && isTable:
		l.fault(where(name), "["+name+"]", unknownKey(name, sectionNames()))
		return
	case !known:
		l.fault(where(name), name, unknownKey(name, Keys()))
		return
	}
	for _, part := range slices.Sorted(maps.Keys(table)) {
		key := name + "." + part
		s, ok := find(settings, key)
		if !ok {
			l.fault(where(key), key, unknownKey(key, Keys()))
			continue
		}
		v, err := fromTOML(s.field(&l.Config), table[part])
		if err != nil {
			l.fault(where(key), key, badValue(table[part], err))
			continue
		}
		l.set(where(key), s, v)
	}
}

func sectionNames() []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return append(names, arrays...)
}

// arrays are the names of the arrays of tables.
var arrays = []string{peerTable, searchDomainTable, networkTable}

// elements takes over an array of tables. No two elements may have the same
// identity, which is their first key and has to be there. whole, if it is not
// nil, checks what concerns several keys of one that are right by themselves: it
// returns what is wrong with which key, of those that given says are there.
func elements[T any](l *loader, where func(string) string, name string, raw any, table []setting[T], whole func(T, func(string) bool) (string, error)) []T {
	list, ok := raw.([]map[string]any)
	if !ok {
		l.fault(where(name), name, fmt.Errorf("must be a list of tables: write [[%s]] on a line of its own, and its keys below", name))
		return nil
	}
	known := make([]string, 0, len(table))
	for _, s := range table {
		known = append(known, s.key)
	}
	var all []T
	index := map[string]int{}
	for i, given := range list {
		var element T
		applyDefaults(table, &element)
		prefix, before := fmt.Sprintf("%s[%d]", name, i), len(l.faults)
		for _, part := range slices.Sorted(maps.Keys(given)) {
			key := prefix + "." + part
			s, ok := find(table, part)
			if !ok {
				l.fault(where(key), key, unknownKey(part, known))
				continue
			}
			v, err := fromTOML(s.field(&element), given[part])
			if err == nil {
				v = s.rule.normalise(v)
				err = s.rule.accepts(v)
			}
			if err != nil {
				l.fault(where(key), key, badValue(given[part], err))
				continue
			}
			assign(s.field(&element), v)
		}
		first := prefix + "." + table[0].key
		if _, given := given[table[0].key]; !given {
			l.fault(where(prefix), first, errors.New("is missing"))
		} else if id := *table[0].field(&element).(*string); id != "" {
			if other, double := index[id]; double {
				l.fault(where(first), first, badValue(id, fmt.Errorf("is that of %s[%d], too; merge the two", name, other)))
			}
			index[id] = i
		}
		if whole != nil && len(l.faults) == before {
			part, err := whole(element, func(part string) bool { _, there := given[part]; return there })
			if err != nil {
				l.fault(where(prefix+"."+part), prefix+"."+part, err)
			}
		}
		l.Sources[prefix] = where(prefix)
		all = append(all, element)
	}
	return all
}

// invalidUTF8 returns the position of the first byte that is not UTF-8, or -1.
func invalidUTF8(text string) int {
	if utf8.ValidString(text) {
		return -1
	}
	return len(text) - len(bytes.TrimLeftFunc([]byte(text), func(r rune) bool { return r != utf8.RuneError }))
}
