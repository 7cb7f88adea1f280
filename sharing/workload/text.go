package workload

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// text returns s as one line for people: without control and formatting characters
// and at most limit bytes long.
func text(s string, limit int) string {
	return clip(s, limit, func(r rune) bool { return unicode.IsPrint(r) })
}

// lines is text that may have several lines.
func lines(s string, limit int) string {
	return clip(s, limit, func(r rune) bool { return r == '\n' || r == '\t' || unicode.IsPrint(r) })
}

func clip(s string, limit int, keep func(rune) bool) string {
	clean := func(r rune) bool { return r != utf8.RuneError && keep(r) }
	if len(s) <= limit && utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !clean(r) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// moment returns a time as API servers store it, to the second, and none where they
// could not read it back.
func moment(t metav1.Time) metav1.Time {
	utc := t.UTC()
	if t.IsZero() || utc.Year() < 1 || utc.Year() > 9999 {
		return metav1.Time{}
	}
	return metav1.Time{Time: utc.Truncate(time.Second)}
}
