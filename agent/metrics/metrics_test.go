package metrics

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// TestEveryMetricHasItsValue: what is declared is told, with its type and the number
// that the snapshot has.
func TestEveryMetricHasItsValue(t *testing.T) {
	got := gather(t, full())
	types := map[kind]dto.MetricType{counter: dto.MetricType_COUNTER, gauge: dto.MetricType_GAUGE, histogram: dto.MetricType_HISTOGRAM}
	for _, s := range sections() {
		for _, f := range s.families {
			told := got[prefix+f.name]
			switch {
			case told == nil:
				t.Errorf("%s%s has no value although everything is known", prefix, f.name)
			case told.GetType() != types[f.kind]:
				t.Errorf("%s%s is a %s, and declared as a %s", prefix, f.name, told.GetType(), f.kind)
			}
		}
	}
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{1, "build_info", []string{"version", "v1"}},
		{1, "identity_info", []string{"cluster_id", "c0", "cluster_name", "here", "fingerprint", "f0"}},
		{2, "part_restarts_total", []string{"part", "mDNS"}},
		{1790000000.5, "config_last_reload_success_timestamp_seconds", nil},
		{1, "health_problem", []string{"code", "peer-unreachable", "severity", "warning"}},
		{0, "health_problem", []string{"code", "disk-full"}},
		{3, "peers", []string{"phase", "Present"}},
		{3, "peer_checks_total", []string{"result", "failed"}},
		{6, "mdns_packets_dropped_total", []string{"reason", "off-link"}},
		{1, "search_domains", []string{"outcome", ""}},
		{9, "endpoint_refused_total", []string{"reason", "not-trusted"}},
		{7, "gateway_requests_total", []string{"verb", "get", "result", "ok"}},
		{1, "apiserver_requests_total", []string{"verb", "patch", "result", "forbidden"}},
		{3, "apiserver_request_duration_seconds", nil},
		{5, "reconciles_total", []string{"result", "retry"}},
		{1, "peerings", []string{"direction", "outgoing", "state", "waiting"}},
		{0, "peerings", []string{"direction", "incoming", "state", "waiting"}},
		{1, "peer_joined", []string{"peer", "p1", "direction", "outgoing"}},
		{0, "peer_joined", []string{"peer", "p1", "direction", "incoming"}},
		{3.5, "offer_pool", []string{"resource", "cpu", "unit", "core"}},
		{10, "consumer_promised", []string{"peer", "p1", "resource", "pods", "unit", "integer"}},
		{1, "offloaded_pods", []string{"peer", "p1", "state", "other"}},
		{14, "lease_renewals_total", []string{"result", "ok"}},
		{1790000000.5, "certificate_expiry_timestamp_seconds", []string{"certificate", "fleet-ca"}},
		{1 << 20, "state_filesystem_free_bytes", nil},
	} {
		if v := value(t, got, prefix+c.name, c.labels...); v != c.want {
			t.Errorf("%s %v is %v, want %v", c.name, c.labels, v, c.want)
		}
	}
	if n := len(got[prefix+"certificate_expiry_timestamp_seconds"].GetMetric()); n != 1 {
		t.Errorf("%d certificates, want the one that there is", n)
	}
}

