package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/kubelet"
)

// patience is how long anything here may take.
const patience = bed.Hang

// protocols are the two ways in which kubectl streams.
var protocols = map[string][]string{
	"WebSocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"SPDY":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

func kubectl(env []string, args ...string) []string {
	return append(append(append([]string{}, env...), "kubectl", "--kubeconfig", bed.Kubeconfig, "-n", "shop"), args...)
}

func TestKubectl(t *testing.T) {
	c := startClusters(t)
	c.wait(t, func(s kubelet.State) error {
		if !s.Signed || s.Problem != "" {
			return fmt.Errorf("it has no signed certificate: %+v", s)
		}
		return nil
	})
	t.Run("logs", func(t *testing.T) { testLogs(t, c) })
	for name, env := range protocols {
		t.Run("exec over "+name, func(t *testing.T) { testExec(t, c, env) })
		t.Run("cp over "+name, func(t *testing.T) { testCopy(t, c, env, name) })
		t.Run("attach over "+name, func(t *testing.T) { testAttach(t, c, env) })
		t.Run("port-forward over "+name, func(t *testing.T) { testPortForward(t, c, env) })
	}
	t.Run("late input", func(t *testing.T) { testLateInput(t, c, protocols["WebSocket"]) })
	t.Run("exec over an old WebSocket", func(t *testing.T) { testOldWebSocket(t, c) })
	t.Run("metrics", func(t *testing.T) { testMetrics(t, c) })
	t.Run("restart", func(t *testing.T) { testRestart(t, c) })
}

// line is one of a log as containerd writes it.
func line(text string) string {
	return time.Now().UTC().Format(time.RFC3339Nano) + " stdout F " + text + "\n"
}

func testLogs(t *testing.T, c *clusters) {
	c.provider.Host.WriteFile(logFile, line("one")+line("two")+line("three"))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"logs", "web"}, "one\ntwo\nthree\n"},
		{[]string{"logs", "web", "--tail=1"}, "three\n"},
		{[]string{"logs", "web", "--limit-bytes=3"}, "one"},
		{[]string{"logs", "web", "--since=1h", "--tail=2"}, "two\nthree\n"},
	} {
		got, err := c.kubectl(t, "", kubectl(nil, test.args...)...)
		if err != nil || got != test.want {
			t.Errorf("kubectl %v: %q, %v", test.args, got, err)
		}
	}
	follower := c.consumer.Host.Start(bed.Cmd{Args: []string{"kubectl", "--kubeconfig", bed.Kubeconfig, "-n", "shop", "logs", "-f", "web"}})
	saw(t, follower, "three")
	if _, err := c.provider.Host.RunInput(t.Context(), line("four"), "tee", "-a", logFile); err != nil {
		t.Fatal(err)
	}
	saw(t, follower, "four")
	if err := follower.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := c.kubectl(t, "", kubectl(nil, "logs", "web", "-c", "other")...); err == nil || !strings.Contains(err.Error(), "container other is not valid") {
		t.Errorf("the log of a container that is not there: %v", err)
	}
}

func testExec(t *testing.T, c *clusters, env []string) {
	got, err := c.kubectl(t, "", kubectl(env, "exec", "web", "--", "hostname")...)
	if err != nil || got != "provider\n" {
		t.Errorf("hostname: %q, %v", got, err)
	}
	_, err = c.kubectl(t, "", kubectl(env, "exec", "web", "--", "sh", "-c", "echo gone wrong >&2; exit 3")...)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "gone wrong") {
		t.Errorf("exit 3: %v", err)
	}
	testInput(t, c, env)
}

func testCopy(t *testing.T, c *clusters, env []string, name string) {
	file := "/var/lib/" + name
	c.consumer.Host.WriteFile(file, "carried over "+name)
	if _, err := c.kubectl(t, "", kubectl(env, "cp", file, "web:"+file+"-there")...); err != nil {
		t.Fatal(err)
	}
	if got, err := c.provider.Host.Run(t.Context(), "cat", file+"-there"); err != nil || got != "carried over "+name {
		t.Errorf("there: %q, %v", got, err)
	}
	if _, err := c.kubectl(t, "", kubectl(env, "cp", "web:"+file+"-there", file+"-back")...); err != nil {
		t.Fatal(err)
	}
	if got, err := c.consumer.Host.Run(t.Context(), "cat", file+"-back"); err != nil || got != "carried over "+name {
		t.Errorf("back: %q, %v", got, err)
	}
}

