package peer

import (
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://barn.example":          "https://barn.example",
		"https://barn.example/":         "https://barn.example",
		"https://barn.example:6447/":    "https://barn.example:6447",
		"HTTPS://barn.example:1":        "https://barn.example:1",
		"https://192.0.2.7:65535":       "https://192.0.2.7:65535",
		"https://[2001:db8::1]:6447":    "https://[2001:db8::1]:6447",
		"https://[fe80::1%25eth0]:6447": "https://[fe80::1%25eth0]:6447",
		"https://my_barn.":              "https://my_barn.",
	} {
		u, err := ParseURL(in)
		if err != nil || u.String() != want {
			t.Errorf("%q: %v, %v; want %q", in, u, err, want)
		}
	}
	for in, want := range map[string]string{
		"":                                      "it does not begin with https://",
		"barn":                                  "it does not begin with https://",
		"http://barn":                           "it does not begin with https://",
		"barn:6447":                             "it does not begin with https://",
		" https://barn":                         "it is not a URL",
		"https://ba rn":                         "it is not a URL",
		"https://\x1b":                          "it is not a URL",
		"https://\u202ebarn":                    "it is not a URL",
		"https://barn:x":                        "it is not a URL",
		"https://":                              "its host is neither an address nor a name",
		"https://:6447":                         "its host is neither an address nor a name",
		"https://$(reboot)":                     "its host is neither an address nor a name",
		`https://"barn"`:                        "its host is neither an address nor a name",
		"https://[fe80::1%25eth0;x]:6447":       "its host is neither an address nor a name",
		"https://barn:":                         "the port is missing",
		"https://barn:0":                        "its port is not between 1 and 65535",
		"https://barn:65536":                    "its port is not between 1 and 65535",
		"https://user@barn":                     "it has more than a host and a port",
		"https://barn/path":                     "it has more than a host and a port",
		"https://barn//":                        "it has more than a host and a port",
		"https://barn?":                         "it has more than a host and a port",
		"https://barn?x=1":                      "it has more than a host and a port",
		"https://barn#":                         "it has more than a host and a port",
		"https://barn#x":                        "it has more than a host and a port",
		"https://" + strings.Repeat("x", 1<<10): "it is 1032 bytes long, at most 1024 are allowed",
	} {
		if u, err := ParseURL(in); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v; want %q", in, u, err, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("https://[fe80::1%25eth0]:6447/")
	f.Add("https://b\u00e4rn.example")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseURL(s)
		if err != nil {
			return
		}
		kept := u.String()
		again, err := ParseURL(kept)
		if len(kept) <= MaxURLLength && (err != nil || again.String() != kept) {
			t.Errorf("%q is kept as %q, which is %v, %v", s, kept, again, err)
		}
		if strings.ContainsAny(kept, " \"'`$;&|<>()\\\n\x1b") {
			t.Errorf("%q is kept as %q", s, kept)
		}
	})
}
