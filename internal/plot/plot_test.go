package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestSVG(t *testing.T) {
	panel := Panel{Title: "How <fast>", Unit: "Mbit/s", X: []string{"64", "1400"}, Lines: []Line{{"a & b", []float64{3, 250}}, {"c", []float64{1}}}}
	svg := string(SVG("A title", panel, panel))
	d := xml.NewDecoder(strings.NewReader(svg))
	points := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			points++
		}
	}
	if points != 6 {
		t.Errorf("%d points", points)
	}
	for _, want := range []string{"A title", "How &lt;fast&gt;, Mbit/s", "a &amp; b, 1400: 250 Mbit/s", ">250<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is missing:\n%s", want, svg)
		}
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Error(svg)
	}
	for _, p := range []Panel{{}, {Log: true}, {X: []string{"1"}, Lines: []Line{{"zero", []float64{0}}}}} {
		if svg := string(SVG("", p)); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Error(svg)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		log    bool
		values []float64
		want   []float64
	}{
		{false, []float64{0, 95}, []float64{0, 20, 40, 60, 80, 100}},
		{false, []float64{210}, []float64{0, 50, 100, 150, 200, 250}},
		{false, []float64{5}, []float64{0, 1, 2, 3, 4, 5}},
		{true, []float64{12, 6000}, []float64{10, 100, 1000, 10000}},
		{true, []float64{100}, []float64{100, 1000}},
	} {
		p := Panel{Log: tc.log, Lines: []Line{{"", tc.values}}}
		if got := p.ticks(); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.values, got, tc.want)
		}
	}
}
