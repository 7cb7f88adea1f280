package endpoint

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/agent/peer"
)

// A caller that speaks other versions is answered where all versions are the same,
// and told what to do everywhere else.
func TestCallersOfOtherVersions(t *testing.T) {
	home, known := newBox(t, idA), newBox(t, idB)
	l := pin(known)
	s := home.servePeers(t, l, nil, nil)
	says := func(request, header string) string {
		if header == "-" {
			return request
		}
		return strings.Replace(request, "\r\n\r\n", "\r\n"+ProtocolHeader+": "+header+"\r\n\r\n", 1)
	}
	state, ask, notice := post(PathState, greeting(idB, "")), post(PathAsk, greeting(idB, "")), post(PathNotice, "")
	for header, want := range map[string]string{
		"-": "200 200 200 200", "1": "200 200 200 200", "1-3": "200 200 200 200", "": "200 200 200 200", "nonsense": "200 200 200 200",
		"2": "200 400 400 400", "2-3": "200 400 400 400",
	} {
		got := ""
		for _, request := range []string{get(PathIDs), ask, state, notice} {
			answer := visit(t, s, known).send(says(request, header))
			got += fmt.Sprint(" ", answer.status)
			if answer.header.Get(ProtocolHeader) != peer.Spoken().String() {
				t.Errorf("%q: the answer says %q", header, answer.header.Get(ProtocolHeader))
			}
			if answer.status != 200 && (answer.Reason != ReasonProtocol || !strings.Contains(answer.Error, "update liqo-agent here at the peer")) {
				t.Errorf("%q: %q %q", header, answer.Reason, answer.Error)
			}
		}
		if got[1:] != want {
			t.Errorf("%q: %s, want %s", header, got[1:], want)
		}
	}
	if n := s.Stats().Refused[RefusedProtocol]; n != 6 {
		t.Errorf("%d were counted", n)
	}
}

// What a peer speaks is told by its answers, to checks as to calls.
func TestVersionsOfPeers(t *testing.T) {
	b, us := newBox(t, idA), newBox(t, idB)
	body := fmt.Sprintf(`{"clusterId":%q,"clusterName":"b","guestNamespace":"c"}`, idA)
	for header, want := range map[string]peer.Protocol{
		"":                                 {Oldest: 1, Newest: 1},
		ProtocolHeader + ": 1\r\n":         {Oldest: 1, Newest: 1},
		ProtocolHeader + ": 2-4\r\n":       {Oldest: 2, Newest: 4},
		ProtocolHeader + ": 4-2\r\n":       {Oldest: 1, Newest: 1},
		"liqo-protocol:   3  \r\nX: y\r\n": {Oldest: 3, Newest: 3},
	} {
		addr := listenTLS(t, "127.0.0.1", b, answering("HTTP/1.1 200 OK\r\n"+header+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)))
		c := caller(t, us)
		if resp := mustExchange(t, c, targetOf(b, addr), Request{Method: "GET", Path: "/"}); resp.Result.Protocol != want {
			t.Errorf("call, %q: %v, want %v", header, resp.Result.Protocol, want)
		}
		result, err := c.Identify(t.Context(), targetOf(b, addr))
		if err != nil || result.Protocol != want {
			t.Errorf("check, %q: %v, %v, want %v", header, result.Protocol, err, want)
		}
	}
}
