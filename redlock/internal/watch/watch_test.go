package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

const entry = 3 * time.Second

var begin = time.Unix(1_700_000_000, 0)

func voting(n int) []member.State {
	out := make([]member.State, n)
	for i := range out {
		out[i] = member.State{Brief: member.Brief{Gen: 1, Epoch: 1, Votes: true, Ear: 1}, Up: true, Inbox: true}
	}
	return out
}

func set(members ...int) (out memberset.Set) {
	for _, i := range members {
		out = out.With(i)
	}
	return out
}

// watched is a watch that all members have answered at begin.
func watched(n int) (*Watch, []member.State) {
	w, states := New(n, Terms{Entry: entry, Retry: 200 * time.Millisecond}), voting(n)
	to, _ := w.Due(begin, states)
	w.Asked(to, states)
	for i := range n {
		w.Answered(i, true, states[i].Brief, begin, 0)
	}
	return w, states
}

func TestEveryMemberIsAskedAtOnceAndThenAtEachHeartbeat(t *testing.T) {
	w, states := New(3, Terms{Entry: entry}), voting(3)
	to, wake := w.Due(begin, states)
	require.Equal(t, set(0, 1, 2), to)
	require.Equal(t, begin.Add(entry/3), wake)
	w.Asked(to, states)
	to, _ = w.Due(begin, states)
	require.Zero(t, to, "one question is under way at each")
	w.Answered(1, true, states[1].Brief, begin, 0)
	w.Answered(2, true, states[2].Brief, begin, 100*time.Millisecond)
	to, wake = w.Due(begin.Add(time.Millisecond), states)
	require.Zero(t, to)
	require.Equal(t, begin.Add(100*time.Millisecond), wake, "the answer said when there is something to ask")
	to, wake = w.Due(begin.Add(100*time.Millisecond), states)
	require.Equal(t, set(2), to)
	require.Equal(t, begin.Add(entry/3), wake)
	to, _ = w.Due(begin.Add(entry/3), states)
	require.Equal(t, set(1, 2), to, "the first has not answered, and is not asked twice")
	require.Equal(t, set(0, 1, 2), w.Entries(), "a member without an answer may have it")
	w.Dropped(1)
	require.Equal(t, set(0, 2), w.Entries())
}

// Each of these may have taken the entry, or told what nobody heard.
func TestMemberIsAskedAtOnceIfPushesOrTheEntryMayBeLost(t *testing.T) {
	soon := begin.Add(time.Millisecond)
	for what, change := range map[string]func(st *member.State){
		"it forgot":                   func(st *member.State) { st.Gen++ },
		"the subscription began anew": func(st *member.State) { st.Ear++ },
	} {
		w, states := watched(3)
		change(&states[1])
		to, _ := w.Due(soon, states)
		require.Equal(t, set(1), to, what)
	}
	w, states := watched(3)
	states[1].Epoch++
	states[2].Inbox, states[2].Ear = false, 0
	to, _ := w.Due(soon, states)
	require.Zero(t, to, "neither a new connection nor a deaf member is a reason")
	states[2].Inbox, states[2].Ear = true, 2
	to, _ = w.Due(soon, states)
	require.Equal(t, set(2), to)
}

// The states were read before the question was submitted, and the later generation has it.
func TestEntryIsOfTheGenerationThatTheQuestionWentTo(t *testing.T) {
	w, states := watched(1)
	later := begin.Add(entry)
	to, _ := w.Due(later, states)
	w.Asked(to, states)
	states[0].Gen = 2
	w.Answered(0, true, states[0].Brief, later, 0)
	to, _ = w.Due(later, states)
	require.Zero(t, to)
	states[0].Gen = 3
	to, _ = w.Due(later, states)
	require.Equal(t, set(0), to)
}

func TestPushWhileAQuestionIsUnderWayAsksOnceMore(t *testing.T) {
	w, states := watched(2)
	soon := begin.Add(time.Millisecond)
	w.Pushed(0)
	to, _ := w.Due(soon, states)
	require.Equal(t, set(0), to)
	w.Asked(to, states)
	w.Pushed(0)
	to, _ = w.Due(soon, states)
	require.Zero(t, to)
	w.Answered(0, true, states[0].Brief, soon, 0)
	to, _ = w.Due(soon, states)
	require.Equal(t, set(0), to)
	w.Asked(to, states)
	w.Answered(0, true, states[0].Brief, soon, 0)
	to, _ = w.Due(soon, states)
	require.Zero(t, to, "and not for ever")
}

func TestQuestionThatFailedIsRepeatedAfterAPauseOrOverANewConnection(t *testing.T) {
	w, states := watched(2)
	to, _ := w.Due(begin.Add(entry), states)
	w.Asked(to, states)
	now := begin.Add(entry)
	w.Answered(0, false, states[0].Brief, now, 0)
	to, wake := w.Due(now, states)
	require.Zero(t, to)
	require.Equal(t, now.Add(200*time.Millisecond), wake)
	states[0].Epoch++
	to, _ = w.Due(now, states)
	require.Equal(t, set(0), to)
}

func TestOnlyMembersThatVoteAreAsked(t *testing.T) {
	w, states := watched(3)
	states[0].Votes, states[1].Votes = false, false
	states[1].Quarantine = begin.Add(time.Hour)
	now := begin.Add(entry)
	to, wake := w.Due(now, states)
	require.Equal(t, set(2), to)
	require.Equal(t, now.Add(entry/3), wake)
}
