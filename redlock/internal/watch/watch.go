// Package watch decides whom a client asks, and when, while it waits for what members push.
//
// A member tells a change to those that have an entry there, and forgets an entry that is not
// renewed. One question registers and asks at once, so each answer is also what a lost push would
// have said. A member is asked when
//
//   - it has not been asked yet, or can be asked again,
//   - it may have forgotten the entry: its generation is another one,
//   - pushes may have been missed: the subscription of the inbox began anew,
//   - a heartbeat is due, every third of the entry's lifetime, or sooner if its answer said so,
//   - a push from there said less than a question would.
//
// At most one question is under way at a member. The package does no I/O and reads no clock.
package watch

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// Terms are what a Watch is to know of the configuration.
type Terms struct {
	Entry time.Duration // lifetime of an entry at a member
	Retry time.Duration // pause after a question that failed
}

// Watch is what one watch knows of each member. It is not safe for concurrent use.
type Watch struct {
	terms Terms
	at    []place
}

// place is the watch at one member.
type place struct {
	asked  bool // once at least
	open   bool // a question is under way
	entry  bool // the member may have an entry
	failed bool // the last question did
	again  bool // a push said so while the question was under way

	gen, ear, epoch uint64    // the member when it was asked last
	due             time.Time // when it is to be asked next
}

// New returns a watch at so many members.
func New(members int, t Terms) *Watch { return &Watch{terms: t, at: make([]place, members)} }

// Due returns the members to be asked now, and when to look again although nothing was heard.
// wake is never before now. Its caller asks all of them at once, and says so by Asked.
func (w *Watch) Due(now time.Time, states []member.State) (to memberset.Set, wake time.Time) {
	wake = now.Add(w.terms.Entry / 3)
	for i := range w.at {
		p, st := &w.at[i], &states[i]
		if !st.Votes {
			continue
		}
		switch {
		case p.open:
		case p.missed(st), clock.Until(p.due, now) <= 0:
			to = to.With(i)
		case p.due.Before(wake):
			wake = p.due
		}
	}
	return to, wake
}

// missed reports whether the member may have forgotten the entry, or told what was not heard, or
// can be asked again after a question that failed.
func (p *place) missed(st *member.State) bool {
	switch {
	case !p.asked, p.gen != st.Gen:
		return true
	case st.Inbox && p.ear != st.Ear:
		return true
	}
	return p.failed && p.epoch != st.Epoch
}

// Asked books a question that is about to be submitted. states are those that Due saw.
func (w *Watch) Asked(to memberset.Set, states []member.State) {
	for i := range w.at {
		if to.Has(i) {
			st := &states[i]
			w.at[i] = place{asked: true, open: true, entry: true, gen: st.Gen, ear: st.Ear, epoch: st.Epoch}
		}
	}
}

// Answered books what became of a question to member i at now. ok: it was answered. from is the
// member when the question was submitted. again is when there will be something to ask, before the
// next heartbeat; 0: not before.
func (w *Watch) Answered(i int, ok bool, from member.Brief, now time.Time, again time.Duration) {
	p := &w.at[i]
	pause := w.terms.Entry / 3
	switch {
	case !ok:
		pause = min(pause, w.terms.Retry)
	case again > 0:
		pause = min(pause, again)
	}
	if p.again {
		pause = 0
	}
	p.open, p.failed = false, !ok
	if ok { // what it was when the states were read may have been an older one
		p.gen, p.ear, p.epoch = from.Gen, min(p.ear, from.Ear), from.Epoch
	}
	p.due = now.Add(pause)
}

// Pushed books a push of member i that says that it is to be asked.
func (w *Watch) Pushed(i int) {
	if p := &w.at[i]; p.open { // the answer may have been written before the push
		p.again = true
	} else {
		p.due = time.Time{}
	}
}

// Dropped books that member i has dropped the entry by itself.
func (w *Watch) Dropped(i int) { w.at[i].entry = false }

// Entries returns the members that may have an entry.
func (w *Watch) Entries() (out memberset.Set) {
	for i := range w.at {
		if w.at[i].entry {
			out = out.With(i)
		}
	}
	return out
}
