package work

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls are the read and write system calls of this process.
func calls() (reads, writes int64) {
	text, _ := os.ReadFile("/proc/self/io")
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		n, _ := strconv.ParseInt(string(value), 10, 64)
		switch string(key) {
		case "syscr":
			reads = n
		case "syscw":
			writes = n
		}
	}
	return reads, writes
}

// futexes counts the futex calls of this process from now on; -1: the kernel does not let it, see bench/README.md.
func futexes() (stop func() int64) {
	var open []int
	stop = func() (n int64) {
		n = -1
		for i, fd := range open {
			var b [8]byte
			if _, err := unix.Read(fd, b[:]); err == nil {
				n += int64(binary.NativeEndian.Uint64(b[:]))
			}
			if _ = unix.Close(fd); i == 0 {
				n++
			}
		}
		return n
	}
	text, err := os.ReadFile("/sys/kernel/tracing/events/syscalls/sys_enter_futex/id")
	if err != nil {
		return stop
	}
	id, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	threads, err2 := filepath.Glob("/proc/self/task/*")
	if err != nil || err2 != nil {
		return stop
	}
	event := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit}
	event.Size = uint32(unsafe.Sizeof(event))
	for _, thread := range threads { // each with those that it starts
		tid, _ := strconv.Atoi(filepath.Base(thread))
		if fd, err := unix.PerfEventOpen(&event, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC); err == nil {
			open = append(open, fd)
		}
	}
	return stop
}
