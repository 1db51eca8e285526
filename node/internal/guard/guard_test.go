package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

func TestWhatAMarkerMeans(t *testing.T) {
	const q = 30 * time.Second
	ours := marker{id: "run 1", state: neverForgot}
	old := marker{id: "before 1", state: neverForgot}
	var none marker
	all := view{members: 5, unmarked: 5, q: q, waiting: waiting{patience: time.Second}}
	const waitFirst = markLost + 1
	with := func(edit func(v *view)) view { v := all; edit(&v); return v }
	for _, tc := range []struct {
		name       string
		m          marker
		v          view
		do         action
		quarantine time.Duration
	}{
		{"names the running process", ours, all, accept, 0},
		{"names it, whatever else is known", ours, with(func(v *view) { v.saw, v.known = true, true }), accept, 0},
		{"names a process whose name begins alike", marker{id: "run2 1"}, all, markLost, q},
		{"names an earlier process", old, all, markLost, q},
		{"names an earlier process, perhaps in another's place", old, with(func(v *view) { v.lag = 15 * time.Second }), markLost, q + 15*time.Second},
		{"names an earlier process, strict", old, with(func(v *view) { v.mode = Strict }), markLost, q},
		{"names an earlier process, guard off", old, with(func(v *view) { v.mode = Off }), accept, 0},
		{"names an earlier process of a master, guard off", marker{id: "other 1", recall: recall{repl: "a", now: "b", older: "000"}}, with(func(v *view) { v.mode = Off }), accept, 0},
		{"names the master of before, guard off", marker{id: "other 1", recall: recall{repl: "a", now: "b", older: "a"}}, with(func(v *view) { v.mode = Off }), markLost, q},
		{"missing, guard off", none, with(func(v *view) { v.mode, v.known = Off, true }), markLost, q},
		{"missing, guard off, fresh", none, with(func(v *view) { v.mode, v.known, v.saw, v.fresh = Off, true, true, true }), markNew, 0},
		{"missing at all members", none, all, markNew, q},
		{"missing at all, perhaps in another's place", none, with(func(v *view) { v.lag = 15 * time.Second }), markNew, q + 15*time.Second},
		{"missing at all, this one was a replica", marker{recall: recall{now: "b", older: "a"}}, all, markNew, q},
		{"the same, fresh", marker{recall: recall{now: "b", older: "a"}}, with(func(v *view) { v.fresh = true }), markNew, 0},
		{"missing at all, fresh", none, with(func(v *view) { v.fresh, v.lag = true, 15*time.Second }), markNew, 0},
		{"missing at all, but some of ours are young", none, with(func(v *view) { v.young = true }), markNew, q},
		{"had one before", none, with(func(v *view) { v.known = true }), markLost, q},
		{"had one before, fresh", none, with(func(v *view) { v.known, v.fresh = true, true }), markLost, q},
		{"others have one", none, with(func(v *view) { v.saw, v.unmarked = true, 1 }), markLost, q},
		{"others have one, fresh", none, with(func(v *view) { v.saw, v.unmarked, v.fresh, v.waited = true, 1, true, time.Hour }), markLost, q},
		{"a majority has none, others not asked yet", none, with(func(v *view) { v.unmarked = 3 }), waitFirst, 0},
		{"a majority has none, others do not answer", none, with(func(v *view) { v.unmarked, v.waited = 3, time.Second }), markLost, q},
		{"the same, fresh", none, with(func(v *view) { v.unmarked, v.waited, v.fresh = 3, time.Second, true }), markNew, 0},
		{"somebody else is marking", none, with(func(v *view) { v.saw, v.unmarked, v.young = true, 3, true }), waitFirst, 0},
		{"somebody else was, and left this one out", none, with(func(v *view) { v.saw, v.unmarked, v.young, v.waited = true, 3, true, lookAgain }), markLost, q},
	} {
		do, quarantine := decide(tc.m, "run", tc.v)
		if early(tc.m, tc.v) {
			do, quarantine = waitFirst, 0
		}
		require.Equal(t, tc.do, do, tc.name)
		require.Equal(t, tc.quarantine, quarantine, tc.name)
	}
}

func TestCountersAreRestoredToTheGreatestThatEnoughMembersKnow(t *testing.T) {
	a, b, c := source{q: time.Second}, source{q: 3 * time.Second}, source{q: 2 * time.Second}
	const limit = "limit:redquorum:s1:{k}"

	require.Equal(t, 3*time.Second, longestOf(time.Second, []source{a, b, c}))
	p := planOf([]source{a, b, c}, 3)
	require.Equal(t, plan{known: true}, p)
	for field, taken := range map[string]bool{"1": true, "1.4": true, limit: true, "base": false, "id": false, "pending": false} {
		require.Equal(t, taken, p.takes(field), field)
	}

	p = planOf([]source{a, b}, 3)
	require.True(t, p.byClock, "too few know")
	require.False(t, p.takes("1"))
	require.True(t, p.takes(limit), "a stored limit does not begin at a clock: the greatest that anybody knows is restored")

	// What a member lacks that was itself restored by the clock, nobody lends.
	c.clk = true
	require.Equal(t, plan{known: true, byClock: true}, planOf([]source{a, b, c}, 3))
	require.NotEqual(t, marker{recall: recall{now: "a"}}.memory(), marker{recall: recall{now: "b"}}.memory())
}

