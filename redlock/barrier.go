package redlock

import (
	"context"
	"errors"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// Barrier lets the parties of a name go on together: Wait returns when all of them have called it.
// Then the next round begins, so one Barrier serves any number of rounds. It is a Latch with a
// Round for each, and takes one key for all of them.
//
// There is no broken state. A party that does not come holds up the others, until it comes or their
// contexts end. A party whose Wait has failed calls it again.
type Barrier struct {
	c       *Client
	name    string
	parties int
	party   string
	opts    []LatchOption

	turn  chan struct{} // capacity 1: a Wait has it, because a party is in one round at a time
	round uint64        // that Wait enters next; 0: not known yet. Who has the turn has it
}

const opBarrier = "wait at barrier"

// Barrier returns the barrier of a name for so many parties, as one of them sees it. Each party has
// a name of its own, 1 to 256 bytes, that stays its own when its process begins anew. Bounds and
// names are those of Latch, and a Latch of the same name is the same thing. Round is not an option.
func (c *Client) Barrier(name string, parties int, party string, opts ...LatchOption) *Barrier {
	return &Barrier{c: c, name: name, parties: parties, party: party, opts: opts, turn: make(chan struct{}, 1)}
}

// Wait arrives, and returns when all parties have arrived. round is the number of the round, from 1:
// all parties that go on together have the same. A second call of the same Barrier waits for the
// first, until its own context ends. After an error, the party may have arrived, and the next Wait
// goes on with that round.
//
// The first Wait asks a majority of the members which round it is. So a party that begins anew
// enters the round that is under way, where it may have arrived already. If that round is open by then,
// it enters the next one. Errors: as for Latch.CountDown, but for ErrPassed.
func (b *Barrier) Wait(ctx context.Context) (round uint64, err error) {
	switch {
	case ctx == nil:
		return 0, badInput(opBarrier, "nil context")
	case b.parties < 1:
		return 0, badInput(opBarrier, "%d parties, must be 1 to %d", b.parties, mostCount)
	case b.party == "" || len(b.party) > longestID:
		return 0, badInput(opBarrier, "the name of the party has %d bytes, must have 1 to %d", len(b.party), longestID)
	}
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, &keyError{op: opBarrier, key: b.name, err: ctx.Err()}
	case <-b.c.closed:
		return 0, &keyError{op: opBarrier, key: b.name, err: ErrClosed}
	}
	defer func() { <-b.turn }()
	if b.round == 0 {
		if b.round, err = b.begin(ctx); err != nil {
			return 0, err
		}
	}
	l := b.latch(b.round)
	if err = l.Arrive(ctx, b.party); err == nil {
		err = l.Await(ctx)
	}
	// The party is needed for each round: where a later one has begun, this one had opened.
	if err != nil && !errors.Is(err, ErrPassed) {
		return 0, err
	}
	b.round++
	return b.round - 1, nil
}

func (b *Barrier) latch(round uint64) *Latch {
	l := b.c.Latch(b.name, b.parties, b.opts...)
	l.terms.round = round
	return l
}

// begin finds the round that the party enters.
func (b *Barrier) begin(ctx context.Context) (round uint64, err error) {
	l := b.latch(0)
	err = l.call(ctx, opBarrier, func(ctx, _ context.Context, r *latchRound) error {
		round, err = r.current(ctx)
		return err
	})
	return round, err
}

// current is the round that a majority of the members has, or the next one if it is open. Nobody
// enters a round before the one before it is open at a majority.
func (r *latchRound) current(ctx context.Context) (uint64, error) {
	states := r.states()
	pages := r.read(ctx, voters(states))
	errs := make([]error, len(pages))
	answered, last, open := 0, int64(0), false
	for i, p := range pages {
		if errs[i] = p.err; p.err != nil {
			continue
		}
		answered++
		if p.state.Round > last {
			last, open = p.state.Round, false
		}
		open = open || p.state.Round == last && p.state.Open
	}
	switch {
	case answered < r.c.need:
		return 0, r.c.latchError(opBarrier, r.name(), nil, ctx.Err(), states, errs)
	case last == 0:
		return 1, nil
	case open:
		return uint64(last) + 1, nil
	}
	return uint64(last), nil
}

// voters are the members that vote.
func voters(states []member.State) (to quorum.Set) {
	for i, st := range states {
		if st.Votes {
			to = to.With(i)
		}
	}
	return to
}
