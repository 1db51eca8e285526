package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Term is how long a lease is trusted. It ends once, and never revives: neither a renewal that was on its way in time, nor one
// that a majority has confirmed since, makes it longer then. Another may have held the lock in between.
type Term struct {
	until time.Time // trusted until
	limit time.Time // never renewed beyond; zero: none
	err   error     // why it ended
	ended time.Time // when it did; meaningful once err is set
}

// TermOf returns a term that begins now. It is trusted until an instant, and never renewed beyond limit, unless that is zero.
func TermOf(until, limit time.Time) Term { return Term{until: until, limit: limit} }

// Until returns the end of the validity, as far as it is known.
func (t *Term) Until() time.Time { return t.until }

// Limit returns the instant beyond which the term is never renewed; zero: there is none.
func (t *Term) Limit() time.Time { return t.limit }

// Err returns why the term was ended, nil if it was not.
func (t *Term) Err() error { return t.err }

// Ended returns when that was.
func (t *Term) Ended() time.Time { return t.ended }

// Held reports whether the term was not ended, and is valid at now.
func (t *Term) Held(now time.Time) bool { return t.err == nil && clock.Until(t.until, now) > 0 }

// Renew books that a majority has confirmed the lease until an instant, and reports whether that counts. It does not where the
// term has ended, or is over at now.
func (t *Term) Renew(until, now time.Time) bool {
	if !t.Held(now) {
		return false
	}
	if !t.limit.IsZero() && clock.Until(until, t.limit) > 0 {
		until = t.limit
	}
	if clock.Until(until, t.until) > 0 {
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

// End ends the term at now for a reason, unless it has been ended before, and reports whether it does.
func (t *Term) End(err error, now time.Time) bool {
	if t.err != nil {
		return false
	}
	t.err, t.ended = err, now
	return true
}
