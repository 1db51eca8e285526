package script

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

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
				a.Lives = member.FromMillis(e.Int)
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

// View is what one member knows of a lock. If it has Readers, Owner is "".
type View struct {
	Foreign bool          // the key has no TTL, so it is not a lock
	TTL     time.Duration // of the vote; 0: there is none
	Counter int64         // the last token that the lock's bucket gave out
	Owner   string        // Hash of the owner of the vote, or ""
	Client  string        // ClientHash of that owner
	Token   int64         // of the vote; of readers, what their phase is told
	Drawn   int64         // of readers, what their phase drew: at most Token
	Readers []Reader      // that have the vote together
	Queue   []Waiter      // in order of arrival
}

// Reader is one of those that share a vote.
type Reader struct {
	Owner  string        // Hash of the reader
	Client string        // its ClientHash
	TTL    time.Duration // until its part ends, 0 if it has ended
}

// Waiter is one that waits.
type Waiter struct {
	Owner   string        // Hash of the waiter
	Client  string        // its ClientHash
	Waiting time.Duration // time since it registered; 0 for a reader, which has no place in the queue
	Live    bool          // its entry has not run out
	Reads   bool          // it is a reader
	Permits int           // of a semaphore: how many it asks for
}

// ReadView decodes the reply to Peek. If the reply has another shape, ok is false.
func ReadView(r *member.Reply) (v View, ok bool) {
	e := r.Elems
	if len(e) < 6 || (len(e)-6)%4 != 0 {
		return View{}, false
	}
	if e[1].Int == -1 {
		return View{Foreign: true}, true
	}
	now := e[0].Int
	v = View{TTL: member.FromMillis(e[1].Int), Counter: number(e[2])}
	if readers := e[5].Elems; e[5].Kind == '*' {
		drawn, told, _ := strings.Cut(string(e[4].Str), " ")
		told, _, _ = strings.Cut(told, " ")
		v.Drawn, _ = strconv.ParseInt(drawn, 10, 64)
		v.Token, _ = strconv.ParseInt(told, 10, 64)
		for ; len(readers) > 1; readers = readers[2:] {
			left := time.Duration(max(0, number(readers[1])*1000-now)) * time.Microsecond
			v.Readers = append(v.Readers, Reader{Owner: Hash(readers[0].Str), Client: ClientHash(readers[0].Str), TTL: left})
		}
	} else {
		v.Owner, v.Client, v.Token = Hash(e[4].Str), ClientHash(e[4].Str), number(e[5])
	}
	for w := e[6:]; len(w) > 0; w = w[4:] {
		one := Waiter{Owner: Hash(w[0].Str), Client: ClientHash(w[0].Str), Live: number(w[2])*1000 >= now, Reads: number(w[1]) == 0}
		if !one.Reads {
			one.Waiting = time.Duration(now-number(w[1])) * time.Microsecond
		}
		v.Queue = append(v.Queue, one)
	}
	return v, true
}

func number(r member.Reply) int64 {
	text, _, _ := strings.Cut(string(r.Str), ".")
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// Hash tells owners apart without naming them. Nobody can find the name from the hash, because
// names of owners are random. It is the only hash that scripts can compute. The hash of no owner is
// "".
func Hash(owner []byte) string {
	if len(owner) == 0 {
		return ""
	}
	sum := sha1.Sum(owner)
	return hex.EncodeToString(sum[:])
}
