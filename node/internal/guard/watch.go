package guard

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// Watch is the guard's part in looking after one session: the look at the marker that no call took along, the end of a
// quarantine, the restoring of counters. Without a guard it does nothing. All its methods belong to the goroutine that
// looks after the session. The only other goroutine is that of a restore, and Stop waits for it.
type Watch struct {
	// Results has Take called. It has capacity 1.
	Results chan struct{}

	seat    *Seat
	session Session
	process Process

	soon time.Time // not zero: a look is due then, however old the last one is
	lost int       // looks in a row that were sent elsewhere
	calm time.Time // not before is a suspicion followed up again

	answered atomic.Pointer[look] // the last look that was answered, until Take takes it

	ctx       context.Context
	cancel    context.CancelFunc
	work      sync.WaitGroup
	restoring atomic.Bool
	retry     time.Time // of the next restore; the restore's, while there is one
	restorer  restoring // the same
}

// Watch begins to guard a session.
func (s *Seat) Watch(on Session, p Process) *Watch {
	w := &Watch{Results: make(chan struct{}, 1), seat: s, session: on, process: p}
	w.ctx, w.cancel = context.WithCancel(s.host.Context())
	w.restorer.on, w.restorer.word = on, rand.Text()
	s.watch.Store(w)
	return w
}

// Stop ends a restore that is under way.
func (w *Watch) Stop() {
	w.seat.watch.CompareAndSwap(w, nil)
	w.cancel()
	w.work.Wait()
}

// handOn hands a look that was answered on to whoever looks after the session.
func (l *look) handOn(c *member.Call) {
	s := l.seat
	if o, ok := readOffset(c, l.sent); ok {
		s.offset.Store(&o)
	}
	if w := l.watch; w != nil {
		w.answered.Store(l) // who takes it needs no earlier one
		w.wake()
	} else if !s.host.Now().Standing.admitted {
		s.host.Suspect()
	}
}

// AtRest reports whether the last look is older than a ping, and the next one the PING of the connection.
func (s *Seat) AtRest() bool {
	return s.guard != nil && !s.terms.Replicated && clock.Elapsed(*s.looked.Load(), time.Now()) >= s.terms.Ping
}

// Tick does what is due and returns the time until more is.
func (w *Watch) Tick(now time.Time) time.Duration {
	s := w.seat
	if s.guard == nil {
		return time.Hour
	}
	wait := w.look(now)
	at := s.host.Now()
	if !at.Standing.admitted || at.State.Votes {
		return wait
	}
	s.tell() // of a cluster, masters may have been found to be down since
	do, until := at.Standing.dueNow(now, *s.looked.Load())
	switch {
	case until > 0:
		return min(wait, until)
	case do == looksOnce:
		w.soon = now
		return 0
	case do == publishes:
		s.host.Publish(unedited) // Votes is computed anew
		return wait
	case do == waits || w.restoring.Load():
		return wait
	}
	if until := clock.Until(w.retry, now); until > 0 {
		return min(wait, until)
	}
	w.restore(at.Standing.marker.id)
	return wait
}

// restore starts one attempt to restore the counters.
func (w *Watch) restore(id string) {
	s := w.seat
	w.restoring.Store(true)
	w.work.Go(func() {
		m, err := s.restore(w.ctx, &w.restorer, id)
		if err == nil && m.id == id {
			s.take(m)
		} else if err != nil {
			s.terms.Logger.Debug("counters are not restored yet", "member", s.host.Name(), "err", err)
		}
		w.retry = time.Now().Add(w.restorer.pause(err, s.terms.Ping))
		w.restoring.Store(false)
		w.wake()
	})
}

// wake has Take called.
func (w *Watch) wake() {
	select {
	case w.Results <- struct{}{}:
	default:
	}
}

// Take takes what Results has told of. Tick is due afterwards. An error ends the session.
func (w *Watch) Take() error {
	if l := w.answered.Swap(nil); l != nil {
		return w.looked(l)
	}
	return nil
}

// Suspected follows up a reply which says that the member may not be what it was. Tick is due
// afterwards. An error ends the session.
func (w *Watch) Suspected() error {
	if w.seat.guard == nil {
		return nil
	}
	if left := clock.Until(w.calm, time.Now()); left > 0 && w.seat.host.Now().Standing.admitted {
		w.soon = w.calm // a moment ago we looked: look once more then
		return nil
	}
	return w.begin()
}

// begin ends the generation and begins the next one on the same session. An error ends the session.
func (w *Watch) begin() error {
	w.calm = time.Now().Add(50 * time.Millisecond)
	return w.seat.readmit(w.session, w.process)
}

// Suspects reports whether a refusal means that the member may be another than it was. In a cluster perhaps the slot alone
// forgot: see Stamp.
func (s *Seat) Suspects(e *member.ReplyError) bool {
	return e.Kind == member.KindForgot && s.alone() || e.Kind == member.KindLoading || strings.HasPrefix(e.Text, "READONLY")
}

// due is what a Watch has to do for a member that is admitted and does not vote.
type due uint8

const (
	waits     due = iota
	looksOnce     // our count is over, and the member must say so, too
	publishes     // the quarantine is over
	restores      // the counters may be restored
)

// dueNow is what is due at now. until is the rest of the quarantine by our count; looked is when the
// last look was put in line.
func (a Standing) dueNow(now, looked time.Time) (do due, until time.Duration) {
	left := a.votesFrom.Sub(now) // on the monotonic clock: see mayVote
	switch m := a.marker; {
	case left > 0:
		return waits, left
	case m.state == forgot:
		return restores, 0
	case m.left == 0:
		return publishes, 0
	case looked.Before(a.votesFrom): // q may have been raised since
		return looksOnce, 0
	}
	return waits, 0
}

// news is closed when a look has found something new at any member.
func (g *Guard) news() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// wakeLocked closes news.
func (g *Guard) wakeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}
