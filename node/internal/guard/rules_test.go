package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

func TestWhatAStandingIsGoodFor(t *testing.T) {
	now := time.Now()
	voting := Standing{admitted: true, marker: marker{id: "run 1", state: neverForgot}, votesFrom: now}
	with := func(edit func(a *Standing)) Standing { a := voting; edit(&a); return a }
	for _, tc := range []struct {
		name    string
		a       Standing
		up, met bool
		votes   bool
		tag     string
		barred  error
	}{
		{"it remembers", voting, true, true, true, "run 1", nil},
		{"it remembers and is down", voting, false, true, false, "run 1", nil},
		{"no majority was met", voting, true, false, false, NoHandOver, member.ErrConnecting},
		{"it is looked at", with(func(a *Standing) { a.admitted = false }), true, true, false, NoHandOver, member.ErrQuarantined},
		{"its counters are not restored", with(func(a *Standing) { a.marker.state = forgot }), true, true, false, NoHandOver, member.ErrQuarantined},
		{"it was restored", with(func(a *Standing) { a.marker.state = whole }), true, true, true, "run 1", nil},
		{"its quarantine goes on by its word", with(func(a *Standing) { a.marker.left = 1 }), true, true, false, NoHandOver, member.ErrQuarantined},
		{"and by our count", with(func(a *Standing) { a.votesFrom = now.Add(1) }), true, true, false, NoHandOver, member.ErrQuarantined},
		{"and it is down", with(func(a *Standing) { a.votesFrom = now.Add(1) }), false, true, false, NoHandOver, nil},
	} {
		v := tc.a.verdict("member", tc.up, tc.met, now)
		require.Equal(t, tc.votes, v.Votes, tc.name)
		require.Equal(t, tc.tag, v.Tag, tc.name)
		require.ErrorIs(t, v.Barred, tc.barred, tc.name)
		require.Equal(t, tc.barred == member.ErrQuarantined, !v.Quarantine.IsZero(), tc.name)
	}
}

func TestWhatIsDueForAMemberThatDoesNotVote(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name  string
		m     marker
		from  time.Duration // the end of the quarantine, from now on
		asked time.Duration // the last look, from now on
		do    due
		until time.Duration
	}{
		{"our count goes on", marker{state: forgot}, time.Second, 0, waits, time.Second},
		{"it forgot, and both are over", marker{state: forgot}, -1, 0, restores, 0},
		{"it forgot, and its word is older than our count", marker{state: forgot, left: 1}, -1, 0, restores, 0},
		{"both are over", marker{state: neverForgot}, -1, 0, publishes, 0},
		{"its word is older than our count", marker{state: neverForgot, left: 1}, -1, -2, looksOnce, 0},
		{"it said after our count that its own goes on", marker{state: neverForgot, left: 1}, -1, 0, waits, 0},
	} {
		a := Standing{admitted: true, marker: tc.m, votesFrom: now.Add(tc.from)}
		do, until := a.dueNow(now, now.Add(tc.asked))
		require.Equal(t, tc.do, do, tc.name)
		require.Equal(t, tc.until, until, tc.name)
	}
}

func TestWhatALookMeansForAStanding(t *testing.T) {
	a := Standing{admitted: true, marker: marker{id: "run 1", state: neverForgot}}
	same := marker{id: "run 1", state: neverForgot, q: time.Second, recall: recall{role: "master", repl: "a", now: "a", older: "0"}}
	with := func(edit func(m *marker)) marker { m := same; edit(&m); return m }
	for _, tc := range []struct {
		name         string
		m            marker
		stays, knows bool
	}{
		{"nothing has changed", same, true, true},
		{"another marking", with(func(m *marker) { m.id = "run 2" }), false, false},
		{"emptied", with(func(m *marker) { m.id = "" }), false, false},
		{"it does not know of our leases", with(func(m *marker) { m.q-- }), false, true},
		{"another memory", with(func(m *marker) { m.now, m.older = "b", "a" }), false, false},
		{"another memory, and nobody noted the first", with(func(m *marker) { m.repl, m.now, m.older = "", "b", "a" }), false, false},
		{"a first replica", with(func(m *marker) { m.now = "b" }), true, false},
		{"a replica", with(func(m *marker) { m.role = "slave" }), false, true},
		{"it does not tell of its replication", with(func(m *marker) { m.recall = recall{repl: "a"} }), false, false},
		{"it forgot", with(func(m *marker) { m.state = forgot }), true, false},
		{"its quarantine goes on", with(func(m *marker) { m.left = 1 }), true, false},
	} {
		require.Equal(t, tc.stays, a.stays(tc.m, time.Second), tc.name)
		require.Equal(t, tc.knows, a.knows(tc.m), tc.name)
	}
}

// A look comes before what it says is believed: the state of a copy is not the member's.
func TestAnswerOfAnotherMemoryIsNoReadingOfTheMember(t *testing.T) {
	h := &fakeHost{suspect: make(chan struct{}, 1)}
	s := NewSeat(nil, h, Terms{})
	for _, tc := range []struct {
		recall recall
		ours   bool
	}{
		{recall{}, false}, // no INFO
		{recall{repl: "a", now: "a", role: "master"}, true},
		{recall{repl: "a", now: "b", older: "c", role: "master"}, false},
		{recall{repl: "a", now: "a", role: "slave"}, false},
	} {
		m, err := s.ours(marker{id: "run 1", state: whole, recall: tc.recall})
		require.Equal(t, tc.ours, err == nil)
		require.Equal(t, tc.ours, m.id != "")
		require.Len(t, h.suspect, map[bool]int{true: 0, false: 1}[tc.ours])
		if !tc.ours {
			<-h.suspect
		}
	}
}
