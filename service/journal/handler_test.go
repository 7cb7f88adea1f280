package journal

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestConnected(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	ours := fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino)
	for _, tc := range []struct {
		name    string
		environ []string
		file    *os.File
		want    bool
	}{
		{"ours", []string{"A=b", ours}, f, true},
		{"no variable", []string{"A=b"}, f, false},
		{"empty", []string{"JOURNAL_STREAM="}, f, false},
		{"another stream", []string{"JOURNAL_STREAM=8:1"}, f, false},
		{"nonsense", []string{"JOURNAL_STREAM=" + strings.Repeat(":", 100)}, f, false},
		{"the last one counts", []string{ours, "JOURNAL_STREAM=8:1"}, f, false},
		{"no file", []string{ours}, nil, false},
	} {
		if got := Connected(tc.environ, tc.file); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// writes counts calls of Write.
type writes struct {
	bytes.Buffer
	n int
}

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return w.Buffer.Write(p)
}

func text(w io.Writer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

func TestLevels(t *testing.T) {
	var out writes
	logger := slog.New(NewHandler(&out, text))
	logger.Debug("one")
	logger.Info("two", "lines", "a\nb\r<0>c")
	logger.With("a", 1).WithGroup("g").Warn("three", "b", 2)
	logger.Error("four")
	logger.Log(t.Context(), slog.LevelError+4, "five")
	want := "<7>level=DEBUG msg=one\n" +
		"<6>level=INFO msg=two lines=\"a\\nb\\r<0>c\"\n" +
		"<4>level=WARN msg=three a=1 g.b=2\n" +
		"<3>level=ERROR msg=four\n" +
		"<3>level=ERROR+4 msg=five\n"
	if out.String() != want {
		t.Errorf("wrote\n%s\nwant\n%s", out.String(), want)
	}
	if out.n != 5 {
		t.Errorf("5 records took %d writes: another process's lines may get in between", out.n)
	}
}

func TestManyAtOnce(t *testing.T) {
	var out writes
	logger := slog.New(NewHandler(&out, text))
	var all sync.WaitGroup
	for i := range 8 {
		level := []slog.Level{slog.LevelInfo, slog.LevelError}[i%2]
		mine := logger.With("i", i)
		all.Go(func() {
			for range 200 {
				mine.Log(t.Context(), level, "x")
			}
		})
	}
	all.Wait()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 1600 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "<6>level=INFO ") && !strings.HasPrefix(line, "<3>level=ERROR ") {
			t.Fatalf("line %q", line)
		}
	}
}

func TestDisabled(t *testing.T) {
	var out writes
	h := NewHandler(&out, func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) })
	if h.Enabled(t.Context(), slog.LevelDebug) || !h.Enabled(t.Context(), slog.LevelInfo) {
		t.Error("the level is not that of the formatter")
	}
}
