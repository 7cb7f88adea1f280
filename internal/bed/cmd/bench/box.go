//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
)

const fcPath = "/apis/discovery.liqo.io/v1alpha1/foreignclusters"

// box is a host with an agent.
type box struct {
	r     *scenarioRun
	host  *bed.Host
	kube  *bed.Kube
	bin   string
	agent *bed.Process
}

func (r *scenarioRun) box(b *bed.Bed, name, prefix string) *box {
	return &box{r: r, host: b.AddHost(name, prefix), bin: bed.Binary(r, "liqo-agent")}
}

// start starts the agent and returns when it was asked to.
func (x *box) start(args ...string) time.Time {
	if x.kube == nil {
		args = append(args, "--kubeconfig", "none")
	}
	at := time.Now()
	x.agent = x.host.Start(bed.Cmd{Name: "liqo-agent", Args: append([]string{x.bin, "run"}, args...)})
	return at
}

func (x *box) stop() {
	if err := x.agent.Stop(); err != nil {
		x.r.Fatalf("%s: %v", x.host.Name, err)
	}
}

func (x *box) status() (control.Status, error) {
	var st control.Status
	out, err := x.host.Run(x.r.Context(), x.bin, "status", "-o", "json")
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal([]byte(out), &st)
}

func (x *box) mustStatus() control.Status {
	var st control.Status
	x.r.await(30*time.Second, x.host.Name+" answers", func() (err error) {
		st, err = x.status()
		return err
	})
	return st
}

// fetch gets what the agent serves at its control socket.
func (x *box) fetch(path string) []byte {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return x.host.DialContext(ctx, "unix", config.Default().State.Socket)
	}}
	answer, err := (&http.Client{Transport: transport, Timeout: 2 * time.Minute}).Get("http://agent" + path)
	if err != nil {
		x.r.Fatalf("%s: %v", x.host.Name, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		x.r.Fatalf("%s: %s: %s: %v", x.host.Name, path, answer.Status, err)
	}
	return body
}

// foreign is as much of a ForeignCluster as is measured.
type foreign struct {
	Metadata struct{ Name string }
	Spec     struct{ AuthURL string }
	Status   struct{ Fingerprint string }
}

// foreigns lists the ForeignClusters; none when the kind is not there yet.
func (x *box) foreigns() map[string]foreign {
	body, err := x.kube.Request(x.r.Context(), "GET", fcPath, "", nil)
	if err != nil {
		return nil
	}
	var list struct{ Items []foreign }
	if err := json.Unmarshal(body, &list); err != nil {
		return nil
	}
	out := make(map[string]foreign, len(list.Items))
	for _, fc := range list.Items {
		out[fc.Metadata.Name] = fc
	}
	return out
}

// when polls a box's ForeignClusters as fast as its API server answers, and
// returns when the condition was first seen to hold.
func (x *box) when(d time.Duration, what string, condition func(map[string]foreign) bool) time.Time {
	deadline := time.Now().Add(d)
	for time.Now().Before(deadline) {
		if condition(x.foreigns()) {
			return time.Now()
		}
		time.Sleep(2 * time.Millisecond)
	}
	x.r.Fatalf("%s: %s: not within %v", x.host.Name, what, d)
	return time.Time{}
}

// awaitJoined waits until the agent has joined so many peers.
func (x *box) awaitJoined(d time.Duration, n int) {
	x.r.await(d, fmt.Sprintf("%d peers are joined", n), func() error {
		if st := x.mustStatus(); st.Peering.Joined != n {
			return fmt.Errorf("%d are", st.Peering.Joined)
		}
		return nil
	})
}

func (r *scenarioRun) await(d time.Duration, what string, condition func() error) {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	if err := bed.Poll(ctx, condition); err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// packetFrom waits for a packet from an address, sent after since.
func (r *scenarioRun) packetFrom(c *bed.Capture, from netip.Addr, since time.Time, what string, match func(*dns.Msg) bool) time.Time {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	p, err := c.WaitFor(ctx, func(p bed.Packet) bool {
		m := new(dns.Msg)
		return p.Src.Addr() == from && !p.Time.Before(since) && m.Unpack(p.Payload) == nil && match(m)
	})
	if err != nil {
		r.Fatalf("%s from %s: %v", what, from, err)
	}
	return p.Time
}

func isProbe(m *dns.Msg) bool { return !m.Response && len(m.Ns) > 0 }

// announces reports whether m announces an SRV record.
func announces(m *dns.Msg) bool {
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == dns.TypeSRV && rr.Header().Ttl > 0 {
			return m.Response
		}
	}
	return false
}

// announcesAddress returns a matcher for a response with an address in it.
func announcesAddress(a netip.Addr) func(*dns.Msg) bool {
	return func(m *dns.Msg) bool {
		for _, rr := range append(m.Answer, m.Extra...) {
			if rec, ok := rr.(*dns.A); ok && m.Response && rec.A.String() == a.String() && rec.Hdr.Ttl > 0 {
				return true
			}
		}
		return false
	}
}

// leaves reports whether m says goodbye.
func leaves(m *dns.Msg) bool {
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == dns.TypePTR && rr.Header().Ttl == 0 {
			return m.Response
		}
	}
	return false
}

// usage is what a process has used since its start.
type usage struct {
	cpu     time.Duration
	anon    int64 // anonymous memory now, bytes
	rss     int64 // with the pages of the binary and other files
	peakRSS int64
}

// memory gives both figures: the pages of the binary are shared, and the kernel
// drops those that nobody reads when it needs room.
func (u usage) memory() string { return mb(u.anon) + " anonymous, " + mb(u.rss) + " RSS" }

// usageOf reads a running process's figures from the kernel.
func usageOf(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	// Fields are counted behind the command's name, which may hold spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const utime, stime, hz = 11, 12, 100
	var ticks int64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return usage{}, err
		}
		ticks += n
	}
	u := usage{cpu: time.Duration(ticks) * time.Second / hz}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "RssAnon":
			u.anon = kb << 10
		case "VmRSS":
			u.rss = kb << 10
		case "VmHWM":
			u.peakRSS = kb << 10
		}
	}
	return u, nil
}

func isQuery(m *dns.Msg) bool { return !m.Response && len(m.Question) > 0 && len(m.Ns) == 0 }
