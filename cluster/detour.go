package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// detour is where calls of a slot wait that cannot be passed on: those that came back, then those that
// came after. It goes on when no call of the slot is on its way.
type detour struct {
	back, queue []*member.Call
	step        step // what was last said to one that came back
	tries       int  // in a row without progress
	at          time.Time
	stamping    bool
	alone       bool // the first call is on its way by itself: it comes back before the others
}

// maxQueued bounds the calls in all detours.
const maxQueued = 16384

// The pause before a slot that nobody serves is tried again.
const (
	pauseMin = time.Millisecond
	pauseMax = 50 * time.Millisecond
)

// pauseAfter is how long a slot waits that was tried so often in a row without progress.
func pauseAfter(tries int) time.Duration { return min(pauseMin<<min(tries, 10), pauseMax) }

// queueLocked puts a new call behind what waits; false: too many wait.
func (cl *cluster) queueLocked(t *track, c *member.Call) bool {
	if cl.queued.Load() >= maxQueued {
		return false
	}
	if t.detour == nil {
		t.detour = &detour{}
	}
	routeOf(c).since = time.Now()
	t.detour.queue = append(t.detour.queue, c)
	cl.queued.Add(1)
	return true
}

// goOn has the router look at a slot. It does not block.
func (cl *cluster) goOn(s uint16) {
	cl.ready.mu.Lock()
	cl.ready.slots = append(cl.ready.slots, s)
	cl.ready.mu.Unlock()
	cl.wakeAll()
}

// wakeAll has the router look at every slot that waits.
func (cl *cluster) wakeAll() {
	select {
	case cl.ready.kick <- struct{}{}:
	default:
	}
}

// route is the one goroutine that carries redirects out, and pays what is owed. It ends with Close.
func (cl *cluster) route() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	asleep := make(map[uint16]struct{})
	for {
		cl.ready.mu.Lock()
		slots := cl.ready.slots
		cl.ready.slots = nil
		cl.ready.mu.Unlock()
		for _, s := range slots {
			asleep[s] = struct{}{}
		}
		next := time.Hour
		for s := range asleep {
			wait, done := cl.advance(s, time.Now())
			if done {
				delete(asleep, s)
			} else {
				next = min(next, wait)
			}
		}
		next = min(next, cl.pay(time.Now()))
		timer.Reset(max(next, 0))
		select {
		case <-timer.C:
		case <-cl.ready.kick:
		case <-cl.owed.kick:
		case <-cl.ctx.Done():
			return
		}
	}
}

