package render

import (
	"fmt"
	"io"
	"strings"
)

// Error writes the line of an error, which begins with the program's name, and a
// line that says what to try, if there is advice.
func Error(w io.Writer, program string, err error, advice string) {
	// There is nowhere left to report to when this fails.
	_, _ = fmt.Fprintf(w, "%s: %s\n", program, CleanLines(err.Error()))
	if advice != "" {
		_, _ = fmt.Fprintf(w, "try: %s\n", CleanLines(advice))
	}
}

// Quoted returns a name as it is typed in a shell, as an argument.
func Quoted(name string) string {
	name = Clean(name)
	if strings.HasPrefix(name, "-") {
		return "-- " + Word(name)
	}
	return Word(name)
}

// Word returns a word as it is typed in a shell.
func Word(name string) string {
	if name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !strings.ContainsRune("-_.:/@%+,=", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
