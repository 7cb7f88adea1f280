package wire

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestInstanceName(t *testing.T) {
	tests := []struct {
		instance, service, domain string
		want                      string
	}{
		{"f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "_liqo._tcp", "local", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6._liqo._tcp.local."},
		{"Dr. Pepper", "_http._tcp.", "local.", `Dr\.\ Pepper._http._tcp.local.`},
		{"Zo\xc3\xab's \\ box", "_http._tcp", "example.com", `Zo\195\171\'s\ \\\ box._http._tcp.example.com.`},
		{"x (2)", "_liqo._tcp", "local", `x\ \(2\)._liqo._tcp.local.`},
	}
	for _, tt := range tests {
		got := InstanceName(tt.instance, tt.service, tt.domain)
		if got != tt.want {
			t.Errorf("InstanceName(%q) = %s, want %s", tt.instance, got, tt.want)
		}
		instance, service, domain, ok := SplitInstance(got)
		if !ok || instance != tt.instance || service != trimDots(tt.service) || domain != trimDots(tt.domain) {
			t.Errorf("SplitInstance(%s) = %q %q %q %v", got, instance, service, domain, ok)
		}
		// The form is the very one a packet decodes to.
		b, err := Encode(&dns.Msg{Question: []dns.Question{{Name: got, Qtype: dns.TypeSRV, Qclass: dns.ClassINET}}})
		if err != nil {
			t.Fatal(err)
		}
		m, drop := Decode(b)
		if drop != "" || m.Question[0].Name != got {
			t.Errorf("decoded as %v %q, want %s", m, drop, got)
		}
	}
}

func TestSplitInstanceRefuses(t *testing.T) {
	for _, name := range []string{"", ".", "local.", "host.local.", "_liqo._tcp.local.", "a._liqo._tcp.", "a.liqo._tcp.local.", "a._liqo._sctp.local.",
		"p._sub._tcp.local.", "a._._tcp.local."} {
		if i, s, d, ok := SplitInstance(name); ok {
			t.Errorf("SplitInstance(%q) = %q %q %q", name, i, s, d)
		}
	}
}

func TestKey(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", "."}, {".", "."}, {"local.", "local."}, {"Local", "local."}, {"BoX.Local.", "box.local."},
		{`a\032b.local.`, `a\ b.local.`}, {`a b.local.`, `a\ b.local.`}, {`\065.local.`, "a.local."}, {`\195\132.`, `\195\132.`}, {"\u00c4.", `\195\132.`},
		{`a\.b.local.`, `a\.b.local.`}, {"\ufeffa.local.", `\239\187\191a.local.`},
	}
	for _, tt := range tests {
		got := Key(tt.in)
		if got != tt.want {
			t.Errorf("Key(%q) = %q, want %q", tt.in, got, tt.want)
		}
		if again := Key(got); again != got {
			t.Errorf("Key(%q) = %q: not stable", got, again)
		}
	}
}

func TestNames(t *testing.T) {
	if got, want := SubtypeName("v1.2", "_liqo._tcp", "local"), `v1\.2._sub._liqo._tcp.local.`; got != want {
		t.Errorf("SubtypeName = %s, want %s", got, want)
	}
	if got, want := HostName("my box", "local."), `my\ box.local.`; got != want {
		t.Errorf("HostName = %s, want %s", got, want)
	}
}

func TestEncodeTXT(t *testing.T) {
	tests := []struct {
		name  string
		pairs [][2]string
		want  []string // nil: an error
	}{
		{"6.1 none", nil, []string{""}},
		{"6.3 some", [][2]string{{"txtvers", "1"}, {"name", "Zo\xc3\xab \"x\\"}}, []string{"txtvers=1", `name=Zo\195\171 \"x\\`}},
		{"empty value", [][2]string{{"a", ""}}, []string{"a="}},
		{"6.4 key with =", [][2]string{{"a=b", ""}}, nil},
		{"6.4 empty key", [][2]string{{"", "x"}}, nil},
		{"6.4 key in UTF-8", [][2]string{{"\xc3\xa4", "x"}}, nil},
		{"6.4 same key", [][2]string{{"a", "1"}, {"A", "2"}}, nil},
		{"255 bytes", [][2]string{{"a", strings.Repeat("\x00", 253)}}, []string{"a=" + strings.Repeat(`\000`, 253)}},
		{"256 bytes", [][2]string{{"a", strings.Repeat("x", 254)}}, nil},
		{"1300 bytes", [][2]string{{"a", strings.Repeat("x", 250)}, {"b", strings.Repeat("x", 250)}, {"c", strings.Repeat("x", 250)},
			{"d", strings.Repeat("x", 250)}, {"e", strings.Repeat("x", 250)}, {"f", strings.Repeat("x", 50)}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := EncodeTXT(tt.pairs)
			if (err != nil) != (tt.want == nil) || !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %q, %v; want %q", got, err, tt.want)
			}
			if err != nil {
				return
			}
			want := map[string]string{}
			for _, p := range tt.pairs {
				want[strings.ToLower(p[0])] = p[1]
			}
			if decoded := DecodeTXT(got); !maps.Equal(decoded, want) {
				t.Errorf("decoded %q, want %q", decoded, want)
			}
			rr := &dns.TXT{Hdr: dns.RR_Header{Name: "x.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: got}
			b, err := Encode(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{rr}})
			if err != nil {
				t.Fatal(err)
			}
			m, drop := Decode(b)
			if drop != "" || !reflect.DeepEqual(m.Answer[0].(*dns.TXT).Txt, got) {
				t.Errorf("over the wire: %v %q", m, drop)
			}
		})
	}
}

