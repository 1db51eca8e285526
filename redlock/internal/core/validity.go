package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// Validity counts from before the submission of the call that got the vote, whatever the member's clock and the network do.

// Answer is the decoded result of a call, as far as it tells of a vote. N is the number that the script replied. Server is the
// member's time in µs, or 0 if the script does not tell it.
type Answer struct {
	Outcome member.Outcome
	N       int64
	Server  int64
	Permits permit.List   // what a member of a semaphore has given; N is the token of the first
	Sent    time.Time     // before the call was submitted
	TTL     time.Duration // of the vote that the call asked for; 0: it asked for none
	Raise   bool          // the call asked to raise the counter of a vote
	At      time.Time     // when the answer arrived
	From    member.Brief  // of the member when the call was submitted
	Now     member.Brief  // of the member now
}

// Idle reports whether an answer counts for nothing: that of an ended generation, or of a member that
// may not vote.
func (a *Answer) Idle() bool {
	return a.Outcome == member.Answered && (a.From.Gen != a.Now.Gen || !a.Now.Votes)
}

// hears reports whether an answer tells of the present generation of a member.
func (m *Voter) hears(a *Answer) bool {
	return a.Outcome == member.Answered && !a.Idle() && a.From.Gen == m.gen
}

// dating says whether pushes of a member can be dated.
type dating uint8

const (
	undated dating = iota // no wait has been answered: only the first wait's submission is known
	dated                 // by the anchor
	stepped               // its clock stepped: a push proves nothing until two anchors agree
)

// Registers books that a call is about to go to member i which a push may follow. The first of a generation is the only anchor
// there is before its answer.
func (v *Votes) Registers(i int, at time.Time) {
	if m := &v.m[i]; m.first.IsZero() {
		m.first = at
	}
}

// Granted books a vote that an answer tells, and reports whether it counts: not if it was given up before, or if the call asked
// for none. The vote counts from before the submission of the call.
func (v *Votes) Granted(i int, a *Answer) bool {
	m, x := &v.m[i], v.vote(a.N, a.Permits)
	if !m.hears(a) || a.TTL <= 0 || v.wasGivenUp(i, &x) || v.older(i, &x, a.Server) {
		return false
	}
	end := a.Sent.Add(clock.Validity(a.TTL, v.terms.Drift))
	if m.equals(&x) && m.dating != stepped && clock.Until(m.end, end) > 0 {
		end = m.end // the same grant, anchored later by its push
	}
	m.take(x, end, a.Server)
	if clock.Until(end, a.At) <= 0 {
		m.has = Expired
	}
	return true
}

// older reports whether member i has told a later vote than x since. Counters of different slots are unrelated, so a token is
// compared with those of its slot alone.
func (v *Votes) older(i int, x *vote, server int64) bool {
	m := &v.m[i]
	if x.list == nil {
		return x.token < m.token
	}
	return slotsBehind(x.list, m.list) || m.token > 0 && server > 0 && server < m.server && !m.sameAs(x)
}

// Refused books that the lock is another's at member i, at a time of the member. Answers come in order, but pushes cross them: a
// refusal older than the vote says nothing.
func (v *Votes) Refused(i int, server int64) {
	m := &v.m[i]
	if m.has == Expired {
		m.has = None
		if m.token > 0 {
			m.has = Held
		}
	}
	if m.token > 0 && server > m.server {
		m.drop()
	}
}

// Anchored keeps the latest pair of server time and local time, which dates the pushes to come.
func (v *Votes) Anchored(i int, a *Answer) {
	if a.Server <= 0 {
		return
	}
	m := &v.m[i]
	fresh := clock.Anchor{Sent: a.Sent, Server: a.Server, Epoch: a.From.Epoch}
	now := dated
	if m.dating != undated && m.anchor.Epoch == fresh.Epoch {
		if clock.Until(fresh.Sent, m.anchor.Sent) <= 0 {
			return
		}
		if clock.Stepped(m.anchor, fresh, clock.Elapsed(a.Sent, a.At), v.terms.Drift) {
			now = stepped
		}
	}
	m.anchor, m.dating = fresh, now
}

// Push is a grant that a member made on its own, when it executed a waiting request of this client.
type Push struct {
	Token   int64
	Server  int64 // the member's time in µs
	TTL     time.Duration
	Permits permit.List // of a semaphore: all that the member has given
}

// Heard is what a push is worth.
type Heard uint8

const (
	Idle    Heard = iota // nothing: it is of an earlier generation, or of a member that may not vote
	Known                // nothing: the vote is known, or was given up since
	Undated              // it proves nothing: the member is to be asked
	Counts
)

// Pushed books a push of member i, whose state st was when it arrived.
func (v *Votes) Pushed(i int, p *Push, st *member.State, at time.Time) Heard {
	m, x := &v.m[i], v.vote(p.Token, p.Permits)
	if !st.Votes || st.Gen != m.gen {
		return Idle
	}
	if m.equals(&x) || v.wasGivenUp(i, &x) || v.older(i, &x, p.Server) {
		return Known
	}
	end, ok := v.endOfPushed(m, p, st.Epoch, at)
	if !ok {
		return Undated
	}
	m.take(x, end, p.Server)
	return Counts
}

// endOfPushed dates a grant that the member made at p.Server (docs/protocol.md, "Pushes"): from the latest anchor of
// this connection, or, before any wait was answered, from the first wait's submission. It lasts as long as the member
// says, which may be less than was asked for, and is never more.
func (v *Votes) endOfPushed(m *Voter, p *Push, epoch uint64, at time.Time) (time.Time, bool) {
	start := m.first
	switch {
	case p.Server <= 0: // the member does not vouch for it
		return time.Time{}, false
	case m.dating != undated:
		var ok bool
		if start, ok = m.anchor.Start(p.Server, at, v.terms.Drift); !ok || m.dating == stepped || m.anchor.Epoch != epoch {
			return time.Time{}, false
		}
	case start.IsZero():
		return time.Time{}, false
	case clock.Until(start, at) > 0:
		start = at
	}
	most := v.part
	if v.token > 0 { // asked for by a re-join
		most = v.terms.TTL
	}
	end := start.Add(clock.Validity(min(p.TTL, most), v.terms.Drift))
	return end, clock.Until(end, at) > 0
}
