package peering

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxSentence bounds what a peer can put into a status, in bytes.
const maxSentence = 500

// sentence makes what a peer says fit for a status: one line of printable text
// that ends somewhere.
func sentence(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxSentence {
		return text
	}
	cut := maxSentence
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// asSentence makes of what sentence returned one that can follow another.
func asSentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// called returns how a person names the peer in a command: by its alias or name
// when that can be typed as it stands, else by its ID. Names come from the
// network and are about to be pasted into a shell.
func (f *facts) called() string {
	if f.Peer != nil {
		for _, name := range []string{f.Peer.Alias, f.Peer.Name} {
			if plain(name) {
				return name
			}
		}
	}
	return string(f.ID)
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
