package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/kinds/latch"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Barrier lets the parties of a name go on together: Wait returns when all of them are in it. Then
// the next round begins, so one Barrier serves any number of rounds.
//
// There is no broken state. A party that does not come holds up the others, until it comes or their
// contexts end. A party whose Wait has failed calls it again.
type Barrier struct {
	c     *Client
	l     *Latch // has name, parties and options
	party string
	wire  script.Barrier

	turn chan struct{} // capacity 1: a Wait has it, because a party is in one round at a time

	mu    sync.Mutex
	core  *latch.Barrier // nil before the first Wait
	asked []int64        // of each member, the round that it was asked about last
}

const opBarrier = "wait at barrier"

// Barrier returns the barrier of a name for so many parties, as one of them sees it. Each party has
// a name of its own, 1 to 256 bytes, that stays its own when its process begins anew. Bounds, names
// and Life are those of Latch, and a Latch of the same name is another thing. Round is not an option.
func (c *Client) Barrier(name string, parties int, party string, opts ...LatchOption) *Barrier {
	return &Barrier{
		c: c, l: c.Latch(name, parties, opts...), party: party, wire: script.BarrierOf(c.cfg.keyOf(name)), turn: make(chan struct{}, 1),
	}
}

// Wait arrives, and returns when all parties are in Wait. round is the number of the round: all
// parties that go on together have the same. The numbers of a party rise, and the first is one that
// the barrier had not used before. A second call of the same Barrier waits for the first, until its
// own context ends.
//
// An arrival ends with its Wait, or within Config.Entry where the process has ended. If that came too late, the
// round has opened with it: then the next Wait returns that round at once. A party that begins anew enters the
// round that is under way.
//
// Errors: as for Latch.Await, but for ErrPassed. ErrConflict says that others have told another number
// of parties, or that as many others come: the parties of a round that opened are those of the next.
func (b *Barrier) Wait(ctx context.Context) (round uint64, err error) {
	if ctx == nil {
		return 0, badInput(opBarrier, "nil context")
	}
	if err := b.check(ctx); err != nil {
		return 0, err
	}
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, &keyError{op: opBarrier, key: b.l.name, err: ctx.Err()}
	case <-b.c.closed:
		return 0, &keyError{op: opBarrier, key: b.l.name, err: ErrClosed}
	}
	defer func() { <-b.turn }()
	err = b.l.traced(ctx, opBarrier, func(in context.Context) error {
		round, err = b.wait(ctx, in)
		return err
	})
	return round, err
}

// check explains why a Wait cannot begin.
func (b *Barrier) check(ctx context.Context) error {
	switch {
	case b.c == nil:
		return badInput(opBarrier, "a barrier of no client: make it with Client.Barrier")
	case b.l.count < 1:
		return badInput(opBarrier, "%d parties, must be 1 to %d", b.l.count, mostCount)
	case b.party == "" || len(b.party) > longestID:
		return badInput(opBarrier, "the name of the party has %d bytes, must have 1 to %d", len(b.party), longestID)
	case b.l.terms.round != 0:
		return badInput(opBarrier, "Round is for a Latch: a barrier counts its rounds itself")
	}
	return b.l.check(ctx, opBarrier)
}

// wait keeps a watch up until the round of the party is open. The watch is the arrival.
func (b *Barrier) wait(ctx, in context.Context) (round uint64, err error) {
	w, err := b.c.newWatch(opBarrier, LockName{Kind: KindLatch, Key: b.l.name}, b.wire.Slot(), in, b)
	if err != nil {
		return 0, err
	}
	defer w.end()
	b.mu.Lock()
	if b.core == nil {
		b.core, b.asked = latch.NewBarrier(len(b.c.members), int64(b.l.count), b.c.need), make([]int64, len(b.c.members))
	}
	b.core.Begin()
	b.mu.Unlock()
	for {
		states := b.c.statesOf(b.wire.Slot())
		b.mu.Lock()
		entered, _, _ := b.core.Round()
		said := b.core.Judge(states)
		refuses, other := b.core.Refuses, b.core.Other()
		b.mu.Unlock()
		switch said {
		case latch.Opened:
			w.abandon() // what is withdrawn now, no member counts any more
			return uint64(entered), nil
		case latch.Moved:
			w.askAll()
		case latch.Differs:
			return 0, b.fail(refusal(w.failing(conflict(other, int64(b.l.count)), nil), true, refuses))
		case latch.Strangers:
			return 0, b.fail(refusal(w.failing(fmt.Errorf("%w: others are its %d parties", ErrConflict, b.l.count), nil), true, refuses))
		}
		if err := w.next(ctx); err != nil {
			return 0, b.fail(b.gaveUp(ctx, err))
		}
	}
}

// fail books that a Wait ends with an error.
func (b *Barrier) fail(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.core.Fail()
	return err
}

// gaveUp is the error of a Wait whose watch has ended with err. Where a majority answers, nothing is wrong but that
// parties are missing.
func (b *Barrier) gaveUp(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return shutOf(err, opBarrier, b.l.name, errMissing, ctx)
	}
	return err
}

// question implements watcher.
func (b *Barrier) question(buf *[]byte, to memberset.Set, watch string, entry time.Duration) member.Command {
	b.mu.Lock()
	t := script.BarrierTerms{Parties: int64(b.l.count), Life: b.l.terms.life, Party: b.party, Watch: watch}
	t.Round, t.Before, t.Digest = b.core.Round()
	for i := range b.asked {
		if to.Has(i) {
			b.asked[i] = t.Round
		}
	}
	b.mu.Unlock()
	if t.Round == 0 {
		entry = 0 // it is asked which round is under way
	}
	return b.wire.Wait(buf, &t, entry)
}

// answered implements watcher.
func (b *Barrier) answered(i int, c *member.Call, _ time.Time) (time.Duration, error) {
	s, ok := script.ReadBarrier(&c.Reply)
	if !ok {
		return 0, errReply
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.core.Heard(i, b.asked[i], latch.BarrierState{
		Round: s.Round, Parties: s.Parties, Open: s.Open, Digest: s.Digest, Before: s.Before, Mine: latch.PartyState(s.Mine), Server: s.Server, Proof: s.Proof,
	}, c.State)
	return 0, nil
}

// pushed implements watcher.
func (b *Barrier) pushed(i int, n script.News, from member.State, _ time.Time) (dropped, ask bool) {
	if n.Word != 'b' {
		return false, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return false, !b.core.Pushed(i, n.Values[0], n.Values[1], from)
}
