package guard

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// Watch is the guard's part in looking after one session: the look at the marker at every ping, or
// more seldom while the client rests, the end of a quarantine, the restoring of counters. Without a
// guard it does nothing. All its methods belong to the goroutine that looks after the session. The
// only other goroutine is that of a restore, and Stop waits for it.
type Watch struct {
	// Results tells what has ended. Take takes it.
	Results chan Result // capacity 2: one look, and one restore

	seat    *Seat
	session Session
	process Process

	next    time.Time // of the next look
	busy    bool      // a look is in line, or kept
	kept    bool      // the session keeps it: the client is at rest
	woke    bool      // the last look was kept until a call came: a whole look that follows is sent by itself, for the offset
	glances int       // since the last whole look of a client at rest
	lost    int       // looks in a row that were sent elsewhere
	calm    time.Time // not before is a suspicion followed up again
	sent    time.Time // when the last look was

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
	call   member.Call
	watch  *Watch
	sent   time.Time // of one that is kept, when that began
	glance bool      // it reads id and q alone
	kept   bool      // it goes out in front of a call, whenever that comes
	rested bool      // it ends a rest: what is behind it in line has no other look before it
}

// Watch begins to guard a session.
func (s *Seat) Watch(on Session, p Process) *Watch {
	w := &Watch{Results: make(chan Result, 2), seat: s, session: on, process: p}
	w.ctx, w.cancel = context.WithCancel(s.host.Context())
	w.restorer.on, w.restorer.word = on, crand.Text()
	w.next = time.Now().Add(s.terms.Ping)
	w.glances = rand.IntN(restGlances + 1) // clients that began together look as a whole at different times
	return w
}

// Stop ends a restore that is under way.
func (w *Watch) Stop() {
	w.cancel()
	w.work.Wait()
}

// Done implements member.Sink.
//
// A look that ends a rest is answered before the calls behind it. If the member is not what it was,
// the generation ends before one of them is answered.
func (l *look) Done(c *member.Call) {
	s := l.watch.seat
	if l.rested && !s.same(l) {
		s.lapse()
	}
	if !l.kept {
		if o, ok := readOffset(c, l.sent); ok {
			s.offset.Store(&o)
		}
	}
	l.watch.Results <- Result{l}
}

// read is what a look that was answered has found. Of a glance it has id and q.
func (l *look) read() (marker, error) {
	if l.glance {
		return readGlance(&l.call.Reply)
	}
	return readMarker(&l.call.Reply, l.call.At)
}

// same reports whether a look that was answered or refused shows the memory of the standing.
func (s *Seat) same(l *look) bool {
	if l.call.Outcome != member.Answered {
		return l.call.Outcome != member.Refused
	}
	m, err := l.read()
	return err == nil && s.host.Now().Standing.stays(m, s.guard.cfg.MaxTTL)
}

// rests reports whether the client may be at rest at this member.
func (s *Seat) rests() bool {
	quiet := s.guard.cfg.Quiet
	return quiet != nil && !s.terms.Replicated && s.host.Now().State.Votes && quiet()
}

// restLeft is how much is left of a rest that began with the look before the one that is kept, and what is to be slept of
// it. due is its end in any case. That of a client that waits ends earlier if it hears no answer, and every call that it
// makes is one to hear of.
func restLeft(now, due, heard time.Time, ping time.Duration, waits bool) (left, sleep time.Duration) {
	left = clock.Until(due, now)
	if !waits {
		return left, left
	}
	left = min(left, heard.Add(waitLooks*ping).Sub(now)) // on the monotonic clock: heard is counted from when the session began
	return left, min(left, (waitLooks-1)*ping)
}

// waits reports whether the client waits for a push.
func (s *Seat) waits() bool {
	waits := s.guard.cfg.Waits
	return waits != nil && waits()
}

