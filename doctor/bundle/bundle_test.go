package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/agent/doctor/bundle/bundletest"
)

func TestScrub(t *testing.T) {
	const jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLW9mLWl0"
	s := NewScrubber([]string{"known-secret-value", "short", "known-secret"})
	for _, tc := range []struct{ name, text, want string }{
		{"by value", "a known-secret-value and a known-secret, and short", "a (removed) and a (removed), and short"},
		{"a key", "x\n-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\ny", "x\n(removed)\ny"},
		{"a key in JSON", `{"k":"-----BEGIN EC PRIVATE KEY-----\nMIGHAgEA+/=\n-----END EC PRIVATE KEY-----\n"}`, `{"k":"(removed)\n"}`},
		{"half a key", "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49", "(removed)"},
		{"an invite", "peers connect --once liqo1-0g4aaaaa-bbbbbbbb-cccccccc@10.0.0.1:6447 said", "peers connect --once (removed) said"},
		{"a token of K3s", "K10aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa::server:abcdef x", "(removed) x"},
		{"a JSON web token", "with " + jwt + " it", "with (removed) it"},
		{"a bootstrap token", "join abcdef.0123456789abcdef now", "join (removed) now"},
		{"a header", "Authorization: Bearer abcdefghij.k", "Authorization: Bearer (removed)"},
		{"a URL", "get https://user:pa55@host:1/x", "get https://(removed)@host:1/x"},
		{"YAML", "  password: hunter2\n  client-key-data: LS0tLS1CRUdJTiBFQw==\n", "  password: (removed)\n  client-key-data: (removed)\n"},
		{"TOML", `secret = "a b \" c" # x`, `secret = "(removed)" # x`},
		{"JSON", `{"accessToken": "a,b", "n": 1}`, `{"accessToken": "(removed)", "n": 1}`},
		{"JSON in JSON", `{"last":"{\"password\":\"hunter2\",\"n\":1}"}`, `{"last":"{\"password\":\"(removed)\",\"n\":1}"}`},
		{"a log", `level=INFO msg=x token=abc123 by="user"`, `level=INFO msg=x token=(removed) by="user"`},
		{"a unit", "Environment=\"A=secret value\" B=2\nExecStart=/usr/bin/liqo-agent run", "Environment=\"(removed)\"\nExecStart=/usr/bin/liqo-agent run"},
		{"a certificate's key in base64", "data LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1JR0g= end", "data (removed) end"},
		{"nothing", `{"token": {"a": 1}, "allow_empty_token": false, "secrets": []}`, `{"token": {"a": 1}, "allow_empty_token": false, "secrets": []}`},
		{"a fingerprint", "fp=3b5d5c3712955042212316173ccf37be3b5d5c3712955042212316173ccf37be", "fp=3b5d5c3712955042212316173ccf37be3b5d5c3712955042212316173ccf37be"},
	} {
		if got := string(s.Scrub([]byte(tc.text))); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestRedact(t *testing.T) {
	s := NewScrubber(nil)
	s.Redact([]string{"barn", "barn-2", "x"})
	got := string(s.Scrub([]byte("barn at 10.0.0.7:6447, barn-2 at fe80::1%eth0, barnacle at 10.0.0.7 on 127.0.0.1, 0.0.0.0, ::1, 12:30:45 v1.2.3")))
	want := "name-1 at address-1:6447, name-2 at address-2, barnacle at address-1 on 127.0.0.1, 0.0.0.0, ::1, 12:30:45 v1.2.3"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := string(s.Scrub([]byte("again 10.0.0.7"))); got != "again address-1" {
		t.Errorf("in another file: %q", got)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar.gz")
	s := NewScrubber([]string{"known-secret-value"})
	m, err := Write(path, Manifest{Program: "p", At: time.Unix(1e9, 0).UTC(), LeftOut: []LeftOut{{"b", "no known-secret-value"}}},
		[]Part{{"a/b.txt", []byte("known-secret-value!")}}, s)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	files := bundletest.Unpack(t, path)
	if files["a/b.txt"] != "(removed)!" || len(files) != 2 {
		t.Errorf("%q", files)
	}
	var told Manifest
	if err := json.Unmarshal([]byte(files["manifest.json"]), &told); err != nil || len(told.Files) != 1 || told.Files[0] != m.Files[0] ||
		told.Files[0].Bytes != 10 || told.LeftOut[0].Reason != "no (removed)" || len(told.Never) == 0 {
		t.Errorf("%+v, %v", told, err)
	}
	if _, err := Write(path, m, nil, s); !errors.Is(err, ErrExists) {
		t.Errorf("over another file: %v", err)
	}
	if _, err := Write(filepath.Join(path, "x"), m, nil, s); err == nil {
		t.Error("below a file: no error")
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// What is JSON stays JSON, and a secret that stands by itself is gone.
func FuzzScrub(f *testing.F) {
	f.Add(`{"token": 5, "a": "-----BEGIN PRIVATE KEY-----\\nMIGH\\n", "b": "{\\"password\\":\\"x\\"}"}`, "planted-secret-value")
	f.Add(`["K10aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa::x","liqo1-aaaaaaaaaaaaaaaaaaaa@b"]`, "planted-secret-value")
	f.Fuzz(func(t *testing.T, text, secret string) {
		got := NewScrubber([]string{secret}).Scrub([]byte(text + " planted-secret-value"))
		if secret == "planted-secret-value" && bytes.Contains(got, []byte(secret)) {
			t.Errorf("%q is in %q", secret, got)
		}
		if got := NewScrubber(nil).Scrub([]byte(text)); json.Valid([]byte(text)) && !json.Valid(got) {
			t.Errorf("%s became %s", text, got)
		}
	})
}
