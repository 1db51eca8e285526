//go:build !race

package redlock

import (
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Open holds in the searches of schedules: a holder reserves tokens, and gives all that it gets at once. Their tokens do not mix with
// those of others.

// schedSpan are the tokens of one hold.
type schedSpan struct{ first, last int64 }

// schedAsker hears nothing: the search looks at the hold itself.
type schedAsker struct{}

func (schedAsker) reserved(reserved) {}

// last is the greatest token that a client has given.
func (cl *schedClient) last() int64 {
	if cl.opened {
		return cl.open.Most()
	}
	return cl.token
}

// mayReserve reports whether a client may begin a reservation.
func (s *search) mayReserve(w *schedWorld, c int) bool {
	cl := w.c[c]
	return w.used.reserves < s.bounds.reserves && s.believes(w, c) && !(cl.opened && cl.open.asking(s.now, schedMembers))
}

// reserves has a client reserve tokens.
func (s *search) reserves(w *schedWorld, c int) {
	w.used.reserves++
	cl := s.client(w, c)
	a := s.attempt(c)
	if !cl.opened {
		a.opens(schedAsker{})
	}
	a.reserveMore(core.ProbeTerm(cl.until, cl.limit, s.cfg.Drift), false)
	s.opened(c, a)
	s.say("%v reserves tokens up to %d", who(c), cl.open.asked.most)
}

// opened keeps what an open hold has after an event.
func (s *search) opened(c int, a *attempt) {
	if cl := s.w.c[c]; a.open != nil && cl.phase == schedHolding {
		before := cl.last()
		if cl.opened, cl.open = true, *a.open; cl.last() > before {
			s.count("ranges")
			s.say("  %v gives the tokens up to %d", who(c), cl.last())
			s.spans(c, before)
		}
	}
}

// spans looks at the tokens of a client, which has given those up to before already.
func (s *search) spans(c int, before int64) {
	w, own := s.w, schedSpan{s.w.c[c].token, s.w.c[c].last()}
	if s.bounds.reserves == 0 {
		return
	}
	var all []schedSpan
	for _, o := range w.spans {
		if o.first == own.first && before > 0 {
			continue
		}
		if all = append(all, o); o.first <= own.last && own.first <= o.last {
			s.wrong("tokens %v of %v are mixed with %v", own, who(c), o)
		}
	}
	if w.spans = append(all, own); before > 0 && s.bounds.lapses == 0 && w.won > before {
		s.wrong("%v gives tokens above %d, and %d was given meanwhile", who(c), before, w.won)
	}
	w.won = max(w.won, own.last)
	w.written = max(w.written, own.last)
}

// openDates are the dates of an open hold.
func (cl *schedClient) openDates() []*time.Time {
	return append(core.ProbeRange{Range: &cl.open.Range}.Dates(), &cl.open.asked.sent, &cl.open.asked.end)
}

// appendOpen writes what an open hold has, and appendOpenAt what it has of member i.
func (s *search) appendOpen(out []byte, w *schedWorld, cl *schedClient) []byte {
	out = append(out, byte(w.used.reserves), flag(cl.opened))
	if cl.opened {
		out = appendNumbers(out, cl.open.Most(), cl.open.asked.most, cl.open.given)
		for _, t := range cl.openDates() {
			out = s.appendTime(out, *t)
		}
	}
	for _, o := range w.spans {
		out = appendNumbers(out, o.first, o.last)
	}
	return out
}

func (s *search) appendOpenAt(out []byte, cl *schedClient, i int) []byte {
	if len(cl.probe().Room().Voters) == 0 {
		return out
	}
	bits := cl.probe().Drawn(i)
	for k, in := range []memberset.Set{core.ProbeRange{Range: &cl.open.Range}.Confirmed(), cl.open.asked.heard, cl.open.asked.alone, cl.open.asked.refused} {
		bits |= flag(in.Has(i)) << (k + 2)
	}
	return append(out, bits)
}
