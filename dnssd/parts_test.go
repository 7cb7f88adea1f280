package dnssd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/internal/bubble"
)

// TestOrderFollowsWeights draws from many seeds and compares with what RFC 2782 asks
// for.
func TestOrderFollowsWeights(t *testing.T) {
	const draws = 20000
	services := []service{
		{host: "a", port: 1, priority: 1, weight: 10},
		{host: "b", port: 1, priority: 1, weight: 30},
		{host: "c", port: 1, priority: 1, weight: 60},
		{host: "z", port: 1, priority: 0, weight: 0},
	}
	first, second := make(map[string]int), make(map[string]int)
	for seed := range uint64(draws) {
		got := order(services, seed)
		if got[0].host != "z" || len(got) != 4 {
			t.Fatalf("%v", got)
		}
		first[got[1].host]++
		if got[1].host == "c" {
			second[got[2].host]++
		}
	}
	near := func(what string, n int, of int, p float64) {
		t.Helper()
		if sigma := math.Sqrt(p * (1 - p) / float64(of)); math.Abs(float64(n)/float64(of)-p) > 5*sigma {
			t.Errorf("%s: %d of %d, want %.3f of them", what, n, of, p)
		}
	}
	near("a first", first["a"], draws, 0.1)
	near("b first", first["b"], draws, 0.3)
	near("c first", first["c"], draws, 0.6)
	near("a after c", second["a"], first["c"], 0.25)
	near("b after c", second["b"], first["c"], 0.75)

	// Weights of 0 alone: any order. Beside others: hardly ever first.
	zeros := []service{{host: "a", port: 1}, {host: "b", port: 1}}
	n := 0
	for seed := range uint64(draws) {
		if order(zeros, seed)[0].host == "a" {
			n++
		}
	}
	near("a of two zeros", n, draws, 0.5)
	n = 0
	zeros[1].weight = 1
	for seed := range uint64(draws) {
		if order(zeros, seed)[0].host == "a" {
			n++
		}
	}
	if n == 0 || n > draws/20 {
		t.Errorf("weight 0 was first %d times of %d", n, draws)
	}
}

// TestOrderStays: the same seed, the same order, and one more record does not change
// that of the others.
func TestOrderStays(t *testing.T) {
	var services []service
	for i := range 10 {
		services = append(services, service{host: fmt.Sprintf("h%d", i), port: 443, weight: uint16(i)})
	}
	all := order(services, 7)
	some := order(services[:9], 7)
	var rest []service
	for _, s := range all {
		if s.host != "h9" {
			rest = append(rest, s)
		}
	}
	if fmt.Sprint(some) != fmt.Sprint(rest) || fmt.Sprint(all) != fmt.Sprint(order(services, 7)) {
		t.Errorf("%v and %v", some, rest)
	}
	differ := false
	for seed := range uint64(10) {
		differ = differ || fmt.Sprint(order(services, seed)) != fmt.Sprint(all)
	}
	if !differ {
		t.Error("all seeds give the same order")
	}
}

func TestCanonical(t *testing.T) {
	for _, tc := range []struct {
		in, out string
		ok      bool
	}{
		{"Example.COM.", "example.com", true},
		{"example.com", "example.com", true},
		{".", ".", true},
		{"", "", false},
		{`Box\ 7._Liqo._tcp.example.com.`, `box\ 7._liqo._tcp.example.com`, true},
		{`dot\..`, `dot\.`, true},
		{`slash\\.`, `slash\\`, true},
		{`a\000b.`, `a\000b`, true},
		{"a..b.", "", false},
		{"a\x00b.", "", false},
		{"ü.example.com.", "", false},
		{strings.Repeat("a", 64) + ".", "", false},
		{strings.Repeat("abcdefg.", 32), "", false},
		{strings.Repeat("abcdefg.", 31), strings.TrimSuffix(strings.Repeat("abcdefg.", 31), "."), true},
		{strings.Repeat("a", 2000), "", false},
	} {
		out, ok := canonical(tc.in)
		if ok != tc.ok || ok && out != tc.out {
			t.Errorf("canonical(%q) = %q, %t", tc.in, out, ok)
		}
		if ok {
			if again, _ := canonical(fqdn(out)); again != out {
				t.Errorf("canonical(fqdn(%q)) = %q", out, again)
			}
		}
	}
}

