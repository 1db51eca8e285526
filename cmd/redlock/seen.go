package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/internal/timeline"
	"github.com/redquorum/redquorum/redlock"
)

// seen makes a timeline of what watch sees. A look is one moment: what a hold lasts is from the first look that saw it to the
// last one.
type seen struct {
	log      timeline.Log
	interval time.Duration
	holds    map[seenHold]*seenLease
	waits    map[seenHold]timeline.Spell
	spells   map[timeline.Spell]time.Duration // that go on: without their end, which is kept beside
	latch    string
}

// seenHold is an owner with what it holds, or waits for.
type seenHold struct {
	lock, owner string
	slot        int
}

// seenLease is a hold that goes on.
type seenLease struct {
	timeline.Hold
	ttl time.Duration // at the last look
}

func newSeen(key string, interval time.Duration, now time.Time) *seen {
	return &seen{
		interval: interval, holds: map[seenHold]*seenLease{}, waits: map[seenHold]timeline.Spell{}, spells: map[timeline.Spell]time.Duration{},
		log: timeline.Log{
			Title: "redlock watch " + printable.Quote(key), Start: now, Looks: interval,
			Locks: []timeline.Lock{{Name: lockName(key), Rule: "one holder, or readers together"}, {Name: slotsName(key), Rule: "each slot for one"}},
			Notes: []string{"Members do not tell which owners are of one client. So clients without --label share a lane."},
		},
	}
}

// unsure is by how much what is left of a lease may seem to grow between two looks, because one of them took longer.
const unsure = 100 * time.Millisecond

func lockName(key string) string  { return printable.Quote(key) }
func slotsName(key string) string { return "semaphore " + printable.Quote(key) }

// look takes what the members said.
func (s *seen) look(now time.Time, what *sight) {
	at := now.Sub(s.log.Start)
	s.log.Length = at
	held, waiting, going := map[seenHold]bool{}, map[seenHold]bool{}, map[timeline.Spell]bool{}
	s.lock(at, what.lock, lockName(what.lock.Key), held, waiting)
	if what.slots() {
		s.lock(at, what.semaphore, slotsName(what.lock.Key), held, waiting)
	}
	s.members(at, what.lock, going)
	for k, h := range s.holds {
		if !held[k] {
			s.log.Hold(h.Hold)
			delete(s.holds, k)
		}
	}
	for k, w := range s.waits {
		if !waiting[k] {
			s.log.Spell(w)
			delete(s.waits, k)
		}
	}
	for k, to := range s.spells {
		if !going[k] {
			delete(s.spells, k)
			k.To = to
			s.log.Spell(k)
		}
	}
	if what.arrivals() || s.latch != "" {
		if line := latchLine(what.latch); line != s.latch {
			s.latch = line
			s.log.Mark(timeline.Mark{At: at, Text: line})
		}
	}
}

// lock takes what the members said of who holds and who waits.
func (s *seen) lock(at time.Duration, in *redlock.Inspection, name string, held, waiting map[seenHold]bool) {
	for _, h := range in.Holders {
		slots := h.Slots
		if slots == nil {
			slots = []redlock.Slot{{Token: h.Token}}
		}
		for _, slot := range slots {
			k := seenHold{name, h.Owner, slot.Number}
			x := s.holds[k]
			if x == nil {
				x = &seenLease{ttl: h.TTL, Hold: timeline.Hold{
					Lock: name, Who: laneOf(h.Who), Slot: slot.Number, Shared: h.Reads, Asked: at, From: at,
					Text: fmt.Sprintf("Owner %s", h.Owner),
				}}
				if w, waited := s.waits[seenHold{name, h.Owner, 0}]; waited {
					x.Asked, x.Who = w.From, w.Who
					delete(s.waits, seenHold{name, h.Owner, 0})
				}
				s.holds[k] = x
			} else if h.TTL > x.ttl-(at-x.To)+max(s.interval/2, unsure) {
				x.Renewed = append(x.Renewed, at)
			}
			x.Token, x.To, x.ttl = slot.Token, at, h.TTL
			x.Who = cmp.Or(h.Who, x.Who) // at the first look members may not know yet who it is
			held[k] = true
		}
	}
	for _, v := range in.Members {
		for _, q := range v.Queue {
			k := seenHold{name, q.Owner, 0}
			if !q.Live || waiting[k] || held[k] {
				continue
			}
			w, there := s.waits[k]
			if !there {
				w = timeline.Spell{Kind: timeline.Waits, Lock: name, Who: laneOf(q.Who), From: max(0, at-q.Waiting), Text: "Owner " + q.Owner}
			}
			w.To, w.Who = at, cmp.Or(q.Who, w.Who)
			s.waits[k], waiting[k] = w, true
		}
	}
}

// members takes what each member is good for, and whom it has given its vote.
func (s *seen) members(at time.Duration, in *redlock.Inspection, going map[timeline.Spell]bool) {
	goes := func(kind timeline.Kind, who, text string) {
		for k := range s.spells {
			if k.Kind == kind && k.Who == who && k.Text == text {
				s.spells[k], going[k] = at, true
				return
			}
		}
		k := timeline.Spell{Kind: kind, Who: who, From: at, Text: text}
		s.spells[k], going[k] = at, true
	}
	for _, v := range in.Members {
		if len(s.log.Members) < len(in.Members) {
			s.log.Members = append(s.log.Members, v.Member)
		}
		switch {
		case v.Err != nil:
			goes(timeline.Silent, v.Member, v.Err.Error())
		case v.State == redlock.MemberQuarantined || v.State == redlock.MemberRestoring:
			goes(timeline.Rests, v.Member, "")
		}
		for _, vote := range v.Votes {
			if vote.Reads {
				goes(timeline.Votes, v.Member, "readers")
			} else {
				goes(timeline.Votes, v.Member, vote.Owner)
			}
		}
	}
}

func laneOf(who string) string { return cmp.Or(who, "clients without --label") }

// timeline is that of all looks until now. What goes on is drawn to the last of them. nil: there was no look.
func (s *seen) timeline() *timeline.Log {
	if s.log.Length == 0 {
		return nil
	}
	log := s.log // its lists are its own from here on: they have no room that another one could fill
	log.Holds, log.Spells = slices.Clip(log.Holds), slices.Clip(log.Spells)
	for _, h := range s.holds {
		x := h.Hold
		x.Open = true
		log.Hold(x)
	}
	for _, w := range s.waits {
		log.Spell(w)
	}
	for k, to := range s.spells {
		k.To = to
		log.Spell(k)
	}
	return &log
}
