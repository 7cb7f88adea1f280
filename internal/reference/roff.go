package reference

import (
	"fmt"
	"strings"
)

// roff writes a manual page with the macros of man(7) that both groff and mandoc
// know.
type roff struct{ strings.Builder }

// title begins the page. The date is YYYY-MM-DD as it is, or empty to leave it out.
func (r *roff) title(page string, section int, date, source, manual string) {
	fmt.Fprintf(r, ".TH %s %d %s %s %s\n", argument(page), section, `"`+date+`"`, argument(source), argument(manual))
	// No hyphenation, and ragged to the right: names of options stay in one piece.
	r.WriteString(".nh\n.ad l\n")
}

func (r *roff) section(name string) { fmt.Fprintf(r, ".SH %s\n", argument(name)) }

func (r *roff) subsection(name string) { fmt.Fprintf(r, ".SS %s\n", argument(name)) }

// paragraphs writes text; blank lines part its paragraphs.
func (r *roff) paragraphs(text string) {
	for i, p := range strings.Split(flow(text), "\n\n") {
		if i > 0 {
			r.WriteString(".PP\n")
		}
		r.WriteString(line(p) + "\n")
	}
}

// item writes an entry of a list. The tag is roff already.
func (r *roff) item(tag, text string) {
	fmt.Fprintf(r, ".TP\n%s\n%s\n", tag, line(flow(text)))
}

// more writes a further paragraph of an item.
func (r *roff) more(text string) { fmt.Fprintf(r, ".IP\n%s\n", line(flow(text))) }

// example writes lines as they are.
func (r *roff) example(lines ...string) {
	r.WriteString(".RS 4\n.EX\n")
	for _, l := range lines {
		r.WriteString(guard(verbatim(l)) + "\n")
	}
	r.WriteString(".EE\n.RE\n")
}

func boldText(text string) string { return `\fB` + verbatim(text) + `\fR` }

func italicText(text string) string { return `\fI` + verbatim(text) + `\fR` }

// argument is one argument of a macro.
func argument(text string) string { return `"` + strings.ReplaceAll(verbatim(text), `"`, `\(dq`) + `"` }

// escapes of characters that are not what they look like in a roff source.
var escapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// verbatim is text that can be copied from the page and typed.
func verbatim(text string) string { return escapes.Replace(text) }

// line is prose: hyphens within words are hyphens, those of options and commands
// are what is typed.
func line(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		if isTyped(w) {
			words[i] = verbatim(w)
		} else {
			words[i] = strings.ReplaceAll(verbatim(w), `\-`, "-")
		}
	}
	return guard(strings.Join(words, " "))
}

// isTyped reports whether a word is to be typed as it is.
func isTyped(word string) bool {
	word = strings.TrimLeft(word, `("'`)
	return strings.HasPrefix(word, "-") || strings.Contains(word, "liqo-agent") || strings.ContainsAny(word, "/=_")
}

// guard keeps a line from being taken for a request.
func guard(text string) string {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, `\(aq`) {
		return `\&` + text
	}
	return text
}
