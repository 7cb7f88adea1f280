//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// terminal is what programs are told they run in.
const terminal = "xterm-256color"

// openPTY returns the two ends of a new pseudo-terminal (pty(7)).
func openPTY() (primary, secondary *os.File, err error) {
	primary, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, primary.Close())
		}
	}()
	fd := int(primary.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock the pseudo-terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the number of the pseudo-terminal: %w", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		return nil, nil, fmt.Errorf("set the size of the pseudo-terminal: %w", err)
	}
	secondary, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open the other end of the pseudo-terminal: %w", err)
	}
	return primary, secondary, nil
}

// record runs a program in a terminal until it ends, and copies what it prints to
// also. A program that fails is an error.
func record(ctx context.Context, args []string, also io.Writer) (cast, error) {
	primary, secondary, err := openPTY()
	if err != nil {
		return cast{}, err
	}
	defer primary.Close()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = secondary, secondary, secondary
	cmd.Env = append(environment(), "TERM="+terminal)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	started := time.Now()
	err = cmd.Start()
	if closeErr := secondary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return cast{}, err
	}
	c := cast{Width: columns, Height: rows}
	buffer := make([]byte, 64<<10)
	rest := 0 // bytes of a character that is not complete yet
	for {
		n, readErr := primary.Read(buffer[rest:])
		if n > 0 {
			if _, err := also.Write(buffer[rest : rest+n]); err != nil {
				return cast{}, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
			}
			text := buffer[:rest+n]
			whole := complete(text)
			if whole > 0 {
				c.Events = append(c.Events, event{time.Since(started), strings.ToValidUTF8(string(text[:whole]), "\uFFFD")})
			}
			rest = copy(buffer, text[whole:])
		}
		// Linux says EIO when the last process has closed the other end.
		if readErr != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		return cast{}, fmt.Errorf("%s failed, and was not recorded: %w", strings.Join(args, " "), err)
	}
	return c, nil
}

// complete returns how many bytes of text are whole characters.
func complete(text []byte) int {
	for back := 1; back <= min(utf8.UTFMax, len(text)); back++ {
		if start := len(text) - back; utf8.RuneStart(text[start]) {
			if utf8.FullRune(text[start:]) {
				return len(text)
			}
			return start
		}
	}
	return len(text)
}

// environment is this program's, without what changes how a terminal looks.
func environment() []string {
	var out []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		switch name {
		case "TERM", "NO_COLOR", "COLUMNS", "LINES":
		default:
			out = append(out, pair)
		}
	}
	return out
}
