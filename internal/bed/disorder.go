//go:build linux

package bed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// heldLongest is how long a packet is held back at most: longer than a round trip, and less than TCP waits for an acknowledgement.
const heldLongest = 50 * time.Millisecond

// SetDisorder makes the switch hold back this share of the packets that the host sends, in percent and at random, so that others overtake
// them, and forward a copy of as many others as late; 0 ends that. It needs the program nft, and /dev/net/tun.
func (l *Link) SetDisorder(percent int) {
	l.host.bed.t.Helper()
	if l.inOrder != nil {
		l.check("end disorder", l.inOrder())
		l.inOrder = nil
	}
	if percent == 0 {
		return
	}
	end, err := l.disorder(percent)
	l.check("set disorder", err)
	l.inOrder = end
	l.host.bed.t.Cleanup(func() { l.SetDisorder(0) })
}

// disorder has the kernel give some packets to a TAP device that is one more port of the LAN, where they come back after a while.
func (l *Link) disorder(percent int) (end func() error, err error) {
	port := l.port.Attrs().Name
	name := "late-" + port
	var tap *os.File
	if err := l.host.bed.sw.do(func() (err error) { tap, err = openTap(name); return err }); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tap.Close())
		}
	}()
	nl := l.host.bed.nl
	link, err := nl.LinkByName(name)
	if err != nil {
		return nil, err
	}
	// Where the host is must not be learned anew from its late packets.
	if err := errors.Join(nl.LinkSetMaster(link, l.LAN.bridge), nl.LinkSetLearning(link, false)); err != nil {
		return nil, err
	}
	// As with one port, none comes back to the host, and nothing is flooded to the device.
	if err := l.nft(fmt.Sprintf(`table bridge %[1]s {
			chain forward {
				type filter hook forward priority 0
				oifname %[1]s drop
				iifname %[1]s oifname %[2]s drop
			}
		}
		table netdev %[1]s {
			chain ingress {
				type filter hook ingress device %[2]s priority 0
				numgen random mod 100 < %[3]d fwd to %[1]s
				numgen random mod 100 < %[3]d dup to %[1]s
			}
		}`, name, port, percent)); err != nil {
		return nil, err
	}
	if err := nl.LinkSetUp(link); err != nil {
		return nil, err
	}
	var held sync.WaitGroup
	held.Go(func() {
		packet := make([]byte, 1<<16)
		for {
			n, err := tap.Read(packet)
			if err != nil {
				return
			}
			late := slices.Clone(packet[:n])
			held.Add(1)
			time.AfterFunc(rand.N(heldLongest), func() {
				defer held.Done()
				_, _ = tap.Write(late) // as with a port, what cannot be sent is lost
			})
		}
	})
	return func() error {
		err := l.nft(fmt.Sprintf("delete table netdev %[1]s\ndelete table bridge %[1]s\n", name))
		err = errors.Join(err, tap.SetReadDeadline(time.Now()))
		held.Wait()
		return errors.Join(err, tap.Close())
	}, nil
}

// openTap makes a TAP device in the thread's network namespace, which vanishes when the file is closed.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("TAP device %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}
