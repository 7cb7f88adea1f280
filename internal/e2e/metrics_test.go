//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"liqo.io/agent/internal/bed"
)

// ask sends one request to an address on the box: that of the control socket, or of
// a port.
func (x *box) ask(network, address, path string) (status int, body []byte, err error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return x.host.DialContext(ctx, network, address)
		},
	}
	// Also after the test, to explain why it failed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.t.Context()), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://agent"+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// samples are what a scrape gave, by series.
type samples map[string]float64

func (x *box) scrape(network, address string) (samples, error) {
	status, body, err := x.ask(network, address, "/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("status %d: %.200s", status, body)
	}
	out := make(samples)
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		out[line[:i]] = value
	}
	return out, nil
}

// measures waits until the series have the values.
func (x *box) measures(what string, want map[string]float64) {
	x.t.Helper()
	x.eventually(what, func() error {
		got, err := x.scrape("unix", x.host.Path(socketPath))
		if err != nil {
			return err
		}
		for series, value := range want {
			if has, there := got[series]; !there || has != value {
				return fmt.Errorf("%s is %v (there: %t), want %v", series, has, there, value)
			}
		}
		return nil
	})
}

// listening returns the TCP ports that are bound in a box's network.
func (x *box) listening() string {
	x.t.Helper()
	var all string
	if err := x.host.Do(func() error {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" {
					all += f[1] + "\n"
				}
			}
		}
		return nil
	}); err != nil {
		x.t.Fatal(err)
	}
	return all
}

// What is measured follows what happens: a neighbour, a peering, a neighbour that is
// gone. The socket has it always, a port only while the configuration names one.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	const port, hexPort = "127.0.0.1:6448", ":1930"
	if before := p.a.listening(); strings.Contains(before, hexPort) {
		t.Errorf("something listens on the port for metrics although none is configured:\n%s", before)
	}
	p.a.measures("a neighbour shows", map[string]float64{
		`liqo_agent_ready`:                  1,
		`liqo_agent_links`:                  1,
		`liqo_agent_peers{phase="Present"}`: 1,
		`liqo_agent_peerings{direction="outgoing",state="joined"}`:    0,
		`liqo_agent_apiserver_connected`:                              1,
		`liqo_agent_apiserver_enabled`:                                1,
		`liqo_agent_foreignclusters`:                                  1,
		`liqo_agent_mdns_announced`:                                   1,
		`liqo_agent_config_last_reload_successful`:                    1,
		`liqo_agent_identity_conflict`:                                0,
		`liqo_agent_health_problem{code="no-links",severity="error"}`: 0,
		`liqo_agent_state_volatile`:                                   0,
		`liqo_agent_sessions_total`:                                   1,
	})
	first, err := p.a.scrape("unix", p.a.host.Path(socketPath))
	if err != nil {
		t.Fatal(err)
	}

	// Nobody trusts anybody yet: a request waits, is accepted, and the two are joined.
	p.a.mustCLI("peers", "connect", p.bID, "--yes", "--no-wait")
	p.b.measures("a request waits", map[string]float64{`liqo_agent_requests_waiting`: 1})
	p.join()
	p.a.measures("the peering shows at the consumer", map[string]float64{
		`liqo_agent_peerings{direction="outgoing",state="joined"}`:          1,
		`liqo_agent_peer_joined{direction="outgoing",peer="` + p.bID + `"}`: 1,
		`liqo_agent_peer_reachable{peer="` + p.bID + `"}`:                   1,
		`liqo_agent_peer_info{name="birch",peer="` + p.bID + `"}`:           1,
		`liqo_agent_offers{status="accepted"}`:                              1,
		`liqo_agent_peer_series_omitted`:                                    0,
	})
	p.b.measures("the peering shows at the provider", map[string]float64{
		`liqo_agent_requests_waiting`:                                       0,
		`liqo_agent_peerings{direction="incoming",state="joined"}`:          1,
		`liqo_agent_peer_joined{direction="incoming",peer="` + p.aID + `"}`: 1,
		`liqo_agent_consumer_pods{peer="` + p.aID + `"}`:                    0,
	})
	p.a.eventually("what is counted grows", func() error {
		now, err := p.a.scrape("unix", p.a.host.Path(socketPath))
		if err != nil {
			return err
		}
		for _, series := range []string{
			`liqo_agent_mdns_packets_received_total`, `liqo_agent_mdns_packets_sent_total`, `liqo_agent_peer_checks_total{result="ok"}`,
			`liqo_agent_endpoint_requests_total`, `liqo_agent_reconciles_total{result="ok"}`, `liqo_agent_apiserver_writes_total`,
			`liqo_agent_state_transactions_total`, `liqo_agent_apiserver_request_duration_seconds_count`,
			`liqo_agent_gateway_requests_total{result="ok",verb="patch"}`,
		} {
			if now[series] <= first[series] {
				return fmt.Errorf("%s was %v and is %v", series, first[series], now[series])
			}
		}
		return nil
	})
	p.profiles()
	p.port(port)
	t.Run("doctor", p.examined)

	p.b.stop()
	p.a.measures("the neighbour is gone", map[string]float64{
		`liqo_agent_peers{phase="Present"}`:               0,
		`liqo_agent_peer_reachable{peer="` + p.bID + `"}`: 0,
	})
}

