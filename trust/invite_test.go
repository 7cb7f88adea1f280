package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"liqo.io/agent/peer"
)

const issuerID = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"

func fixedInvite() Invite {
	i := Invite{Issuer: issuerID, Fingerprint: counting(1)}
	for n := range i.ID {
		i.ID[n] = 0xa0 + byte(n)
	}
	for n := range i.Secret {
		i.Secret[n] = 0xc0 + byte(n)
	}
	return i
}

// Computed by another implementation: tokens outlive the version that issued
// them.
const fixedToken = "liqo1-04j30d9n71j6ad1r5mr3jdv25mt64dv45nh62c1m5mv64s1jc4r6ceb468t6c0820c20a1g7104gm2rc1m70" +
	"y40h289h858p2wc1j6gv3gehw7s0m2gt58x4mpkafg61rb1w9he6rz4ckjpbsk6wxkrz6r7fg"

func TestInviteKnownAnswer(t *testing.T) {
	i := fixedInvite()
	if got := i.Token(); got != fixedToken {
		t.Errorf("token %q", got)
	}
	if got := i.Wire(); got != "a0a1a2a3a4a5a6a7.c0c1c2c3c4c5c6c7c8c9cacbcccdcecf" {
		t.Errorf("wire %q", got)
	}
	if got := i.IDString(); got != "a0a1a2a3a4a5a6a7" {
		t.Errorf("ID %q", got)
	}
	id, hash, err := ParseWire(i.Wire())
	if err != nil || id != i.IDString() || hash != i.Hash() || hash != sha256.Sum256(i.Secret[:]) {
		t.Errorf("wire read back as %s, %x, %v", id, hash, err)
	}
}

func TestNewInvite(t *testing.T) {
	fp := counting(1)
	a, err := NewInvite(issuerID, fp)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewInvite(issuerID, fp)
	if err != nil {
		t.Fatal(err)
	}
	if a.ID == b.ID || a.Secret == b.Secret || a.ID == [8]byte{} || a.Secret == [16]byte{} {
		t.Error("not drawn at random")
	}
	if a.Issuer != issuerID || a.Fingerprint != fp {
		t.Errorf("issuer %v, %v", a.Issuer, a.Fingerprint)
	}
	if _, err := NewInvite("", fp); err == nil {
		t.Error("invite of no cluster")
	}
	if _, err := NewInvite(issuerID, peer.Fingerprint{}); err == nil {
		t.Error("invite of no key")
	}
}

