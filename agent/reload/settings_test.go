package reload

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/health"
)

func TestRead(t *testing.T) {
	var fault error
	var tracker health.Tracker
	path := ""
	load := func() (*config.Loaded, error) { return &config.Loaded{Config: config.Default(), Path: path}, fault }
	s, err := New(load, new(slog.LevelVar), &tracker)
	if err != nil {
		t.Fatal(err)
	}
	began, _ := s.Read()
	later := began.Add(time.Hour)
	fault = errors.New("line 3")
	if err := s.read(later); !errors.Is(err, fault) {
		t.Errorf("a bad file: %v", err)
	}
	if at, ok := s.Read(); ok || !at.Equal(began) {
		t.Errorf("after a bad file: ok %t, read at %s", ok, at)
	}
	fault = nil
	if err := s.read(later); err != nil {
		t.Errorf("a good file: %v", err)
	}
	if at, ok := s.Read(); !ok || !at.Equal(later) {
		t.Errorf("after a good file: ok %t, read at %s", ok, at)
	}
	path = "/etc/liqo-agent/liqo-agent.toml"
	if err := s.read(later); err != nil {
		t.Errorf("the first file: %v", err)
	}
	path = ""
	if err := s.read(later); err == nil || s.file.Path == "" {
		t.Errorf("a file that is gone: %v", err)
	}
}
