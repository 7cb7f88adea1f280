package config

import (
	"fmt"
	"strings"
)

// keyLines returns the line, counted from 1, of each key and table header of a
// valid TOML text: "log.level", "log", "peer[0]", "peer[0].url". The parser
// does not tell; lines are for messages only. Keys written in unusual ways
// (dotted, quoted with escapes, in inline tables) are left out.
func keyLines(text string) map[string]int {
	lines := map[string]int{}
	counts := map[string]int{}
	table := ""
	s := scanner{text: strings.TrimPrefix(text, "\ufeff"), line: 1}
	for s.at < len(s.text) {
		s.skipSpace()
		start, line := s.at, s.line
		switch {
		case s.peek("[["):
			s.skipPast("\n")
			name := headerName(s.text[start:s.at], "[[", "]]")
			table = fmt.Sprintf("%s[%d]", name, counts[name])
			counts[name]++
			lines[table] = line
			if _, seen := lines[name]; !seen {
				lines[name] = line
			}
		case s.peek("["):
			s.skipPast("\n")
			table = headerName(s.text[start:s.at], "[", "]")
			lines[table] = line
		case s.peek("#") || s.peek("\n"):
			s.skipPast("\n")
		default:
			key := s.key()
			s.skipValue()
			if table != "" {
				key = table + "." + key
			}
			lines[key] = line
		}
	}
	return lines
}

func headerName(line, open, end string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(line, open), end)
	return strings.Trim(strings.TrimSpace(name), `"'`)
}

// scanner walks over TOML just closely enough not to take the inside of a
// string or a list for a key.
type scanner struct {
	text string
	at   int
	line int
}

func (s *scanner) peek(prefix string) bool { return strings.HasPrefix(s.text[s.at:], prefix) }

func (s *scanner) skip(n int) {
	n = min(n, len(s.text)-s.at)
	s.line += strings.Count(s.text[s.at:s.at+n], "\n")
	s.at += n
}

func (s *scanner) skipSpace() {
	for s.at < len(s.text) && strings.IndexByte(" \t\r", s.text[s.at]) >= 0 {
		s.skip(1)
	}
}

func (s *scanner) skipPast(end string) {
	i := strings.Index(s.text[s.at:], end)
	if i < 0 {
		s.at = len(s.text)
		return
	}
	s.skip(i + len(end))
}

// key returns the bare key before '=' and moves behind that.
func (s *scanner) key() string {
	start := s.at
	for s.at < len(s.text) && s.text[s.at] != '=' && s.text[s.at] != '\n' {
		switch s.text[s.at] {
		case '"', '\'':
			s.skipString()
		default:
			s.skip(1)
		}
	}
	key := strings.Trim(strings.TrimSpace(s.text[start:s.at]), `"'`)
	s.skip(1)
	return key
}

// skipValue moves to the line after the value.
func (s *scanner) skipValue() {
	for depth := 0; s.at < len(s.text); {
		switch s.text[s.at] {
		case '\n':
			s.skip(1)
			if depth <= 0 {
				return
			}
		case '#':
			if i := strings.IndexByte(s.text[s.at:], '\n'); i >= 0 {
				s.skip(i)
			} else {
				s.at = len(s.text)
			}
		case '[', '{':
			depth++
			s.skip(1)
		case ']', '}':
			depth--
			s.skip(1)
		case '"', '\'':
			s.skipString()
		default:
			s.skip(1)
		}
	}
}

// skipString moves behind the string that begins here.
func (s *scanner) skipString() {
	quote := s.text[s.at : s.at+1]
	if long := strings.Repeat(quote, 3); s.peek(long) {
		quote = long
	}
	s.skip(len(quote))
	for s.at < len(s.text) && !s.peek(quote) {
		if s.text[s.at] == '\\' && quote[0] == '"' {
			s.skip(1)
		}
		s.skip(1)
	}
	s.skip(len(quote))
	for len(quote) == 3 && s.peek(quote[:1]) { // up to two quotes may precede the closing three
		s.skip(1)
	}
}