// profiles checks that the socket has them, in the form that go tool pprof reads: a
// packed message, whose table of texts names what was measured.
func (p *pair) profiles() {
	t, x := p.a.t, p.a
	t.Helper()
	for name, measured := range map[string]string{"heap": "inuse_space", "goroutine": "goroutine", "profile?seconds=1": "nanoseconds"} {
		status, body, err := x.ask("unix", x.host.Path(socketPath), "/debug/pprof/"+name)
		if err != nil || status != http.StatusOK {
			t.Errorf("%s: status %d, %v", name, status, err)
			continue
		}
		packed, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Errorf("%s is no profile: %v", name, err)
			continue
		}
		if text, err := io.ReadAll(packed); err != nil || !bytes.Contains(text, []byte(measured)) {
			t.Errorf("%s is no profile: %v", name, err)
		}
	}
}

// port has the metrics served on a port while the agent runs, and not any more.
func (p *pair) port(address string) {
	t, x := p.a.t, p.a
	t.Helper()
	x.configure("[metrics]\nlisten = \"" + address + "\"\n")
	x.reload()
	x.eventually("the port answers", func() error {
		got, err := x.scrape("tcp", address)
		if err == nil && got[`liqo_agent_peers{phase="Present"}`] != 1 {
			err = fmt.Errorf("%d series, without the peer", len(got))
		}
		return err
	})
	for path, want := range map[string]int{"/healthz": 200, "/": 404, "/v1/status": 404, "/debug/pprof/": 404, "/debug/pprof/heap": 404} {
		if status, _, err := x.ask("tcp", address, path); err != nil || status != want {
			t.Errorf("GET %s on the port: status %d, want %d (%v)", path, status, want, err)
		}
	}
	// A file with a mistake, and a port that cannot be had, change nothing about it.
	x.configure("[metrics]\nlisten = \"nowhere\"\n")
	x.reload()
	x.measures("the mistake shows", map[string]float64{`liqo_agent_config_last_reload_successful`: 0})
	x.configure("[metrics]\nlisten = \"192.0.2.1:6448\"\n")
	x.reload()
	x.measures("the mistake is mended", map[string]float64{`liqo_agent_config_last_reload_successful`: 1})
	x.eventually("status says what is the matter with the port", func() error {
		st, err := x.status()
		if err != nil {
			return err
		}
		for _, problem := range st.Problems {
			if strings.Contains(problem.Text, "192.0.2.1:6448") {
				return nil
			}
		}
		return fmt.Errorf("problems: %+v", st.Problems)
	})
	if _, err := x.scrape("tcp", address); err != nil {
		t.Errorf("the port from before does not answer any more: %v", err)
	}
	x.configure("")
	x.reload()
	x.eventually("the port is given back", func() error {
		if conn, err := x.host.DialContext(t.Context(), "tcp", address); err == nil {
			return fmt.Errorf("it still answers (%v)", conn.Close())
		}
		return nil
	})
}

// TestMetricsPortIsTaken: the agent says so at once.
func TestMetricsPortIsTaken(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	var taken net.Listener
	if err := barn.host.Do(func() (err error) {
		taken, err = net.Listen("tcp", "127.0.0.1:6448")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := barn.host.Run(ctx, barn.bin, "run", "--set", "metrics.listen=127.0.0.1:6448", "--kubeconfig", "none")
	if exitCode(err) == 0 || !strings.Contains(fmt.Sprint(err), "metrics.listen") || !strings.Contains(fmt.Sprint(err), "address already in use") {
		t.Errorf("with a port that is taken: %v", err)
	}
}
