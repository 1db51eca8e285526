package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Term is how long a lease is trusted. Only votes that were counted begin one, and only a count of a renewal makes it longer. It
// ends once, and never revives: another may have held the lock since.
type Term struct {
	until time.Time // trusted until; zero: a majority has to confirm it first
	limit time.Time // never renewed beyond; zero: none
	err   error     // why it ended
	ended time.Time // when it did; meaningful once err is set
	drift float64
}

// Ended proves that nothing of an owner counts any more, so that its votes may be given back. Its zero value proves nothing.
type Ended struct{ yes, held bool }

// Yes reports whether it does.
func (e Ended) Yes() bool { return e.yes }

// Held reports whether the owner had a lease, as a majority has said.
func (e Ended) Held() bool { return e.held }

// Start begins the term of what the attempt has won, once, unless it was abandoned, or its votes are over at now.
func (v *Votes) Start(g Grant, now time.Time) (t Term, ok bool) {
	if v.started || v.left || v.token == 0 || g.token != v.token || clock.Until(g.until, now) <= 0 {
		return Term{}, false
	}
	v.started = true
	return Term{until: g.until, drift: v.terms.Drift}, true
}

// Await is Start for what was adopted: it is held once a majority has confirmed it.
func (v *Votes) Await() Term {
	v.started = true
	return Term{drift: v.terms.Drift}
}

// Abandon ends an attempt: it wins nothing from then on. Where it has begun a term, that has to end, and Abandon proves nothing.
func (v *Votes) Abandon() Ended {
	v.left = v.left || !v.started
	return Ended{yes: v.left}
}

// Until returns the end of the validity, as far as it is known.
func (t *Term) Until() time.Time { return t.until }

// Err returns why the term was ended, nil if it was not.
func (t *Term) Err() error { return t.err }

// Ended returns when that was.
func (t *Term) Ended() time.Time { return t.ended }

// Held reports whether the term was not ended, and is valid at now.
func (t *Term) Held(now time.Time) bool { return t.err == nil && clock.Until(t.until, now) > 0 }

// Renewable reports whether a renewal may count at now: the term is held, or is to be confirmed.
func (t *Term) Renewable(now time.Time) bool { return t.Held(now) || t.err == nil && t.until.IsZero() }

// Renew books that a majority has confirmed the lease, and reports whether that counts. It does not where the term has ended, or
// is over at now. The validity counts from before the submission of the question.
func (t *Term) Renew(c *Count, now time.Time) bool {
	if !c.won || !t.Renewable(now) {
		return false
	}
	until := c.sent.Add(clock.Validity(c.ttl, t.drift))
	if !t.limit.IsZero() && clock.Until(until, t.limit) > 0 {
		until = t.limit
	}
	if t.until.IsZero() || clock.Until(until, t.until) > 0 {
		t.until = until
	}
	return true
}

// Shorten ends the validity at an instant, if that is sooner, and reports whether it is.
func (t *Term) Shorten(until time.Time) bool {
	if clock.Until(until, t.until) >= 0 {
		return false
	}
	t.until = until
	return true
}

// Bound makes limit the instant beyond which the term is never renewed.
func (t *Term) Bound(limit time.Time) { t.limit = limit }

// End ends the term at now for a reason, unless it has been ended before: then it proves nothing.
func (t *Term) End(err error, now time.Time) Ended {
	if t.err != nil {
		return Ended{}
	}
	t.err, t.ended = err, now
	return Ended{yes: true, held: !t.until.IsZero()}
}
