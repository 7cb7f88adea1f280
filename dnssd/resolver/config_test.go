package resolver

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestServer(t *testing.T) {
	addr := netip.MustParseAddr
	for s, want := range map[string]endpoint{
		"192.0.2.1":                     {host: "192.0.2.1", addr: addr("192.0.2.1"), port: 53},
		"192.0.2.1:5353":                {host: "192.0.2.1", addr: addr("192.0.2.1"), port: 5353},
		"2001:db8::1":                   {host: "2001:db8::1", addr: addr("2001:db8::1"), port: 53},
		"[2001:db8::1]":                 {host: "2001:db8::1", addr: addr("2001:db8::1"), port: 53},
		"[2001:db8::1]:54":              {host: "2001:db8::1", addr: addr("2001:db8::1"), port: 54},
		"fe80::1%eth0":                  {host: "fe80::1%eth0", addr: addr("fe80::1%eth0"), port: 53},
		"[fe80::1%eth0]:54":             {host: "fe80::1%eth0", addr: addr("fe80::1%eth0"), port: 54},
		"ns.example.com":                {host: "ns.example.com", port: 53},
		"ns.example.com.:54":            {host: "ns.example.com.", port: 54},
		"my_ns":                         {host: "my_ns", port: 53},
		"tls://192.0.2.1":               {tls: true, host: "192.0.2.1", addr: addr("192.0.2.1"), port: 853},
		"TLS://ns.example.com:443":      {tls: true, host: "ns.example.com", port: 443},
		"tls://[2001:db8::1]":           {tls: true, host: "2001:db8::1", addr: addr("2001:db8::1"), port: 853},
		"tls://2606:4700:4700::1111":    {tls: true, host: "2606:4700:4700::1111", addr: addr("2606:4700:4700::1111"), port: 853},
		"tls://[2606:4700:4700::1]:853": {tls: true, host: "2606:4700:4700::1", addr: addr("2606:4700:4700::1"), port: 853},
	} {
		if got, err := parseServer(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", s, got, err, want)
		}
	}
	for s, why := range map[string]string{
		"https://192.0.2.1/dns-query": "the only scheme is tls://",
		"udp://192.0.2.1":             "the only scheme is tls://",
		"tls://":                      "the host is missing",
		":53":                         "the host is missing",
		"ns.example.com:":             "the port is a number",
		"ns.example.com:0":            "the port is a number",
		"ns.example.com:65536":        "the port is a number",
		"ns.example.com:domain":       "the port is a number",
		"tls://ns.example.com:53":     "port 53 is for DNS without TLS",
		"192.0.2.1:53:53":             "neither one port nor the brackets",
		"[192.0.2.1]":                 "no IPv6 address between the brackets",
		"[ns.example.com]:53":         "no IPv6 address between the brackets",
		"192.0.2.256":                 "neither an IP address nor a host name",
		"ns..example.com":             "that is no host name",
		"ns.example.com/24":           "a host name has no '/'",
		"a server":                    "a host name has no ' '",
		"person@ns.example.com":       "a host name has no '@'",
	} {
		_, err := parseServer(s)
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %v; want %q", s, err, why)
		}
		if _, err := New(Config{Server: s}); err == nil {
			t.Errorf("%s: accepted", s)
		}
	}
	for _, cfg := range []Config{{Timeout: -1}, {Attempts: -1}, {Domain: "a..b"}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v: accepted", cfg)
		}
	}
}

