//go:build linux

package bed

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SetClock sets the clock of a running Go program to so many whole seconds ahead of the machine's, or behind it; 0 sets it right. What
// it measures with the monotonic clock goes on undisturbed, as when somebody sets the clock of a machine. It works on amd64 only;
// elsewhere the error is errors.ErrUnsupported.
//
// Programs read the time by code that the kernel maps into them (vdso(7)), and Go programs by nothing else. Here its clock_gettime is
// overwritten in the memory of this one process, by code that asks the kernel, and adds to CLOCK_REALTIME.
func (p *Process) SetClock(ahead time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("set the clock of %s on %s: no code for %s: %w", p.Name, p.host.Name, runtime.GOARCH, errors.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Hang)
	defer cancel()
	if err := p.poll(ctx, func() error { return p.setClock(ahead) }); err != nil {
		return fmt.Errorf("set the clock of %s on %s: %w", p.Name, p.host.Name, err)
	}
	return nil
}

func (p *Process) setClock(ahead time.Duration) (err error) {
	code := []byte{
		0xb8, 0xe4, 0, 0, 0, // mov $228, %eax; the number of clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test %edi, %edi; CLOCK_REALTIME is 0
		0x75, 0x0d, // jne to ret
		0x48, 0xb9, // movabs of what follows to %rcx
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(ahead/time.Second))
	code = append(code,
		0x48, 0x01, 0x0e, // add %rcx, (%rsi); the seconds
		0xc3, // ret
	)
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.PID()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	at, err := p.clockGettime(mem)
	if err != nil {
		return err
	}
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Signal(unix.SIGCONT)) }()
	counters, err := p.stoppedAt()
	if err != nil {
		return err
	}
	was := make([]byte, len(code))
	if _, err := mem.ReadAt(was, at); err != nil {
		return err
	}
	ours := bytes.HasPrefix(was, code[:13])
	if !ours && slices.ContainsFunc(counters, func(c int64) bool { return c >= at && c < at+int64(len(code)) }) {
		return errors.New("a thread is in the middle of the kernel's code, and would go on in the middle of ours")
	}
	_, err = mem.WriteAt(code, at)
	return err
}

// clockGettime returns the address of the function in the process.
func (p *Process) clockGettime(mem *os.File) (int64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		image := make([]byte, to-from)
		if _, err := mem.ReadAt(image, from); err != nil {
			return 0, err
		}
		file, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return 0, err
		}
		symbols, err := file.DynamicSymbols()
		if err != nil {
			return 0, err
		}
		if i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" }); i >= 0 {
			return from + int64(symbols[i].Value), nil
		}
	}
	return 0, errors.New("the kernel maps no clock_gettime into it")
}

// stoppedAt returns the program counters of all threads if all of them are stopped.
func (p *Process) stoppedAt() ([]int64, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", p.PID()))
	if err != nil || len(tasks) == 0 {
		return nil, fmt.Errorf("it has %d threads: %w", len(tasks), err)
	}
	var out []int64
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		// What it called, if anything, and last the stack pointer and the program counter; or "running".
		fields := strings.Fields(string(text))
		var counter int64
		if _, err := fmt.Sscanf(fields[len(fields)-1], "0x%x", &counter); err != nil {
			return nil, fmt.Errorf("a thread is not stopped yet: %s", text)
		}
		out = append(out, counter)
	}
	return out, nil
}
