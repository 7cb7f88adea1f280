package agent

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// settle gives back the memory that only the start needed: what handshakes and lists left on the heap, and the pages of
// the binary with code that does not run again.
func settle() error {
	debug.FreeOSMemory()
	return unmapBinary()
}

// unmapBinary takes all pages of the binary out of the memory of this process. They stay in the page cache, from where
// those that are in use come back at once. The others, about a quarter of all, the kernel can use for something else.
func unmapBinary() error {
	binary, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	mappings, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mappings)) {
		fields := strings.Fields(line) // proc_pid_maps(5): addresses, permissions, offset, device, inode, path
		if !strings.HasSuffix(line, " "+binary+"\n") || strings.Contains(fields[1], "w") {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return fmt.Errorf("/proc/self/maps: %q: %w", line, err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}