func TestHostname(t *testing.T) {
	for in, want := range map[string]string{
		"Auth.Server-2.example.com.": "auth.server-2.example.com",
		"a_b.example.com.":           "a_b.example.com",
		"localhost.":                 "localhost",
		"10.0.0.1.":                  "", "1.2.3.": "", "7.": "", ".": "",
		`a\ b.example.com.`: "", `a\.b.example.com.`: "", "a@b.": "", `a\@b.`: "", `a\/b.`: "", "a:1.": "", "[::1].": "",
	} {
		got, problem := hostname(in)
		if got != want || (problem == "") != (want != "") {
			t.Errorf("hostname(%q) = %q, %q", in, got, problem)
		}
	}
}

func TestDecodeTXT(t *testing.T) {
	for _, tc := range []struct {
		in   []string
		want string
	}{
		{[]string{"id=one", "ID=two", "Name=A=B"}, "map[id:one name:A=B]"},
		{[]string{"=x", "", "id"}, "map[id:]"},
		{[]string{`a=\"q\" \\ \195\188`}, `map[a:"q" \ ü]`},
		{[]string{`i\100=x`}, "map[id:x]"},
		{[]string{`\007=x`, `\195=x`}, "map[]"},
		{[]string{`a=\999`, `b=\`, `c=\1`}, `map[a:999 b:\ c:1]`},
		{nil, "map[]"},
	} {
		if got := fmt.Sprint(decodeTXT(tc.in)); got != tc.want {
			t.Errorf("decodeTXT(%q) = %s, want %s", tc.in, got, tc.want)
		}
	}
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("k%d=v", i))
	}
	if n := len(decodeTXT(many)); n != maxTXTKeys {
		t.Errorf("%d keys", n)
	}
}

func TestQuoted(t *testing.T) {
	if got := quoted("a\x1b" + strings.Repeat("b", 500)); len(got) > 120 || strings.Contains(got, "\x1b") {
		t.Errorf("quoted = %q", got)
	}
}

func TestGate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate(8)
		var entered []string
		enter := func(domain string) {
			go func() {
				if g.enter(t.Context(), domain) == nil {
					g.mu.Lock()
					entered = append(entered, domain)
					g.mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		for range 10 {
			enter("a")
		}
		if got := strings.Join(entered, ""); got != "aaaaaa" {
			t.Fatalf("in are %s, want three quarters", got)
		}
		for range 4 {
			enter("b")
		}
		if got := strings.Join(entered, ""); got != "aaaaaabb" {
			t.Fatalf("in are %s", got)
		}
		// The next place is for who has the fewest, though others came before.
		enter("c")
		for _, want := range []string{"c", "b"} {
			g.leave("a")
			synctest.Wait()
			if got := entered[len(entered)-1]; got != want {
				t.Errorf("%s came in, want %s", got, want)
			}
		}
		// Who gives up does not take a place.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.enter(ctx, "d"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("enter = %v", err)
		}
		if err := g.enter(ctx, "d"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("enter = %v", err)
		}
		waiting := len(g.waiting)
		for len(g.inside) > 0 {
			for d := range g.inside {
				g.leave(d)
				synctest.Wait()
				break
			}
		}
		if g.free != 8 || len(g.waiting) != 0 || waiting == 0 {
			t.Errorf("%d free, %d waiting", g.free, len(g.waiting))
		}
	})
	if g := newGate(1); g.most != 1 {
		t.Errorf("a gate for one lets %d of a domain in", g.most)
	}
}
