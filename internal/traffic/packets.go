package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// lostAfter is how long is waited for an answer.
const lostAfter = time.Second

// Ping asks with packets of that length, headers of IP and UDP not counted, one after another, and returns how long each
// answer took. Those without an answer are left out.
func Ping(to string, length, number int) ([]time.Duration, error) {
	c, err := dial(to, length)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	packet, buffer := make([]byte, length), make([]byte, length)
	packet[0] = echoed
	out := make([]time.Duration, 0, number)
	for i := range number {
		binary.BigEndian.PutUint64(packet[1:], uint64(i))
		begun := time.Now()
		if err := c.SetReadDeadline(begun.Add(lostAfter)); err != nil {
			return nil, err
		}
		if _, err := c.Write(packet); err != nil {
			return nil, err
		}
		for {
			n, err := c.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, err
			}
			if n == length && binary.BigEndian.Uint64(buffer[1:]) == uint64(i) { // not a late one
				out = append(out, time.Since(begun))
				break
			}
		}
	}
	return out, nil
}

// A sender of packets waits after each burst until no more bursts are under way than that.
const (
	burst    = 16
	underWay = 8
)

// Packets sends packets of that length for a time, a few at once as long as they are answered, and returns how many
// arrived a second.
func Packets(to string, length int, during time.Duration) (float64, error) {
	c, err := dial(to, length)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	packet, buffer := make([]byte, length), make([]byte, countLen)
	var sent, answered int // bursts
	var arrived uint64     // packets
	// An answer is not waited for as long as one to a question: those behind a lost one say as much.
	await := func(patience time.Duration) error {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		n, err := c.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			answered = sent // they are lost
			return nil
		case err != nil:
			return err
		case n == countLen:
			arrived = binary.BigEndian.Uint64(buffer[1:])
			answered++
		}
		return nil
	}
	begun := time.Now()
	for time.Since(begun) < during {
		for i := range burst {
			packet[0] = counted
			if i == burst-1 {
				packet[0] = asked
			}
			if _, err := c.Write(packet); err != nil {
				return 0, err
			}
		}
		for sent++; sent-answered >= underWay; {
			if err := await(lostAfter / 10); err != nil {
				return 0, err
			}
		}
	}
	for answered < sent {
		if err := await(lostAfter / 10); err != nil {
			return 0, err
		}
	}
	return float64(arrived) / time.Since(begun).Seconds(), nil
}

func dial(to string, length int) (net.Conn, error) {
	if length < countLen || length > maxPacket {
		return nil, fmt.Errorf("packets of %d bytes: use %d to %d", length, countLen, maxPacket)
	}
	return net.Dial("udp", to)
}