func TestParseInviteForgives(t *testing.T) {
	want := fixedInvite()
	token := want.Token()
	for name, s := range map[string]string{
		"as printed":  token,
		"white space": " \t" + token + "\r\n",
		"upper case":  strings.ToUpper(token),
		"wrapped":     token[:60] + "\n    " + token[60:120] + "\r\n" + token[120:],
	} {
		if got, err := ParseInvite(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, id := range []peer.ClusterID{"a", peer.ClusterID(strings.Repeat("a", peer.MaxClusterIDLength))} {
		i, err := NewInvite(id, counting(1))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseInvite(i.Token()); err != nil || got != i {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
}

// tokenOf makes a token with a right checksum of any content.
func tokenOf(body []byte) string {
	return invitePrefix + crockford.EncodeToString(append(bytes.Clone(body), checksum(body)...))
}

func TestParseInviteRefuses(t *testing.T) {
	token := fixedInvite().Token()
	raw, err := crockford.DecodeString(strings.TrimPrefix(token, invitePrefix))
	if err != nil {
		t.Fatal(err)
	}
	body := raw[:len(raw)-inviteChecksum]
	edit := func(f func([]byte) []byte) string { return tokenOf(f(bytes.Clone(body))) }
	for _, tc := range []struct{ name, token, says string }{
		{"empty", " \n", "is empty"},
		{"something else", "K10c0ffee::server:secret", "this is no invite token"},
		{"the prefix alone", "liqo1-", "checksum"},
		{"a newer kind", "liqo2-" + token[6:], "newer version"},
		{"a character that is none", token[:50] + "u" + token[51:], "do not contain"},
		{"cut off", token[:len(token)-1], "cut off"},
		{"cut off by much", token[:40], "cut off"},
		{"continued", token + "0", "cut off"},
		{"huge", strings.Repeat(token, 100), "bytes"},
		{"version", edit(func(b []byte) []byte { b[0] = 2; return b }), "version 2"},
		{"short", edit(func(b []byte) []byte { return b[:len(b)-1] }), "malformed"},
		{"long", edit(func(b []byte) []byte { return append(b, 0) }), "malformed"},
		{"length of the ID", edit(func(b []byte) []byte { b[1] = 255; return b }), "malformed"},
		{"ID that is none", edit(func(b []byte) []byte { b[2] = '/'; return b }), "malformed"},
		{"no ID", tokenOf(append([]byte{1, 0}, body[2+len(issuerID):]...)), "malformed"},
		{"no key", edit(func(b []byte) []byte { clear(b[2+len(issuerID):][:32]); return b }), "no key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseInvite(tc.token)
			if err == nil || got != (Invite{}) {
				t.Fatalf("accepted: %v", got)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
			if len(tc.token) > 40 && strings.Contains(err.Error(), tc.token[len(tc.token)-30:]) {
				t.Errorf("error %q quotes the token", err)
			}
		})
	}
}

// Every typing error is told, whichever character it is in.
func TestInviteTypingErrors(t *testing.T) {
	token := fixedInvite().Token()
	for at := len(invitePrefix); at < len(token); at++ {
		for _, c := range "0123456789abcdefghjkmnpqrstvwxyz" {
			if byte(c) == token[at] {
				continue
			}
			if _, err := ParseInvite(token[:at] + string(c) + token[at+1:]); err == nil {
				t.Errorf("%c at %d is not noticed", c, at)
			}
		}
		if at+1 < len(token) && token[at] != token[at+1] {
			if _, err := ParseInvite(token[:at] + string(token[at+1]) + string(token[at]) + token[at+2:]); err == nil {
				t.Errorf("two characters changed places at %d, and it is not noticed", at)
			}
		}
	}
}

func TestParseWireRefuses(t *testing.T) {
	wire := fixedInvite().Wire()
	for _, s := range []string{"", ".", wire[1:], wire[:len(wire)-1], wire + "0", wire + "\n", " " + wire, strings.ToUpper(wire),
		strings.Replace(wire, ".", "", 1), strings.Replace(wire, ".", "..", 1), strings.Replace(wire, "a0", "g0", 1), strings.Replace(wire, "c0", "g0", 1),
		wire[:20] + "." + wire[21:], "\x00" + wire[1:], strings.Repeat("a", 1<<20)} {
		id, hash, err := ParseWire(s)
		if err == nil || id != "" || hash != [32]byte{} {
			t.Errorf("accepted %.60q", s)
		} else if len(s) > 8 && strings.Contains(err.Error(), s) {
			t.Errorf("error %q quotes the token", err)
		}
	}
}

// However an invite is printed or logged, its secret is not in it.
func TestInviteHidesItsSecret(t *testing.T) {
	i := fixedInvite()
	type holder struct {
		Invite Invite
		Ptr    *Invite
		List   []Invite
	}
	var texts []string
	for _, v := range []any{i, &i, holder{i, &i, []Invite{i}}, []Invite{i}, map[string]Invite{"x": i}, []any{i}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%t"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
		texts = append(texts, fmt.Sprint(v), fmt.Sprintln(v), fmt.Errorf("failed: %v", v).Error())
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Info("text", "invite", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "invite", v, slog.Group("g", "invite", v))
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, out.String(), string(encoded))
	}
	numbers := strings.Trim(fmt.Sprint(i.Secret[:4]), "[]")
	for _, text := range texts {
		for _, secret := range []string{hex.EncodeToString(i.Secret[:3]), numbers, strings.ReplaceAll(numbers, " ", ","), "0xc0, 0xc1", "c0 c1", i.Token()[100:], "C0C1C2"} {
			if strings.Contains(text, secret) {
				t.Errorf("%q contains %q", text, secret)
			}
		}
	}
	if got := fmt.Sprint(i); got != "invite a0a1a2a3a4a5a6a7 of cluster "+issuerID {
		t.Errorf("printed as %q", got)
	}
}

func FuzzParseInvite(f *testing.F) {
	f.Add(fixedInvite().Token())
	f.Add(strings.ToUpper(fixedInvite().Token()))
	f.Add(tokenOf([]byte{1, 1, 'a'}))
	f.Add("liqo1-")
	f.Add("liqo2-00")
	f.Fuzz(func(t *testing.T, s string) {
		i, err := ParseInvite(s)
		if err != nil {
			if i != (Invite{}) {
				t.Error("an error comes with an invite")
			}
			return
		}
		if again, err := ParseInvite(i.Token()); err != nil || again != i {
			t.Errorf("does not survive its own encoding: %v", err)
		}
		if _, err := peer.ParseClusterID(string(i.Issuer)); err != nil || i.Fingerprint.IsZero() {
			t.Errorf("names no issuer: %v", err)
		}
	})
}

func FuzzParseWire(f *testing.F) {
	f.Add(fixedInvite().Wire())
	f.Add(strings.Repeat("0", 16) + "." + strings.Repeat("0", 32))
	f.Add("a.b")
	f.Fuzz(func(t *testing.T, s string) {
		id, hash, err := ParseWire(s)
		if err != nil {
			if id != "" || hash != [32]byte{} {
				t.Error("an error comes with a result")
			}
			return
		}
		secret, err := hex.DecodeString(s[17:])
		if err != nil || id != s[:16] || hash != sha256.Sum256(secret) || s != strings.ToLower(s) {
			t.Errorf("%q read as %s, %x", s, id, hash)
		}
	})
}
