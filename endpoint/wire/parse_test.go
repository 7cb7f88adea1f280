package wire

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	"liqo.io/agent/api"
)

const stateText = `{"identity":{"clusterId":"a","clusterName":"b","guestNamespace":"liqo"},"kubernetes":true,` +
	`"request":{"uid":"u","phase":"Accepted","message":"fine","spec":{"clusterIdentity":{"clusterID":"b","clusterName":"B"}}},` +
	`"ended":"","consumes":true,"advertisement":{"uid":"v","status":"","spec":{"clusterId":"b","timestamp":"2026-01-01T00:00:00Z","timeToLive":"2026-01-01T06:00:00Z"}},"advertisementWelcome":true}`

func TestAnswer(t *testing.T) {
	for _, tc := range []struct {
		body string
		want Answer // zero: an error
	}{
		{`{"auth":"Accepted","reason":"Trusted","message":"come in"}`, Answer{api.AuthAccepted, ReasonTrusted, "come in"}},
		{`{"auth":"Pending","reason":"two words","message":"a\nb\u001b"}`, Answer{api.AuthPending, "", "a b"}},
		{`{"auth":"EmptyRefused"}`, Answer{Auth: api.AuthEmptyRefused}},
		{`{"auth":"Refused"}`, Answer{Auth: api.AuthRefused}},
		{`{"auth":"accepted?"}`, Answer{}},
		{`{}`, Answer{}},
		{`[]`, Answer{}},
		{``, Answer{}},
		{`{"auth":"Accepted","x":"` + strings.Repeat("x", maxAnswerBody) + `"}`, Answer{}},
	} {
		got, err := ParseAnswer([]byte(tc.body))
		if got != tc.want || (err != nil) != (tc.want == Answer{}) {
			t.Errorf("%.60s: %+v, %v", tc.body, got, err)
		}
	}
}

func TestState(t *testing.T) {
	s, err := ParseState([]byte(stateText))
	if err != nil || s.Request.Phase != api.RequestAccepted || s.Request.Spec.ClusterIdentity.ClusterName != "B" || !s.Consumes ||
		!s.AdvertisementWelcome || s.Advertisement.Spec.TimeToLive.Hour() != s.Advertisement.Spec.Timestamp.Add(6*3600e9).Hour() {
		t.Fatalf("%+v, %v", s, err)
	}
	s, err = ParseState([]byte(strings.Replace(stateText, `"kubernetes":true`, `"kubernetes":false`, 1)))
	if err != nil || s.Identity.ClusterID != "a" || s.Request != nil || s.Advertisement != nil || s.Consumes || s.AdvertisementWelcome {
		t.Errorf("unknown, but believed: %+v, %v", s, err)
	}
	if s, err := ParseState([]byte(strings.Replace(stateText, `"Accepted"`, `""`, 1))); err != nil || s.Request.Phase != api.RequestPending {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{
		"", "{}", "[]", strings.Replace(stateText, `"Accepted"`, `"Perhaps"`, 1), strings.Replace(stateText, `"status":""`, `"status":"Perhaps"`, 1),
		strings.Replace(stateText, `"a"`, `"../a"`, 1), strings.Replace(stateText, `"b"`, `"\u001b"`, 1), strings.Replace(stateText, `"liqo"`, `""`, 1),
		strings.Replace(stateText, "fine", strings.Repeat("x", maxState), 1),
	} {
		if s, err := ParseState([]byte(bad)); err == nil {
			t.Errorf("%.80s: %+v", bad, s)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(stateText))
	f.Add([]byte(`{"auth":"Pending","reason":"R","message":"m"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		said := []string{}
		if s, err := ParseState(body); err == nil {
			said = append(said, s.Ended, s.Identity.ClusterName)
			if s.Request != nil {
				said = append(said, s.Request.Reason, s.Request.Message, s.Request.UID)
			}
			if s.Advertisement != nil {
				said = append(said, s.Advertisement.Message, s.Advertisement.UID)
			}
			again, err := json.Marshal(s)
			if err != nil {
				t.Skip("a time that cannot be written")
			}
			if _, err := ParseState(again); err != nil && len(again) <= maxState {
				t.Errorf("not read again: %v", err)
			}
		}
		if a, err := ParseAnswer(body); err == nil {
			said = append(said, a.Reason, a.Message)
		}
		for _, text := range said {
			if len(text) > maxSaid || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
				t.Errorf("not for people: %q", text)
			}
		}
	})
}

func TestReached(t *testing.T) {
	good := Reached{Outcome: ReachTimedOut, Address: "10.0.0.1:6447", Detail: "x", Time: time.Unix(1, 0).UTC()}
	body, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseReached(body); err != nil || got != good {
		t.Errorf("%+v, %v", got, err)
	}
	for name, body := range map[string]string{
		"nothing": "", "null": "null", "array": "[]", "unknown outcome": `{"outcome":"fine","address":"10.0.0.1:1"}`,
		"a name": `{"outcome":"reached","address":"localhost:1"}`, "no port": `{"outcome":"reached","address":"10.0.0.1"}`,
		"bad time": `{"outcome":"reached","address":"10.0.0.1:1","time":"now"}`,
		"endless":  `{"outcome":"reached","address":"10.0.0.1:1","detail":"` + strings.Repeat("x", maxReached) + `"}`,
	} {
		if got, err := ParseReached([]byte(body)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got, err := ParseReached([]byte(`{"outcome":"refused","address":"[fe80::1%\u001b[2J]:1","detail":"a\u001b[2J` + "\\n" + `b"}`))
	if err != nil || got.Address != "[fe80::1]:1" || strings.ContainsAny(got.Detail, "\x1b\n") {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzReached(f *testing.F) {
	f.Add([]byte(`{"outcome":"reached","address":"10.0.0.1:6447","detail":"x","time":"2026-11-22T07:00:00Z"}`))
	f.Add([]byte(`{"outcome":"other-key","address":"[fe80::1%eth0]:1"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParseReached(body)
		if err != nil {
			return
		}
		if _, err := netip.ParseAddrPort(got.Address); err != nil || len(got.Detail) > maxSaid || strings.ContainsAny(got.Address+got.Detail, "\x1b\n\x00") {
			t.Errorf("%+v", got)
		}
	})
}
