package endpoint

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

// A caller that speaks other versions is answered where all versions are the same,
// and told what to do everywhere else.
func TestCallersOfOtherVersions(t *testing.T) {
	home, known := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	l := pin(known)
	s := servePeers(t, home, l, nil, nil)
	says := func(request, header string) string {
		if header == "-" {
			return request
		}
		return strings.Replace(request, "\r\n\r\n", "\r\n"+wire.ProtocolHeader+": "+header+"\r\n\r\n", 1)
	}
	state, ask, notice := post(wire.PathState, greeting(endpointtest.IDB, "")), post(wire.PathAsk, greeting(endpointtest.IDB, "")), post(wire.PathNotice, "")
	for header, want := range map[string]string{
		"-": "200 200 200 200", "1": "200 200 200 200", "1-3": "200 200 200 200", "": "200 200 200 200", "nonsense": "200 200 200 200",
		"2": "200 400 400 400", "2-3": "200 400 400 400",
	} {
		got := ""
		for _, request := range []string{get(wire.PathIDs), ask, state, notice} {
			answer := visit(t, s, known).send(says(request, header))
			got += fmt.Sprint(" ", answer.status)
			if answer.header.Get(wire.ProtocolHeader) != peer.Spoken().String() {
				t.Errorf("%q: the answer says %q", header, answer.header.Get(wire.ProtocolHeader))
			}
			if answer.status != 200 && (answer.Reason != wire.ReasonProtocol || !strings.Contains(answer.Error, "update liqo-agent here at the peer")) {
				t.Errorf("%q: %q %q", header, answer.Reason, answer.Error)
			}
		}
		if got[1:] != want {
			t.Errorf("%q: %s, want %s", header, got[1:], want)
		}
	}
	if n := s.Stats().Refused[refusal.Protocol]; n != 6 {
		t.Errorf("%d were counted", n)
	}
}
