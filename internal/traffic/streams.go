package traffic

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// writeLen is how much is written to a stream at a time.
const writeLen = 128 << 10

// lookEvery is how often is looked at what was acknowledged, to find gaps.
const lookEvery = 5 * time.Millisecond

// Streams are connections of TCP on which is written all the time.
type Streams struct {
	targets []string
	conns   map[string][]*net.TCPConn
	writing sync.WaitGroup
}

// Open opens a number of streams to each target, a literal address with a port, and begins to write.
func Open(ctx context.Context, number int, targets ...string) (*Streams, error) {
	s := &Streams{targets: targets, conns: make(map[string][]*net.TCPConn)}
	for range number {
		for _, to := range targets {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				s.Close()
				return nil, err
			}
			s.conns[to] = append(s.conns[to], c.(*net.TCPConn))
		}
	}
	piece := make([]byte, writeLen)
	for _, conns := range s.conns {
		for _, c := range conns {
			s.writing.Go(func() {
				for {
					if _, err := c.Write(piece); err != nil {
						return
					}
				}
			})
		}
	}
	return s, nil
}

// Close ends the streams, with what was not acknowledged.
func (s *Streams) Close() {
	for _, conns := range s.conns {
		for _, c := range conns {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
	s.writing.Wait()
}

// Result is what came over streams.
type Result struct {
	// Seconds is how long was looked.
	Seconds float64
	// Bytes were acknowledged in that time, by target.
	Bytes map[string]uint64
	// Gap is the longest time, in seconds, in which nothing of any stream was acknowledged.
	Gap float64
	// Total is what was acknowledged since the streams were opened, and CPU the processor seconds that this process had
	// in its life.
	Total uint64
	CPU   float64
}

// Measure returns what comes over the streams from now on, until ctx ends.
func (s *Streams) Measure(ctx context.Context) (Result, error) {
	before, err := s.acknowledged()
	if err != nil {
		return Result{}, err
	}
	begun := time.Now()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	result := Result{Bytes: make(map[string]uint64)}
	for last, changed := sum(before), begun; ; {
		over := false
		select {
		case <-ctx.Done():
			over = true
		case <-ticker.C:
		}
		now, err := s.acknowledged()
		if err != nil {
			return Result{}, err
		}
		at := time.Now()
		result.Gap = max(result.Gap, at.Sub(changed).Seconds())
		if total := sum(now); total != last {
			last, changed = total, at
		}
		if over {
			result.Seconds, result.Total, result.CPU = at.Sub(begun).Seconds(), sum(now), processorTime().Seconds()
			for to, n := range now {
				result.Bytes[to] = n - before[to]
			}
			return result, nil
		}
	}
}

func sum(bytes map[string]uint64) (total uint64) {
	for _, n := range bytes {
		total += n
	}
	return total
}

// acknowledged returns how many bytes were, by target.
func (s *Streams) acknowledged() (map[string]uint64, error) {
	out := make(map[string]uint64, len(s.conns))
	for to, conns := range s.conns {
		for _, c := range conns {
			raw, err := c.SyscallConn()
			if err != nil {
				return nil, err
			}
			var info *unix.TCPInfo
			var failed error
			if err := raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); err != nil {
				return nil, err
			}
			if failed != nil {
				return nil, fmt.Errorf("ask how much of a stream was acknowledged: %w", failed)
			}
			out[to] += info.Bytes_acked
		}
	}
	return out, nil
}

// processorTime is what this process used of the processors.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
