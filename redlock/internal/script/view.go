package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/member"
)

// Peek asks what the member knows of the lock. The reply is a View.
func (l *Lock) Peek(buf *[]byte) member.Command {
	return l.say(buf, &l.how.peek, &said{other: "all"})
}

// PeekHolders is Peek without those who wait, and with readers, which any lock may have that is not a semaphore. The reply is
// for ReadHolders.
func (l *Lock) PeekHolders(buf *[]byte) member.Command {
	peek := &l.how.peek
	if l.asks == nil && l.beside == nil {
		peek = &writing.peek
	}
	return l.say(buf, peek, &said{other: "holders"})
}

// ReadHolders decodes the reply to PeekHolders: none if it has another shape.
func (l *Lock) ReadHolders(r *member.Reply) (all []Holder) {
	if l.asks != nil {
		p, _ := ReadPermits(r)
		return p.Holders
	}
	v, _ := ReadView(r)
	if v.Owner != "" {
		all = append(all, Holder{Owner: v.Owner, Client: v.Client, TTL: v.TTL})
	}
	for _, one := range v.Readers {
		if one.TTL > 0 {
			all = append(all, Holder{Owner: one.Owner, Client: one.Client, TTL: one.TTL})
		}
	}
	return all
}

// Force takes the lock from the owner with this Hash, or from any owner if it is "". longest is the
// longest lease that a client may hold. The reply is an Answer.
func (l *Lock) Force(buf *[]byte, owner string, longest time.Duration) member.Command {
	return l.say(buf, &l.how.force, &said{owner: owner, ttl: longest})
}

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
	v = View{TTL: duration.FromMillis(e[1].Int), Counter: number(e[2])}
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
