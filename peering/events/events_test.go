package events

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/kube"
)

// shown returns a ForeignCluster with conditions, each as "Type=Status/Reason".
func shown(conditions ...string) *api.ForeignCluster {
	fc := &api.ForeignCluster{}
	fc.Name, fc.UID = "fc", "u1"
	for _, text := range conditions {
		kind, rest, _ := strings.Cut(text, "=")
		status, reason, _ := strings.Cut(rest, "/")
		fc.Status.Conditions = append(fc.Status.Conditions, api.Condition{
			Type: kind, Status: api.ConditionStatus(status), Reason: reason, Message: reason + " it is.",
		})
	}
	return fc
}

func having(fc *api.ForeignCluster, change func(*api.ForeignClusterStatus)) *api.ForeignCluster {
	change(&fc.Status)
	return fc
}

// listed lists Events as "Reason", with "!" behind warnings.
func listed(all []Event) []string {
	var out []string
	for _, o := range all {
		if out = append(out, o.Reason); o.Warning {
			out[len(out)-1] += "!"
		}
	}
	return out
}

func TestBetween(t *testing.T) {
	const (
		present = "Reachable=True/EndpointAnswers"
		away    = "Reachable=False/ChecksFailed"
		lost    = "Reachable=False/Lost"
		uses    = "OutgoingPeering=True/Joined"
		unused  = "OutgoingPeering=False/"
		serves  = "IncomingPeering=True/Joined"
		unserve = "IncomingPeering=False/"
	)
	offer := func(a api.AdvertisementStatus) func(*api.ForeignClusterStatus) {
		return func(s *api.ForeignClusterStatus) { s.Outgoing.AdvertisementStatus = a }
	}
	key := func(k string) func(*api.ForeignClusterStatus) {
		return func(s *api.ForeignClusterStatus) { s.Fingerprint = k }
	}
	for _, tc := range []struct {
		name          string
		before, after *api.ForeignCluster
		want          []string
	}{
		{"a new neighbour", nil, shown(present, "Verified=True/KeyProven"), nil},
		{"nothing", shown(present, uses, serves), shown(present, uses, serves), nil},
		{"a neighbour goes", shown(present), shown(away), nil},
		{"a peer goes", shown(present, uses), shown(away, uses), []string{"PeerUnreachable!"}},
		{"and stays away", shown(away, uses), shown(lost, "OutgoingPeering=False/Lost"), []string{"PeerLost!", "PeeringLost!"}},
		{"it was told", shown(lost, unused+"Lost"), shown(lost, unused+"Lost", unserve+"Lost"), []string{"PeeringLost!"}},
		{"and returns", shown(lost, uses), shown(present, uses), []string{"PeerReachable"}},
		{"joined while it was away", shown(uses), shown(present, uses), nil},
		{"joined", shown(present, unused+"AwaitingOffer"), having(shown(present, uses), offer(api.AdvertisementAccepted)), []string{"Joined", "OfferAccepted"}},
		{"joined, as the first thing", nil, shown(present, uses), []string{"Joined"}},
		{"joined again after an absence", shown("OutgoingPeering=True/AwaitingPeer"), shown(uses), nil},
		{"the words differ", shown(uses), having(shown(uses), func(s *api.ForeignClusterStatus) { s.Conditions[0].Message = "else" }), nil},
		{"refused", shown(unused + "Asking"), shown(unused + "Refused"), []string{"RefusedByTheProvider!"}},
		{"trust is needed", shown(present), shown(present, unused+"AwaitingTrust", "Trusted=False/NotDecided"), []string{"TrustNeeded"}},
		{"the provider has to decide", shown(unused + "Asking"), shown(unused + "AwaitingAcceptance"), []string{"WaitingForTheProvider"}},
		{"we have to decide about the offer", shown(unused + "AwaitingOffer"), shown(unused + "AwaitingDecision"), []string{"OfferWaiting"}},
		{"the offer is refused", shown(unused + "AwaitingDecision"), having(shown(unused+"Offered"), offer(api.AdvertisementRefused)), []string{"OfferRefused!"}},
		{"the offer is withdrawn", having(shown(uses), offer(api.AdvertisementAccepted)), shown(unused + "AwaitingOffer"), []string{"OfferWithdrawn!"}},
		{"disconnected", having(shown(uses), offer(api.AdvertisementAccepted)), shown(unused + "Disconnected"), []string{"Disconnected"}},
		{"never connected", shown(present), shown(present, unused+"Disconnected"), nil},
		{"ended by the provider", shown(uses), shown(unused + "EndedByProvider"), []string{"EndedByTheProvider!"}},
		{"blocked in both directions", shown(uses, serves), shown(unused+"Blocked", unserve+"Blocked"), []string{"PeerBlocked!"}},
		{"a request waits", nil, shown(unserve + "AwaitingDecision"), []string{"RequestWaiting"}},
		{"and is refused", shown(unserve + "AwaitingDecision"), shown(unserve + "Refused"), []string{"RequestRefused"}},
		{"serving", shown(unserve + "AwaitingConsumer"), shown(serves), []string{"Serving"}},
		{"withdrawn", shown(serves), shown(unserve + "Withdrawn"), []string{"ServingEnded"}},
		{"ended here", shown(serves), shown(unserve + "Ended"), []string{"ServingEnded"}},
		{"the request vanished", shown(serves), shown(unserve + "RequestMissing"), []string{"RequestGone!"}},
		{"incompatible", shown(uses, serves), shown("OutgoingPeering=True/Incompatible", "IncomingPeering=True/Incompatible"), []string{"PeerIncompatible!"}},
		{"the networks are about to be connected", shown(uses), shown(uses, "NetworkReady=Unknown/Connecting"), nil},
		{"and are", shown(uses, "NetworkReady=Unknown/Connecting"), shown(uses, "NetworkReady=True/Connected"), []string{"NetworkConnected"}},
		{"they stay", shown(uses, "NetworkReady=True/Connected"), shown(uses, "NetworkReady=True/Connected"), nil},
		{"a cable is out", shown(uses, "NetworkReady=True/Connected"), shown(uses, "NetworkReady=False/NetworkDown"), []string{"NetworkDown!"}},
		{"somebody switched it off", shown(uses, "NetworkReady=True/Connected"), shown(uses, "NetworkReady=False/Off"), nil},
		{"nothing is shared any more", shown(uses, "NetworkReady=True/Connected"), shown(uses, "NetworkReady=False/NotShared"), nil},
		{"a node too many", shown(uses, "NetworkReady=True/Connected"), shown(uses, "NetworkReady=False/SeveralNodes"), []string{"NetworkNotConnected!"}},
		{"the peering and its network end", shown(uses, "NetworkReady=True/Connected"), shown(unused + "Disconnected"), []string{"Disconnected"}},
		{"a conflict", shown(present), shown(present, "Conflict=True/OtherKeySeen"), []string{"KeyConflict!"}},
		{"the same conflict", shown("Conflict=True/OtherKeySeen"), shown("Conflict=True/OtherKeySeen"), nil},
		{"it is over", shown(present, "Conflict=True/OtherKeySeen"), shown(present), []string{"KeyConflictOver"}},
		{"another key", shown(uses, "Trusted=True/PersonDecided"), shown(uses, "Trusted=False/OtherKey"), []string{"KeyNotTrusted!"}},
		{"its certificate has ended", shown(uses, serves, "Trusted=True/FleetCertified"),
			shown("OutgoingPeering=True/CertificateEnded", "IncomingPeering=True/CertificateEnded", "Trusted=False/CertificateEnded"), []string{"CertificateEnded!"}},
		{"our certificate has ended", shown(uses), shown("OutgoingPeering=True/CertificateEnded"), []string{"CertificateEnded!"}},
		{"a newer one", shown("OutgoingPeering=True/CertificateEnded", "Trusted=False/CertificateEnded"), shown(uses, "Trusted=True/FleetCertified"), nil},
		{"distrusted", shown("Trusted=True/PersonDecided"), shown("Trusted=False/Distrusted"), []string{"KeyDistrusted!"}},
		{"rotated", having(shown(uses), key("a")), having(shown(uses), key("b")), []string{"KeyChanged"}},
		{"its first key", shown(uses), having(shown(uses), key("b")), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := Between(tc.before, tc.after)
			if got := listed(all); !slices.Equal(got, tc.want) {
				t.Errorf("told %v, want %v", got, tc.want)
			}
			for _, o := range all {
				if o.Message == "" {
					t.Errorf("%s says nothing", o.Reason)
				}
			}
			// The same once more, as after a restart.
			if got := listed(Between(tc.after, tc.after)); len(got) != 0 {
				t.Errorf("told again: %v", got)
			}
		})
	}
}

