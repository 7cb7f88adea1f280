package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// The output formats.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatText  = "text"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatTOML  = "toml"
)

// printer writes a command's output. It keeps the first error, which flush
// returns.
type printer struct {
	buf    *bufio.Writer
	format string
	color  bool
	now    time.Time
	err    error
}

func newPrinter(opts Options, format string) *printer {
	return &printer{buf: bufio.NewWriterSize(opts.Stdout, 32<<10), format: format, color: opts.Color, now: opts.Now()}
}

func (p *printer) write(b []byte) {
	if p.err == nil {
		_, p.err = p.buf.Write(b)
	}
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.buf, format, args...)
	}
}

func (p *printer) flush() error {
	if p.err == nil {
		p.err = p.buf.Flush()
	}
	if p.err != nil {
		return fmt.Errorf("writing the output: %w", p.err)
	}
	return nil
}

// value writes v as JSON or YAML and reports true, or false when the format is
// one for people.
func (p *printer) value(v any) bool {
	switch p.format {
	case formatJSON:
		raw, err := encodeJSON(v, "  ")
		p.fail(err)
		p.write(raw)
	case formatYAML:
		raw, err := yaml.Marshal(v)
		p.fail(err)
		p.write(raw) // the encoder escapes what is not printable
	default:
		return false
	}
	return true
}

func (p *printer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// encodeJSON returns v as JSON with a newline. Unlike the standard library's it
// holds no control character at all, so that it is safe on a terminal.
func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return escapeControls(b.Bytes()), nil
}

// escapeControls writes DEL and the C1 controls as \u00XX. In JSON they can only
// be inside strings.
func escapeControls(raw []byte) []byte {
	clean := true
	for i, c := range raw {
		if c == 0x7f || c == 0xc2 && i+1 < len(raw) && raw[i+1] < 0xa0 {
			clean = false
			break
		}
	}
	if clean {
		return raw
	}
	out := make([]byte, 0, len(raw)+16)
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == 0x7f:
			out = append(out, `\u007f`...)
		case c == 0xc2 && i+1 < len(raw) && raw[i+1] < 0xa0:
			i++
			out = fmt.Appendf(out, `\u00%02x`, raw[i])
		default:
			out = append(out, c)
		}
	}
	return out
}

// row is one line of a table.
type row struct {
	cells []string
	color string
}

// The colours: one for a whole line, so that it does not disturb the columns.
const (
	colorDim    = "\x1b[2m"
	colorYellow = "\x1b[33m"
	colorRed    = "\x1b[31m"
	colorReset  = "\x1b[0m"
)

// table writes aligned columns. Cells are cleaned; empty ones show as "-".
func (p *printer) table(header []string, rows []row) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, err := fmt.Fprintln(w, strings.Join(header, "\t"))
	p.fail(err)
	for _, r := range rows {
		cells := make([]string, len(r.cells))
		for i, c := range r.cells {
			if cells[i] = clean(c); c == "" {
				cells[i] = "-"
			}
		}
		_, err := fmt.Fprintln(w, strings.Join(cells, "\t"))
		p.fail(err)
	}
	p.fail(w.Flush())
	for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		if p.color && i > 0 && i <= len(rows) && rows[i-1].color != "" {
			line = rows[i-1].color + line + colorReset
		}
		p.printf("%s\n", line)
	}
}

// fields writes "Name:  value" lines, leaving out those without a value.
func (p *printer) fields(indent string, pairs ...[2]string) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, kv := range pairs {
		if kv[1] != "" {
			_, err := fmt.Fprintf(w, "%s%s:\t%s\n", indent, kv[0], clean(kv[1]))
			p.fail(err)
		}
	}
	p.fail(w.Flush())
	p.write(b.Bytes())
}

// clean returns s as it can be shown on one line of a terminal: everything that
// is not printable, of which escape sequences are made, becomes visible.
func clean(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), `\\`, `\`)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// cleanLines is clean for text that may have several lines.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clean(strings.ReplaceAll(lines[i], "\t", "   "))
	}
	return strings.Join(lines, "\n")
}

// span writes a duration as people say it: in one unit.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// since writes how long ago t was; "" when t is unknown.
func (p *printer) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(p.now.Sub(t))
}

// ago is since for a sentence.
func (p *printer) ago(t time.Time) string {
	if s := p.since(t); s != "" {
		return s + " ago"
	}
	return ""
}

// stamp writes a time for a list of events, in the local zone.
func stamp(t time.Time) string { return t.Local().Format(time.DateTime) }