// Tick does what is due and returns the time until more is.
func (w *Watch) Tick(now time.Time) time.Duration {
	s := w.seat
	if s.guard == nil {
		return time.Hour
	}
	wait := s.terms.Ping
	until, rests := clock.Until(w.next, now), s.rests()
	if w.kept && rests {
		left, sleep := restLeft(now, w.next, w.session.Heard(), s.terms.Ping, s.waits())
		if left > 0 {
			return sleep
		}
	}
	// If the session is broken, whoever looks after it ends by that.
	switch {
	case w.kept: // the rest is over; unless a call has ended it
		w.kept = false
		l := w.newLook(rests)
		l.rested = true
		if w.session.Replace(&l.call) {
			w.woke, w.sent = false, l.sent
		}
	case until > 0:
		wait = min(wait, until)
	case !w.busy && rests && (!w.woke || w.glances < restGlances):
		l := w.newLook(rests)
		l.rested, l.kept = true, true
		w.busy, w.kept, w.woke, w.sent, w.next = true, true, true, l.sent, now.Add((restLooks-1)*s.terms.Ping)
		_ = w.session.Hold(&l.call)
		_, sleep := restLeft(now, w.next, w.session.Heard(), s.terms.Ping, s.waits())
		return max(sleep, 0)
	case !w.busy:
		l := w.newLook(false)
		w.busy, w.woke, w.sent = true, false, l.sent
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

// newLook is the look that is due. That of a client that rests is a glance, but for one in
// restGlances+1.
func (w *Watch) newLook(rests bool) *look {
	s := w.seat
	l := &look{watch: w, sent: time.Now()}
	cmd := s.place().look
	if rests && w.glances < restGlances {
		cmd, l.glance = s.place().glance, true
	}
	l.call = member.Call{Command: member.Command{Cmd: cmd}, Delivery: member.Delivery{Late: true}, Sink: l}
	return l
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
	w.busy, w.kept = false, false
	w.next = time.Now().Add(s.terms.Ping)
	if w.glances++; !l.glance {
		w.glances = 0
	}
	if again, err := w.replicatedLooked(l); again || err != nil {
		return err
	}
	switch c.Outcome {
	case member.Answered:
		m, err := l.read()
		switch {
		case err != nil || !s.host.Now().Standing.stays(m, s.guard.cfg.MaxTTL):
			return w.begin()
		case l.glance:
			s.guard.heard(m.q)
		default:
			s.take(m)
		}
	case member.Refused:
		return w.begin()
	}
	return nil
}

// Suspected follows up a reply which says that the member may not be what it was. Tick is due
// afterwards. An error ends the session.
func (w *Watch) Suspected() error {
	if w.seat.guard == nil {
		return nil
	}
	if left := clock.Until(w.calm, time.Now()); left > 0 {
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

// replicatedLooked takes what a look tells of replication, and of the slots of a master. again says that the result needs
// nothing more.
func (w *Watch) replicatedLooked(l *look) (again bool, _ error) {
	s, shard, c := w.seat, w.seat.terms.Shard, &l.call
	if e, ok := c.Err.(*member.ReplyError); ok && e.Kind == member.KindCluster && shard != nil {
		shard.Unknown() // the marker's slot is elsewhere, or nowhere for a moment
		if slots := shard.Slots(); len(slots) > 0 && homeOf(slots) == s.home.Load().slot {
			w.next = time.Now().Add(min(s.terms.Ping, 20*time.Millisecond))
			if w.lost++; w.lost < 50 {
				return true, nil
			}
			return true, errSlots
		}
	} else if c.Outcome == member.Answered {
		w.lost = 0
		if m, err := l.read(); err == nil {
			if err := s.demoted(m); err != nil {
				return true, err
			}
			if m.renamed() && s.host.Now().Standing.stays(m, s.guard.cfg.MaxTTL) {
				if m, err = s.rename(w.ctx, w.session, m); err == nil {
					s.take(m)
				}
				return true, err
			}
		}
	}
	if shard == nil {
		return false, nil
	}
	if slots := shard.Slots(); len(slots) == 0 || homeOf(slots) == s.home.Load().slot {
		return false, nil
	}
	return true, s.rehome(w.session)
}
