package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// A range is longer when two of three members confirm a reservation by votes that were drawn, and have been there since.
func TestRangeIsConfirmedByDrawnVotes(t *testing.T) {
	const valid, within = time.Second, 200 * time.Millisecond
	at := func(gen uint64) member.Brief { return member.Brief{Gen: gen, Votes: true} }
	now := time.Now()
	type play struct {
		*testing.T
		v      Votes
		r      Range
		now    time.Time
		states []member.State
		sent   time.Time
		old    bool // what the members answer to a reservation is of the generation before
	}
	answer := func(p *play, i int, n int64) *Answer {
		return &Answer{Outcome: member.Answered, N: n, Sent: p.sent, At: p.now, From: p.states[i].Brief, Now: p.states[i].Brief}
	}
	grant := func(p *play, i int, token int64) bool {
		a := answer(p, i, token)
		a.TTL = valid
		return p.v.Granted(i, a)
	}
	says := func(p *play, i int, n int64) bool {
		a := answer(p, i, n)
		if a.Raise = true; p.old {
			a.From, a.Now = at(1), at(1)
		}
		return p.v.Reserved(&p.r, i, a, p.now, p.states)
	}
	refused := func(p *play, i int) { p.v.Renewed(i, false, time.Time{}) }
	regained := func(p *play, i int) { p.v.Renewed(i, true, p.now.Add(valid)) }
	for what, tc := range map[string]struct {
		before func(p *play) // the hold has votes of members 0 and 1
		after  func(p *play) // before member 1 has answered
		said   [3]int64      // what the members answer, in this order
		longer int           // the member whose answer confirms it, 3: none does
	}{
		"a majority":                                 {said: [3]int64{1, 1, 3}, longer: 1},
		"a majority, where somebody waits":           {said: [3]int64{2, 2, 3}, longer: 1},
		"those that did not lift their counters":     {said: [3]int64{1, 3, 3}, longer: 3},
		"those that do not have the vote":            {said: [3]int64{1, 0, 0}, longer: 3},
		"a vote that was granted late":               {before: func(p *play) { require.True(p, grant(p, 2, 5)) }, said: [3]int64{1, 3, 1}, longer: 2},
		"a vote that a renewal has found":            {before: func(p *play) { regained(p, 2) }, said: [3]int64{1, 3, 1}, longer: 3},
		"a vote that was drawn, and a renewal found": {before: func(p *play) { regained(p, 1) }, said: [3]int64{1, 1, 3}, longer: 1},
		"a vote that a re-join made":                 {before: func(p *play) { refused(p, 1); regained(p, 1) }, said: [3]int64{1, 1, 3}, longer: 3},
		"a vote that a renewal found after its yield": {
			before: func(p *play) { p.v.GiveUp(1, nil, nil); regained(p, 1) }, said: [3]int64{1, 1, 3}, longer: 3},
		"a push that is older than a refusal": {before: func(p *play) {
			p.v.Registers(1, p.now)
			refused(p, 1)
			require.Equal(p, Counts, p.v.Pushed(1, &Push{Token: 6, Server: 1, TTL: valid}, &p.states[1], p.now))
			regained(p, 1)
		}, said: [3]int64{1, 1, 3}, longer: 3},
		"a vote that is drawn after its answer": {
			before: func(p *play) { p.v.GiveUp(0, nil, nil); regained(p, 0) },
			after:  func(p *play) { require.True(p, grant(p, 0, 9)) }, said: [3]int64{1, 1, 3}, longer: 3},
		"a vote that is refused meanwhile":      {after: func(p *play) { refused(p, 0) }, said: [3]int64{1, 1, 3}, longer: 3},
		"a member that has forgotten meanwhile": {after: func(p *play) { p.states[0].Brief = at(2) }, said: [3]int64{1, 1, 3}, longer: 3},
		"a member that may not vote meanwhile":  {after: func(p *play) { p.states[0].Votes = false }, said: [3]int64{1, 1, 3}, longer: 3},
		"a member that had forgotten before":    {before: func(p *play) { p.states[1].Brief = at(2) }, said: [3]int64{1, 1, 3}, longer: 3},
		"an answer from before a member forgot and voted anew": {before: func(p *play) {
			p.states[1].Brief, p.old = at(2), true
			require.True(p, p.v.Enter(1, 2) && grant(p, 1, 7))
		}, said: [3]int64{1, 1, 3}, longer: 3},
		"in time":  {after: func(p *play) { p.now = p.now.Add(within - 1) }, said: [3]int64{1, 1, 3}, longer: 1},
		"too late": {after: func(p *play) { p.now = p.now.Add(within) }, said: [3]int64{1, 1, 3}, longer: 3},
		"an earlier reservation": {
			before: func(p *play) { require.True(p, grant(p, 2, 5)) },
			after: func(p *play) {
				if p.sent.Equal(now) {
					reserveAgain(&p.r, now.Add(1))
				}
			}, said: [3]int64{1, 1, 1}, longer: 3},
	} {
		t.Run(what, func(t *testing.T) {
			p := &play{T: t, now: now, sent: now, states: []member.State{{Brief: at(1)}, {Brief: at(1)}, {Brief: at(1)}}}
			p.v.Begin(make([]Voter, 3), Terms{TTL: valid, Entry: valid, Drift: clock.DefaultDrift})
			for i := range 3 {
				p.v.Enter(i, 1)
			}
			require.True(t, grant(p, 0, 7) && grant(p, 1, 7))
			decided, g := p.v.Decide(now, p.states)
			require.Equal(t, Won, decided)
			term, ok := p.v.Start(g, now)
			require.True(t, ok)
			p.r = p.v.Range()
			_, ok = p.r.Next()
			require.False(t, ok, "its one token is that of the lease")
			if tc.before != nil {
				tc.before(p)
			}
			require.EqualValues(t, 10, p.r.Reserve(&term, 3, now, within))
			for i, n := range tc.said {
				if tc.after != nil && i == 1 {
					tc.after(p)
				}
				require.Equal(t, i == tc.longer, says(p, i, n), "member %d", i)
			}
			require.Equal(t, tc.said[1] == 0, p.v.Has(1) == Lost)
			require.EqualValues(t, map[bool]int64{true: 3}[tc.longer < 3], p.r.Left())
			for token := int64(8); token <= 10 && tc.longer < 3; token++ {
				got, ok := p.r.Next()
				require.True(t, ok)
				require.Equal(t, token, got)
			}
			_, ok = p.r.Next()
			require.False(t, ok)
		})
	}
}

