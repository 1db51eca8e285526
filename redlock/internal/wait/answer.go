package wait

import (
	"errors"
	"hash/fnv"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Answer is the decoded result of a call. Next is the head of the queue.
type Answer struct {
	core.Answer
	Err   error
	Next  string
	Place int64         // of the attempt in the member's queue, by tickets; 0: not told
	Lives time.Duration // of the entry, if the line is so long that it is longer than Terms.Entry; else 0
	Limit int64         // of a semaphore, a stored limit that the client did not know; 0: not told
}

// counts is what the answer counts for in a round. One that does not count is no refusal either.
func (a *Answer) counts(yes bool) quorum.Vote {
	if a.Idle() {
		return quorum.Unsure
	}
	return VoteOf(a.Outcome, yes)
}

// VoteOf says what an answer counts for in a round. Unknown is never a yes.
func VoteOf(o member.Outcome, yes bool) quorum.Vote {
	switch {
	case o == member.Unknown:
		return quorum.Unsure
	case yes:
		return quorum.Yes
	}
	return quorum.No
}

// KindOf classifies a member's cause. Of none, which is that of most members at every look, it allocates nothing.
func KindOf(err error) member.Kind {
	if err == nil {
		return member.KindOther
	}
	return kindOf(err)
}

func kindOf(err error) member.Kind {
	var reply *member.ReplyError
	if errors.As(err, &reply) {
		return reply.Kind
	}
	return member.KindOther
}

// Answered books the result of an acquire or a wait, and says what it counts for. A number of 0 in the
// answer to an acquire says that the member has not looked at the lock: the call stood in a chain that
// had ended before it.
func (b *Ballot) Answered(i int, a *Answer) quorum.Vote {
	m := &b.m[i]
	m.pending--
	m.since = a.Sent
	past := false
	if b.books(i, a) {
		b.measure(i, a)
		switch {
		case a.N > 0:
			b.granted(i, a)
		case a.N == 0 && b.phase == asking:
			past = true
		default:
			b.excluded(i, a)
			b.again[i].entryTold(a)
		}
		if a.Place > 0 {
			b.placeTold(i, a.Place)
		}
	}
	b.moveHeartbeat()
	yes := a.N > 0 && b.core.Token(i) > 0
	if b.permits != nil && b.phase == asking {
		yes = yes && b.adds(i)
	}
	v := a.counts(yes)
	if past {
		v = quorum.NotAsked
	}
	if b.phase == asking {
		b.poll.book(i, a.Sent, v)
	}
	return v
}

// RaiseAnswered books whether member i confirmed that the vote is ours and the counter is lifted.
func (b *Ballot) RaiseAnswered(i int, a *Answer) quorum.Vote {
	v := a.counts(b.books(i, a) && b.core.Confirms(i, &a.Answer))
	if b.phase == raising {
		b.poll.book(i, a.Sent, v)
	}
	return v
}

// books notes the outcome of any call and reports whether the answer may count at all.
func (b *Ballot) books(i int, a *Answer) bool {
	m := &b.m[i]
	if a.Outcome == member.NotSent {
		m.sent--
	}
	if a.Idle() {
		return false
	}
	if m.err, m.lastAnswer = a.Err, open; a.Err != nil {
		m.lastAnswer = failed
	}
	if errors.Is(a.Err, member.ErrOverflow) {
		m.overflows++
		b.askAt(i, a.Sent.Add(b.overflowPause(m.overflows)))
		return false
	}
	m.overflows = 0
	if a.Outcome != member.Answered {
		return false
	}
	if b.besides != nil {
		b.silentBefore = b.silentBefore.Without(i)
	}
	b.enter(i, a.From.Gen)
	return true
}

// measure takes the round trip, and the member's clock, from an answer.
func (b *Ballot) measure(i int, a *Answer) {
	if took := clock.Elapsed(a.Sent, a.At); took < 4*b.rtt {
		b.rtt = (7*b.rtt + took) / 8
	} else {
		b.rtt = b.rtt * 9 / 8
	}
	b.core.Anchored(i, &a.Answer)
}

// granted books a vote, unless it was given up before.
func (b *Ballot) granted(i int, a *Answer) {
	m := &b.m[i]
	b.namesNext(a.Next, i)
	b.askAt(i, time.Time{})
	if !b.core.Granted(i, &a.Answer) {
		// It still does not count, but heartbeats keep it alive: unless it is offered again, nobody ever has it.
		b.heldAfterGiveUp(i, a)
		return
	}
	m.found()
	if b.permits != nil {
		b.seatTold(i, a.Next)
	}
	if b.core.Has(i) == core.Expired {
		m.mayYieldAgain()
	}
}

// Push is a grant that a member made on its own, when it executed a waiting request of this client. Next is the next in line.
type Push struct {
	core.Push
	Next string
}

// Pushed books a push, and reports whether the grant counts. st is the member's state when the push
// arrived. A push that proves nothing makes the attempt ask.
func (b *Ballot) Pushed(i int, p Push, st member.State, at time.Time) bool {
	if st.Votes {
		b.enter(i, st.Gen)
	}
	heard := b.core.Pushed(i, &p.Push, &st, at)
	if heard == core.Idle {
		return false
	}
	b.namesNext(p.Next, i)
	m := &b.m[i]
	switch heard {
	case core.Undated:
		b.askAt(i, at)
	case core.Counts:
		m.found()
		if b.permits != nil {
			b.seatTold(i, p.Next)
		}
		m.mayYieldAgain()
		b.askAt(i, time.Time{})
	}
	return heard == core.Counts
}

// overflowPause is the pause before a call that did not fit into a member's line is made again: some milliseconds, longer
// from one time to the next, and another one for each owner, so that a crowd spreads.
func (b *Ballot) overflowPause(times int32) time.Duration {
	return b.Spread(4*time.Millisecond<<min(times, 5), int(times)) // 128 ms
}

// Spread returns a part of most, at least a quarter. It differs for each owner, and for each time.
func (b *Ballot) Spread(most time.Duration, times int) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(b.owner))
	return most/4 + time.Duration(uint64(most)*3/4*uint64((h.Sum32()+uint32(times)*2654435769)>>16)>>16)
}

// onlyOverflows is the pause before the lock is tried for again where only full lines were in the way of a majority; else 0.
func (b *Ballot) onlyOverflows(now time.Time, states []member.State) (pause time.Duration) {
	n := 0
	for i := range b.m {
		switch m := &b.m[i]; {
		case m.overflows > 0:
			pause = max(pause, b.overflowPause(m.overflows))
			n++
		case b.core.Valid(i, now, states):
			n++
		}
	}
	if n < b.need {
		return 0
	}
	return pause
}
