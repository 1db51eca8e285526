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
