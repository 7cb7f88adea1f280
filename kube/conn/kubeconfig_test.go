package conn

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/kube/work"
)

func kubeconfigText(server string) string {
	return `apiVersion: v1
kind: Config
clusters: [{name: d, cluster: {server: "` + server + `"}}]
users: [{name: d, user: {token: t}}]
contexts: [{name: d, context: {cluster: d, user: d}}]
current-context: d
`
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("flag"), kubeconfigText("https://flag"))
	write(t, at("env"), kubeconfigText("https://env"))
	write(t, at("own"), kubeconfigText("https://own"))
	write(t, at("k3s.yaml"), kubeconfigText("https://k3s"))
	write(t, at("home/.kube/config"), kubeconfigText("https://home"))
	write(t, at("broken"), "{")
	write(t, at("no-context"), strings.Replace(kubeconfigText("https://x"), "current-context: d", "", 1))
	for _, tc := range []struct {
		name, setting, env, own, k3s, home string
		want                               string // server, or part of the error
		is                                 error
	}{
		{name: "nothing anywhere", k3s: "absent", home: "absent", want: "neither $KUBECONFIG nor", is: ErrNoKubeconfig},
		{name: "switched off", setting: KubeconfigNone, env: "env", k3s: "k3s.yaml", want: "none", is: ErrSwitchedOff},
		{name: "the setting wins", setting: "flag", env: "env", k3s: "k3s.yaml", home: "home", want: "https://flag"},
		{name: "the setting is waited for", setting: "absent", env: "env", k3s: "k3s.yaml", want: "absent does not exist", is: ErrNoKubeconfig},
		{name: "then the environment", env: "env", k3s: "k3s.yaml", home: "home", want: "https://env"},
		{name: "the environment is waited for", env: "absent", k3s: "k3s.yaml", want: "absent does not exist", is: ErrNoKubeconfig},
		{name: "a list in the environment", env: "absent:env", want: "https://env"},
		{name: "the environment before the agent's own", env: "env", own: "own", k3s: "k3s.yaml", want: "https://env"},
		{name: "then the agent's own", own: "own", k3s: "k3s.yaml", home: "home", want: "https://own"},
		{name: "a broken one of its own is not passed over", own: "broken", k3s: "k3s.yaml", want: "broken"},
		{name: "then K3s", k3s: "k3s.yaml", home: "home", want: "https://k3s"},
		{name: "then the home directory", k3s: "absent", home: "home", want: "https://home"},
		{name: "no home directory", k3s: "absent", want: "no kubeconfig found", is: ErrNoKubeconfig},
		{name: "broken", setting: "broken", want: "broken"},
		{name: "no current context", setting: "no-context", want: "no-context"},
		{name: "a directory", setting: "home", want: "is a directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := map[string]string{}
			if tc.env != "" {
				var list []string
				for _, name := range strings.Split(tc.env, ":") {
					list = append(list, at(name))
				}
				env["KUBECONFIG"] = strings.Join(list, ":")
			}
			if tc.home != "" {
				env["HOME"] = at(tc.home)
			}
			setting := tc.setting
			if setting != "" && setting != KubeconfigNone {
				setting = at(setting)
			}
			found, err := locator{getenv: func(k string) string { return env[k] }, own: at(cmp.Or(tc.own, "absent")), k3s: at(tc.k3s)}.load(setting)
			switch {
			case strings.HasPrefix(tc.want, "https://"):
				if err != nil || found.config.Host != tc.want {
					t.Errorf("got %+v, %v, want %s", found.config, err, tc.want)
				}
			case err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is):
				t.Errorf("error %v, want %q, %v", err, tc.want, tc.is)
			}
		})
	}
}

// TestReplaced checks which changes of the files end a connection.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "config")
		write(t, path, kubeconfigText("https://one"))
		var setting atomic.Value
		setting.Store(path)
		c := New(Config{Kubeconfig: func() string { return setting.Load().(string) }, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
		current, err := c.await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.replaced(t.Context(), current) }()
		steady := func(what string) {
			t.Helper()
			time.Sleep(3 * c.pollEvery) // fake time
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("%s ended the connection: %v", what, err)
			default:
			}
		}
		steady("nothing")
		write(t, path, kubeconfigText("https://one"))
		steady("writing the same again")
		write(t, path, "half")
		steady("half a file")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		steady("a missing file")
		write(t, path, kubeconfigText("https://another"))
		time.Sleep(2 * c.pollEvery)
		synctest.Wait()
		if err := <-ended; !errors.Is(err, errKubeconfigReplaced) {
			t.Errorf("replaced = %v", err)
		}
		go func() { ended <- c.replaced(t.Context(), current) }()
		setting.Store(KubeconfigNone)
		if err := <-ended; !errors.Is(err, errKubeconfigReplaced) {
			t.Errorf("switched off: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.await(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("await after the end: %v", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		begin := time.Now()
		for i := range 20 {
			step := time.Now()
			if err := work.Sleep(t.Context(), Backoff.Pause(i+1)); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(step); d < Backoff.First/2 || d > Backoff.Max || i > 8 && d < Backoff.Max/2 {
				t.Errorf("pause %d lasts %v", i, d)
			}
		}
		if d := time.Since(begin); d < time.Minute {
			t.Errorf("20 attempts in %v", d)
		}
	})
}