func TestEachFieldOfTheCountersBelongsToASlot(t *testing.T) {
	for field, want := range map[string]int{
		"0": 0, "7629": 7629, "16383": 16383, "7629.0": 7629, "7629.255": 7629,
		"limit:redquorum:s1:{k}": 7629, "limit:redquorum:s1:{k}:3": 7629,
		"id": -1, "forgot": -1, "base": -1, "16384": -1, "": -1, ".3": -1, "-1": -1,
	} {
		got, ok := slotOf(field)
		require.Equal(t, want >= 0, ok, field)
		if ok {
			require.EqualValues(t, want, got, field)
		}
	}
}

func TestMarkerIsReadAsItWasWritten(t *testing.T) {
	now, info := time.Now(), str("role:slave\r\nmaster_replid:a\r\nmaster_replid2:b\r\n")
	m, err := readMarker(&member.Reply{Kind: '*', Elems: []member.Reply{
		str("run 5000000"), str("g"), str("30000"), num(1500), str("1"), num(7000000), str("6500000"), str("c"), info, str("d")}}, now)
	require.NoError(t, err)
	require.Equal(t, marker{id: "run 5000000", state: forgot, q: 30 * time.Second, left: 1500 * time.Millisecond,
		clk: true, told: 7000000, raised: 500 * time.Millisecond, arrived: now,
		recall: recall{repl: "c", now: "a", older: "b", role: "slave", stamp: "d"}}, m)
	m, err = readMarker(&member.Reply{Kind: '*', Elems: []member.Reply{str(""), str(""), str("0"), num(-2), str(""), num(1), str(""), str(""), str(""), str("")}}, now)
	require.NoError(t, err)
	require.Empty(t, m.id)
	require.Zero(t, m.left)
	for _, bad := range []member.Reply{
		{Kind: ':'}, {Kind: '*'},
		{Kind: '*', Elems: []member.Reply{str("run 5"), str("?"), str("1"), num(0), str(""), num(0), str(""), str(""), info, str("")}},
		{Kind: '*', Elems: []member.Reply{str("run 5"), str("n"), str("x"), num(0), str(""), num(0), str(""), str(""), info, str("")}},
		{Kind: '*', Elems: []member.Reply{str("run 5"), str("n"), str("1"), num(0), str(""), num(0), str(""), str(""), info}},
	} {
		require.Error(t, rt.Err(readMarker(&bad, now)))
	}
}

// A first deployment that somebody else is marking shows by a fresh marker of state n at another member.
func TestSomebodyElseIsMarkingWhereAMarkerIsYoung(t *testing.T) {
	for _, tc := range []struct {
		name  string
		seat  int // of the marker
		m     marker
		young bool
	}{
		{"just marked", 1, marker{id: "run 1", state: neverForgot, told: 1000001, arrived: time.Now()}, true},
		{"read a while ago", 1, marker{id: "run 1", state: neverForgot, told: 1000001, arrived: time.Now().Add(-youngMarker)}, false},
		{"old when it was read", 1, marker{id: "run 1", state: neverForgot, told: 1 + youngMarker.Microseconds(), arrived: time.Now()}, false},
		{"a member that forgot", 1, marker{id: "run 1", state: forgot}, false},
		{"a member that was restored", 1, marker{id: "run 1", state: whole}, false},
		{"no marker", 1, marker{state: neverForgot}, false},
		{"its own", 0, marker{id: "run 1", state: neverForgot}, false},
	} {
		g := New(Config{Members: 2, MaxTTL: time.Second})
		for seat := range 2 {
			h := &fakeHost{}
			if seat == tc.seat {
				h.standing.marker = tc.m
				if tc.m.arrived.IsZero() {
					h.standing.marker.arrived = time.Now()
				}
			}
			NewSeat(g, h, Terms{}).Join()
		}
		require.Equal(t, tc.young, g.seats[0].young(), tc.name)
	}
}

// Looks are answered before the restoring and taken after it, and the other way round.
func TestLookFromBeforeTheRestoringIsNotTaken(t *testing.T) {
	h := admitted(t, marker{id: "run 1", state: forgot, left: time.Minute, arrived: time.Now()})
	known := func() marker { return h.Now().Standing.marker }
	take := h.seat.take

	take(marker{id: "run 1", state: forgot, arrived: time.Now()})
	require.Zero(t, known().left, "a newer reading")
	require.False(t, h.Now().State.Votes)
	h.standing.votesFrom = time.Now() // by our own count, too
	take(marker{id: "run 1", state: whole, arrived: time.Now()})
	require.True(t, h.Now().State.Votes)
	take(marker{id: "run 1", state: forgot, arrived: time.Now()})
	require.Equal(t, whole, known().state, "answered before it was restored")
	require.True(t, h.Now().State.Votes)
	take(marker{id: "run 2", state: neverForgot, arrived: time.Now()})
	require.Equal(t, "run 1", known().id, "another marking begins another generation first")
}
