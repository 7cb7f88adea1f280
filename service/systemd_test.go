package service

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// Before version 251, as in Debian 11 and Ubuntu 22.04, systemctl knows no times in seconds, and says nothing at
// all when it is asked for some. The service can be started and looked at all the same.
func TestOlderSystemd(t *testing.T) {
	w := newWorld(t)
	w.write(packagedPaths[0], "[Service]\n")
	w.shows = "LoadState=loaded\nActiveState=active\nMainPID=71\nStateChangeTimestamp=Fri 2026-11-27 23:18:04 UTC\n"
	newer := w.m.run
	w.m.run = func(ctx context.Context, stdin, name string, args ...string) (string, error) {
		if slices.Contains(args, "--timestamp=unix") {
			return "", errors.New("systemctl: exit status 1: Failed to parse timestamp style: unix")
		}
		return newer(ctx, stdin, name, args...)
	}
	if st, err := w.m.Status(t.Context()); err != nil || !st.Running || st.PID != 71 || !st.Since.IsZero() {
		t.Errorf("%+v, %v", st, err)
	}
	if err := w.m.Start(t.Context()); err != nil {
		t.Error(err)
	}
}
