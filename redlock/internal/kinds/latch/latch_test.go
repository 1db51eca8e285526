package latch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

var begin = time.Unix(1_700_000_000, 0)

func votingAt(gens ...uint64) []member.State {
	var out []member.State
	for _, gen := range gens {
		out = append(out, member.State{Brief: member.Brief{Gen: gen, Epoch: 1, Votes: true}, Up: true})
	}
	return out
}

func set(members ...int) (out memberset.Set) {
	for _, i := range members {
		out = out.With(i)
	}
	return out
}

var terms = Terms{Round: 1, Count: 9, Need: 2, Most: 3, Retry: time.Second}

func said(sum int64) State { return State{Round: 1, Count: 9, Sum: sum, Digest: sum} }

func TestArrivalIsNotStoredAtAMemberThatForgotMeanwhile(t *testing.T) {
	l, states := New(3, terms), votingAt(1, 1, 1)
	v := l.Arrive("a", 1)
	b, _, ok := l.Due(begin, states, false)
	require.True(t, ok)
	require.Equal(t, set(0, 1, 2), b.To)
	_, _, ok = l.Due(begin, states, false)
	require.False(t, ok, "it is under way")
	l.Told(0, &b, said(1), states[0].Brief)
	require.False(t, l.Stored(v, states))
	l.Told(1, &b, said(1), states[1].Brief)
	require.True(t, l.Stored(v, states))
	require.False(t, l.Stored(v, votingAt(1, 2, 1)), "it has forgotten that")

	states = votingAt(2, 2, 1)
	b, _, ok = l.Due(begin, states, false)
	require.True(t, ok)
	require.Equal(t, set(0, 1), b.To)
	require.Equal(t, []Arrival{{"a", 1}}, b.Arrivals)
	states = votingAt(3, 2, 1)
	l.Told(0, &b, said(1), votingAt(3)[0].Brief) // executed in a generation that was not known at Due
	l.Told(1, &b, said(1), states[1].Brief)
	require.False(t, l.Stored(v, states), "0 is asked once more, 2 has not answered")
	b, _, ok = l.Due(begin, states, false)
	require.True(t, ok)
	require.Equal(t, set(0), b.To)

	// The member forgets while the call is under way, and is seen to before the answer comes.
	l = New(1, Terms{Round: 1, Need: 1, Most: 3})
	v = l.Arrive("a", 1)
	b, _, _ = l.Due(begin, votingAt(1), false)
	_, _, ok = l.Due(begin, votingAt(2), false)
	require.False(t, ok)
	l.Told(0, &b, State{Round: 1, Sum: 1}, votingAt(1)[0].Brief)
	require.False(t, l.Stored(v, votingAt(2)))
	_, _, ok = l.Due(begin, votingAt(2), false)
	require.True(t, ok)
}

func TestArrivalsThatComeMeanwhileTravelTogetherInOrder(t *testing.T) {
	l, states := New(1, Terms{Round: 1, Need: 1, Most: 3, Retry: time.Second}), votingAt(1)
	l.Arrive("x", 1)
	first, _, _ := l.Due(begin, states, false)
	require.Equal(t, []Arrival{{"x", 1}}, first.Arrivals)
	for i := range 4 {
		l.Arrive(fmt.Sprint("p", i), 1)
	}
	l.Arrive("x", 2)
	v := l.Arrive("x", 3)
	require.Equal(t, v, l.Arrive("x", 2), "it has arrived more often")
	l.Told(0, &first, State{Round: 1, Sum: 1}, states[0].Brief)
	second, _, _ := l.Due(begin, states, false)
	require.Equal(t, []Arrival{{"p0", 1}, {"p1", 1}, {"p2", 1}}, second.Arrivals)
	l.Failed(0, begin)
	_, wake, ok := l.Due(begin, states, false)
	require.False(t, ok)
	require.Equal(t, begin.Add(time.Second), wake)
	again, _, ok := l.Due(wake, states, false)
	require.True(t, ok)
	require.Equal(t, second.Arrivals, again.Arrivals)
	l.Told(0, &again, State{Round: 1, Sum: 4}, states[0].Brief)
	third, _, _ := l.Due(wake, states, false)
	require.Equal(t, []Arrival{{"p3", 1}, {"x", 3}}, third.Arrivals)
	require.False(t, l.Stored(v, states))
	l.Told(0, &third, State{Round: 1, Sum: 7}, states[0].Brief)
	require.True(t, l.Stored(v, states))

	l.Failed(0, begin)
	states[0].Epoch++
	l.Arrive("y", 1)
	_, _, ok = l.Due(begin, states, false)
	require.True(t, ok, "over a new connection at once")
	require.Equal(t, 6, l.Kept())
	l.Trim(2, states, false)
	require.Equal(t, 2, l.Kept())
	l.Trim(0, states, false)
	require.Equal(t, 1, l.Kept(), "one that no majority has is not forgotten")
}

