package health

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"liqo.io/agent/internal/bubble"
)

// codes lists problems as "code about".
func codes(problems []Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, strings.TrimSpace(p.Kind.Code+" "+p.About))
	}
	return out
}

func TestShortBlipsStaySilent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var tr Tracker
		tr.Set(APIUnreachable, Finding{})
		tr.Set(DiskFull, Finding{})
		if began, _, next := tr.Update(); !slices.Equal(codes(began), []string{"disk-full"}) || time.Until(next) != APIUnreachable.Grace {
			t.Fatalf("at once: %v, next in %v", codes(began), time.Until(next))
		}
		if !tr.Pending(2*time.Minute) || tr.Pending(time.Second) {
			t.Error("what is about to be shown is not pending, or too early")
		}
		time.Sleep(APIUnreachable.Grace - time.Second)
		tr.Clear(APIUnreachable, "")
		tr.Set(APIUnreachable, Finding{}) // which begins anew
		time.Sleep(2 * time.Second)
		if began, ended, _ := tr.Update(); len(began)+len(ended) != 0 || len(tr.Current()) != 1 {
			t.Fatalf("a blip is told: %v, %v", codes(began), codes(ended))
		}
		time.Sleep(APIUnreachable.Grace)
		began, _, next := tr.Update()
		if !slices.Equal(codes(began), []string{"api-unreachable"}) || !next.IsZero() || tr.Pending(time.Hour) {
			t.Fatalf("what lasts is not told: %v, next %v", codes(began), next)
		}
		if since := time.Since(tr.Current()[1].Since); since != APIUnreachable.Grace+2*time.Second {
			t.Errorf("it lasts for %v", since)
		}
		tr.Clear(APIUnreachable, "")
		if _, ended, _ := tr.Update(); !slices.Equal(codes(ended), []string{"api-unreachable"}) {
			t.Errorf("its end is not told: %v", codes(ended))
		}
	})
}

func TestSinceIsThatOfTheFirstReport(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var tr Tracker
		begun := time.Now()
		tr.Set(StateDamaged, Finding{Args: Args{"error": "a"}})
		time.Sleep(time.Minute)
		tr.Report(StateDamaged, fmt.Errorf("b"))
		if p := tr.Current()[0]; !p.Since.Equal(begun) || p.Text != "b" {
			t.Errorf("%+v", p)
		}
		earlier := begun.Add(-time.Hour)
		tr.Set(RequestWaiting, Finding{About: "x", Since: earlier, Args: Args{"peer": "barn", "id": "x"}})
		if p := tr.Current()[1]; !p.Since.Equal(earlier) || !strings.Contains(p.Remedy, "reject x") {
			t.Errorf("%+v", p)
		}
		tr.Report(StateDamaged, nil)
		if got := codes(tr.Current()); !slices.Equal(got, []string{"request-waiting x"}) {
			t.Error(got)
		}
	})
}

func TestOrderAndBounds(t *testing.T) {
	var tr Tracker
	long := strings.Repeat("x", 10*maxText)
	tr.Set(Open, Finding{})
	for i := range 3 * MaxInstances {
		tr.Set(PeerConflict, Finding{About: fmt.Sprintf("%03d", i), Args: Args{"peer": long}})
	}
	tr.Set(IDConflict, Finding{})
	got := tr.Current()
	if len(got) != MaxInstances+2 || got[0].Kind != IDConflict || got[1].About != "000" || got[len(got)-1].Kind != Open {
		t.Fatalf("%v", codes(got))
	}
	if len(got[1].Text) > 2*maxText {
		t.Errorf("a text of %d bytes", len(got[1].Text))
	}
	tr.Replace(PeerConflict, Finding{About: "999"}, Finding{About: "001"})
	if got := codes(tr.Current()); !slices.Equal(got, []string{"id-conflict", "peer-conflict 001", "peer-conflict 999", "open-to-anybody"}) {
		t.Error(got)
	}
	tr.Replace(PeerConflict)
	if got := codes(tr.Current()); len(got) != 2 {
		t.Error(got)
	}
}

func TestChangedOnlyWhenSomethingDid(t *testing.T) {
	var tr Tracker
	changed := func() bool {
		select {
		case <-tr.Changed():
			return true
		default:
			return false
		}
	}
	changed()
	for i, step := range []struct {
		do   func()
		want bool
	}{
		{func() { tr.Set(DiskFull, Finding{Args: Args{"free": "1"}}) }, true},
		{func() { tr.Set(DiskFull, Finding{Args: Args{"free": "1"}}) }, false},
		{func() { tr.Set(DiskFull, Finding{Args: Args{"free": "2"}}) }, true},
		{func() { tr.Clear(DiskLow, "") }, false},
		{func() { tr.Replace(DiskFull, Finding{Args: Args{"free": "2"}}) }, false},
		{func() { tr.Clear(DiskFull, "") }, true},
		{func() { tr.Clear(DiskFull, "") }, false},
	} {
		if step.do(); changed() != step.want {
			t.Errorf("step %d: want %v", i, step.want)
		}
	}
}

// TestUpdateTellsWhatCurrentShows: whoever adds up what Update told has what Current
// shows.
func TestUpdateTellsWhatCurrentShows(t *testing.T) {
	kinds := []*Kind{DiskFull, APIUnreachable, PeerUnreachable, RequestWaiting, StateWrite}
	rapid.Check(t, func(rt *rapid.T) {
		bubble.Test(t, func(*testing.T) {
			var tr Tracker
			told := make(map[string]bool)
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				k := rapid.SampledFrom(kinds).Draw(rt, "kind")
				about := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "about")
				switch rapid.IntRange(0, 3).Draw(rt, "what") {
				case 0:
					tr.Set(k, Finding{About: about, Args: Args{"error": rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "error")}})
				case 1:
					tr.Clear(k, about)
				case 2:
					tr.Replace(k, Finding{About: about})
				case 3:
					time.Sleep(time.Duration(rapid.IntRange(0, 4000).Draw(rt, "seconds")) * time.Second)
				}
				began, ended, next := tr.Update()
				for _, c := range codes(ended) {
					if !told[c] {
						rt.Fatalf("%s ended and had not begun", c)
					}
					delete(told, c)
				}
				for _, c := range codes(began) {
					if told[c] {
						rt.Fatalf("%s began twice", c)
					}
					told[c] = true
				}
				shown := codes(tr.Current())
				for _, c := range shown {
					if !told[c] {
						rt.Fatalf("%s is shown and was not told", c)
					}
				}
				if len(shown) != len(told) {
					rt.Fatalf("shown %v, told %v", shown, told)
				}
				if !next.IsZero() && !next.After(time.Now()) {
					rt.Fatalf("a grace ends in %v", time.Until(next))
				}
			}
		})
	})
}