func TestParseConf(t *testing.T) {
	addrs := func(all ...string) []netip.Addr {
		var out []netip.Addr
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	many := strings.Repeat("nameserver 192.0.2.1\n", 100)
	for _, c := range []struct {
		name, text string
		want       conf
	}{
		{"empty", "", conf{servers: addrs("127.0.0.1")}},
		{"as usual", "# by NetworkManager\nsearch example.org lan\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 # the other\n; nameserver 192.0.2.9\n",
			conf{servers: addrs("192.0.2.1", "2001:db8::1")}},
		{"a zone", "nameserver fe80::1%eth0", conf{servers: addrs("fe80::1%eth0")}},
		{"options", "nameserver 192.0.2.1\noptions timeout:7 attempts:4 rotate\noptions use-vc edns0 trust-ad ndots:5",
			conf{servers: addrs("192.0.2.1"), timeout: 7 * time.Second, attempts: 4, rotate: true, tcp: true}},
		{"the last one counts", "options timeout:7\noptions timeout:2", conf{servers: addrs("127.0.0.1"), timeout: 2 * time.Second}},
		{"out of bounds", "options timeout:0 attempts:-3", conf{servers: addrs("127.0.0.1"), timeout: time.Second, attempts: 1}},
		{"far out of bounds", "options timeout:99999999999999999999 attempts:99", conf{servers: addrs("127.0.0.1"), timeout: 30 * time.Second, attempts: 5}},
		{"no numbers", "options timeout: attempts:x", conf{servers: addrs("127.0.0.1")}},
		{"no addresses", "nameserver ns.example.com\nnameserver\nnameserver 192.0.2.1:53\nnameserver 300.0.0.1\n", conf{servers: addrs("127.0.0.1")}},
		{"too many", many, parseConf([]byte(many[:16*len("nameserver 192.0.2.1\n")]))},
		{"carriage returns", "nameserver 192.0.2.1\r\noptions rotate\r\n", conf{servers: addrs("192.0.2.1"), rotate: true}},
		{"no text", "\x00\xff\x00nameserver 192.0.2.1\n\x00", conf{servers: addrs("127.0.0.1")}},
	} {
		got := parseConf([]byte(c.text))
		if len(got.servers) != len(c.want.servers) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
			continue
		}
		for i, s := range got.servers {
			if s != c.want.servers[i] {
				t.Errorf("%s: server %v, want %v", c.name, s, c.want.servers[i])
			}
		}
		got.servers, c.want.servers = nil, nil
		if got.timeout != c.want.timeout || got.attempts != c.want.attempts || got.rotate != c.want.rotate || got.tcp != c.want.tcp {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestConfFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) *confFile {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return &confFile{path: path}
	}
	server := func(f *confFile) string {
		t.Helper()
		c, err := f.get()
		if err != nil {
			t.Fatal(err)
		}
		return c.servers[0].String()
	}
	if got := server(&confFile{path: filepath.Join(dir, "missing")}); got != "127.0.0.1" {
		t.Errorf("a missing file names %s", got)
	}
	// All but the first 64 KiB is left alone, whole lines of it.
	huge := strings.Repeat("nameserver x\n", maxConfSize/13) + "nameserver 192.0.2.100\n" + strings.Repeat("nameserver 192.0.2.2\n", 1<<16)
	if got := server(write("huge", huge)); got != "127.0.0.1" {
		t.Errorf("the file of %d bytes names %s", len(huge), got)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, dir, "/dev/zero"} {
		if c, err := (&confFile{path: path}).get(); err == nil || !strings.Contains(err.Error(), path+": it is not a regular file") {
			t.Errorf("%s: %v, %v", path, c, err)
		}
	}
	// A file that has not changed is not read again: nothing but reading it would show this change.
	f := write("old", "nameserver 192.0.2.1")
	f.known, f.conf = true, parseConf([]byte("nameserver 192.0.2.9"))
	var st unix.Stat_t
	if err := unix.Stat(f.path, &st); err != nil {
		t.Fatal(err)
	}
	f.stamp = stamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
	if got := server(f); got != "192.0.2.9" {
		t.Errorf("read %s again", got)
	}
	// Replaced, as by NetworkManager.
	replaced := time.Now()
	if err := os.Rename(write("new", "nameserver 192.0.2.2").path, f.path); err != nil {
		t.Fatal(err)
	}
	if got := server(f); got != "192.0.2.2" {
		t.Errorf("after it was replaced it names %s", got)
	}
	// It is so young that it may change and look the same: it will be read again.
	if time.Since(replaced) < racy/2 && f.stamp != (stamp{}) {
		t.Errorf("a file written a moment ago is taken to be %+v for good", f.stamp)
	}
}
