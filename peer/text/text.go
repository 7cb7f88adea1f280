package text

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// mark stands for what was cut off.
const mark = "..."

// maxExcerpt bounds what a message quotes, in bytes: long enough for an identifier,
// short enough that the message remains the message.
const maxExcerpt = 100

// maxSentence bounds what others say in a status, a history or a message, in bytes.
const maxSentence = 500

// Clip returns s if it has at most limit bytes. Else it returns its beginning, cut
// between characters, with "..." at the end, which together have at most limit bytes.
// It changes no characters: use [Line] for what is shown as it stands.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := mark
	if limit < len(end) {
		end = ""
	}
	cut := max(limit-len(end), 0)
	for back := 1; back < utf8.UTFMax && cut > 0 && !utf8.RuneStart(s[cut]); back++ {
		cut--
	}
	return s[:cut] + end
}

// Excerpt returns as much of s as an error or log line should repeat of it. Write it
// with %q.
func Excerpt(s string) string { return Clip(s, maxExcerpt) }

// Line returns s as one line of at most limit bytes: white space and what cannot be
// printed, however much in a row, become one space, and none at the ends. What is
// longer ends with "...".
func Line(s string, limit int) string {
	if !isLine(s) {
		s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, " "), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	}
	return strings.TrimRight(Clip(s, limit), " ")
}

// Sentence is [Line] with the bound for what others say: the reason of a peer, the
// error of an API server.
func Sentence(s string) string { return Line(s, maxSentence) }

func isLine(s string) bool {
	return Printable(s) && !strings.HasPrefix(s, " ") && !strings.HasSuffix(s, " ") && !strings.Contains(s, "  ")
}

// Lines returns s for a place that shows several lines, in at most limit bytes: line
// feeds, tabs and spaces stay, and what else cannot be printed is left out.
func Lines(s string, limit int) string {
	return Clip(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(s, "")), limit)
}

// Printable reports whether s can be shown as it is: valid UTF-8, and of white space
// only spaces.
func Printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Time returns a point in time to the minute, as messages and tables show it.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// Duration writes a duration as a person would, in full: 1m30s, 15m, 36h.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// List joins the first items of a list, at most that many, and counts the rest: with
// ", " it is "a, b, and 3 more".
func List(items []string, most int, separator string) string {
	if len(items) <= most {
		return strings.Join(items, separator)
	}
	return strings.Join(items[:most], separator) + fmt.Sprintf("%sand %d more", separator, len(items)-most)
}
