package endpoint

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/endpoint/guard"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

func TestCalls(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	l := pin(other)
	s := servePeers(t, home, l, nil, nil)
	raw := func(path, header, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + header + "\r\n" + body
	}
	const typed = "Content-Type: application/json\r\n"
	long := strings.Repeat("x", maxCallBody)
	for _, tc := range []struct {
		name, request string
		status        int
		call          string // what arrives
		reason        string // of a refusal
		says          string
	}{
		{name: "ask", request: post(wire.PathAsk, greeting(endpointtest.IDB, `,"port":6447,"url":"https://barn:1","token":"1.2","fresh":true`)), status: 200, call: "ask b 6447 https://barn:1 1.2 true"},
		{name: "state", request: post(wire.PathState, greeting(endpointtest.IDB, `,"port":1`)), status: 200, call: "state b 1 "},
		{name: "notice", request: post(wire.PathNotice, ""), status: 200, call: "notice"},
		{name: "withdrawal", request: post(wire.PathWithdraw, `{"advertisement":true,"reason":"tired"}`), status: 200, call: "withdraw false true tired"},
		{name: "long reason", request: post(wire.PathWithdraw, `{"reason":"`+strings.Repeat("é", 1000)+`"}`), status: 200, call: "withdraw false false " + strings.Repeat("é", 248) + "..."},
		{name: "newer version", request: post(wire.PathState, greeting(endpointtest.IDB, `,"later":{"a":[1,{"b":null}]}`)), status: 200, call: "state b 0 "},
		{name: "charset", request: raw(wire.PathState, "Content-Type: application/json; charset=UTF-8\r\nContent-Length: "+fmt.Sprint(len(greeting(endpointtest.IDB, "")))+"\r\n", greeting(endpointtest.IDB, "")), status: 200, call: "state b 0 "},
		{name: "expects to go on", request: raw(wire.PathNotice, "Expect: 100-continue\r\nContent-Length: 0\r\n", ""), status: 200, call: "notice"},

		{name: "other ID", request: post(wire.PathState, greeting(endpointtest.IDC, "")), status: 403, reason: wire.ReasonOtherIdentity, says: "certificate, b, and it says \"c\""},
		{name: "other ID asks", request: post(wire.PathAsk, greeting(endpointtest.IDC, "")), status: 403, reason: wire.ReasonOtherIdentity},
		{name: "no ID", request: post(wire.PathState, `{"port":1}`), status: 403, reason: wire.ReasonOtherIdentity},
		{name: "empty ID", request: post(wire.PathState, greeting("", "")), status: 403, reason: wire.ReasonOtherIdentity},
		{name: "two identities", request: post(wire.PathState, greeting(endpointtest.IDB, `,"identity":{"clusterId":"b","clusterName":"x","guestNamespace":"x"}`)), status: 400, says: "name twice"},
		{name: "two identities in other case", request: post(wire.PathState, greeting(endpointtest.IDB, `,"Identity":{}`)), status: 400, says: "name twice"},
		{name: "two IDs", request: post(wire.PathState, `{"identity":{"clusterId":"c","clusterName":"x","guestNamespace":"x","cluſterId":"b"}}`), status: 400, says: "name twice"},
		{name: "no name", request: post(wire.PathState, `{"identity":{"clusterId":"b"}}`), status: 400, says: "name is empty"},
		{name: "name for a terminal", request: post(wire.PathState, `{"identity":{"clusterId":"b","clusterName":"\u001b[2J","guestNamespace":"liqo"}}`), status: 400, says: "cannot be printed"},
		{name: "bad namespace", request: post(wire.PathState, `{"identity":{"clusterId":"b","clusterName":"x","guestNamespace":"../x"}}`), status: 400, says: "namespace"},
		{name: "http URL", request: post(wire.PathState, greeting(endpointtest.IDB, `,"url":"http://barn"`)), status: 400, says: "https://host:port"},
		{name: "URL with a path", request: post(wire.PathState, greeting(endpointtest.IDB, `,"url":"https://barn/x"`)), status: 400, says: "https://host:port"},
		{name: "URL with a user", request: post(wire.PathState, greeting(endpointtest.IDB, `,"url":"https://u:p@barn"`)), status: 400, says: "https://host:port"},
		{name: "endless URL", request: post(wire.PathState, greeting(endpointtest.IDB, `,"url":"https://`+long[:2000]+`"`)), status: 400, says: "https://host:port"},
		{name: "port of another type", request: post(wire.PathState, greeting(endpointtest.IDB, `,"port":"6447"`)), status: 400, says: "cannot unmarshal"},
		{name: "port too high", request: post(wire.PathState, greeting(endpointtest.IDB, `,"port":65536`)), status: 400, says: "cannot unmarshal"},
		{name: "endless token", request: post(wire.PathAsk, greeting(endpointtest.IDB, `,"token":"`+long[:300]+`"`)), status: 400, says: "token"},
		{name: "garbage behind", request: post(wire.PathState, greeting(endpointtest.IDB, "")+"x"), status: 400, says: "not one JSON value"},
		{name: "another value behind", request: post(wire.PathState, greeting(endpointtest.IDB, "")+"{}"), status: 400, says: "not one JSON value"},
		{name: "nothing", request: post(wire.PathState, ""), status: 400, says: "not one JSON value"},
		{name: "an array", request: post(wire.PathState, "[]"), status: 400, says: "cannot unmarshal"},
		{name: "null", request: post(wire.PathState, "null"), status: 403, reason: wire.ReasonOtherIdentity},
		{name: "no UTF-8", request: post(wire.PathState, greeting(endpointtest.IDB, ",\"x\":\"\xff\"")), status: 400, says: "UTF-8"},
		{name: "deep", request: post(wire.PathState, greeting(endpointtest.IDB, `,"x":`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000))), status: 400, says: "nested"},

		{name: "GET", request: get(wire.PathState), status: 405, says: "use POST"},
		{name: "PUT", request: strings.Replace(post(wire.PathState, greeting(endpointtest.IDB, "")), "POST", "PUT", 1), status: 405, says: "use POST"},
		{name: "query", request: post(wire.PathState+"?x", greeting(endpointtest.IDB, "")), status: 404, reason: wire.ReasonNoSuchPath},
		{name: "empty query", request: post(wire.PathState+"?", greeting(endpointtest.IDB, "")), status: 404, reason: wire.ReasonNoSuchPath},
		{name: "escaped path", request: post("/peering/%73tate", greeting(endpointtest.IDB, "")), status: 404, reason: wire.ReasonNoSuchPath},
		{name: "slash behind", request: post(wire.PathState+"/", greeting(endpointtest.IDB, "")), status: 404, reason: wire.ReasonNoSuchPath},
		{name: "two slashes", request: post("/"+wire.PathState, greeting(endpointtest.IDB, "")), status: 404, reason: wire.ReasonNoSuchPath},
		{name: "dots", request: post("/x/.."+wire.PathState, greeting(endpointtest.IDB, "")), status: 404, reason: wire.ReasonNoSuchPath},
		{name: "case", request: post("/Peering/State", greeting(endpointtest.IDB, "")), status: 404, reason: wire.ReasonNoSuchPath},
		{name: "as if to a proxy", request: post("https://x"+wire.PathState, greeting(endpointtest.IDB, "")), status: 404, reason: wire.ReasonNoSuchPath},
		{name: "CONNECT", request: "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n", status: 404, reason: wire.ReasonNoSuchPath},

		{name: "no type", request: raw(wire.PathState, "Content-Length: 2\r\n", "{}"), status: 415, says: "Content-Type"},
		{name: "form", request: raw(wire.PathState, "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 2\r\n", "{}"), status: 415},
		{name: "two types", request: raw(wire.PathState, typed+"Content-Type: text/plain\r\nContent-Length: 2\r\n", "{}"), status: 415},
		{name: "other charset", request: raw(wire.PathState, "Content-Type: application/json; charset=utf-7\r\nContent-Length: 2\r\n", "{}"), status: 415},
		{name: "compressed", request: raw(wire.PathState, typed+"Content-Encoding: gzip\r\nContent-Length: 2\r\n", "{}"), status: 415},
		{name: "too large", request: raw(wire.PathState, typed+"Content-Length: 16385\r\n", ""), status: 413},
		{name: "huge", request: raw(wire.PathState, typed+"Content-Length: 99999999999999\r\n", ""), status: 413},
		{name: "too large and asks first", request: raw(wire.PathState, typed+"Expect: 100-continue\r\nContent-Length: 16385\r\n", ""), status: 413},
		{name: "no length", request: raw(wire.PathState, typed+"Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), status: 411},
		{name: "length and chunks", request: raw(wire.PathState, typed+"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), status: 411},
		{name: "notice with a body", request: post(wire.PathNotice, "{}"), status: 400, says: "no body"},
		{name: "notice in chunks", request: raw(wire.PathNotice, "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), status: 400, says: "no body"},
	} {
		got := visit(t, s, other).send(tc.request)
		calls := l.taken()
		if got.status != tc.status {
			t.Errorf("%s: %d %s %v, want %d", tc.name, got.status, got.body, got.err, tc.status)
			continue
		}
		if arrived := strings.Join(calls, ";"); arrived != tc.call {
			t.Errorf("%s: %q arrived, not %q", tc.name, arrived, tc.call)
		}
		if got.status == http.StatusOK {
			continue
		}
		if tc.reason == "" {
			tc.reason = wire.ReasonBadRequest
		}
		if got.Reason != tc.reason || !strings.Contains(got.Error, tc.says) {
			t.Errorf("%s: %s does not say %q, %q", tc.name, got.body, tc.reason, tc.says)
		}
	}
	for _, reason := range []refusal.Reason{refusal.Identity, refusal.Body, refusal.Large, refusal.Method, refusal.Path} {
		if s.Stats().Refused[reason] == 0 {
			t.Errorf("%s was not counted", reason)
		}
	}
}

// What the agent answers arrives as it is.
func TestAnswers(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	s := servePeers(t, home, pin(other), nil, nil)
	v := visit(t, s, other)
	for path, want := range map[string]string{
		wire.PathAsk:   `{"auth":"Pending","reason":"WaitsForPerson","message":"a person decides"}`,
		wire.PathState: `{"identity":{"clusterId":"","clusterName":"","guestNamespace":""},"kubernetes":true,"consumes":true,"advertisementWelcome":false}`,
	} {
		got := v.send(post(path, greeting(endpointtest.IDB, "")))
		if got.body != want || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s as %s", path, got.body, got.header)
		}
	}
}

// A body that does not come is waited for a short time only, and while the
// server is full not even that.
func TestSlowBodies(t *testing.T) {
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	head := "POST " + wire.PathAsk + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
	l := pin()
	s := servePeers(t, home, l, nil, func(s *Server) { s.times.body = 50 * time.Millisecond })
	got := visit(t, s, other).send(head)
	if got.status != http.StatusRequestTimeout || s.Stats().Refused[refusal.Slow] != 1 {
		t.Errorf("%+v", got)
	}
	v := visit(t, s, other)
	if _, err := v.Write([]byte(head)); err != nil {
		t.Fatal(err)
	}
	_ = v.CloseWrite() // and gone
	if got := v.send(""); got.status != http.StatusRequestTimeout {
		t.Errorf("%+v", got)
	}

	var later atomic.Int64
	s = servePeers(t, home, l, nil, func(s *Server) {
		s.times.body = time.Minute
		s.guard.Limit, s.guard.Reserved = 4, 0
		s.guard.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	gone := make(chan reaction, 4)
	for range 4 {
		v := visit(t, s, other)
		go func() { gone <- v.send(head) }()
	}
	endpointtest.Eventually(t, "wait for bodies", func() bool {
		st := s.Stats()
		return st.Requests == 4 && st.Waiting == 4
	})
	later.Store(int64(2 * guard.StaleAfter))
	if got := visit(t, s, third).send(post(wire.PathAsk, greeting(endpointtest.IDC, ""))); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	if got := <-gone; got.err == nil {
		t.Errorf("none made room: %+v", got)
	}
	if n := s.Stats().Refused[guard.RefusedStale]; n != 1 {
		t.Errorf("%d made room", n)
	}
}

// An answer may take longer than a whole request for /ids, and ends when it takes
// too long or the caller goes.
func TestSlowAnswers(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	l := pin(other)
	l.entered, l.release = make(chan struct{}), make(chan struct{})
	s := servePeers(t, home, l, nil, func(s *Server) {
		s.times.read, s.times.body, s.times.write, s.times.call = time.Second, time.Second, time.Second, time.Minute
	})
	answered := make(chan reaction, 1)
	// begin makes a call, and returns once it is being answered. On a busy machine a handshake
	// or a call may be too slow for the server.
	begin := func() *visitor {
		for {
			var v *visitor
			endpointtest.Eventually(t, "let a peer in", func() (in bool) {
				var err error
				v, err = tryVisit(t, s, showing(other))
				return err == nil
			})
			go func() { answered <- v.send(post(wire.PathState, greeting(endpointtest.IDB, ""))) }()
			select {
			case <-l.entered:
				return v
			case got := <-answered:
				t.Logf("arrived too late: %+v", got)
			}
		}
	}
	begin()
	timer := time.NewTimer(2 * s.times.read) // longer than anything else may take
	select {
	case got := <-answered:
		t.Fatalf("answered early: %+v", got)
	case <-timer.C:
	}
	l.release <- struct{}{}
	if got := <-answered; got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}

	begin().Close() // the call ends by itself
	<-answered
	endpointtest.Eventually(t, "end the call", func() bool { return s.limits.calling.Taken() == 0 })

	s = servePeers(t, home, l, nil, func(s *Server) { s.times.call = 50 * time.Millisecond })
	begin() // and nobody releases it
	if got := <-answered; got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
}

// How much may be under way at a time.
func TestCallsAtATime(t *testing.T) {
	home, other, third, stranger := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC), endpointtest.New(t, endpointtest.IDD)
	l := pin(other, third)
	l.entered, l.release = make(chan struct{}), make(chan struct{})
	s := servePeers(t, home, l, nil, nil)
	answered := make(chan reaction)
	under := 0
	begin := func(b *endpointtest.Box) {
		v := visit(t, s, b)
		go func() { answered <- v.send(post(wire.PathAsk, greeting(b.Identity.ClusterID, ""))) }()
		<-l.entered
		under++
	}
	for range callsPerPeer {
		begin(other)
	}
	for range asksPerSource {
		begin(stranger)
	}
	begin(third)
	for _, b := range []*endpointtest.Box{other, stranger} {
		got := visit(t, s, b).send(post(wire.PathAsk, greeting(b.Identity.ClusterID, "")))
		if got.status != http.StatusTooManyRequests || got.Reason != wire.ReasonBusy || got.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %+v", b.Identity.ClusterID, got)
		}
	}
	close(l.release)
	for range under {
		if got := <-answered; got.status != http.StatusOK {
			t.Errorf("%+v", got)
		}
	}
	if n := s.Stats().Refused[refusal.Busy]; n != 2 {
		t.Errorf("%d were refused", n)
	}
	endpointtest.Eventually(t, "give all back", func() bool { return s.limits.calling.Taken()+s.limits.asking.Taken() == 0 })
}

// How often one may come.
func TestRates(t *testing.T) {
	home, known, stranger := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	l := pin(known)
	now := time.Now()
	s := servePeers(t, home, l, nil, func(s *Server) {
		s.limits = newLimits()
		s.limits.now = func() time.Time { return now }
	})
	served := func(b *endpointtest.Box, request string, n int) (ok, refused int) {
		v := visit(t, s, b)
		for range n {
			got := v.send(request)
			if got.err != nil { // refused before, and closed
				v = visit(t, s, b)
				got = v.send(request)
			}
			switch got.status {
			case http.StatusOK:
				ok++
			case http.StatusTooManyRequests:
				refused++
				if got.Reason != wire.ReasonBusy || got.header.Get("Retry-After") == "" || got.header.Get("Retry-After") == "0" {
					t.Errorf("%s %+v", got.header, got)
				}
			default:
				t.Fatalf("%+v", got)
			}
		}
		return ok, refused
	}
	if ok, _ := served(stranger, post(wire.PathAsk, greeting(endpointtest.IDC, "")), 8); ok != callBurst {
		t.Errorf("%d asks of a stranger", ok)
	}
	if ok, _ := served(nil, get(wire.PathIDs), 120); ok != sourceBurst-8 {
		t.Errorf("then %d requests for /ids", ok)
	}
	// The address is used up, and the known peer at the same does not mind.
	if ok, _ := served(known, post(wire.PathState, greeting(endpointtest.IDB, "")), 60); ok != 60 {
		t.Errorf("%d calls of a known peer", ok)
	}
	v := visit(t, s, known)
	if got := v.send(get(wire.PathIDs)); got.status != http.StatusTooManyRequests {
		t.Errorf("the first /ids of a connection, which is nobody's yet: %+v", got)
	}
	v = visit(t, s, known)
	v.send(post(wire.PathNotice, ""))
	for range 30 {
		if got := v.send(get(wire.PathIDs)); got.status != http.StatusOK {
			t.Fatalf("/ids on a known peer's connection: %+v", got)
		}
	}
	if ok, refused := served(known, post(wire.PathState, greeting(endpointtest.IDB, "")), 30); ok != peerBurst-60-31 || refused != 30-ok {
		t.Errorf("%d calls of a known peer after its %d", ok, peerBurst)
	}
	now = now.Add(time.Second)
	if ok, _ := served(known, post(wire.PathState, greeting(endpointtest.IDB, "")), 30); ok != peerRate {
		t.Errorf("%d calls after a second", ok)
	}
	if s.Stats().Refused[refusal.Rate] == 0 {
		t.Error("not counted")
	}
}

func FuzzDecodeCall(f *testing.F) {
	f.Add([]byte(greeting(endpointtest.IDB, "")))
	f.Add([]byte(greeting(endpointtest.IDB, `,"identity":{}`)))
	f.Add([]byte(greeting(endpointtest.IDB, `,"url":"https://x:1","token":"a","port":1}`)))
	f.Add([]byte(`{"identity":{"clusterId":"b","ClusterID":"c"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var ask wire.Ask
		if no := decodeCall(body, &ask, &ask.Greeting, endpointtest.IDB); no != nil {
			if no.Status < 400 || no.Text == "" || no.Counted == "" {
				t.Errorf("%+v", no)
			}
			return
		}
		if ask.Identity.ClusterID != endpointtest.IDB {
			t.Errorf("another ID: %+v", ask)
		}
		if _, err := peer.ParseClusterName(ask.Identity.ClusterName); err != nil {
			t.Error(err)
		}
		if ask.URL != "" && !strings.HasPrefix(strings.ToLower(ask.URL), "https://") {
			t.Errorf("URL %q", ask.URL)
		}
		again, err := wire.Encode(ask)
		if err != nil {
			t.Fatal(err)
		}
		var same wire.Ask
		if no := decodeCall(again, &same, &same.Greeting, endpointtest.IDB); no != nil || same != ask {
			t.Errorf("%s became %+v, %v", again, same, no)
		}
	})
}
