//go:build linux || darwin

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// Elections of the random application. Leaders are judged with all other locks of their name, and
// what observers hear is judged beside them.

const leaderLock = "leader"

// leader is an election as a locker. Its values are who and a number, which rises.
type leader struct {
	e    *redlock.Election
	who  string // of one campaign
	said int
}

var campaigns atomic.Uint64

func newLeader(c *redlock.Client, name string, opts ...redlock.LockOption) *leader {
	return &leader{e: c.Election(name, opts...), who: fmt.Sprintf("%d.%d", os.Getpid(), campaigns.Add(1))}
}

func (l *leader) value() []byte {
	l.said++
	return fmt.Appendf(nil, "%s %d", l.who, l.said)
}

func (l *leader) Lock(ctx context.Context) (*redlock.Lease, error) {
	return l.e.Campaign(ctx, l.value())
}

func (l *leader) TryLock(ctx context.Context) (*redlock.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return l.Lock(ctx)
}

func (l *leader) Do(ctx context.Context, fn func(ctx context.Context, lease *redlock.Lease) error) error {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fn(lease.Context(), lease), lease.Unlock(context.WithoutCancel(ctx)))
}

// proclaim holds for d, with other values on the way.
func (h *held) proclaim(ctx context.Context, rng *rand.Rand, d time.Duration) {
	for range 1 + rng.IntN(3) {
		h.hold(ctx, upTo(rng, d)/3)
		saying, cancel := context.WithTimeout(ctx, time.Second)
		err := h.leads.e.Proclaim(saying, h.lease, h.leads.value())
		cancel()
		if errors.Is(err, redlock.ErrInput) {
			h.wrongly("Proclaim", err)
		}
	}
	h.hold(ctx, upTo(rng, d)/3)
}

func (h *held) resign(ctx context.Context) error {
	return h.lease.Unlock(ctx)
}

func (h *held) wrongly(call string, err error) {
	e := h.event("wrong", 0)
	e.Text = fmt.Sprintf("%s: %v", call, err)
	h.s.app.say(e)
}

// observe asks who leads, or observes for a while. One attempt is one observer.
func (s *seat) observe(ctx context.Context, rng *rand.Rand, names []string) {
	c, n, _, _ := s.now()
	if c == nil {
		return
	}
	name := drawn(rng, names)
	election := c.Election(name)
	e := appEvent{Kind: "observed", Seat: s.Seat, Client: n, Attempt: s.app.attempts.Add(1), Name: name}
	tell := func(l redlock.Leader) {
		e.At, e.Token, e.Value, e.Text = judge.Now(), l.Token, string(l.Value), ""
		if l.None {
			e.Text = "nobody"
		}
		s.app.say(e)
	}
	observing, cancel := context.WithTimeout(ctx, 50*time.Millisecond+upTo(rng, 3*time.Second))
	defer cancel()
	if rng.IntN(4) == 0 {
		if l, err := election.Leader(observing); err == nil {
			tell(l)
		} else if errors.Is(err, redlock.ErrInput) {
			s.app.say(appEvent{Kind: "wrong", Seat: s.Seat, Name: e.Name, Text: fmt.Sprint("Leader: ", err)})
		}
		return
	}
	for l := range election.Observe(observing) {
		tell(l)
		switch rng.IntN(20) {
		case 0:
			return
		case 1: // it is slow, and misses what is replaced
			pause(observing, upTo(rng, 300*time.Millisecond))
		}
	}
}

type leaders struct {
	terms     map[term]*campaign
	observers map[attemptID]*observerView
	heard     int // how often observers heard of a leader
	nobody    int // and of none
}

type term struct {
	name  string
	token uint64
}

type campaign struct {
	who string
	at  int64 // when it was told of last
}

type observerView struct {
	token  uint64
	number int
	none   bool // nobody, at last
	at     int64
	past   []string
}

// led takes the grant of a leader: a term has one.
func (j *appJudge) led(e appEvent) {
	if e.Value != "" {
		j.inTerm(e.Name, e.Token, e.Value, e.Seat, e.At)
	}
}

// inTerm books who led in a term.
func (j *appJudge) inTerm(name string, token uint64, who string, seat int, at int64) {
	if j.leaders.terms == nil {
		j.leaders.terms = map[term]*campaign{}
	}
	x := j.leaders.terms[term{name, token}]
	if x == nil {
		x = &campaign{who: who}
		j.leaders.terms[term{name, token}] = x
	}
	if x.at = at; x.who != who {
		j.wrong("two leaders", name, "seat %d: %s leads in term %d, in which %s has led", seat, who, token, x.who)
	}
}

func (j *appJudge) observed(id attemptID, e appEvent) {
	if j.leaders.observers == nil {
		j.leaders.observers = map[attemptID]*observerView{}
	}
	v := j.leaders.observers[id]
	if v == nil {
		v = &observerView{}
		j.leaders.observers[id] = v
	}
	v.at = e.At
	v.past = append(v.past, fmt.Sprintf("%s: %d %q %s", j.ms(e.At), e.Token, e.Value, e.Text))
	v.past = v.past[max(0, len(v.past)-20):]
	if e.Text == "nobody" {
		if j.leaders.nobody++; v.none {
			j.wrong("observer", e.Name, "seat %d heard of nobody twice in turn: %q", e.Seat, v.past)
		}
		v.none = true
		return
	}
	j.leaders.heard++
	var who string
	var number int
	if n, _ := fmt.Sscanf(e.Value, "%s %d", &who, &number); n != 2 {
		j.wrong("observer", e.Name, "seat %d heard of what nobody has proclaimed: %q", e.Seat, v.past)
		return
	}
	later := e.Token > v.token || e.Token == v.token && number > v.number
	again := v.none && e.Token == v.token && number == v.number // members took it back
	if !later && !again {
		j.wrong("observer", e.Name, "seat %d heard of an earlier leader, or value: %q", e.Seat, v.past)
	}
	v.token, v.number, v.none = e.Token, number, false
	j.inTerm(e.Name, e.Token, who, e.Seat, e.At)
}

func (j *appJudge) forgetLeaders(now int64) {
	for id, v := range j.leaders.observers {
		if v.at < now-int64(time.Minute) {
			delete(j.leaders.observers, id)
		}
	}
	for id, x := range j.leaders.terms {
		if x.at < now-int64(2*time.Minute) {
			delete(j.leaders.terms, id)
		}
	}
}

// watched are the keys of those that observe elections and wait for latches.
func watched() (keys []string) {
	for _, name := range appNames {
		keys = append(keys, slot.Sibling("redquorum:eo", name))
	}
	for _, x := range appLatches {
		keys = append(keys, slot.Sibling("redquorum:lo", x.name))
	}
	return keys
}
