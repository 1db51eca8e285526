package quorum

import (
	"sync"
	"time"
)

// alarms wake the waits whose time is over. They share one timer, because nearly every wait ends long before: a timer of
// its own would be set and stopped for nothing.
type alarms struct {
	mu    sync.Mutex // guards the fields below, and alarm of every round
	first *Round     // of those that wait, by alarm.at
	last  *Round
	timer *time.Timer // calls ring; nil: none was needed yet
	armed time.Time   // when it does; zero: never
}

// alarm is the time limit of one Wait.
type alarm struct {
	prev, next *Round
	at         time.Time
	patience   time.Duration // how much longer the wait may take if this process did not run; 0: no longer
	set        bool          // the round is among those that wait
	rung       bool
}

// overslept is how late a timer is when the process was not running.
const overslept = 10 * time.Millisecond

// set has r woken at a moment. If this process does not run then, it is later, by patience at most.
func (a *alarms) set(r *Round, at time.Time, patience time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.alarm = alarm{at: at, patience: patience}
	a.putLocked(r)
	a.armLocked()
}

// stop takes back what set did.
func (a *alarms) stop(r *Round) {
	a.mu.Lock()
	if r.alarm.set {
		a.dropLocked(r)
	}
	a.mu.Unlock()
}

// over reports whether the time of r is over.
func (a *alarms) over(r *Round) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return r.alarm.rung
}

// ring wakes those whose time is over. Where this process itself did not run for a while, the answers may be waiting in
// the sockets: then the silence was ours, and they get as long again to be read.
func (a *alarms) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = time.Time{}
	now := time.Now()
	for r := a.first; r != nil && !r.alarm.at.After(now); r = a.first {
		a.dropLocked(r)
		if late := now.Sub(r.alarm.at); late > overslept && r.alarm.patience > 0 {
			r.alarm.at, r.alarm.patience = now.Add(min(late, r.alarm.patience)), 0
			a.putLocked(r)
			continue
		}
		r.alarm.rung = true
		r.look()
	}
	a.armLocked()
}

// armLocked sets the timer for the first, if it would be late. One that is early only looks.
func (a *alarms) armLocked() {
	if a.first == nil || !a.armed.IsZero() && !a.first.alarm.at.Before(a.armed) {
		return
	}
	a.armed = a.first.alarm.at
	if d := time.Until(a.armed); a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
}

// putLocked puts r behind those that are not later. Most waits of a client are equally long: then it is the last.
func (a *alarms) putLocked(r *Round) {
	before := a.last
	for before != nil && before.alarm.at.After(r.alarm.at) {
		before = before.alarm.prev
	}
	r.alarm.set, r.alarm.prev, r.alarm.next = true, before, a.first
	if before != nil {
		r.alarm.next, before.alarm.next = before.alarm.next, r
	} else {
		a.first = r
	}
	if next := r.alarm.next; next != nil {
		next.alarm.prev = r
	} else {
		a.last = r
	}
}

func (a *alarms) dropLocked(r *Round) {
	if prev := r.alarm.prev; prev != nil {
		prev.alarm.next = r.alarm.next
	} else {
		a.first = r.alarm.next
	}
	if next := r.alarm.next; next != nil {
		next.alarm.prev = r.alarm.prev
	} else {
		a.last = r.alarm.prev
	}
	r.alarm.set, r.alarm.prev, r.alarm.next = false, nil, nil
}
