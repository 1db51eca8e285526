package child

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/stretchr/testify/assert"
)

// fake is a process in fake time.
type fake struct {
	exited, gone chan struct{}
	halted       chan syscall.Signal
	onTerminate  func(p *fake)
	asked        []time.Time
	killed       time.Time
	forwarded    []syscall.Signal
	continued    []time.Time
	code         int
	inFront      time.Time // when the terminal is given to it
}

func newFake(onTerminate func(p *fake)) *fake {
	return &fake{exited: make(chan struct{}), gone: make(chan struct{}), onTerminate: onTerminate}
}

func (p *fake) Exited() <-chan struct{}       { return p.exited }
func (p *fake) Halted() <-chan syscall.Signal { return p.halted }
func (p *fake) InForeground() bool            { return !time.Now().Before(p.inFront) }
func (p *fake) Gone() <-chan struct{}         { return p.gone }
func (p *fake) Code() int                     { return p.code }
func (p *fake) Forward(sig syscall.Signal)    { p.forwarded = append(p.forwarded, sig) }
func (p *fake) Continue()                     { p.continued = append(p.continued, time.Now()) }
func (p *fake) Terminate()                    { p.asked = append(p.asked, time.Now()); p.onTerminate(p) }
func (p *fake) Kill() {
	if p.killed.IsZero() {
		p.killed = time.Now()
		p.end(137)
	}
}

// end is the end of all of it, exit that of the command alone, both once.
func (p *fake) end(code int) {
	if !isDone(p.exited) {
		p.code = code
		defer close(p.exited)
	}
	close(p.gone)
}

func (p *fake) exit(code int) { p.code = code; close(p.exited) }

func isDone(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// lease is one that is renewed for as long as a test says.
type lease struct {
	mu    sync.Mutex
	until time.Time
	done  chan struct{}
	err   error
}

func (l *lease) ValidUntil() time.Time { return rt.Under(&l.mu, func() time.Time { return l.until }) }
func (l *lease) Done() <-chan struct{} { return l.done }
func (l *lease) Err() error            { return l.err }

func (l *lease) renew(d time.Duration) { rt.Locked(&l.mu, func() { l.until = time.Now().Add(d) }) }

var quiet = slog.New(slog.DiscardHandler)

// A command that is stopped holds the lock, and that is said, with what a person can do.
func TestSuperviseTellsThatTheCommandIsStopped(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		l := &lease{until: time.Now().Add(time.Hour), done: make(chan struct{})}
		p := newFake(func(*fake) {})
		p.halted = make(chan syscall.Signal)
		go func() {
			p.halted <- syscall.SIGTERM
			time.Sleep(time.Minute)
			p.end(0)
		}()
		var said bytes.Buffer
		out := Supervise(p, l, PlanFor(5*time.Second), false, nil, slog.New(slog.NewTextHandler(&said, nil)))
		assert.False(t, out.Stopped || out.Told || len(p.asked) > 0, "%+v", out)
		assert.Contains(t, said.String(), "the command is stopped, and the lock stays held: it goes on with SIGCONT")
	})
}

// In fake time every moment is exact.
func TestSuperviseStopsACommandBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	plan := Plan{KillAfter: 5 * time.Second, Margin: time.Second}
	for name, onTerminate := range map[string]func(*fake){
		"deaf":      func(*fake) {},
		"slow kill": func(*fake) { time.Sleep(3 * time.Second) }, // to look for processes takes long
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				start := time.Now()
				l := &lease{until: start.Add(30 * time.Second), done: make(chan struct{})}
				p := newFake(onTerminate)
				out := Supervise(p, l, plan, false, nil, quiet)
				assert.False(t, !out.Stopped || out.Code != 137 || out.Left, "%+v", out)
				assert.False(t, len(p.asked) != 1 || p.asked[0].Sub(start) != 25*time.Second || p.killed.Sub(start) != 29*time.Second,
					"asked %v, killed at %v", p.asked, p.killed.Sub(start))
			})
		})
	}
}

func TestSuperviseLetsACommandEndInOrder(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		l := &lease{until: time.Now().Add(30 * time.Second), done: make(chan struct{})}
		p := newFake(func(p *fake) { p.end(3) })
		if out := Supervise(p, l, PlanFor(5*time.Second), false, nil, quiet); !out.Stopped || out.Code != 3 || !p.killed.IsZero() {
			t.Errorf("%+v, killed %v", out, p.killed)
		}
	})
}

// Renewals in time keep it running, and signals are passed on meanwhile.
func TestSuperviseFollowsRenewals(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		l := &lease{until: time.Now().Add(30 * time.Second), done: make(chan struct{})}
		p := newFake(func(*fake) {})
		signals := make(chan os.Signal, 1)
		go func() {
			for range 10 {
				time.Sleep(10 * time.Second)
				l.renew(30 * time.Second)
			}
			signals <- syscall.SIGHUP
			time.Sleep(time.Millisecond)
			p.end(0)
		}()
		start := time.Now()
		out := Supervise(p, l, PlanFor(5*time.Second), false, signals, quiet)
		assert.False(t, out.Stopped || !out.Told || out.Code != 0 || len(p.asked) > 0 || time.Since(start) < 100*time.Second || len(p.forwarded) != 1, "%+v after %v, forwarded %v", out, time.Since(start), p.forwarded)
	})
}

// A lease that a majority says is another's leaves no time for asking.
func TestSuperviseKillsAtOnceWhenTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		start := time.Now()
		l := &lease{until: start.Add(30 * time.Second), done: make(chan struct{})}
		p := newFake(func(*fake) {})
		go func() {
			time.Sleep(7 * time.Second)
			l.err = errors.New("refused")
			close(l.done)
		}()
		out := Supervise(p, l, PlanFor(5*time.Second), false, nil, quiet)
		assert.False(t, !out.Stopped || out.Reason == nil || len(p.asked) > 0 || p.killed.Sub(start) != 7*time.Second,
			"%+v, asked %v, killed after %v", out, p.asked, p.killed.Sub(start))
	})
}

// What a command leaves behind is ended, in the time that the command itself would have had.
func TestSuperviseEndsWhatIsLeftBehind(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		faketime.Test(t, func(t *testing.T) {
			start := time.Now()
			l := &lease{until: start.Add(time.Hour), done: make(chan struct{})}
			p := newFake(func(*fake) {})
			p.exit(4)
			out := Supervise(p, l, PlanFor(5*time.Second), keep, nil, quiet)
			assert.False(t, out.Stopped || out.Code != 4 && keep, "keep %v: %+v", keep, out)
			assert.False(t, keep != p.killed.IsZero() || !keep && p.killed.Sub(start) != 5*time.Second,
				"keep %v: killed after %v", keep, p.killed.Sub(start))
		})
	}
}

// What cannot be killed is not waited for without end, and said.
func TestSuperviseGivesUpOnWhatCannotBeKilled(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		l := &lease{until: time.Now().Add(10 * time.Second), done: make(chan struct{})}
		p := newFake(func(*fake) {})
		p.killed = time.Now() // so that Kill does nothing
		if out := Supervise(p, l, PlanFor(5*time.Second), false, nil, quiet); !out.Left || !out.Stopped {
			t.Errorf("%+v", out)
		}
	})
}
