package integration

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
)

// faultyProxy stands in front of the API server and answers a share of the
// requests with faults. It presents the administrator's credentials itself.
type faultyProxy struct {
	percent  atomic.Int64 // share of requests that meet a fault
	requests atomic.Int64
	faults   sync.Map // kind -> *atomic.Int64
	server   *httptest.Server
	// before is called before a request is passed on, unless it has answered that, and pieces before each
	// piece of an answer is: of a watch that is its events. Either may be nil.
	before func(http.ResponseWriter, *http.Request) (answered bool)
	pieces func(*http.Request)
}

// piecemeal is the body of an answer that is handed on piece by piece.
type piecemeal struct {
	io.ReadCloser
	before func()
}

func (b piecemeal) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.before()
	return n, err
}

func newFaultyProxy(t *testing.T, k *bed.Kube) *faultyProxy {
	t.Helper()
	config := rest.CopyConfig(k.RESTConfig())
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &faultyProxy{}
	through := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = target.Host },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			if p.pieces != nil {
				resp.Body = piecemeal{resp.Body, func() { p.pieces(resp.Request) }}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		if p.before != nil && p.before(w, r) {
			return
		}
		if rand.Int64N(100) < p.percent.Load() && p.fault(through, w, r) {
			return
		}
		through.ServeHTTP(w, r)
	}))
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	t.Cleanup(func() { p.server.CloseClientConnections(); p.server.Close() })
	return p
}

// fault spoils a request, and reports whether that was the whole answer.
func (p *faultyProxy) fault(through http.Handler, w http.ResponseWriter, r *http.Request) bool {
	kinds := []string{"500", "503", "429", "409", "torn", "slow", "swallowed"}
	kind := kinds[rand.IntN(len(kinds))]
	count, _ := p.faults.LoadOrStore(kind, new(atomic.Int64))
	count.(*atomic.Int64).Add(1)
	status := func(code int, reason string) bool {
		w.Header().Set("Content-Type", jsonMIME)
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected","reason":%q,"code":%d}`, reason, code)
		return true
	}
	switch kind {
	case "500":
		return status(500, "InternalError")
	case "503":
		return status(503, "ServiceUnavailable")
	case "429":
		w.Header().Set("Retry-After", "1")
		return status(429, "TooManyRequests")
	case "409":
		if r.Method == http.MethodGet {
			return false
		}
		return status(409, "Conflict")
	case "torn":
		panic(http.ErrAbortHandler) // the connection breaks without an answer
	case "slow":
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(500 * time.Millisecond)))):
		case <-r.Context().Done():
		}
		return false
	default:
		if r.Method == http.MethodGet {
			return false
		}
		through.ServeHTTP(httptest.NewRecorder(), r) // carried out, and the answer is lost
		panic(http.ErrAbortHandler)
	}
}

// kubeconfig writes a kubeconfig that leads to the proxy.
func (p *faultyProxy) kubeconfig(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	writeKubeconfig(t, path, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, p.server.URL)
	return path
}