func TestUnequalMembersAreReadWhenNothingIsUnderWay(t *testing.T) {
	l, states := New(3, terms), votingAt(1, 1, 1)
	hear := func(sums ...int64) memberset.Set {
		for i, sum := range sums {
			l.Heard(i, said(sum), states[i].Brief, l.Life())
		}
		return l.Unequal(states)
	}
	require.Zero(t, hear(1, 2, 2), "once is not enough")
	require.Equal(t, set(0, 1, 2), hear(1, 2, 2))
	require.Zero(t, hear(1, 2, 3), "arrivals are under way")
	require.Zero(t, hear(3, 3, 3))
	require.Zero(t, hear(3, 3, 3), "they are equal")
	hear(3, 3, 4)
	require.Equal(t, set(0, 1, 2), hear(3, 3, 4))
	states[1].Gen, states[2].Votes = 2, false
	require.Zero(t, l.Unequal(states), "what it said is of before")
	states = votingAt(1, 1, 1)
	l.Repaired()
	require.Zero(t, l.Unequal(states))
	l.Join(said(4), map[string]int64{"a": 3, "b": 1})
	l.Join(said(3), map[string]int64{"a": 2, "c": 1})
	require.Equal(t, []Arrival{{"a", 3}, {"c", 1}}, l.Lacking(map[string]int64{"a": 2, "b": 1}))
	require.EqualValues(t, 4, l.Remaining())
	l.Join(State{Round: 0}, map[string]int64{"old": 9})
	require.False(t, l.Open(), "arrivals of another round")
	l.Join(said(9), map[string]int64{"d": 4})
	require.True(t, l.Open())
	require.False(t, l.Known(states))
}

func TestConflictIsTheWordOfSoManyThatNoMajorityIsLeft(t *testing.T) {
	l, states := New(3, terms), votingAt(1, 1, 1)
	v := l.Arrive("a", 1)
	b, _, _ := l.Due(begin, states, false)
	other := State{Round: 1, Count: 7}
	l.Told(0, &b, other, states[0].Brief)
	require.False(t, l.Conflict())
	l.Told(1, &b, said(1), states[1].Brief)
	l.Told(2, &b, said(1), states[2].Brief)
	require.True(t, l.Stored(v, states))
	_, _, ok := l.Due(begin, states, false)
	require.False(t, ok, "it is not asked again and again")
	l.Heard(1, other, states[1].Brief, l.Life())
	require.True(t, l.Conflict())

	untold := New(3, Terms{Round: 1, Need: 2})
	untold.Heard(0, State{Round: 1, Count: 2, Sum: 1}, states[0].Brief, untold.Life())
	require.EqualValues(t, 2, untold.Remaining(), "by the count that a member was told")
	require.False(t, untold.Conflict())
	untold.Join(State{Round: 1}, map[string]int64{"a": 1, "b": 1})
	require.True(t, untold.Open())
}

// A latch that is deleted meanwhile is told what is under way once more, and nothing else.
func TestForgottenLatchIsToldWhatNoMajorityHas(t *testing.T) {
	states := votingAt(1, 1, 1)
	l := New(3, Terms{Round: 1, Count: 9, Need: 2, Most: 128, Retry: time.Second})
	now := time.Now()
	first := l.Arrive("a", 1)
	done, _, ok := l.Due(now, states, false)
	require.True(t, ok)
	l.Told(0, &done, said(1), states[0].Brief)
	l.Told(1, &done, said(1), states[1].Brief)
	require.True(t, l.Stored(first, states))
	second := l.Arrive("b", 1)
	under, _, ok := l.Due(now, states, false)
	require.True(t, ok)
	require.Equal(t, set(0, 1), under.To)

	l.Forget(states)
	require.True(t, l.Stored(first, states), "its caller may not have looked")
	require.False(t, l.Stored(second, states))
	require.EqualValues(t, 8, l.Remaining())
	open := said(9)
	open.Open = true
	l.Told(0, &under, open, states[0].Brief)
	l.Told(1, &under, said(2), states[1].Brief)
	l.Told(2, &done, said(1), states[2].Brief)
	require.False(t, l.Open(), "what was said before the deletion")
	require.False(t, l.Stored(second, states))
	again, _, ok := l.Due(now, states, false)
	require.True(t, ok)
	require.Equal(t, set(0, 1, 2), again.To)
	require.Equal(t, []Arrival{{"b", 1}}, again.Arrivals)
	l.Told(2, &again, said(1), states[2].Brief)
	l.Told(1, &again, said(1), states[1].Brief)
	require.True(t, l.Stored(second, states))
}

