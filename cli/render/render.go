package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// The formats of a command's output.
const (
	Table = "table"
	Wide  = "wide"
	Text  = "text"
	JSON  = "json"
	YAML  = "yaml"
	TOML  = "toml"
)

// Printer writes a command's output. It keeps the first error, which Flush
// returns.
type Printer struct {
	buf    *bufio.Writer
	Format string // of the output
	color  bool
	Now    time.Time // of the call
	err    error
}

// New returns a Printer that writes to w, in colour if color is set.
func New(w io.Writer, format string, color bool, now time.Time) *Printer {
	return &Printer{buf: bufio.NewWriterSize(w, 32<<10), Format: format, color: color, Now: now}
}

// Write writes b as it is.
func (p *Printer) Write(b []byte) {
	if p.err == nil {
		_, p.err = p.buf.Write(b)
	}
}

// Printf writes formatted text. Arguments from the network need Clean.
func (p *Printer) Printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.buf, format, args...)
	}
}

// Flush writes what is buffered, and returns the first error of all calls.
func (p *Printer) Flush() error {
	if p.err == nil {
		p.err = p.buf.Flush()
	}
	if p.err != nil {
		return fmt.Errorf("writing the output: %w", p.err)
	}
	return nil
}

// Value writes v as JSON or YAML and reports true, or false when the format is
// one for people.
func (p *Printer) Value(v any) bool {
	switch p.Format {
	case JSON:
		raw, err := encodeJSON(v, "  ")
		p.Fail(err)
		p.Write(raw)
	case YAML:
		raw, err := yaml.Marshal(v)
		p.Fail(err)
		p.Write(raw) // the encoder escapes what is not printable
	default:
		return false
	}
	return true
}

// Fail keeps err for Flush, unless there was one before.
func (p *Printer) Fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Line writes v as one line of JSON, whatever the format.
func (p *Printer) Line(v any) {
	raw, err := encodeJSON(v, "")
	p.Fail(err)
	p.Write(raw)
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

// Row is one line of a table.
type Row struct {
	Cells []string
	Color string
}

// The colours: one for a whole line, so that it does not disturb the columns.
const (
	Dim    = "\x1b[2m"
	Yellow = "\x1b[33m"
	Red    = "\x1b[31m"
	reset  = "\x1b[0m"
)

// Table writes aligned columns. Cells are cleaned; empty ones show as "-".
func (p *Printer) Table(header []string, rows []Row) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, err := fmt.Fprintln(w, strings.Join(header, "\t"))
	p.Fail(err)
	for _, r := range rows {
		cells := make([]string, len(r.Cells))
		for i, c := range r.Cells {
			if cells[i] = Clean(c); c == "" {
				cells[i] = "-"
			}
		}
		_, err := fmt.Fprintln(w, strings.Join(cells, "\t"))
		p.Fail(err)
	}
	p.Fail(w.Flush())
	for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		color := ""
		if i > 0 && i <= len(rows) {
			color = rows[i-1].Color
		}
		p.Colored(color, line)
	}
}

// Colored writes a line in a colour, "" for none. It must be clean.
func (p *Printer) Colored(color, line string) {
	p.Printf("%s\n", p.Paint(color, line))
}

// Paint returns text in a colour where there is colour.
func (p *Printer) Paint(color, text string) string {
	if p.color && color != "" {
		return color + text + reset
	}
	return text
}

// Fields writes "Name:  value" lines, leaving out those without a value.
func (p *Printer) Fields(indent string, pairs ...[2]string) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, kv := range pairs {
		if kv[1] != "" {
			_, err := fmt.Fprintf(w, "%s%s:\t%s\n", indent, kv[0], Clean(kv[1]))
			p.Fail(err)
		}
	}
	p.Fail(w.Flush())
	p.Write(b.Bytes())
}

// Clean returns s as it can be shown on one line of a terminal: everything that
// is not printable, of which escape sequences are made, becomes visible.
func Clean(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), `\\`, `\`)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// CleanLines is Clean for text that may have several lines.
func CleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = Clean(strings.ReplaceAll(lines[i], "\t", "   "))
	}
	return strings.Join(lines, "\n")
}

// Span writes a duration as people say it: in one unit.
func Span(d time.Duration) string {
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

// Since writes how long ago t was; "" when t is unknown.
func (p *Printer) Since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Span(p.Now.Sub(t))
}

// Ago is Since for a sentence.
func (p *Printer) Ago(t time.Time) string {
	if s := p.Since(t); s != "" {
		return s + " ago"
	}
	return ""
}

// Stamp writes a time for a list of events, in the local zone.
func Stamp(t time.Time) string { return t.Local().Format(time.DateTime) }

// When writes a time with how long ago it was; "" when t is unknown.
func (p *Printer) When(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", Stamp(t), p.Ago(t))
}

// YesNo writes a truth.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Count writes a number of things.
func Count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

// Bytes writes a number of bytes.
func Bytes(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// Named writes the name of a cluster with its ID, or the ID alone.
func Named(name, id string) string {
	if name == "" {
		return id
	}
	return fmt.Sprintf("%s (%s)", name, id)
}
