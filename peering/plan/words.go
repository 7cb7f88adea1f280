package plan

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"liqo.io/agent/peer"
)

// asSentence makes of a text one that can follow a sentence.
func asSentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// commandName returns how a person names the peer in a command.
func (d *derived) commandName() string {
	if d.Peer == nil {
		return string(d.ID)
	}
	return peer.Reference(d.ID, d.Peer.Alias, d.Peer.Name)
}