// TestFaults has many neighbours come, move and go while a third of all requests
// fail in every way there is.
func TestFaults(t *testing.T) {
	k := startKube(t)
	proxy := newFaultyProxy(t, k)
	proxy.percent.Store(33)
	reg := newRegistry()
	const n = 50
	for i := range n {
		reg.put(neighbour(i))
	}
	r := run(t, proxy.kubeconfig(t), reg)
	everyone := func(check func(*api.ForeignCluster) error) func() error {
		return func() error {
			items, err := list(t, k)
			if err != nil {
				return err
			}
			if len(items) != n {
				return fmt.Errorf("%d ForeignClusters, want %d", len(items), n)
			}
			for i := range items {
				if err := check(&items[i]); err != nil {
					return fmt.Errorf("%s: %w", items[i].Name, err)
				}
			}
			return nil
		}
	}
	within(t, "all there", everyone(condition(api.ConditionReachable, api.ConditionTrue)))
	// Half of them move while the watch is torn again and again.
	for i := range n / 2 {
		r.change(neighbour(i).ID, func(p *peer.Peer) { p.URL = strings.Replace(p.URL, "10.1.", "10.2.", 1) })
		if i%10 == 0 {
			proxy.server.CloseClientConnections()
		}
	}
	within(t, "moved", everyone(func(fc *api.ForeignCluster) error {
		p, _ := reg.Peer(peer.ClusterID(fc.Name))
		return hasURL(p.URL)(fc)
	}))
	for i := range n {
		r.change(neighbour(i).ID, func(p *peer.Peer) { p.Phase = peer.PhaseLost })
	}
	within(t, "gone", func() error {
		items, err := list(t, k)
		if err == nil && len(items) > 0 {
			err = fmt.Errorf("%d are left", len(items))
		}
		return err
	})
	r.stop()

	proxy.faults.Range(func(kind, count any) bool {
		t.Logf("%v: %d", kind, count.(*atomic.Int64).Load())
		return true
	})
	if lines := r.log.Lines(slog.LevelInfo); len(lines) > 12 {
		t.Errorf("%d lines in the log:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if got := proxy.requests.Load(); got > 20*n {
		t.Errorf("%d requests for %d neighbours", got, n)
	}
}

// TestOutage has the API server crash, hang and come back, and the kubeconfig
// appear late and be replaced.
func TestOutage(t *testing.T) {
	k := startKube(t)
	config, near := k.RESTConfig(), forward(t, k).url
	path := filepath.Join(t.TempDir(), "late", "kubeconfig")
	r := run(t, path, newRegistry())
	r.put(barn())
	within(t, "the wait for a kubeconfig", func() error {
		if s := r.Status(); s.Connected || !strings.Contains(s.LastError, "no kubeconfig found") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\nclus"), 0o600); err != nil { // half of one
		t.Fatal(err)
	}
	within(t, "a broken kubeconfig is reported", func() error {
		if s := r.Status(); strings.Contains(s.LastError, "no kubeconfig found") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	writeKubeconfig(t, path, config, near)
	first := awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionTrue))
	connected := func(want bool) func() error {
		return func() error {
			if s := r.Status(); s.Connected != want {
				return fmt.Errorf("%+v", s)
			}
			return nil
		}
	}
	number := 0
	changeDuring := func(name string, stop, start func() error) {
		t.Run(name, func(t *testing.T) {
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			number++
			moved := fmt.Sprintf("https://10.7.7.%d:6447", number)
			r.change(barnID, func(p *peer.Peer) { p.URL = moved })
			r.put(neighbour(number))
			within(t, "the loss is noticed", connected(false))
			if err := start(); err != nil {
				t.Fatal(err)
			}
			fc := awaitFC(t, k, string(barnID), hasURL(moved))
			if fc.UID != first.UID {
				t.Error("it was made anew")
			}
			awaitFC(t, k, string(neighbour(number).ID), condition(api.ConditionReachable, api.ConditionTrue))
			within(t, "connection", connected(true))
		})
	}
	start := func() error { return k.Start(t.Context()) }
	changeDuring("crash", k.Kill, start)
	changeDuring("hang", k.Freeze, k.Thaw)
	changeDuring("wrong credentials", func() error {
		writeKubeconfig(t, path, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}}, near)
		return nil
	}, func() error {
		writeKubeconfig(t, path, config, forward(t, k).url)
		return nil
	})

	t.Run("a quick restart", func(t *testing.T) {
		if err := k.Kill(); err != nil {
			t.Fatal(err)
		}
		r.put(neighbour(50))
		if err := start(); err != nil {
			t.Fatal(err)
		}
		awaitFC(t, k, string(neighbour(50).ID), condition(api.ConditionReachable, api.ConditionTrue))
	})

	t.Run("another cluster ID in the ConfigMap", func(t *testing.T) {
		// What was lost with the API server's disk is made again one after the other.
		within(t, "the ConfigMap", func() error {
			_, err := k.Request(t.Context(), "GET", cmPath, "", nil)
			return err
		})
		request(t, k, "PATCH", cmPath, merge, `{"data":{"CLUSTER_ID":"someone-else"}}`)
		r.stop()
		again := run(t, path, r.reg)
		select {
		case id := <-again.otherIDs:
			if id != "someone-else" {
				t.Errorf("OnClusterID(%q)", id)
			}
		case <-time.After(5 * time.Minute):
			t.Fatal("OnClusterID was not called")
		}
		request(t, k, "PATCH", cmPath, merge, `{"data":{"CLUSTER_ID":"Not An ID"}}`)
		again.stop()
		third := run(t, path, r.reg)
		within(t, "the complaint", func() error {
			if !strings.Contains(third.log.String(), "correct it or delete the ConfigMap") {
				return errors.New("nothing was logged")
			}
			return nil
		})
		text, err := k.Request(t.Context(), "GET", cmPath, "", nil)
		if err != nil || !strings.Contains(string(text), "Not An ID") {
			t.Errorf("the ConfigMap is %s, %v", text, err)
		}
	})

	lines := r.log.Lines(slog.LevelInfo)
	if len(lines) > 20 {
		t.Errorf("%d lines in the log", len(lines))
	}
	t.Logf("log:\n%s", strings.Join(lines, "\n"))
}

// TestManyNeighbours bounds what many new neighbours and a new start among them cost in writes.
func TestManyNeighbours(t *testing.T) {
	const n = 80
	k := startKube(t)
	reg := newRegistry()
	for i := range n {
		reg.put(neighbour(i))
	}
	r := run(t, direct(t, k), reg)
	within(t, "all reachable", func() error {
		if s := r.Status(); s.ForeignClusters != n {
			return fmt.Errorf("there are %d", s.ForeignClusters)
		}
		items, err := list(t, k)
		for i := range items {
			err = errors.Join(err, condition(api.ConditionReachable, api.ConditionTrue)(&items[i]))
		}
		return err
	})
	if writes := r.Status().Writes; writes > 2*n+50 {
		t.Errorf("%d writes for %d neighbours", writes, n)
	}
	awaitInstalled(t, k) // or it is left to the next one
	r.stop()
	again := run(t, r.kubeconfig, reg)
	within(t, "a new start", func() error {
		if s := again.Status(); !s.Connected || s.ForeignClusters != n {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	again.put(neighbour(n))
	awaitFC(t, k, string(neighbour(n).ID), condition(api.ConditionReachable, api.ConditionTrue))
	if got := again.Status().Writes; got != 2 {
		t.Errorf("%d writes after a new start, want the 2 for a new neighbour", got)
	}
}
