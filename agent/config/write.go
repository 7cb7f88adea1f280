package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"liqo.io/agent/peer/text"
)

// maxSource bounds where a value comes from, in bytes: a path and a line's number.
const maxSource = 5000

// WriteTOML writes the configuration as a complete, valid file. With sources
// each line ends in a comment that says where its value comes from.
func (l *Loaded) WriteTOML(w io.Writer, withSources bool) error {
	b := bufio.NewWriter(w)
	comment := func(key string) string {
		if !withSources {
			return ""
		}
		return "  # " + text.Line(l.Sources[key], maxSource)
	}
	config := l.Config
	section := ""
	for _, s := range settings {
		name, key, _ := strings.Cut(s.key, ".")
		if name != section {
			if section != "" {
				fmt.Fprintln(b)
			}
			fmt.Fprintf(b, "[%s]\n", name)
			section = name
		}
		fmt.Fprintf(b, "%s = %s%s\n", key, toTOML(value(s.field(&config))), comment(s.key))
	}
	writeElements(b, peerTable, config.Peers, peerSettings, comment)
	writeElements(b, searchDomainTable, config.SearchDomains, searchDomainSettings, comment)
	writeElements(b, networkTable, config.Networks, networkSettings, comment)
	return b.Flush()
}

func writeElements[T any](b *bufio.Writer, name string, list []T, table []setting[T], comment func(string) string) {
	for i := range list {
		fmt.Fprintf(b, "\n[[%s]]%s\n", name, comment(fmt.Sprintf("%s[%d]", name, i)))
		for _, s := range table {
			fmt.Fprintf(b, "%s = %s\n", s.key, toTOML(value(s.field(&list[i]))))
		}
	}
}
