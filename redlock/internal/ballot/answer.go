package ballot

import (
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// Answer is the decoded result of a call. N is the number that the script replied. Server is the
// member's time in µs, or 0 if the script does not tell it. Next is the head of the queue.
type Answer struct {
	Outcome member.Outcome
	Err     error
	N       int64
	Server  int64
	Next    string
	Place   int64         // of the attempt in the member's queue, by tickets; 0: not told
	Lives   time.Duration // of the entry, if the line is so long that it is longer than Terms.Entry; else 0
	Limit   int64         // of a semaphore, a stored limit that the client did not know; 0: not told
	Permits permit.List   // what a member of a semaphore has given; N is the token of the first
	Sent    time.Time     // before the call was submitted
	At      time.Time     // when the answer arrived
	From    member.Brief  // of the member when the call was submitted
	Now     member.Brief  // of the member now
}

// idle reports whether an answer counts for nothing: that of an ended generation, or of a member that
// may not vote.
func (a *Answer) idle() bool {
	return a.Outcome == member.Answered && (a.From.Gen != a.Now.Gen || !a.Now.Votes)
}

// counts is what the answer counts for in a round. One that does not count is no refusal either.
func (a *Answer) counts(yes bool) quorum.Vote {
	if a.idle() {
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

// Answered books the result of an acquire or a wait, and says what it counts for. lease is the TTL
// that the call asked for. A number of 0 in the answer to an acquire says that the member has not
// looked at the lock: the call stood in a chain that had ended before it.
func (b *Ballot) Answered(i int, a *Answer, lease time.Duration) quorum.Vote {
	m := &b.m[i]
	m.pending--
	m.since = a.Sent
	past := false
	if b.books(i, a) {
		b.learn(m, a)
		switch {
		case a.N > 0:
			b.granted(i, a, lease)
		case a.N == 0 && b.phase == asking:
			past = true
		default:
			m.excluded(a)
			m.paced(a)
		}
		if a.Place > 0 {
			b.placed(i, a.Place)
		}
	}
	b.repace()
	yes := a.N > 0 && m.token > 0
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
	v := a.counts(b.books(i, a) && a.N == 1)
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
	if a.idle() {
		return false
	}
	if m.err, m.word = a.Err, open; a.Err != nil {
		m.word = failed
	}
	if errors.Is(a.Err, member.ErrOverflow) {
		m.crowded++
		m.retry = a.Sent.Add(b.patience(m.crowded))
		return false
	}
	m.crowded = 0
	if a.Outcome != member.Answered {
		return false
	}
	b.doubt = b.doubt.Without(i)
	m.enter(a.From.Gen)
	return true
}

// learn takes the round trip, and the member's clock, from an answer.
func (b *Ballot) learn(m *Voter, a *Answer) {
	if took := clock.Elapsed(a.Sent, a.At); took < 4*b.rtt {
		b.rtt = (7*b.rtt + took) / 8
	} else {
		b.rtt = b.rtt * 9 / 8
	}
	if a.Server > 0 {
		b.anchored(m, a)
	}
}

// granted books a vote, unless it was given up before.
func (b *Ballot) granted(i int, a *Answer, lease time.Duration) {
	m := &b.m[i]
	b.follows(a.Next, i)
	m.retry = time.Time{}
	if b.permits != nil {
		if b.stale(i, a.Permits, a.Server) {
			b.keeps(i, a.Permits)
			return
		}
	} else if a.N <= m.yielded || a.N < m.token {
		// It still does not count, but heartbeats keep it alive: unless it is offered again, nobody ever has it.
		m.stillKept(a.N)
		return
	}
	end := a.Sent.Add(clock.Validity(lease, b.terms.Drift))
	if b.same(i, a.N, a.Permits) && m.dating != stepped && clock.Until(m.end, end) > 0 {
		end = m.end // the same grant, anchored later by its push
	}
	m.take(vote{token: a.N, end: end, server: a.Server, voteOf: m.gen})
	if b.permits != nil {
		b.seated(i, a.Permits, a.Next)
	}
	if clock.Until(end, a.At) <= 0 {
		m.has = tardy
		m.reconsider()
	}
}

// same reports whether a grant is the vote in hand.
func (b *Ballot) same(i int, token int64, l permit.List) bool {
	return token == b.m[i].token && (b.permits == nil || slices.Equal(l, b.permits.at[i].list))
}

// anchored keeps the latest pair of server time and local time, which dates the pushes to come.
func (b *Ballot) anchored(m *Voter, a *Answer) {
	fresh := clock.Anchor{Sent: a.Sent, Server: a.Server, Epoch: a.From.Epoch, Gen: a.From.Gen}
	now := dated
	if m.dating != undated && m.anchor.Epoch == fresh.Epoch {
		if clock.Until(fresh.Sent, m.anchor.Sent) <= 0 {
			return
		}
		if clock.Stepped(m.anchor, fresh, clock.Elapsed(a.Sent, a.At), b.terms.Drift) {
			now = stepped
		}
	}
	m.anchor, m.dating = fresh, now
}

// Push is a grant that a member made on its own, when it executed a waiting request of this client.
type Push struct {
	Token  int64
	Server int64  // the member's time in µs
	Next   string // the next in line
	TTL    time.Duration

	Permits permit.List // of a semaphore: all that the member has given
}

// Pushed books a push, and reports whether the grant counts. st is the member's state when the push
// arrived. A push that proves nothing makes the attempt ask.
func (b *Ballot) Pushed(i int, p Push, st member.State, at time.Time) bool {
	m := &b.m[i]
	if !st.Votes || st.Gen < m.gen {
		return false
	}
	m.enter(st.Gen)
	b.follows(p.Next, i)
	if b.permits != nil {
		if b.same(i, p.Token, p.Permits) || b.stale(i, p.Permits, p.Server) {
			return false
		}
	} else if p.Token <= m.yielded || p.Token <= m.token {
		return false // known, or given up since
	}
	end, ok := b.endOfPushed(m, p, st.Epoch, at)
	if !ok {
		m.retry = at
		return false
	}
	m.take(vote{token: p.Token, end: end, server: p.Server, voteOf: st.Gen})
	if b.permits != nil {
		b.seated(i, p.Permits, p.Next)
	}
	m.reconsider()
	m.retry = time.Time{}
	return true
}

// endOfPushed dates a grant that the member made at p.Server (docs/protocol.md, "Pushes"): from the latest anchor of
// this connection, or, before any wait was answered, from the first wait's submission. It lasts as long as the member
// says, which may be less than was asked for, and is never more.
func (b *Ballot) endOfPushed(m *Voter, p Push, epoch uint64, at time.Time) (time.Time, bool) {
	start := m.first
	switch {
	case p.Server <= 0: // the member does not vouch for it
		return time.Time{}, false
	case m.dating != undated:
		var ok bool
		if start, ok = m.anchor.Start(p.Server, at, b.terms.Drift); !ok || m.dating == stepped || m.anchor.Epoch != epoch {
			return time.Time{}, false
		}
	case start.IsZero():
		return time.Time{}, false
	case clock.Until(start, at) > 0:
		start = at
	}
	most := b.part
	if b.token > 0 { // asked for by a re-join
		most = b.terms.TTL
	}
	end := start.Add(clock.Validity(min(p.TTL, most), b.terms.Drift))
	return end, clock.Until(end, at) > 0
}

// patience is the pause before a call that did not fit into a member's line is made again: some milliseconds, longer
// from one time to the next, and another one for each owner, so that a crowd spreads.
func (b *Ballot) patience(times int) time.Duration {
	return b.Spread(4*time.Millisecond<<min(times, 5), times) // 128 ms
}

// Spread returns a part of most, at least a quarter. It differs for each owner, and for each time.
func (b *Ballot) Spread(most time.Duration, times int) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(b.owner))
	return most/4 + time.Duration(uint64(most)*3/4*uint64((h.Sum32()+uint32(times)*2654435769)>>16)>>16)
}

// crowdedOut is the pause before the lock is tried for again where only full lines were in the way of a majority; else 0.
func (b *Ballot) crowdedOut(now time.Time, states []member.State) (pause time.Duration) {
	n := 0
	for i := range b.m {
		switch m := &b.m[i]; {
		case m.crowded > 0:
			pause = max(pause, b.patience(m.crowded))
			n++
		case b.valid(i, now, states):
			n++
		}
	}
	if n < b.need {
		return 0
	}
	return pause
}
