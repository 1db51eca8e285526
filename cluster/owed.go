package cluster

import (
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
)

// Bounds of what is owed. Beyond either a debt is not taken on; its key then lives until its TTL ends.
const (
	maxDebts     = 1 << 17
	maxDebtBytes = 64 << 20
	maxFlying    = 1024 // at a time, so that a master has room for other calls
)

// The pause before a debt is tried again, doubled each time: most wait for a slot that is on its way, or for room.
const (
	owedMin = 10 * time.Millisecond
	owedMax = 320 * time.Millisecond
)

// owed are the releases that must still reach a master: which one is known when they are sent. A debt is tried until it is
// answered or its time has passed, and once after that: a server that was stopped grants what it was asked when it goes on.
type owed struct {
	kick    chan struct{} // capacity 1
	dropped func()        // told of the first debt that is not taken on; not under mu. It must not block

	mu     sync.Mutex // a leaf
	debts  map[*debt]struct{}
	bytes  int
	flying int
	warned bool
}

type debt struct {
	owed  *owed
	call  member.Call
	until time.Time

	// guarded by owed.mu
	flying bool
	last   bool // its time had passed when it was sent: it is not sent again
	after  time.Time
	pause  time.Duration // before after
}

func (o *owed) init(dropped func()) {
	o.kick, o.dropped, o.debts = make(chan struct{}, 1), dropped, make(map[*debt]struct{})
}

// add copies c, which stays its owner's.
func (o *owed) add(c *member.Call) {
	d := &debt{owed: o, until: c.OweUntil}
	d.again()
	d.call = ability.Again(c, d)
	o.mu.Lock()
	fits := len(o.debts) < maxDebts && o.bytes+len(d.call.Cmd) <= maxDebtBytes
	if fits {
		o.debts[d] = struct{}{}
		o.bytes += len(d.call.Cmd)
	}
	warn := !fits && !o.warned
	o.warned = o.warned || warn
	o.mu.Unlock()
	if warn {
		o.dropped()
	}
	o.wake()
}

// again has d wait, twice as long as the time before.
func (d *debt) again() {
	d.pause = min(max(2*d.pause, owedMin), owedMax)
	d.after = time.Now().Add(d.pause)
}

// wake has the router look. It does not block.
func (o *owed) wake() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

func (o *owed) removeLocked(d *debt) {
	delete(o.debts, d)
	o.bytes -= len(d.call.Cmd)
}

// Done implements member.Sink.
func (d *debt) Done(c *member.Call) {
	o := d.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	d.flying = false
	o.flying--
	if !ability.Undelivered(&c.Result) {
		o.removeLocked(d)
		return
	}
	d.last = d.last && c.Outcome != member.NotSent
	d.again()
}

// due marks the debts to be sent now as flying; next is when there are more. One whose time has passed waits until its slot has a
// master that is up.
func (o *owed) due(now time.Time, up func(slot uint16) bool) (out []*debt, next time.Duration) {
	next = time.Hour
	o.mu.Lock()
	defer o.mu.Unlock()
	for d := range o.debts {
		switch {
		case o.flying >= maxFlying:
			return out, owedMin
		case d.flying:
			next = min(next, 2*owedMin)
		case d.last:
			o.removeLocked(d)
		case d.after.After(now):
			next = min(next, d.after.Sub(now))
		case !now.Before(d.until) && !up(d.call.Slot):
			d.again()
			next = min(next, d.pause)
		default:
			d.flying, d.last = true, !now.Before(d.until)
			o.flying++
			out = append(out, d)
			next = min(next, 2*owedMin)
		}
	}
	return out, next
}

// none reports whether nothing is owed whose time has not passed.
func (o *owed) none(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for d := range o.debts {
		if now.Before(d.until) {
			return false
		}
	}
	return true
}

// pay sends what is due.
func (cl *cluster) pay(now time.Time) (next time.Duration) {
	debts, next := cl.owed.due(now, func(slot uint16) bool {
		m := cl.table.Load().of(slot)
		return m != nil && m.node.State().Up
	})
	for _, d := range debts {
		cl.submit(&d.call, &cl.closed)
	}
	return next
}
