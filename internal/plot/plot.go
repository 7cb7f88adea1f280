package plot

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
)

// Panel is a set of lines over the same places.
type Panel struct {
	Title, Unit string
	X           []string // what the places are called
	Lines       []Line
	Log         bool // with a logarithmic scale
}

// Line has a value for each of a panel's places, from the first on.
type Line struct {
	Name string
	Y    []float64
}

// Sizes in pixels.
const (
	panelWidth, panelHeight = 400, 280
	left, right, top, foot  = 64, 24, 64, 64 // room around what is drawn
)

// colors are told apart by those who see few colors, too; dashes help where there are none.
var (
	colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#555555"}
	dashes = []string{"", "6 3", "2 3", "8 3 2 3", "1 2"}
)

// SVG draws panels next to each other, on white.
func SVG(title string, panels ...Panel) []byte {
	var b bytes.Buffer
	width, height := panelWidth*max(1, len(panels)), panelHeight+top
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<title>%s</title><rect width="%d" height="%d" fill="#fff"/>`+"\n", html.EscapeString(title), width, height)
	text(&b, width/2, 22, "middle", 14, title)
	for i, p := range panels {
		p.draw(&b, i*panelWidth)
	}
	if len(panels) > 0 {
		legend(&b, panels[0].Lines, height)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func text(b *bytes.Buffer, x, y int, anchor string, size int, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, html.EscapeString(s))
}

func legend(b *bytes.Buffer, lines []Line, height int) {
	for i, l := range lines {
		x, y := left+i*160, height-14
		fmt.Fprintf(b, `<path d="M%d %dh28" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n", x, y-4, colors[i%len(colors)], dashes[i%len(dashes)])
		text(b, x+34, y, "start", 12, l.Name)
	}
}

func (p Panel) draw(b *bytes.Buffer, from int) {
	text(b, from+left, 46, "start", 13, p.Title+", "+p.Unit)
	ticks := p.ticks()
	bottom := top + panelHeight - foot - 20
	y := func(v float64) float64 {
		low, high := p.scale(ticks[0]), p.scale(ticks[len(ticks)-1])
		share := (p.scale(math.Max(v, ticks[0])) - low) / (high - low)
		return float64(bottom) - share*float64(bottom-top)
	}
	x := func(i int) float64 {
		room := float64(panelWidth - left - right)
		return float64(from+left) + room*(float64(i)+0.5)/float64(max(1, len(p.X)))
	}
	for _, t := range ticks {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", from+left, y(t), from+panelWidth-right)
		text(b, from+left-6, int(y(t))+4, "end", 12, strconv.FormatFloat(t, 'f', -1, 64))
	}
	for i, name := range p.X {
		text(b, int(x(i)), bottom+18, "middle", 12, name)
	}
	for n, l := range p.Lines {
		color := colors[n%len(colors)]
		var path bytes.Buffer
		for i, v := range l.Y {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(i), y(v))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s, %s: %.4g %s</title></circle>`+"\n",
				x(i), y(v), color, html.EscapeString(l.Name), html.EscapeString(p.X[i]), v, html.EscapeString(p.Unit))
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n", path.String(), color, dashes[n%len(dashes)])
	}
}

func (p Panel) scale(v float64) float64 {
	if p.Log {
		return math.Log10(v)
	}
	return v
}

// ticks are round values that have all values of the panel between them: 1, 2 or 5 times a power of ten apart, or the
// powers themselves.
func (p Panel) ticks() []float64 {
	low, high := math.Inf(1), 0.0
	for _, l := range p.Lines {
		for _, v := range l.Y {
			high = math.Max(high, v)
			if v > 0 {
				low = math.Min(low, v)
			}
		}
	}
	if high == 0 {
		return []float64{1, 10}
	}
	var out []float64
	if p.Log {
		first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
		for e := first; e <= math.Max(last, first+1); e++ {
			out = append(out, math.Pow(10, e))
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10(high)))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if high/(step*part) <= 6 {
			step *= part
			break
		}
	}
	for n := 0.0; ; n++ {
		out = append(out, n*step)
		if n*step >= high {
			return out
		}
	}
}