func TestArrivalThatIsRefusedCountsForNothing(t *testing.T) {
	l, states := New(3, terms), votingAt(1, 1, 1)
	before := l.Remaining()
	v := l.Arrive("a", 1)
	l.Refuse("a")
	require.True(t, l.Refused("a"))
	require.Empty(t, l.Lacking(nil), "nobody is told of it")
	require.Equal(t, before, l.Remaining())
	b, _, ok := l.Due(begin, states, false)
	if ok {
		require.Empty(t, b.Arrivals)
		for i := range 3 {
			l.Told(i, &b, said(0), states[i].Brief)
		}
		require.True(t, l.Stored(v, states), "there is nothing to be told")
	}
	require.Equal(t, before, l.Remaining())
	l.Arrive("a", 1)
	require.False(t, l.Refused("a"), "it arrives again")
	require.Equal(t, before-1, l.Remaining())
	l.Refuse("a")
	l.Idle(states)
	require.False(t, l.Refused("a"))
}

func TestAnswerFromBeforeADeletionOpensNothing(t *testing.T) {
	l, states := New(3, terms), votingAt(1, 1, 1)
	open, life := said(terms.Count), l.Life()
	open.Open = true
	l.Forget(states)
	l.Heard(0, open, states[0].Brief, life)
	require.False(t, l.Open())
	l.Heard(0, open, states[0].Brief, l.Life())
	require.True(t, l.Open())
}

// The last arrival opens the latch at members, which so have it, and not in the client that tells it.
func TestOwnArrivalOpensNothing(t *testing.T) {
	once := terms
	once.Count = 1
	l, states := New(3, once), votingAt(1, 1, 1)
	l.Arrive("a", 1)
	require.False(t, l.Open())
	b, _, ok := l.Due(begin, states, false)
	require.True(t, ok)
	require.False(t, b.Open)
	require.Equal(t, []Arrival{{"a", 1}}, b.Arrivals)
	l.Told(0, &b, State{Round: 1, Count: 1, Sum: 1, Digest: 1, Open: true}, states[0].Brief)
	require.True(t, l.Open())
}

// What a client keeps of a latch does not grow with its arrivals.
func TestArrivalsThatAMajorityHasAreNotKept(t *testing.T) {
	l, states := New(1, Terms{Round: 1, Count: 1 << 30, Need: 1, Most: 128}), votingAt(1)
	sum := int64(0)
	tell := func() {
		b, _, ok := l.Due(begin, states, false)
		for ; ok; b, _, ok = l.Due(begin, states, false) {
			sum += int64(len(b.Arrivals))
			l.Told(0, &b, State{Round: 1, Count: 1 << 30, Sum: sum}, states[0].Brief)
		}
	}
	for i := range 1000 {
		l.Arrive(fmt.Sprint("part-", i), 1)
		tell()
		l.Trim(10, states, false)
		require.LessOrEqual(t, len(l.union), 10, "with %d arrivals", i+1)
	}
	l.Join(State{Round: 1, Sum: 1000}, map[string]int64{"other": 5})
	l.Arrive("awaited", 1)
	tell()
	l.Trim(0, states, true)
	require.Contains(t, l.union, "awaited", "somebody awaits, and tells it again")
	l.Arrive("last", 1)
	tell()
	l.Idle(states)
	require.Equal(t, map[string]int64{"last": 1}, l.union, "what the client tells again")
	l.Join(State{Round: 1, Open: true}, map[string]int64{"other": 5})
	l.Idle(states)
	require.True(t, l.Open())
	require.Empty(t, l.union)
	require.Zero(t, l.Kept(), "an open latch is told to be open")
}