// advance does for a slot what its last redirect asks for. done: nothing before goOn says so; else it is
// to be called again after wait.
func (cl *cluster) advance(s uint16, now time.Time) (wait time.Duration, done bool) {
	t := &cl.tracks[s]
	t.mu.Lock()
	d := t.detour
	if d == nil || t.calls > 0 || d.stamping {
		t.mu.Unlock()
		return 0, true
	}
	if left := d.at.Sub(now); left > 0 {
		t.mu.Unlock()
		return left, false
	}
	st := d.step
	t.mu.Unlock()

	target := cl.table.Load().of(s)
	alone := false // one call, to see how things are, before the others
	switch st.do {
	case follow:
		target = cl.moved(s, st.addr)
		cl.refreshSoon()
	case ask:
		target, alone = cl.masterAt(st.addr), true
	case backoff:
		alone = true
		cl.refreshSoon()
	case stamp:
		return 0, cl.stamp(t, s, target)
	}
	if target == nil || !reachable(target) {
		cl.refreshSoon()
		return cl.pause(t, now)
	}
	t.mu.Lock()
	d.step = step{}
	t.mu.Unlock()
	if alone {
		cl.probe(t, target, st.do == ask, now)
	} else {
		cl.flush(t, target)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.detour == nil || t.calls > 0 {
		return 0, true
	}
	return cl.pauseLocked(t, now), false
}

// reachable: a node that has not tried to connect yet may still come up.
func reachable(m *master) bool {
	st := m.node.State()
	return st.Up || !errors.Is(st.Err, member.ErrConnecting)
}

// pause lets a slot wait, longer each time, and gives up what has waited too long.
func (cl *cluster) pause(t *track, now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	wait := cl.pauseLocked(t, now)
	var over []*member.Call
	d := t.detour
	keep := func(list []*member.Call) []*member.Call {
		out := list[:0]
		for _, c := range list {
			if now.Sub(routeOf(c).since) >= cl.patience || ability.Over(&c.Delivery) {
				over = append(over, c)
			} else {
				out = append(out, c)
			}
		}
		clear(list[len(out):])
		return out
	}
	d.back, d.queue = keep(d.back), keep(d.queue)
	empty := len(d.back)+len(d.queue) == 0
	if empty {
		t.detour = nil
	}
	t.mu.Unlock()
	for _, c := range over {
		cl.expire(c)
	}
	return wait, empty
}

func (cl *cluster) pauseLocked(t *track, now time.Time) time.Duration {
	d := t.detour
	wait := pauseAfter(d.tries)
	d.tries++
	d.at = now.Add(wait)
	return wait
}

// expire delivers a call of a detour that is not tried any more.
func (cl *cluster) expire(c *member.Call) {
	cl.queued.Add(-1)
	switch {
	case ability.Over(&c.Delivery) && !c.Interrupted:
		cl.end(c, member.NotSent, cl.errEnded)
	case c.Outcome == member.Unanswered:
		cl.end(c, member.NotSent, cl.errMoving)
	default:
		cl.end(c, c.Outcome, c.Err)
	}
}

// probe passes the first call on, alone.
func (cl *cluster) probe(t *track, to *master, asking bool, now time.Time) {
	for {
		t.mu.Lock()
		d := t.detour
		from := &d.back
		if len(d.back) == 0 {
			from = &d.queue
		}
		if len(*from) == 0 {
			t.detour = nil
			t.mu.Unlock()
			return
		}
		c := (*from)[0]
		*from = (*from)[1:]
		if now.Sub(routeOf(c).since) >= cl.patience || ability.Over(&c.Delivery) {
			t.mu.Unlock()
			cl.expire(c)
			continue
		}
		// Whatever comes of it the others go next, after a pause if it comes back again.
		wait := pauseAfter(d.tries)
		d.tries++
		d.at = now.Add(wait)
		d.alone = true
		t.owner = to
		t.calls++
		t.mu.Unlock()
		cl.queued.Add(-1)
		routeOf(c).asking, c.Late = asking, true
		to.node.Submit(c)
		return
	}
}

// flush passes all calls on, in order. The detour stays until none is left, so that none can overtake.
func (cl *cluster) flush(t *track, to *master) {
	for {
		t.mu.Lock()
		d := t.detour
		batch := append(d.back, d.queue...)
		if len(batch) == 0 {
			t.detour = nil
			t.mu.Unlock()
			return
		}
		d.back, d.queue = nil, nil
		t.owner = to
		t.calls += int32(len(batch))
		t.mu.Unlock()
		cl.queued.Add(-int64(len(batch)))
		for _, c := range batch {
			routeOf(c).asking, c.Late = false, true
			if ability.Over(&c.Delivery) {
				if !c.Interrupted {
					c.Outcome, c.Err = member.NotSent, cl.errEnded
				}
				cl.done(c)
				continue
			}
			to.node.Submit(c)
		}
		t.mu.Lock()
		if len(d.back) > 0 { // sent elsewhere again
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
	}
}

// stamp puts a slot under its master's marker, on a goroutine of its own.
func (cl *cluster) stamp(t *track, s uint16, m *master) bool {
	t.mu.Lock()
	t.detour.stamping = true
	t.mu.Unlock()
	cl.wg.Go(func() {
		err := error(errNobody)
		if m != nil {
			ctx, cancel := context.WithTimeout(cl.ctx, cl.patience/2)
			defer cancel()
			err = m.node.Stamp(ctx, s)
		}
		var over []*member.Call
		t.mu.Lock()
		d := t.detour
		d.stamping, d.step = false, step{}
		var refused *member.ReplyError
		switch {
		case errors.As(err, &refused) && refused.Kind == member.KindCluster: // the slot moved on, or the marker's did
			d.step = step{do: backoff}
			cl.pauseLocked(t, time.Now())
		case err != nil: // those that were refused stay refused
			over, d.back = d.back, nil
		}
		t.mu.Unlock()
		for _, c := range over {
			cl.expire(c)
		}
		cl.goOn(s)
	})
	return true
}

// abandon ends what is left in detours after everything has been closed.
func (cl *cluster) abandon() {
	for s := range slot.Count {
		t := &cl.tracks[s]
		t.mu.Lock()
		d := t.detour
		t.detour = nil
		t.mu.Unlock()
		if d == nil {
			continue
		}
		for _, c := range append(d.back, d.queue...) {
			cl.queued.Add(-1)
			cl.end(c, member.NotSent, cl.errClosed)
		}
	}
}
