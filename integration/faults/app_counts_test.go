//go:build linux || darwin

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// Semaphores and latches of the random application. A slot of a semaphore is judged like a lock of
// its own: one belief at a time, and tokens that rise.

const permitLock = "permit"

// appSemaphores are the semaphores, and the limit that all callers give. One of them has the name
// of a lock.
var appSemaphores = []struct {
	name  string
	limit int
}{
	{"app:permits:one", 1}, {"app:permits:two", 2}, {"app:permits:five", 5}, {"app:permits:many", 50},
	{appResized, 50}, {appHot[0], 2},
}

const appResized = "app:permits:resized"

// appLatches are the latches, and how many arrivals open them. One has the name of a lock. Each
// round of them lasts for latchRound, on the clock of the machine.
var appLatches = []struct {
	name  string
	count int
}{{"app:latch:few", 3}, {"app:latch:many", 12}, {appHot[1], 5}, {appDeleted, 4}}

const appDeleted = "app:latch:deleted"

// The lives of latches and of their rounds.
const (
	latchRound = 6 * time.Second
	latchLife  = 8 * time.Second
)

func slotName(name string, slot int) string { return name + "#" + strconv.Itoa(slot) }

// permit takes one permit or several, and holds them for a while. The first part stands for all.
func (s *seat) permit(ctx context.Context, rng *rand.Rand) {
	c, n, maxTTL, _ := s.now()
	if c == nil {
		return
	}
	x := drawn(rng, appSemaphores)
	if x.name == appResized && rng.IntN(4) == 0 {
		s.resize(ctx, rng, c, x.limit)
		return
	}
	ttl := min(maxTTL, 300*time.Millisecond+upTo(rng, maxTTL))
	opts := []redlock.LockOption{redlock.AutoRenew(ttl)}
	fixed := rng.IntN(8) == 0
	if fixed {
		opts[0] = redlock.TTL(ttl)
	}
	if x.limit > 1 && rng.IntN(5) == 0 {
		opts = append(opts, redlock.Permits(2+rng.IntN(min(3, x.limit-1))))
	}
	sem := c.Semaphore(x.name, x.limit, opts...)
	take := sem.Acquire
	if rng.IntN(8) == 0 {
		take = sem.TryAcquire
	}
	patience, cancel := context.WithTimeout(ctx, 50*time.Millisecond+upTo(rng, 3*time.Second))
	defer cancel()
	asked := judge.Now()
	lease, err := take(patience)
	now := judge.Now()
	if errors.Is(err, redlock.ErrLimit) && x.name != appResized {
		s.app.say(appEvent{Kind: "wrong", Seat: s.Seat, Name: x.name, Text: "no limit is stored, and one refused several permits"})
	}
	if err != nil {
		h := &held{s: s, attempt: s.app.attempts.Add(1), name: x.name, sort: permitLock}
		h.failed(n, err)
		if !errors.Is(err, redlock.ErrHeld) {
			pause(ctx, 20*time.Millisecond)
		}
		return
	}
	var parts []*held
	for _, slot := range lease.Slots() {
		h := &held{s: s, attempt: s.app.attempts.Add(1), name: slotName(x.name, slot.Number), ttl: ttl, sort: permitLock, fixed: fixed}
		h.take(lease)
		e := h.event("grant", n)
		e.At, e.Since, e.Until, e.Token, e.Owner = now, asked, h.until, slot.Token, lease.Owner()
		e.Names, e.Number = []string{x.name}, int64(slot.Number)
		s.app.say(e)
		parts = append(parts, h)
	}
	if len(parts) == 0 {
		s.app.say(appEvent{Kind: "wrong", Seat: s.Seat, Name: x.name, Text: "a permit without a slot"})
		_ = lease.Unlock(ctx)
		return
	}
	parts[0].parts = parts[1:]
	parts[0].hold(ctx, drawn(rng, []time.Duration{0, upTo(rng, 3*time.Millisecond), upTo(rng, 300*time.Millisecond), upTo(rng, 4*time.Second)}))
	s.endAll(parts, lease.Unlock)
}

// resize stores another limit, or clears it: then that of the callers is in force, which is the
// greatest.
func (s *seat) resize(ctx context.Context, rng *rand.Rand, c *redlock.Client, most int) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	sem, k := c.Semaphore(appResized, most), drawn(rng, []int{1, 2, 5, 1 + rng.IntN(most)})
	store := func(ctx context.Context) error { return sem.SetLimit(ctx, k) }
	if rng.IntN(6) == 0 {
		k, store = most, sem.ClearLimit
	}
	e := appEvent{Kind: "limiting", Seat: s.Seat, Attempt: s.app.attempts.Add(1), Name: appResized, Number: int64(k)}
	s.app.say(e)
	err := store(ctx)
	e.Kind, e.Error, e.At = "limited", kindOf(err), judge.Now()
	s.app.say(e)
}

