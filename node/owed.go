package node

import (
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
)

// Bounds of the debts of one node. Beyond either the oldest is dropped; its key then lives until
// its TTL ends. All leases of a busy client may end at once: a release is some 300 bytes and three
// times its lock's name, and the bytes are enough for as many debts as there may be with names of
// 60.
const (
	maxDebts     = 1 << 17
	maxDebtBytes = 64 << 20
)

// debt is a release that must still reach the server: a copy of a call that was not delivered.
type debt struct {
	owed  *owed
	call  member.Call
	until time.Time

	// guarded by owed.mu
	flying     bool          // submitted and not done
	last       bool          // its time had passed when it was submitted: it is not submitted again
	after      time.Time     // not again on the same connection before this moment
	pause      time.Duration // before that; zero until the server has refused it
	gone       bool          // no longer in the list
	prev, next *debt
}

// owed is the list of debts, oldest first. Safe for concurrent use; its mutex is a leaf.
type owed struct {
	cmdLimit, byteLimit int
	pauseMin, pauseMax  time.Duration // after a refusal that passes, doubled with each
	kick                chan struct{} // capacity 1: there may be something to send
	dropped             func()        // told of the first drop; not under mu. It must not block

	mu          sync.Mutex
	first, last *debt
	count       int
	bytes       int
	warned      bool
	next        time.Time // of the next look at debts that wait, zero if none is planned
}

func newOwed(pauseMin, pauseMax time.Duration, dropped func()) *owed {
	return &owed{
		cmdLimit: maxDebts, byteLimit: maxDebtBytes, dropped: dropped, kick: make(chan struct{}, 1),
		pauseMin: max(pauseMin, time.Millisecond), pauseMax: pauseMax,
	}
}

// add copies c, which the caller still owns. What the server has refused is not sent to it again at
// once.
func (o *owed) add(c *member.Call) {
	d := &debt{owed: o, until: c.OweUntil}
	if c.Outcome == member.Refused {
		d.refused()
	}
	d.call = ability.Again(c, d)
	o.mu.Lock()
	d.prev = o.last
	if o.last != nil {
		o.last.next = d
	} else {
		o.first = d
	}
	o.last = d
	o.count++
	o.bytes += len(d.call.Cmd)
	warn := false
	for o.count > o.cmdLimit || o.bytes > o.byteLimit {
		warn = !o.warned
		o.warned = true
		o.removeLocked(o.first)
	}
	o.wakeLocked(d)
	o.mu.Unlock()
	if warn {
		o.dropped()
	}
}

// wakeLocked has the supervisor look, unless it is about to when d is due. It does not block.
func (o *owed) wakeLocked(d *debt) {
	if !d.after.IsZero() && !o.next.IsZero() && !d.after.Before(o.next) {
		return
	}
	o.next = d.after
	wake(o.kick)
}

// none reports whether there is no debt at all.
func (o *owed) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first == nil
}

func (o *owed) removeLocked(d *debt) {
	if d.gone {
		return
	}
	d.gone = true
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		o.first = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	} else {
		o.last = d.prev
	}
	d.prev, d.next = nil, nil
	o.count--
	o.bytes -= len(d.call.Cmd)
}

// refused has the debt wait, twice as long as after the refusal before. A burst of releases does
// not hammer a server that can do nothing for seconds, and one that could do nothing for a moment
// gets them soon.
func (d *debt) refused() {
	d.pause = min(max(2*d.pause, d.owed.pauseMin), d.owed.pauseMax)
	d.after = time.Now().Add(d.pause)
}

// Done is the outcome of one try to pay d. The debt ends when the server has answered; a refusal
// that will pass is tried again after a while, anything without an answer on the next connection.
func (d *debt) Done(c *member.Call) {
	o := d.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	d.flying = false
	switch {
	case d.gone:
	case !ability.Undelivered(&c.Result):
		o.removeLocked(d)
	case c.Outcome == member.Refused:
		d.refused()
		o.wakeLocked(d)
	}
}

// due returns the debts to submit now, oldest first, and marks them as flying. Those whose time has passed are submitted
// once on a new connection, because a server that was stopped grants now what it was asked before it; else they are
// forgotten. They are limit at the most; there may be others then. more is the time
// until the next one that waits, 0 if none does. all: the connection is new, and what was refused
// on the one before waits no longer, because its server may be another.
func (o *owed) due(now time.Time, limit int, all bool) (debts []*debt, more time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for d := o.first; d != nil && len(debts) < limit; {
		next := d.next
		switch wait := d.after.Sub(now); {
		case d.flying:
		case !now.Before(d.until) && (d.last || !all):
			o.removeLocked(d)
		case wait > 0 && !all:
			if more == 0 || wait < more {
				more = wait
			}
		default:
			d.flying, d.last = true, !now.Before(d.until)
			debts = append(debts, d)
		}
		d = next
	}
	if o.next = (time.Time{}); more > 0 {
		o.next = now.Add(more)
	}
	return debts, more
}

// release undoes the mark of due for debts that were not submitted.
func (o *owed) release(debts []*debt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range debts {
		d.flying = false
	}
}

// any tells whether a debt is left whose time has not passed.
func (o *owed) any(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for d := o.first; d != nil; d = d.next {
		if now.Before(d.until) {
			return true
		}
	}
	return false
}