func testAttach(t *testing.T, c *clusters, env []string) {
	attached := c.consumer.Host.Start(bed.Cmd{Env: env, Args: []string{"kubectl", "--kubeconfig", bed.Kubeconfig, "-n", "shop", "attach", "web"}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// Nothing says when it is attached, and what was said before is not heard.
	if err := bed.Poll(ctx, func() error {
		if _, err := c.provider.Host.RunInput(ctx, line("said to all"), "tee", "-a", logFile); err != nil {
			return err
		}
		if !strings.Contains(attached.Log(), "said to all") {
			return errors.New("nothing was heard")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := attached.Kill(); err != nil {
		t.Error(err)
	}
}

// saw waits until a process wrote something.
func saw(t *testing.T, p *bed.Process, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.WaitLog(ctx, text); err != nil {
		t.Fatal(err)
	}
}

func testPortForward(t *testing.T, c *clusters, env []string) {
	forward := c.consumer.Host.Start(bed.Cmd{Env: env, Args: []string{"kubectl", "--kubeconfig", bed.Kubeconfig, "-n", "shop",
		"port-forward", "web", "8080:80", "--address=127.0.0.1"}})
	saw(t, forward, "Forwarding from")
	for range 2 { // a stream for each connection
		conn, err := c.consumer.Host.DialContext(t.Context(), "tcp", "127.0.0.1:8080")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		want := bytes.Repeat([]byte("to and fro "), 1000)
		if _, err := conn.Write(want); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back: %v", len(got), err)
		}
		_ = conn.Close()
	}
	if err := forward.Kill(); err != nil {
		t.Error(err)
	}
}

func testMetrics(t *testing.T, c *clusters) {
	addr, port, _ := c.server.Where()
	token, err := c.kubectl(t, "", "kubectl", "--kubeconfig", bed.Kubeconfig, "-n", "shop", "create", "token", "default")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, token string) (int, string) {
		args := []string{"curl", "-sk", "-w", "%{http_code}", fmt.Sprintf("https://%s:%d%s", addr, port, path)}
		if token != "" {
			args = append(args, "-H", "Authorization: Bearer "+strings.TrimSpace(token))
		}
		out, err := c.consumer.Host.Run(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		status := 0
		if _, err := fmt.Sscan(out[len(out)-3:], &status); err != nil {
			t.Fatal(err)
		}
		return status, out[:len(out)-3]
	}
	if status, text := ask("/metrics/resource", ""); status != http.StatusUnauthorized {
		t.Errorf("anonymous: %d %s", status, text)
	}
	if status, text := ask("/metrics/resource", token); status != http.StatusForbidden {
		t.Errorf("without a role: %d %s", status, text)
	}
	request(t, c.consumer, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", jsonMIME,
		`{"metadata":{"name":"scraper"},"rules":[{"apiGroups":[""],"resources":["nodes/stats"],"verbs":["get"]}]}`)
	request(t, c.consumer, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", jsonMIME,
		`{"metadata":{"name":"scraper"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"scraper"},"subjects":[{"kind":"ServiceAccount","name":"default","namespace":"shop"}]}`)
	bedtest.Within(t, "metrics with a role for them", func() error { // the API server goes by a new role after a moment
		if status, text := ask("/stats/summary", token); status != http.StatusOK || !strings.Contains(text, `"pods":[]`) {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	if status, text := ask("/metrics/resource/"+barnNode, token); status != http.StatusForbidden {
		t.Errorf("with a role for something else: %d %s", status, text)
	}
	if status, text := ask("/exec/shop/web/main?command=id&output=1", token); status != http.StatusForbidden {
		t.Errorf("with a role for something else: %d %s", status, text)
	}
}

// testRestart: after a restart the kept certificate is used again, without another
// request, and none of them is left.
func testRestart(t *testing.T, c *clusters) {
	before := c.server.State()
	c.stop()
	if _, _, ok := c.server.Where(); ok {
		t.Error("it says where it is after its end")
	}
	c.serve(t, fmt.Sprintf("127.0.0.1:%d", before.Address.Port()))
	after := c.server.State()
	if !after.Signed || !after.NotAfter.Equal(before.NotAfter) || after.Address != before.Address {
		t.Errorf("before: %+v\nafter: %+v", before, after)
	}
	got, err := c.kubectl(t, "", kubectl(nil, "exec", "web", "--", "hostname")...)
	if err != nil || got != "provider\n" {
		t.Errorf("hostname: %q, %v", got, err)
	}
	if got, err := c.kubectl(t, "", kubectl(nil, "get", "csr", "-o", "name")...); err != nil || got != "" {
		t.Errorf("requests that are left: %q, %v", got, err)
	}
}
