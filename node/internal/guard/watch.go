package guard

import (
	"context"
	"crypto/rand"
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

// look is one look at the marker, the Sink of its call.
type look struct {
	call  member.Call
	seat  *Seat
	watch *Watch    // nil: nobody takes its result
	sent  time.Time // when it was put in line
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

// Done implements member.Sink.
//
// A look is answered before the calls behind it. If the member is not what it was, the generation ends before one of
// them is answered.
func (l *look) Done(c *member.Call) {
	s := l.seat
	if !s.terms.Replicated && !s.same(c) {
		s.lapse()
	}
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

// same reports whether a look that was answered or refused shows the memory of the standing.
func (s *Seat) same(c *member.Call) bool {
	if c.Outcome != member.Answered {
		return c.Outcome != member.Refused
	}
	m, err := readMarker(&c.Reply, c.At)
	return err == nil && s.host.Now().Standing.stays(m, s.guard.cfg.MaxTTL)
}

// rests reports whether the member is looked at rarely while no call comes that needs a look.
func (s *Seat) rests() bool { return s.guard != nil && !s.terms.Replicated }

// AtRest reports whether the last look is older than a ping, and the next one the PING of the connection.
func (s *Seat) AtRest() bool {
	return s.rests() && clock.Elapsed(*s.looked.Load(), time.Now()) >= s.terms.Ping
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

// look puts a look in line if one is due: a ping after the last one, and ten at rest. It returns the time until it may be. If the
// session is broken, whoever looks after it ends by that.
func (w *Watch) look(now time.Time) time.Duration {
	s := w.seat
	ping, last := s.terms.Ping, *s.looked.Load()
	until := clock.Until(last.Add(ping), now)
	if until <= 0 && s.rests() {
		until = clock.Until(last.Add(lookPings*ping), now)
	}
	if !w.soon.IsZero() {
		until = min(until, clock.Until(w.soon, now))
	}
	if until > 0 {
		return until
	}
	w.soon = time.Time{}
	l := s.newLook(w)
	if w.session.Queue(&l.call) == nil {
		s.looked.Store(&l.sent)
	}
	return ping
}

// Overdue returns a look that must stand before a call that is put in line now, because the last one in line is older than a
// ping. Nil: there is no need. The caller puts it in line before it lets another call pass.
func (s *Seat) Overdue() *member.Call {
	if s.guard == nil || s.terms.Replicated {
		return nil
	}
	if clock.Elapsed(*s.looked.Load(), time.Now()) < s.terms.Ping {
		return nil
	}
	l := s.newLook(s.watch.Load())
	s.looked.Store(&l.sent)
	return &l.call
}

func (s *Seat) newLook(w *Watch) *look {
	l := &look{seat: s, watch: w, sent: time.Now()}
	l.call = member.Call{Command: member.Command{Cmd: s.place().look}, Delivery: member.Delivery{Late: true}, Sink: l}
	return l
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

// looked takes the result of a look.
func (w *Watch) looked(l *look) error {
	s, c := w.seat, &l.call
	if c.Outcome == member.Refused {
		if !s.alone() {
			if done, err := s.refused(w, c); done {
				return err
			}
		}
		return w.begin()
	}
	if c.Outcome != member.Answered {
		return nil
	}
	w.lost = 0
	m, err := readMarker(&c.Reply, c.At)
	if err == nil {
		if err := s.demoted(m); err != nil {
			return err
		}
	}
	a := s.host.Now().Standing
	same := err == nil && a.admitted && a.stays(m, s.guard.cfg.MaxTTL)
	if same && m.renamed() {
		if m, err = s.rename(w.session, m); err == nil {
			s.take(m)
		}
		return err
	}
	if !s.alone() {
		if done, err := s.moved(w.session); done {
			return err
		}
	}
	if !same {
		return w.begin()
	}
	s.take(m)
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