// latchAct arrives at a latch of the round that the clock says, or waits for it.
func (s *seat) latchAct(ctx context.Context, rng *rand.Rand) {
	c, n, _, entry := s.now()
	if c == nil {
		return
	}
	x := drawn(rng, appLatches)
	round := uint64(judge.Now() / int64(latchRound))
	l := c.Latch(x.name, x.count, redlock.Round(round), redlock.Life(latchLife))
	e := appEvent{
		Seat: s.Seat, Client: n, Attempt: s.app.attempts.Add(1), Name: fmt.Sprintf("%s#%d", x.name, round), Number: int64(x.count),
		Entry: entry, Since: judge.Now(),
	}
	if x.name == appDeleted && rng.IntN(8) == 0 {
		e.Kind = "deleting"
		s.app.say(e)
		deleting, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if l.Delete(deleting) != nil {
			pause(ctx, 20*time.Millisecond)
		}
		return
	}
	if rng.IntN(3) > 0 {
		e.Kind, e.Text = "arriving", fmt.Sprintf("%d.%d", s.app.Process, e.Attempt)
		s.app.say(e)
		arriving, cancel := context.WithTimeout(ctx, 50*time.Millisecond+upTo(rng, time.Second))
		defer cancel()
		var err error
		if rng.IntN(2) == 0 {
			err = l.CountDown(arriving)
		} else if err = l.Arrive(arriving, e.Text); err == nil && rng.IntN(3) == 0 {
			err = l.Arrive(arriving, e.Text) // counts no more
		}
		if err != nil {
			pause(ctx, 20*time.Millisecond)
		}
		pause(ctx, upTo(rng, 100*time.Millisecond))
		return
	}
	waiting, cancel := context.WithTimeout(ctx, 500*time.Millisecond+upTo(rng, 4*time.Second))
	defer cancel()
	err := l.Await(waiting)
	e.At, e.Kind = judge.Now(), "opened"
	if err != nil {
		if e.Kind, e.Error = "shut", kindOf(err); waiting.Err() != nil && ctx.Err() == nil && !errors.Is(err, redlock.ErrPassed) {
			e.Error = "deadline"
		}
	}
	s.app.say(e)
	if err != nil {
		pause(ctx, 20*time.Millisecond)
	}
}

type counts struct {
	slots   []appEvent // granted, and not judged yet
	limits  []limiting
	latches map[string]*latchView
	broke   []brokenServer
	opened  int
}

// limiting is one call of SetLimit. to is 0 until it has returned.
type limiting struct {
	id       attemptID
	k        int
	from, to int64
	failed   bool
}

type latchView struct {
	count   int
	arrived []int64 // when arrivals began, each under a name of its own
	opened  []appEvent
	first   int64 // when it was first seen open; 0: it was not
	deleted bool  // nobody remembers then whether it was open
	shut    []appEvent
}

type brokenServer struct {
	m      int
	at     int64
	beyond bool // with more than a minority
}

// inForce is the greatest limit that an attempt may have met that began and ended then: that of every SetLimit
// but those that another one has followed which returned before. since is when that one began.
func (c *counts) inForce(most int, begun, ended int64) (limit int, since int64) {
	last := int64(0) // when the last call began that has returned, and before the attempt
	for _, x := range c.limits {
		if x.to > 0 && !x.failed && x.to < begun {
			last = max(last, x.from)
		}
	}
	if last == 0 {
		limit = most
	}
	for _, x := range c.limits {
		// What a call that failed has left under way may come later.
		over := x.to > 0 && x.to < last && (!x.failed || x.to < last-int64(20*time.Second))
		if x.from < ended && !over {
			limit = max(limit, x.k)
		}
	}
	return limit, last
}

// permitted takes the grant of a slot. Slots are judged one by one, so there are no more beliefs than slots: what is
// left to see is that each is below the limit in force.
func (j *appJudge) permitted(e appEvent) {
	if e.Sort == permitLock {
		j.tally(permitLock).granted++
		j.counts.slots = append(j.counts.slots, e)
	}
}

// limited judges the slots that were granted a while ago: whatever others have said before is heard by now.
func (j *appJudge) limited(now int64, all bool) {
	for i := range j.counts.limits { // its process was killed, or stopped for long
		if x := &j.counts.limits[i]; x.to == 0 && x.from < now-int64(10*time.Second) {
			x.to, x.failed = x.from+int64(10*time.Second), true
		}
	}
	j.counts.slots = slices.DeleteFunc(j.counts.slots, func(e appEvent) bool {
		if !all && e.At > now-int64(hearAll) {
			return false
		}
		limit, from := 0, int64(0)
		for _, x := range appSemaphores {
			if x.name == e.Names[0] {
				limit = x.limit
			}
		}
		if e.Names[0] == appResized {
			limit, from = j.counts.inForce(limit, e.Since, e.At)
		}
		if int(e.Number) >= limit && !j.lost(from, e.At) {
			j.wrong("limit", e.Name, "seat %d asked %v before, and has slot %d, though the limit in force was %d",
				e.Seat, time.Duration(e.At-e.Since), e.Number, limit)
		}
		return true
	})
}

