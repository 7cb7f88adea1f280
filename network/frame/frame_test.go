package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"liqo.io/agent/internal/leak"
	"liqo.io/agent/network/packet"
)

func TestMain(m *testing.M) { leak.Main(m) }

// header is the header of a frame that claims a length.
func header(t Type, n int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(t)<<24|uint32(n))
}

// written is a frame as a test knows it.
type written struct {
	kind    Type
	payload []byte
}

// someFrames returns frames of all types and lengths, in a random order.
func someFrames(r *rand.Rand) (all []written) {
	for range 60 {
		var f written
		switch r.IntN(5) {
		case 0:
			f = written{Control, make([]byte, 1+r.IntN(MaxControl))}
		case 1:
			f = written{Probe + Type(r.IntN(2)), make([]byte, ProbeLen)}
		case 2:
			f = written{Packet, make([]byte, packet.MaxLen-r.IntN(20000))}
		default:
			f = written{Packet, make([]byte, minPacket+r.IntN(1600))}
		}
		for i := range f.payload {
			f.payload[i] = byte(r.Uint32())
		}
		all = append(all, f)
	}
	return append(all, written{Packet, make([]byte, packet.MaxLen)}, written{Packet, make([]byte, minPacket)},
		written{Control, make([]byte, MaxControl)}, written{Control, make([]byte, 1)})
}

func (f written) to(b []byte) []byte { return Append(b, f.kind, f.payload) }

// Whatever is written is read, however the stream cuts it.
func TestRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"whole":        func(r io.Reader) io.Reader { return r },
		"bytes":        iotest.OneByteReader,
		"halves":       iotest.HalfReader,
		"data and EOF": iotest.DataErrReader,
		"records":      func(r io.Reader) io.Reader { return &records{r} },
	} {
		t.Run(name, func(t *testing.T) {
			frames := someFrames(random)
			var stream []byte
			for _, f := range frames {
				stream = f.to(stream)
			}
			r := NewReader(cut(bytes.NewReader(stream)))
			for i, f := range frames {
				kind, payload, err := r.Next()
				if err != nil || kind != f.kind || !bytes.Equal(payload, f.payload) {
					t.Fatalf("frame %d: %v of %d bytes, %v; want %v of %d", i, kind, len(payload), err, f.kind, len(f.payload))
				}
				if cap(payload) != len(payload) {
					t.Fatal("appending to a payload would write to the next frame")
				}
			}
			for range 2 {
				if _, _, err := r.Next(); err != io.EOF {
					t.Errorf("at the end: %v", err)
				}
			}
		})
	}
}

// records returns at most 16 KiB at a time, as TLS does.
type records struct{ r io.Reader }

func (r *records) Read(b []byte) (int, error) { return r.r.Read(b[:min(len(b), 16<<10)]) }

func TestReaderRefuses(t *testing.T) {
	probe := append(header(Probe, ProbeLen), "12345678"...)
	for _, c := range []struct {
		name   string
		stream []byte
		want   error
		said   string
	}{
		{"nothing", nil, io.EOF, ""},
		{"part of a header", header(Probe, ProbeLen)[:3], io.ErrUnexpectedEOF, ""},
		{"only a header", header(Probe, ProbeLen), io.ErrUnexpectedEOF, ""},
		{"part of a payload", probe[:len(probe)-1], io.ErrUnexpectedEOF, ""},
		{"type 0", header(0, 8), ErrType, "type of frame: 0"},
		{"type 5", header(5, 0), ErrType, "5"},
		{"type 127", header(127, 8), ErrType, "127"},
		{"a packet of nothing", header(Packet, 0), ErrLength, "packet of 0 bytes"},
		{"a packet without an IP packet", header(Packet, packet.HeaderLen), ErrLength, ""},
		{"a packet that is too long", header(Packet, packet.MaxLen+1), ErrLength, ""},
		{"the longest length", header(Packet, 1<<24-1), ErrLength, "16777215"},
		{"a message of nothing", header(Control, 0), ErrLength, ""},
		{"a message that is too long", header(Control, MaxControl+1), ErrLength, ""},
		{"a short probe", header(Probe, ProbeLen-1), ErrLength, ""},
		{"a long echo", header(Echo, ProbeLen+1), ErrLength, ""},
		{"something optional that is too long", header(200, packet.MaxLen+1), ErrLength, "type 200"},
		{"something optional cut off", append(header(200, 5), 1, 2), io.ErrUnexpectedEOF, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Alone, and behind a frame that is read before.
			for _, before := range []int{0, 1} {
				r := NewReader(bytes.NewReader(append(bytes.Repeat(probe, before), c.stream...)))
				for range before {
					if kind, payload, err := r.Next(); err != nil || kind != Probe || string(payload) != "12345678" {
						t.Fatal(kind, payload, err)
					}
				}
				for range 2 {
					if _, _, err := r.Next(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.said) {
						t.Errorf("Next = %v, want %v", err, c.want)
					}
				}
			}
		})
	}
}