func TestDecodeTXT(t *testing.T) {
	many := make([]string, 0, 2*MaxTXTKeys)
	for i := range 2 * MaxTXTKeys {
		many = append(many, strings.Repeat("k", i+1)+"=")
	}
	tests := []struct {
		name string
		in   []string
		want map[string]string
	}{
		{"nothing", nil, map[string]string{}},
		{"6.1 one empty string", []string{""}, map[string]string{}},
		{"6.4 case and order", []string{"ID=a", "id=b"}, map[string]string{"id": "a"}},
		{"6.4 no value", []string{"flag", "empty="}, map[string]string{"flag": "", "empty": ""}},
		{"6.4 no key", []string{"=x", "\\001=x", "ok=1"}, map[string]string{"ok": "1"}},
		{"value with =", []string{"u=a=b"}, map[string]string{"u": "a=b"}},
		{"escapes", []string{`a=\255\"\\\`}, map[string]string{"a": "\xff\"\\\\"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := DecodeTXT(tt.in); !maps.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := len(DecodeTXT(many)); got != MaxTXTKeys {
		t.Errorf("%d keys kept, want %d", got, MaxTXTKeys)
	}
}

func FuzzTXT(f *testing.F) {
	f.Add("txtvers", "1", `raw=\001\"`)
	f.Add("name", "Zo\xc3\xab", "=x")
	f.Add("a", "\\", `\`)
	f.Fuzz(func(t *testing.T, key, value, raw string) {
		for k := range DecodeTXT([]string{raw, raw}) {
			if !validKey(k) || k != strings.ToLower(k) {
				t.Fatalf("key %q", k)
			}
		}
		txt, err := EncodeTXT([][2]string{{key, value}})
		if err != nil {
			return
		}
		rr := &dns.TXT{Hdr: dns.RR_Header{Name: "x.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: txt}
		b, err := Encode(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{rr}})
		if err != nil {
			t.Fatal(err)
		}
		m, drop := Decode(b)
		if drop != "" {
			t.Fatal(drop)
		}
		if got := DecodeTXT(m.Answer[0].(*dns.TXT).Txt); len(got) != 1 || got[strings.ToLower(key)] != value {
			t.Fatalf("%q=%q arrived as %q", key, value, got)
		}
	})
}

func FuzzInstanceName(f *testing.F) {
	for _, s := range []string{"box", "Dr. Pepper", "Zo\xc3\xab", "a\\b", "x (2)", "\x00\xff", `\032`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, instance string) {
		// As untrusted presentation form.
		if key := Key(instance); Key(key) != key {
			t.Fatalf("Key(%q) = %q, whose key is %q", instance, key, Key(key))
		}
		SplitInstance(instance)
		// As untrusted label.
		name := InstanceName(instance, "_liqo._tcp", "local")
		b, err := Encode(&dns.Msg{Question: []dns.Question{{Name: name, Qtype: dns.TypeSRV, Qclass: dns.ClassINET}}})
		if err != nil {
			if len(instance) > 0 && len(instance) <= 63 {
				t.Fatal(err)
			}
			return
		}
		m, drop := Decode(b)
		if drop != "" {
			t.Fatal(drop)
		}
		if m.Question[0].Name != name {
			t.Fatalf("%q arrived as %q", name, m.Question[0].Name)
		}
		if got, _, _, ok := SplitInstance(name); !ok || got != instance {
			t.Fatalf("%q split to %q %v", name, got, ok)
		}
	})
}
