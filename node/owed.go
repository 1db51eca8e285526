package node

import (
	"bytes"
	"sync"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// Bounds of the debts of one node. Beyond either the oldest is dropped; its key then lives until its
// TTL ends.
const (
	maxDebts     = 65536
	maxDebtBytes = 16 << 20
)

// debt is a release that must still reach the server: a copy of the call that was NotSent or whose
// outcome is Unknown.
type debt struct {
	owed  *owed
	call  quorum.Call
	until time.Time

	// guarded by owed.mu
	flying     bool      // submitted and not done
	after      time.Time // not again before this moment
	gone       bool      // no longer in the list
	prev, next *debt
}

// owed is the list of debts, oldest first. Safe for concurrent use; its mutex is a leaf.
type owed struct {
	cmdLimit, byteLimit int
	retry               time.Duration // pause after a passing refusal
	kick                chan struct{} // capacity 1: there may be something to send
	dropped             func()        // told of the first drop; not under mu

	mu          sync.Mutex
	first, last *debt
	count       int
	bytes       int
	warned      bool
}

func newOwed(retry time.Duration, dropped func()) *owed {
	return &owed{cmdLimit: maxDebts, byteLimit: maxDebtBytes, retry: retry, dropped: dropped,
		kick: make(chan struct{}, 1)}
}

// add copies c, which the caller still owns.
func (o *owed) add(c *quorum.Call) {
	d := &debt{owed: o, until: c.OweUntil}
	d.call = quorum.Call{Cmd: bytes.Clone(c.Cmd), Tagged: c.Tagged, Always: c.Always, Late: true, Sink: d}
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
	o.mu.Unlock()
	if warn {
		o.dropped()
	}
	o.wake()
}

func (o *owed) wake() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
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

// Done is the outcome of one try to pay d. The debt ends when the server has answered; a refusal that
// will pass is tried again after a while, anything without an answer on the next connection.
func (d *debt) Done(c *quorum.Call) {
	o := d.owed
	refused, _ := c.Err.(*quorum.ReplyError)
	o.mu.Lock()
	defer o.mu.Unlock()
	d.flying = false
	switch {
	case d.gone:
	case c.Outcome == quorum.Answered:
		o.removeLocked(d)
	case c.Outcome == quorum.Refused && !passing(refused):
		o.removeLocked(d)
	case c.Outcome == quorum.Refused:
		d.after = time.Now().Add(o.retry)
	}
}

// due returns the debts to submit now, oldest first, and marks them as flying; those whose time has
// passed are forgotten. more is the time until the next one that waits, 0 if none does.
func (o *owed) due(now time.Time) (debts []*debt, more time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for d := o.first; d != nil; {
		next := d.next
		switch wait := d.after.Sub(now); {
		case d.flying:
		case !now.Before(d.until):
			o.removeLocked(d)
		case wait > 0:
			if more == 0 || wait < more {
				more = wait
			}
		default:
			d.flying = true
			debts = append(debts, d)
		}
		d = next
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