func TestReaderPassesOverOptionalTypes(t *testing.T) {
	var stream []byte
	for _, n := range []int{0, 1, 5000, packet.MaxLen} {
		stream = append(append(stream, header(Type(128+n%100), n)...), make([]byte, n)...)
	}
	stream = append(append(stream, header(Echo, ProbeLen)...), "abcdefgh"...)
	stream = append(stream, header(255, 0)...)
	r := NewReader(&records{bytes.NewReader(stream)})
	if kind, payload, err := r.Next(); err != nil || kind != Echo || string(payload) != "abcdefgh" {
		t.Fatal(kind, payload, err)
	}
	if n := r.end - r.start; n != HeaderLen {
		t.Errorf("%d bytes buffered", n)
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Fatal(err)
	}
}

func TestReaderReturnsWhatCameBeforeAnError(t *testing.T) {
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(bytes.NewReader(append(header(Probe, ProbeLen), "12345678"...)), iotest.ErrReader(broken)))
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := r.Next(); err != broken {
			t.Errorf("Next = %v", err)
		}
	}
	if _, _, err := NewReader(silent{}).Next(); err != io.ErrNoProgress {
		t.Errorf("Next = %v", err)
	}
}

type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

func TestTypeString(t *testing.T) {
	for kind, want := range map[Type]string{Packet: "packet", Control: "control", Probe: "probe", Echo: "echo", 77: "type 77"} {
		if got := kind.String(); got != want {
			t.Errorf("%d: %q", kind, got)
		}
	}
}

// stream returns a stream of n packets of one length.
func stream(n, length int) []byte {
	return bytes.Repeat(append(header(Packet, length), make([]byte, length)...), n)
}

func TestAllocations(t *testing.T) {
	for _, length := range []int{100, 1510, packet.MaxLen} {
		source := bytes.NewReader(stream(10, length))
		r := NewReader(source)
		if n := testing.AllocsPerRun(50, func() {
			source.Reset(tenOf(length))
			r.err = nil
			for range 10 {
				if _, _, err := r.Next(); err != nil {
					t.Fatal(err)
				}
			}
		}); n != 0 {
			t.Errorf("%v allocations for reading 10 packets of %d bytes", n, length)
		}
		b, p := make([]byte, 0, 11*maxFrame), make([]byte, length)
		if n := testing.AllocsPerRun(50, func() {
			b = b[:0]
			for range 10 {
				b = Append(b, Packet, p)
			}
		}); n != 0 {
			t.Errorf("%v allocations for appending 10 packets of %d bytes", n, length)
		}
	}
}

var sources = map[int][]byte{}

func tenOf(length int) []byte {
	if sources[length] == nil {
		sources[length] = stream(10, length)
	}
	return sources[length]
}

func FuzzReader(f *testing.F) {
	// Short seeds: what matters is in the headers, and the fuzzer spends its time
	// on making long ones shorter.
	var b []byte
	for _, x := range []written{{Packet, make([]byte, 60)}, {Control, []byte("{}")}, {Probe, make([]byte, ProbeLen)}, {Echo, make([]byte, ProbeLen)}, {Packet, make([]byte, minPacket)}} {
		b = x.to(b)
	}
	f.Add(b, uint16(1000))
	f.Add(b[:len(b)-1], uint16(0))
	f.Add(append(header(200, 3), 1, 2, 3, byte(Probe), 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8), uint16(1))
	f.Add(header(Packet, 1<<24-1), uint16(7))
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint16) {
		r := NewReader(&chunks{stream, int(chunk)%5000 + 1})
		for at := 0; ; {
			kind, payload, err := r.Next()
			// What is expected, by a plain parser.
			for at+HeaderLen <= len(stream) && stream[at] >= byte(optional) {
				n := int(binary.BigEndian.Uint32(stream[at:]) & 0xffffff)
				if n > packet.MaxLen || at+HeaderLen+n > len(stream) {
					break
				}
				at += HeaderLen + n
			}
			if err != nil {
				if errors.Is(err, io.EOF) != (at == len(stream)) {
					t.Fatalf("%v at %d of %d", err, at, len(stream))
				}
				if errors.Is(err, io.ErrUnexpectedEOF) && at+HeaderLen <= len(stream) &&
					at+HeaderLen+int(binary.BigEndian.Uint32(stream[at:])&0xffffff) <= len(stream) {
					t.Fatalf("%v, but a whole frame is at %d", err, at)
				}
				return
			}
			n := len(payload)
			if kind.check(n) != nil || kind >= optional || !bytes.Equal(stream[at:at+HeaderLen], header(kind, n)) || !bytes.Equal(stream[at+HeaderLen:at+HeaderLen+n], payload) {
				t.Fatalf("%v of %d bytes at %d", kind, n, at)
			}
			at += HeaderLen + n
			clear(payload) // belongs to the caller
		}
	})
}

// chunks returns at most n bytes at a time.
type chunks struct {
	b []byte
	n int
}

func (c *chunks) Read(b []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.b[:min(len(c.b), c.n)])
	c.b = c.b[n:]
	return n, nil
}

var lengths = []struct {
	name   string
	length int
}{{"small", 110}, {"full", 1510}, {"super", 65226}}

func BenchmarkReader(b *testing.B) {
	for _, l := range lengths {
		b.Run(l.name, func(b *testing.B) {
			r := NewReader(&records{&endless{b: stream(1+1<<20/l.length, l.length)}})
			b.ReportAllocs()
			b.SetBytes(int64(l.length))
			for b.Loop() {
				if _, _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless repeats its bytes.
type endless struct {
	b  []byte
	at int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.b[e.at:])
	e.at = (e.at + n) % len(e.b)
	return n, nil
}
