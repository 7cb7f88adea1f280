package network

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"liqo.io/agent/network/frame"
)

// What is put in comes out once and in order, messages before packets, and never more
// waits than is allowed.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		var packets, messages, out, chunk []byte
		put := make(map[bool]int)
		t.Repeat(map[string]func(*rapid.T){
			"packet": func(t *rapid.T) {
				b := bytes.Repeat([]byte{byte(put[false])}, rapid.SampledFrom([]int{11, 1400, 60_000}).Draw(t, "length"))
				waits := len(q.packets)
				switch ok := q.packet(b); {
				case ok:
					packets = frame.Append(packets, frame.Packet, b)
					put[false]++
				case waits+frame.HeaderLen+len(b) <= queueBytes:
					t.Fatal("dropped although there is room")
				}
				if len(q.packets) > queueBytes {
					t.Fatalf("%d bytes wait", len(q.packets))
				}
			},
			"message": func(t *rapid.T) {
				b := bytes.Repeat([]byte{byte(put[true])}, 8)
				if !q.message(frame.Echo, b) {
					t.Fatal("no room")
				}
				messages = frame.Append(messages, frame.Echo, b)
				put[true]++
			},
			"take": func(t *rapid.T) {
				urgent := len(messages) > 0
				chunk = q.take(chunk)
				if urgent && !bytes.Equal(chunk, messages) {
					t.Fatal("packets are before messages")
				} else if urgent {
					messages = nil
					return
				}
				out = append(out, chunk...)
				if !bytes.Equal(out, packets) {
					t.Fatal("something else comes out")
				}
				out, packets = nil, nil
			},
			"trim": func(*rapid.T) { q.trim() },
		})
	})
}

func TestQueueGivesMemoryBack(t *testing.T) {
	q := newQueue()
	var chunk []byte
	for q.packet(make([]byte, 60_000)) {
	}
	chunk = q.take(chunk)
	for range 3 {
		q.packet(make([]byte, 1000))
		q.trim()
		chunk = q.take(chunk)
	}
	if cap(chunk) > keptBytes || cap(q.packets) > keptBytes {
		t.Errorf("%d and %d bytes are kept", cap(chunk), cap(q.packets))
	}
	for q.message(frame.Probe, make([]byte, frame.ProbeLen)) {
	}
	if len(q.control) > controlBytes {
		t.Errorf("%d bytes of messages", len(q.control))
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	q := newQueue()
	b := make([]byte, 1400)
	var chunk []byte
	round := func() {
		for range 100 {
			q.packet(b)
		}
		chunk = q.take(chunk)
	}
	for _, state := range []string{"at the start", "after a pause"} {
		round()
		round()
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s: %v allocations", state, n)
		}
		chunk = q.take(chunk)
		q.trim()
		q.trim()
	}
}
