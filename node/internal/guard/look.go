package guard

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// lookPings is how many pings a look is apart from the one before it, if no call takes it along.
const lookPings = 10

// learn is how long another client may take to learn of a raised q: one ping more is for the look and its answer. Where
// a replica may take over, everybody looks at each ping: nothing but a look tells of that.
func (t *Terms) learn() time.Duration {
	if t.Replicated {
		return t.Ping
	}
	return (lookPings + 1) * t.Ping
}

// look is one look at the marker, the Sink of its call.
type look struct {
	call  member.Call
	seat  *Seat
	watch *Watch    // nil: nobody takes its result
	sent  time.Time // when it was put in line
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
	l.handOn(c)
}

// same reports whether a look that was answered or refused shows the memory of the standing.
func (s *Seat) same(c *member.Call) bool {
	if c.Outcome != member.Answered {
		return c.Outcome != member.Refused
	}
	m, err := readMarker(&c.Reply, c.At)
	return err == nil && s.host.Now().Standing.stays(m, s.guard.cfg.MaxTTL)
}

// look puts a look in line if one is due: a ping after the last one, and ten at rest. It returns the time until it may be. If the
// session is broken, whoever looks after it ends by that.
func (w *Watch) look(now time.Time) time.Duration {
	s := w.seat
	ping, last := s.terms.Ping, *s.looked.Load()
	until := clock.Until(last.Add(ping), now)
	if until <= 0 && !s.terms.Replicated {
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
	if s.guard == nil || s.terms.Replicated || clock.Elapsed(*s.looked.Load(), time.Now()) < s.terms.Ping {
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

// looked takes the result of a look.
func (w *Watch) looked(l *look) error {
	s, c := w.seat, &l.call
	if done, err := s.followed(w, c); done {
		return err
	}
	m, err := readMarker(&c.Reply, c.At)
	if c.Outcome == member.Answered && err == nil {
		if err := s.demoted(m); err != nil {
			return err
		}
	}
	switch {
	case !s.same(c) || !s.host.Now().Standing.admitted:
		return w.begin()
	case c.Outcome != member.Answered:
		return nil
	case m.renamed():
		if m, err = s.rename(w.session, m); err != nil {
			return err
		}
	}
	s.take(m)
	return nil
}
