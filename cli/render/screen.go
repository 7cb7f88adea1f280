package render

import (
	"strings"
	"unicode/utf8"
)

// ScreenWidth is how wide the status is at most, in columns, but for words that are
// longer.
const ScreenWidth = 100

// wrap breaks a text at spaces into lines of at most width columns. It has at least
// one line.
func wrap(text string, width int) []string {
	var lines []string
	line, columns := "", 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if line != "" && columns+1+n > width {
			lines, line, columns = append(lines, line), "", 0
		}
		if line != "" {
			line, columns = line+" ", columns+1
		}
		line, columns = line+word, columns+n
	}
	return append(lines, line)
}

// Groups writes "Name:  value" lines like Fields, all values in one column and
// wrapped, with an empty line between groups. Lines without a value are left out, and
// groups without lines.
func (p *Printer) Groups(groups ...[][2]string) {
	widest := 0
	for _, group := range groups {
		for _, kv := range group {
			if kv[1] != "" {
				widest = max(widest, utf8.RuneCountInString(kv[0]))
			}
		}
	}
	indent, first := widest+len(":  "), true
	for _, group := range groups {
		begun := false
		for _, kv := range group {
			if kv[1] == "" {
				continue
			}
			if !begun && !first {
				p.Printf("\n")
			}
			begun, first = true, false
			for i, line := range wrap(Clean(kv[1]), ScreenWidth-indent) {
				name := ""
				if i == 0 {
					name = kv[0] + ":"
				}
				p.Printf("%-*s%s\n", indent, name, line)
			}
		}
	}
}

// Item writes a text with a mark in front of its first line and the others below it.
func (p *Printer) Item(mark, text, color string) {
	for i, line := range wrap(Clean(text), ScreenWidth-len(mark)) {
		if i > 0 {
			mark = strings.Repeat(" ", len(mark))
		}
		p.Printf("%s%s\n", mark, p.Paint(color, line))
	}
}
