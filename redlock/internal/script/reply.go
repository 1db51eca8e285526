package script

import (
	"time"

	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// Answer is what a member replies to most calls about one lock.
type Answer struct {
	N      int64  // as the header of each script says
	Server int64  // the member's time, µs; 0: not told
	Next   string // the first waiter in line; "": none, or not told
	Place  int64  // the owner's ticket at the member; 0: none, or not told

	// Lives is the lifetime of the owner's entry, if the line is so long that it is longer than was asked for; else 0.
	Lives time.Duration

	// Of a semaphore. If the owner has permits, N is the token of the first.
	Permits permit.List // all that the owner has at the member; nil: none, or not told
	Limit   int64       // the stored limit, if it is greater than the one that the client knew; else 0
}

// ReadAnswer decodes the five shapes of reply: a number; {number, time}; {number, time, head of the
// queue, "-", or the lifetime of the entry}; that with a ticket; and that with a stored limit. Permits may stand for the number.
// If the reply has another shape, ok is false.
func ReadAnswer(r *member.Reply) (a Answer, ok bool) {
	switch {
	case r.Kind == ':':
		return Answer{N: r.Int}, true
	case r.Kind == '*' && len(r.Elems) >= 2:
		a = Answer{N: r.Elems[0].Int, Server: r.Elems[1].Int}
		if r.Elems[0].Kind == '$' && !a.reads(&r.Elems[0]) {
			return Answer{}, false
		}
		if len(r.Elems) > 2 {
			switch e := &r.Elems[2]; {
			case e.Kind == ':':
				a.Lives = duration.FromMillis(e.Int)
			case len(e.Str) > 1:
				a.Next = string(e.Str)
			}
		}
		if len(r.Elems) > 3 {
			a.Place = r.Elems[3].Int
		}
		if len(r.Elems) > 4 {
			a.Limit = r.Elems[4].Int
		}
		return a, true
	case r.Kind == '$':
		return a, a.reads(r)
	}
	return Answer{}, false
}

// reads decodes permits.
func (a *Answer) reads(r *member.Reply) (ok bool) {
	if a.Permits, ok = permit.Parse(string(r.Str)); ok {
		a.N = a.Permits[0].Token
	}
	return ok
}

// LongestLife is the greatest lifetime that a member gives an entry for which one was asked: pace.lua.
func LongestLife(entry time.Duration) time.Duration { return 4 * entry }