// TestUnknownHasNoValue: a zero would be a statement.
func TestUnknownHasNoValue(t *testing.T) {
	got := gather(t, Snapshot{State: State{DatabaseBytes: -1}, Discovery: Discovery{AdvertisementOff: true}})
	for _, name := range []string{
		"state_filesystem_free_bytes", "state_filesystem_size_bytes", "state_database_bytes", "key_created_timestamp_seconds",
		"config_last_reload_success_timestamp_seconds", "invite_expiry_timestamp_seconds", "offer_pool", "mdns_announced", "peer_info",
	} {
		if got[prefix+name] != nil {
			t.Errorf("%s is %v although nothing is known", name, got[prefix+name])
		}
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	var all []*dto.MetricFamily
	for name, f := range gather(t, full()) {
		if strings.HasPrefix(name, prefix) {
			all = append(all, f)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, s := range sections() {
		for _, f := range s.families {
			if !strings.HasSuffix(f.help, ".") || f.help[:1] != strings.ToUpper(f.help[:1]) && f.help[0] > '9' && !strings.HasPrefix(f.help, "mDNS") {
				t.Errorf("the help of %s is no sentence: %q", f.name, f.help)
			}
		}
	}
}

// TestPeersCannotMakeMoreSeries: ten thousand peers have as many series as the first
// few hundred, and those that matter are among them, every time.
func TestPeersCannotMakeMoreSeries(t *testing.T) {
	count := func(got map[string]*dto.MetricFamily) (series int) {
		for _, f := range got {
			series += len(f.GetMetric())
		}
		return series
	}
	for _, peers := range []int{0, 1, MaxPeers - 1, MaxPeers, MaxPeers + 1, 10_000} {
		got := gather(t, many(peers))
		if n := value(t, got, prefix+"peer_series_omitted"); n != float64(max(0, peers-MaxPeers)) {
			t.Errorf("of %d peers %v are said to be left out", peers, n)
		}
		if n := len(got[prefix+"peer_info"].GetMetric()); n != min(peers, MaxPeers) {
			t.Errorf("%d of %d peers are shown", n, peers)
		}
	}
	// Each kind of peer alone, so that all of those shown have all series there are.
	most := many(10_000)
	for i := range most.Peers {
		one := full().Peers[0]
		one.ID, one.Name = most.Peers[i].ID, most.Peers[i].Name
		most.Peers[i] = one
	}
	got := gather(t, most)
	if n := count(got); n > 25*MaxPeers+200 {
		t.Errorf("ten thousand peers make %d series", n)
	} else {
		t.Logf("%d series at most", n)
	}
	first, again := many(2*MaxPeers*10), many(2*MaxPeers*10)
	for i, j := 0, len(again.Peers)-1; i < j; i, j = i+1, j-1 {
		again.Peers[i], again.Peers[j] = again.Peers[j], again.Peers[i]
	}
	a, b := gather(t, first), gather(t, again)
	for i, m := range a[prefix+"peer_info"].GetMetric() {
		if other := b[prefix+"peer_info"].GetMetric()[i]; other.String() != m.String() {
			t.Fatalf("%v, and when the peers come in another order %v", m, other)
		}
		if v := value(t, a, prefix+"peer_joined", "peer", m.GetLabel()[1].GetValue(), "direction", "outgoing"); v != 1 {
			t.Errorf("%v is shown before others that are joined", m)
		}
	}
}

// TestLabelsAreCleaned: whatever a text is made of, there is a metric.
func TestLabelsAreCleaned(t *testing.T) {
	s := full()
	s.Peers[0].Name = "a\xff\xfe\n\"" + strings.Repeat("ü", 500)
	s.Agent.ClusterName = "\x00"
	got := gather(t, s)
	for _, l := range got[prefix+"peer_info"].GetMetric()[0].GetLabel() {
		if !utf8.ValidString(l.GetValue()) || len(l.GetValue()) > maxLabel {
			t.Errorf("%s is %q", l.GetName(), l.GetValue())
		}
	}
}

// TestScrapesAtATime: they share nothing, and too many are told to come back.
func TestScrapesAtATime(t *testing.T) {
	s := many(1000)
	var scrapes sync.WaitGroup
	handler := New(func() Snapshot { return s }, quiet()).Handler()
	var mu sync.Mutex
	seen := make(map[int]int)
	for range 16 {
		scrapes.Go(func() {
			for range 3 {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
				mu.Lock()
				seen[w.Code]++
				mu.Unlock()
			}
		})
	}
	scrapes.Wait()
	if seen[200] == 0 || seen[200]+seen[503] != 48 {
		t.Errorf("answers by status: %v", seen)
	}
}

func TestForms(t *testing.T) {
	handler := New(full, quiet()).Handler()
	for _, c := range []struct{ accept, encoding, contentType, has string }{
		{"", "", "text/plain; version=0.0.4", "# TYPE liqo_agent_peers gauge\n"},
		{"", "gzip", "text/plain; version=0.0.4", "# TYPE liqo_agent_mdns_packets_sent_total counter\n"},
		{"application/openmetrics-text;version=1.0.0,*/*;q=0.1", "", "application/openmetrics-text; version=1.0.0", "# TYPE liqo_agent_mdns_packets_sent counter\n"},
		{"application/openmetrics-text;version=1.0.0", "gzip", "application/openmetrics-text; version=1.0.0", "# EOF\n"},
	} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", c.accept)
		r.Header.Set("Accept-Encoding", c.encoding)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var body io.Reader = w.Body
		if w.Header().Get("Content-Encoding") != c.encoding {
			t.Errorf("%+v: encoded as %q", c, w.Header().Get("Content-Encoding"))
		} else if c.encoding == "gzip" {
			unpacked, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = unpacked
		}
		text, err := io.ReadAll(body)
		if err != nil || w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), c.contentType) || !bytes.Contains(text, []byte(c.has)) {
			t.Errorf("%+v: status %d, %s, %v:\n%.300s", c, w.Code, w.Header().Get("Content-Type"), err, text)
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	s := many(5000)
	handler := New(func() Snapshot { return s }, quiet()).Handler()
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		b.ReportMetric(float64(w.Body.Len()), "bytes")
	}
}
