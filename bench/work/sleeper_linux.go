package work

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sleeper sleeps parts of a millisecond while others sleep, too. The runtime's own timers are too
// coarse for that. A thread that sleeps in a system call keeps its processor from the other callers
// for a while. The runtime waits for the descriptor of a timer as it waits for a socket.
type sleeper struct {
	fd   int
	file *os.File
}

func newSleeper() (*sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &sleeper{fd, os.NewFile(uintptr(fd), "timer")}, nil
}

// Sleep returns after d.
func (s *sleeper) Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	var b [8]byte
	when := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if unix.TimerfdSettime(s.fd, 0, &when, nil) == nil {
		_, _ = s.file.Read(b[:])
	}
}

// Close frees the descriptor.
func (s *sleeper) Close() { _ = s.file.Close() }

// nap sleeps a part of a millisecond, for which the runtime's own timers are too coarse.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}
