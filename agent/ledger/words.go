package ledger

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"liqo.io/agent/peer"
)

// maxLine bounds what others can put into one line of history or status, in
// bytes.
const maxLine = 400

// line makes text from anywhere fit for one line on a terminal.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	text = strings.TrimSpace(text)
	if len(text) <= maxLine {
		return text
	}
	cut := maxLine
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// reference is how a person names a peer in a command: by its alias or name
// when that can be typed as it stands, else by its ID. Names come from the
// network and are about to be pasted into a shell.
func reference(id peer.ClusterID, r record, name string) string {
	for _, candidate := range []string{r.Preferences.Alias, name} {
		if plain(candidate) {
			return candidate
		}
	}
	return string(id)
}

func plain(name string) bool {
	for i, c := range []byte(name) {
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '.' && c != '_') {
			return false
		}
	}
	return name != ""
}

// reference names a peer for a person.
func (l *Ledger) reference(id peer.ClusterID) string {
	seen, _ := l.cfg.Peer(id)
	return reference(id, l.record(id), seen.Name)
}

// or returns text, or instead when there is none.
func or(text, instead string) string {
	if text = line(text); text == "" {
		return instead
	}
	return text
}