// reserveAgain begins a reservation in place of another one.
func reserveAgain(r *Range, now time.Time) {
	term := ProbeTerm(now.Add(time.Second), time.Time{}, 0)
	r.Reserve(&term, 3, now, time.Second)
}

func TestReservationEndsWithTheValidityThatTheHoldHad(t *testing.T) {
	now := time.Now()
	states := []member.State{{Brief: member.Brief{Gen: 1, Votes: true}}}
	at := states[0].Brief
	for after, longer := range map[time.Duration]bool{time.Second - 1: true, time.Second: false} {
		var v Votes
		v.Begin(make([]Voter, 1), Terms{TTL: time.Minute, Entry: time.Minute, Drift: clock.DefaultDrift})
		v.Enter(0, 1)
		require.True(t, v.Granted(0, &Answer{Outcome: member.Answered, N: 7, Sent: now, TTL: time.Minute, At: now, From: at, Now: at}))
		v.Decide(now, states)
		r, term := v.Range(), ProbeTerm(now.Add(time.Second), time.Time{}, 0)
		r.Reserve(&term, 3, now, time.Hour)
		said := Asks(time.Minute, 1)
		said.Book(0, &Answer{Outcome: member.Answered, N: 1, Sent: now, From: at, Now: at})
		require.True(t, term.Renew(&said, now), "later, which changes nothing")
		require.False(t, v.Reserved(&r, 0, &Answer{Outcome: member.Unknown, Raise: true, Sent: now, From: at, Now: at}, now, states))
		require.Equal(t, Held, v.Has(0), "it has not answered")
		a := &Answer{Outcome: member.Answered, N: 1, Sent: now, From: at, Now: at}
		require.False(t, v.Reserved(&r, 0, a, now.Add(after), states), "no reservation was asked for")
		a.Raise = true
		require.Equal(t, longer, v.Reserved(&r, 0, a, now.Add(after), states))
		require.False(t, v.Reserved(&r, 0, a, now, states) && longer, "once")
	}
}