func TestAnObjectInTheSamePlaceIsAnother(t *testing.T) {
	before, after := shown("OutgoingPeering=True/Joined"), shown("OutgoingPeering=True/Joined")
	after.UID = types.UID("u2")
	if got := listed(Between(before, after)); !slices.Equal(got, []string{"Joined"}) {
		t.Error(got)
	}
}

// server takes Events.
type server struct {
	mu     sync.Mutex
	status int
	sent   []string
}

func newClient(t *testing.T) (*kube.Client, *server) {
	t.Helper()
	s := &server{status: http.StatusOK}
	client, err := kube.New(&rest.Config{Host: "https://nowhere", Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return client, s
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	return &http.Response{
		StatusCode: s.status, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}")),
	}, nil
}

// fail has it refuse everything from now on.
func (s *server) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = http.StatusInternalServerError
}

// TestRecorder: Events are written once, counted when they repeat, and given up when
// they cannot be written; nobody waits for any of it.
func TestRecorder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client, fake := newClient(t)
		a := NewRecorder(Config{Client: client, Now: time.Now, Logger: slog.New(slog.DiscardHandler), Refused: func(err error) { t.Error(err) }})
		away := func(name string) { // what happens to an object
			before, after := shown("Reachable=True/A", "OutgoingPeering=True/Joined"), shown("Reachable=False/B", "OutgoingPeering=True/Joined")
			before.Name, before.UID, after.Name, after.UID = name, types.UID(name), name, types.UID(name)
			a.Record(before, after)
		}
		sent := func() []string {
			synctest.Wait()
			fake.mu.Lock()
			defer fake.mu.Unlock()
			out := fake.sent
			fake.sent = nil
			return out
		}
		for i := range 2 * maxPending { // nobody takes them
			away(fmt.Sprint("fc-", i))
		}
		go a.Run(t.Context())
		time.Sleep(time.Hour)
		first := sent()
		if len(first) != maxPending {
			t.Fatalf("%d written, of a queue of %d", len(first), maxPending)
		}
		for _, want := range []string{
			"PATCH /api/v1/namespaces/default/events/fc-0.", "fieldManager=" + Manager, `"kind":"ForeignCluster"`, `"name":"fc-0","uid":"fc-0"`,
			`"reason":"PeerUnreachable"`, `"type":"Warning"`, `"count":1`, `"component":"liqo-agent"`,
		} {
			if !strings.Contains(first[0], want) {
				t.Errorf("%s lacks %s", first[0], want)
			}
		}
		time.Sleep(time.Hour)
		for range 10 {
			away("flaps")
			time.Sleep(10 * time.Second)
		}
		flaps := sent()
		if len(flaps) != 2 || !strings.Contains(flaps[1], `"count":7`) {
			t.Errorf("what happened ten times in 100 s is written %d times: %s", len(flaps), flaps)
		}
		name := func(request string) string { return strings.Fields(request)[1] }
		if len(flaps) == 2 && name(flaps[0]) != name(flaps[1]) {
			t.Error("what repeats is another Event")
		}
		time.Sleep(2 * time.Hour)
		away("flaps")
		if again := sent(); len(again) != 1 || name(again[0]) == name(flaps[0]) || !strings.Contains(again[0], `"count":1`) {
			t.Errorf("two hours later: %s", again)
		}
		fake.fail()
		away("nowhere")
		time.Sleep(time.Hour)
		if tries := sent(); len(tries) != 1 {
			t.Errorf("what failed was tried %d times", len(tries))
		}
		for i := range 3 * maxSeries {
			away(fmt.Sprint("more-", i))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if len(a.written) > maxSeries {
			t.Errorf("%d are remembered", len(a.written))
		}
	})
}

func TestEventNamesFit(t *testing.T) {
	long := eventName(pending{about: strings.Repeat("a.", 126), uid: "u"})
	if len(long) > 253 || strings.Contains(long, "..") || strings.Contains(long, ".-") {
		t.Errorf("%q has %d bytes", long, len(long))
	}
}
