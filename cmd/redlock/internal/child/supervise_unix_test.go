//go:build unix

package child

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/stretchr/testify/assert"
)

// A command is not stopped by the terminal: it goes on at once, and again if its stop came late.
func TestSuperviseUndoesAStop(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		start := time.Now()
		l := &lease{until: start.Add(time.Hour), done: make(chan struct{})}
		p := newFake(func(*fake) {})
		signals := make(chan os.Signal, 1)
		go func() {
			for range 2 {
				signals <- syscall.SIGTSTP
				time.Sleep(time.Minute)
			}
			p.end(0)
		}()
		out := Supervise(p, l, PlanFor(5*time.Second), false, signals, quiet)
		assert.False(t, out.Stopped || len(p.asked) > 0 || len(p.forwarded) > 0, "%+v, asked %v, forwarded %v", out, p.asked, p.forwarded)
		if n := len(p.continued); n < 10 || n > 30 || !p.continued[0].Equal(start) || p.continued[n/2].Sub(start) != time.Minute {
			t.Errorf("continued at %v", p.continued)
		}
	})
}

// A shell that does not see its job stopped continues nothing when it brings it to the foreground.
func TestSuperviseContinuesInTheForegroundWhatTheTerminalStopped(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGTTIN: 1, syscall.SIGTTOU: 1, syscall.SIGSTOP: 0} {
		faketime.Test(t, func(t *testing.T) {
			p := newFake(func(*fake) {})
			p.halted, p.inFront = make(chan syscall.Signal), time.Now().Add(time.Minute)
			go func() {
				p.halted <- sig
				time.Sleep(time.Hour)
				p.end(0)
			}()
			Supervise(p, &lease{until: time.Now().Add(2 * time.Hour), done: make(chan struct{})}, PlanFor(time.Second), false, nil, quiet)
			assert.Len(t, p.continued, want, "%v", sig)
			for _, at := range p.continued {
				assert.WithinRange(t, at, p.inFront, p.inFront.Add(time.Second))
			}
		})
	}
}
