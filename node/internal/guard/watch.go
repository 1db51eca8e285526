package guard

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// Watch is the guard's part in looking after one session: the look at the marker before a vote, if the last one is
// older than Terms.Ping, the end of a quarantine, the restoring of counters. Without a
// guard it does nothing. All its methods belong to the goroutine that looks after the session. The
// only other goroutine is that of a restore, and Stop waits for it.
type Watch struct {
	// Results tells what has ended. Take takes it.
	Results chan Result // capacity 2: one look, and one restore

	seat    *Seat
	session Session
	process Process

	next time.Time // of the next look: when it is due, or when the session keeps it no longer
	busy bool      // a look is in line, or kept
	kept bool      // the session keeps it until a call comes that needs it
	lost int       // looks in a row that were sent elsewhere
	calm time.Time // not before is a suspicion followed up again
	sent time.Time // when the last look was that has been answered

	ctx       context.Context
	cancel    context.CancelFunc
	work      sync.WaitGroup
	restoring bool
	retry     time.Time // of the next restore
	restorer  restoring // the restore's, while there is one
}

// Result is a look that is done, or a restore that has ended.
type Result struct{ look *look }

// look is one look at the marker, the Sink of its call.
type look struct {
	call  member.Call
	seat  *Seat
	watch *Watch    // nil: nobody takes its result
	sent  time.Time // when it was put in line
}

// Watch begins to guard a session.
func (s *Seat) Watch(on Session, p Process) *Watch {
	w := &Watch{Results: make(chan Result, 2), seat: s, session: on, process: p}
	w.ctx, w.cancel = context.WithCancel(s.host.Context())
	w.restorer.on, w.restorer.word = on, rand.Text()
	w.next = time.Now().Add(s.terms.Ping)
	return w
}

// Stop ends a restore that is under way.
func (w *Watch) Stop() {
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
	if l.watch != nil {
		l.watch.Results <- Result{l}
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

// keeps reports whether the next look may be kept until a call comes that needs it.
func (s *Seat) keeps() bool { return !s.terms.Replicated && s.host.Now().State.Votes }

// Tick does what is due and returns the time until more is.
func (w *Watch) Tick(now time.Time) time.Duration {
	s := w.seat
	if s.guard == nil {
		return time.Hour
	}
	wait := s.terms.Ping
	until, keeps := clock.Until(w.next, now), s.keeps()
	// If the session is broken, whoever looks after it ends by that.
	switch {
	case w.kept && keeps && until > 0:
		return until
	case w.kept:
		w.kept = false
		w.session.Send()
	case until > 0:
		wait = min(wait, until)
	case !w.busy && keeps:
		l := s.newLook(w)
		w.busy, w.kept, w.next = true, true, now.Add((lookPings-1)*s.terms.Ping)
		_ = w.session.Hold(&l.call, func() { l.sent = s.looks(time.Now()) })
		return clock.Until(w.next, now)
	case !w.busy:
		l := s.newLook(w)
		w.busy = true
		if w.session.Queue(&l.call) != nil {
			return wait
		}
	}
	at := s.host.Now()
	if !at.Standing.admitted || at.State.Votes {
		return wait
	}
	s.guard.tell(s.number) // of a cluster, masters may have been found to be down since
	do, until := at.Standing.dueNow(now, w.sent, w.busy)
	switch {
	case until > 0:
		return min(wait, until)
	case do == looksOnce:
		w.next = now
		return 0
	case do == publishes:
		s.host.Publish(unedited) // Votes is computed anew
		return wait
	case do == waits || w.restoring:
		return wait
	}
	if until := clock.Until(w.retry, now); until > 0 {
		return min(wait, until)
	}
	w.restore(at.Standing.marker.id)
	return wait
}

// Overdue returns a look that must stand before a call that is put in line now: the last one is older than a ping, and whoever
// looks after the session, and has a look kept by then, is late. Nil: there is no need.
func (s *Seat) Overdue() *member.Call {
	last := s.looked.Load()
	if s.guard == nil || s.terms.Replicated || last != nil && clock.Elapsed(*last, time.Now()) <= s.terms.Ping {
		return nil
	}
	return &s.newLook(nil).call
}

func (s *Seat) newLook(w *Watch) *look {
	l := &look{seat: s, watch: w, sent: s.looks(time.Now())}
	l.call = member.Call{Command: member.Command{Cmd: s.place().look}, Delivery: member.Delivery{Late: true}, Sink: l}
	return l
}

// looks books when a look is put in line, or kept to be.
func (s *Seat) looks(at time.Time) time.Time {
	s.looked.Store(&at)
	return at
}

// restore starts one attempt to restore the counters.
func (w *Watch) restore(id string) {
	s := w.seat
	w.restoring = true
	w.work.Go(func() {
		m, err := s.restore(w.ctx, &w.restorer, id)
		if err == nil && m.id == id {
			s.take(m)
		} else if err != nil {
			s.terms.Logger.Debug("counters are not restored yet", "member", s.host.Name(), "err", err)
		}
		w.retry = time.Now().Add(w.restorer.pause(err, s.terms.Ping)) // Tick reads it only when Take has been told
		w.Results <- Result{}
	})
}

// Take takes a result. Tick is due afterwards. An error ends the session.
func (w *Watch) Take(r Result) error {
	if r.look == nil {
		w.restoring = false
		return nil
	}
	return w.looked(r.look)
}

// looked takes the result of a look.
func (w *Watch) looked(l *look) error {
	s, c := w.seat, &l.call
	w.busy, w.kept, w.sent = false, false, l.sent
	w.next = time.Now().Add(s.terms.Ping)
	if c.Outcome == member.Refused {
		if done, err := s.refused(w, c); done {
			return err
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
	same := err == nil && s.host.Now().Standing.stays(m, s.guard.cfg.MaxTTL)
	if same && m.renamed() {
		if m, err = s.rename(w.ctx, w.session, m); err == nil {
			s.take(m)
		}
		return err
	}
	if done, err := s.moved(w.session); done {
		return err
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
		w.next = w.calm // a moment ago we looked: look once more then
		return nil
	}
	return w.begin()
}

// begin ends the generation and begins the next one on the same session. An error ends the session.
func (w *Watch) begin() error {
	w.calm = time.Now().Add(50 * time.Millisecond)
	return w.seat.readmit(w.session, w.process)
}