// lost says that more than a minority of the members failed at once in a time: what they stored may be gone.
func (j *appJudge) lost(from, to int64) bool {
	return slices.ContainsFunc(j.counts.broke, func(x brokenServer) bool { return x.beyond && x.at >= from && x.at <= to })
}

func (j *appJudge) broke(m int) {
	on := 0
	for _, s := range j.servers {
		if s.on > 0 {
			on++
		}
	}
	c := &j.counts
	c.broke = append(c.broke, brokenServer{m, judge.Now(), on > j.members-j.need})
	if len(c.broke) > 512 {
		c.broke = slices.Delete(c.broke, 0, 256)
	}
}

func (j *appJudge) latch(e appEvent) *latchView {
	if j.counts.latches == nil {
		j.counts.latches = map[string]*latchView{}
	}
	v := j.counts.latches[e.Name]
	if v == nil {
		v = &latchView{count: int(e.Number)}
		j.counts.latches[e.Name] = v
	}
	return v
}

func (j *appJudge) counted(id attemptID, e appEvent) {
	switch e.Kind {
	case "limiting":
		j.counts.limits = append(j.counts.limits, limiting{id: id, k: int(e.Number), from: e.At})
		if len(j.counts.limits) > 512 {
			j.counts.limits = slices.Delete(j.counts.limits, 0, 256)
		}
	case "limited":
		for i := range j.counts.limits {
			if x := &j.counts.limits[i]; x.id == id {
				x.to, x.failed = e.At, e.Error != ""
			}
		}
	case "arriving":
		v := j.latch(e)
		v.arrived = append(v.arrived, e.At)
	case "deleting":
		j.latch(e).deleted = true
	case "opened":
		v := j.latch(e)
		v.opened = append(v.opened, e)
		if j.counts.opened++; v.first == 0 || e.At < v.first {
			v.first = e.At
		}
	case "shut":
		v := j.latch(e)
		e.Votes = 0
		for m := range j.members {
			if j.well(e.Seat, m, e.At) {
				e.Votes |= 1 << m
			}
		}
		v.shut = append(v.shut, e)
	}
}

// hearAll is how long what a process has said may be on its way to the judge.
const hearAll = 3 * time.Second

func (j *appJudge) openings(now int64, all bool) {
	for name, v := range j.counts.latches {
		last := v.first
		for _, e := range slices.Concat(v.opened, v.shut) {
			last = max(last, e.At)
		}
		for _, at := range v.arrived {
			last = max(last, at)
		}
		if !all && last > now-int64(latchLife+hearAll) {
			continue
		}
		delete(j.counts.latches, name)
		for _, e := range v.opened {
			n := 0
			for _, at := range v.arrived {
				if at <= e.At {
					n++
				}
			}
			if n < v.count {
				j.wrong("opened early", name, "seat %d returned from Await after %d arrivals of %d had begun", e.Seat, n, v.count)
			}
		}
		if v.first == 0 || v.deleted {
			continue
		}
		for _, e := range v.shut {
			// Whoever waits asks each member once in a third of its entry: a second, at most.
			since := max(e.Since, v.first)
			if e.Error != "deadline" || e.At-since < int64(settled) || e.At-since < 2*j.stalledSince(since) || j.forgot(v.first-int64(settled), e.At) {
				continue
			}
			if well := bits.OnesCount32(e.Votes); well >= j.need {
				j.wrong("not open", name, "seat %d waited for %v, though it was open %v before, and %d members were well",
					e.Seat, time.Duration(e.At-e.Since), time.Duration(e.At-v.first), well)
			}
		}
	}
}

// forgot says that so many members failed in a time that what a majority had may be gone.
func (j *appJudge) forgot(from, to int64) bool {
	members := map[int]bool{}
	for _, x := range j.counts.broke {
		if x.at >= from && x.at <= to {
			members[x.m] = true
		}
	}
	return len(members) > j.members-j.need
}

// endingKeys lists the keys of semaphores, latches and elections that are still there and end by themselves within a
// time. Holders and leaders that were killed leave them.
func (r *appRun) endingKeys(ctx context.Context, within time.Duration) (keys []string, _ error) {
	var all []string
	for _, name := range appNames {
		all = append(all, slot.Sibling("redquorum:e1", name))
	}
	for _, x := range appSemaphores {
		all = append(all, slot.Sibling("redquorum:s1", x.name))
	}
	for _, x := range appLatches {
		all = append(all, slot.Sibling("redquorum:l1", x.name))
	}
	for _, s := range r.cluster.Servers {
		for _, key := range all {
			v, err := s.Do(ctx, "PTTL", key)
			if err != nil {
				return nil, err
			}
			if left, _ := v.(int64); left > 0 && left <= within.Milliseconds() && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}
