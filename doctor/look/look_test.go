package look

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseSockets(t *testing.T) {
	const text = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  396: 00000000:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000   108        0 23456 2 0000000000000000 0
  397: 0100007F:14EA 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 23457 2 0000000000000000 0
  398: 00000000000000000000000000000000:14E9 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 23458 2 0000000000000000 0
nonsense
  399: 00000000:14E9 x
`
	got := ParseSockets([]byte(text), 5353)
	if len(got) != 2 || got[23456] != 108 || got[23458] != 0 {
		t.Errorf("%v", got)
	}
}

func TestParseARPTable(t *testing.T) {
	for text, want := range map[string]ARPTable{
		"entries  allocs   forced_gc_runs\n000000b4 00005a0d 00000000\n000000b4 00005891 0000000c\n": {Entries: 180, Forced: true},
		"entries forced_gc_runs more\n000000b4 00000000\n":                                           {Entries: 180},
		"entries\n": {}, "": {},
	} {
		if got, err := parseARPTable([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
	if got, err := parseARPTable([]byte("entries\nx y\n")); err == nil {
		t.Errorf("%+v of no numbers", got)
	}
	if _, err := ReadARPTable(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err) // only the initial network namespace has these files
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add([]byte("  396: 00000000:14E9 0:0 07 0:0 0:0 0 108 0 23456 2\n"))
	f.Fuzz(func(_ *testing.T, raw []byte) { ParseSockets(raw, 5353) })
}

func TestDrops(t *testing.T) {
	nft := ParseNFT("table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t\tudp dport 5353 drop\n\t\tudp dport { 53, 5353 } reject\n" +
		"\t\tudp dport 53530 drop\n\t\tudp dport 5353 accept\n\t\ttcp dport 5353 drop\n\t\tudp dport \"mdns\" drop\n\t}\n\n\tchain output {\n\t\tudp dport 5353 drop\n\t}\n}\n")
	if len(nft) != 8 || nft[1] != "table inet filter chain input udp dport 5353 drop" {
		t.Fatalf("%q", nft)
	}
	f := Firewall{Rules: nft}
	if got := f.Drops(Incoming, "udp", 5353); !slices.Equal(got, []string{nft[1], nft[2], nft[6]}) {
		t.Errorf("nft: %q", got)
	}
	if got := f.Drops(Outgoing, "udp", 5353); !slices.Equal(got, []string{nft[7]}) {
		t.Errorf("nft, outgoing: %q", got)
	}
	f.Rules = []string{"-A INPUT -p udp -m udp --dport 5353 -j DROP", "-A INPUT -p tcp -m multiport --dports 22,6447 -j REJECT --reject-with tcp-reset",
		"-A OUTPUT -p udp -m udp --dport 5353 -j DROP", "-A INPUT -p tcp -m tcp --dport 6447 -j ACCEPT"}
	if got := f.Drops(Incoming, "udp", 5353); !slices.Equal(got, f.Rules[:1]) {
		t.Errorf("iptables: %q", got)
	}
	if got := f.Drops(Incoming, "tcp", 6447); !slices.Equal(got, f.Rules[1:2]) {
		t.Errorf("iptables, several ports: %q", got)
	}
	for want, f := range map[string]Firewall{"ufw": {Ufw: true, Rules: nft}, "firewalld": {Firewalld: true}, "nftables": {Rules: nft}, "": {}} {
		if got := f.Name(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestParseUnit(t *testing.T) {
	got := ParseUnit("Result=exit-code\nNRestarts=7\nLoadState=loaded\nActiveState=failed\nUnitFileState=enabled\n")
	if got != (Unit{Loaded: true, Active: "failed", Enabled: "enabled", Result: "exit-code", Restarts: 7}) {
		t.Errorf("%+v", got)
	}
	if got := ParseUnit("LoadState=not-found\n"); got.Loaded {
		t.Errorf("%+v", got)
	}
}

func TestCommand(t *testing.T) {
	out, err := Command(t.Context(), 5, "sh", "-c", "echo 123456789")
	if err != nil || string(out) != "12345" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := Command(t.Context(), 5, "no-such-program"); !errors.Is(err, ErrNoProgram) {
		t.Errorf("error %v, want ErrNoProgram", err)
	}
	if _, err := Command(t.Context(), 5, "sh", "-c", "echo what; echo why >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("error %v, want what the program says", err)
	}
}

func TestOwnProcess(t *testing.T) {
	l, err := LimitsOf(os.Getpid())
	if err != nil || l.Memory == 0 || l.Files == 0 {
		t.Errorf("%+v, %v", l, err)
	}
	total, available, err := Memory()
	if err != nil || total == 0 || available == 0 || available > total {
		t.Errorf("%d of %d, %v", available, total, err)
	}
}

func TestSyncTimes(t *testing.T) {
	dir := t.TempDir()
	took, err := SyncTimes(t.Context(), dir, 3)
	if err != nil || len(took) != 3 || !slices.IsSorted(took) {
		t.Errorf("%v, %v", took, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if d, err := DiskOf(dir); err != nil || d.Bytes == 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestKernelHas: a module is loaded, built in or to load, by either spelling; without a list it may be.
func TestKernelHas(t *testing.T) {
	loaded, available := t.TempDir(), t.TempDir()
	if !kernelHas(loaded, available, "geneve") {
		t.Error("without a list")
	}
	for name, text := range map[string]string{
		"modules.dep":     "kernel/drivers/net/geneve.ko.xz: kernel/net/ipv4/udp_tunnel.ko.xz\nkernel/net/ipv6/ip6_udp_tunnel.ko:\nkernel/x/wireguard-extra.ko:\n",
		"modules.builtin": "kernel/net/netfilter/nf-tables.ko\n",
	} {
		if err := os.WriteFile(filepath.Join(available, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(loaded, "vxlan"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"geneve": true, "nf_tables": true, "ip6_udp_tunnel": true, "vxlan": true, "wireguard": false, "tunnel": false, "udp_tunnel": true} {
		if got := kernelHas(loaded, available, name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestSocketsOfChildren: a socket of this process is not said to be somebody else's because a program that it has just started,
// and that is not itself yet, has it as well.
func TestSocketsOfChildren(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	child := exec.Command("cat")
	child.ExtraFiles = []*os.File{file}
	end, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	port, err := UDPPort(t.Context(), uint16(conn.LocalAddr().(*net.UDPAddr).Port))
	if err != nil || len(port.Holders) > 0 {
		t.Errorf("held by %+v, %v", port.Holders, err)
	}
	if err := errors.Join(end.Close(), child.Wait()); err != nil {
		t.Error(err)
	}
}
