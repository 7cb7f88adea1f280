package endpointtest

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// OwnCPU returns the processor time that this process has used.
func OwnCPU(b *testing.B) time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// InUse returns the bytes of heap and stacks in use after a collection.
func InUse() uint64 {
	runtime.GC()
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return ms.HeapInuse + ms.StackInuse
}
