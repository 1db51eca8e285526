package wait

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

func TestRenewalMovesTheEndOfAVote(t *testing.T) {
	now := time.Now()
	b := Adopt("me:1", NewRoom(3), usual, 7)
	require.Zero(t, b.Votes(now))
	b.Renewed(0, 0, true, now.Add(time.Second))
	b.Renewed(1, 0, false, time.Time{})
	require.Equal(t, 1, b.Votes(now), "the member that was asked and has it")
	require.Zero(t, b.Votes(now.Add(2*time.Second)))
	b.Renewed(0, 0, true, now.Add(5*time.Second))
	b.Renewed(0, 0, true, now.Add(3*time.Second))
	require.Equal(t, 1, b.Votes(now.Add(4*time.Second)), "a late answer does not shorten it")
	require.Zero(t, b.Votes(now.Add(6*time.Second)))
	b.Renewed(0, 0, false, time.Time{})
	require.Zero(t, b.Votes(now), "the member does not have it any more")
}

func TestVoteThatIsRegainedIsOfTheGenerationThatGivesItBack(t *testing.T) {
	now := time.Now()
	b := Adopt("me:1", NewRoom(3), usual, 7)
	b.Renewed(0, 1, true, now.Add(time.Second))
	b.Renewed(0, 2, true, now.Add(time.Second)) // the member has restarted
	require.False(t, b.Pushed(0, Push{Push: core.Push{Token: 5}}, member.State{Brief: member.Brief{Votes: true, Gen: 2}}, now), "a grant below it")
	require.False(t, b.Lacks(0, now), "the first word of that generation drops what was given before it")
	b.Renewed(0, 3, false, time.Time{})
	require.True(t, b.Lacks(0, now))
}

// "Not yours" is what a release wants to hear from a member that never voted, and a loss where the vote was ours.
func TestReleaseIsConfirmedByWhatTheMemberHad(t *testing.T) {
	answered := func(n int64) *Answer { return &Answer{Answer: core.Answer{Outcome: member.Answered, N: n}} }
	b := Adopt("me:1", NewRoom(4), usual, 7)
	end := time.Now().Add(time.Second)
	b.Renewed(0, 0, true, end)
	b.Renewed(1, 0, true, end)
	b.Renewed(2, 0, true, end)
	b.Renewed(2, 0, false, time.Time{})

	require.False(t, b.ReleaseAnswered(0, &Answer{Answer: core.Answer{Outcome: member.Unknown, N: 1}}), "no answer")
	require.Zero(t, b.NotOurs())
	require.True(t, b.ReleaseAnswered(0, answered(1)))
	require.Zero(t, b.NotOurs())
	b.ReleaseAnswered(0, answered(0))
	require.Zero(t, b.NotOurs(), "a second release finds nothing")
	require.False(t, b.ReleaseAnswered(1, answered(0)), "the vote was ours, and is not there")
	require.Equal(t, 1, b.NotOurs())
	require.False(t, b.ReleaseAnswered(2, answered(0)), "a renewal had found it gone")
	require.True(t, b.ReleaseAnswered(3, answered(0)), "it never voted")
	require.Equal(t, 3, b.NotOurs())
}

// An attempt that waits decides anew after each answer and each push.
func TestWhoWaitsDecidesWithoutAnAllocation(t *testing.T) {
	d := newDesk(5)
	var s Step
	require.Zero(t, testing.AllocsPerRun(100, func() { d.Ballot.Next(&s, d.at(1), d.states) }))
}

// The push of a wish is dated by the re-join that was refused. It lasts as long as a vote of a re-join, and not as one of a waiter.
func TestVoteThatALeaseHasWishedForCountsFromItsPush(t *testing.T) {
	now := time.Now()
	states := []member.State{{Brief: member.Brief{Votes: true, Gen: 2}}}
	b := Adopt("me:1", NewRoom(3), usual, 7)
	b.Renewed(0, 0, true, now.Add(time.Second))
	b.Wishes(0, 2, now)
	require.True(t, b.Lacks(0, now), "the member has said that it is another's")
	require.True(t, b.Wishing(0))

	at := now.Add(usual.Entry / 2)
	push := Push{Push: core.Push{Token: 9, Server: 1, TTL: usual.TTL - time.Second}}
	require.False(t, b.Pushed(0, push, member.State{Brief: member.Brief{Votes: true, Gen: 1}}, at), "of the memory before")
	require.True(t, b.Pushed(0, push, states[0], at))
	require.False(t, b.Wishing(0))
	require.False(t, b.Lacks(0, now.Add(2*usual.Entry)))
	require.True(t, b.Lacks(0, now.Add(push.TTL)), "less drift")
	require.Equal(t, 1, b.Votes(at))
	token, late := b.Late(0)
	require.False(t, late, "it is above %d", token)
}

func TestRefusedReJoinOfAnEarlierMemoryIsNoWish(t *testing.T) {
	b := Adopt("me:1", NewRoom(3), usual, 7)
	b.Wishes(0, 2, time.Now())
	b.Pushed(0, Push{Push: core.Push{Token: 9, Server: 1, TTL: time.Second}}, member.State{Brief: member.Brief{Votes: true, Gen: 2}}, time.Now())
	b.Wishes(0, 1, time.Now())
	require.False(t, b.Wishing(0))
	require.Equal(t, 1, b.Votes(time.Now()))
}

func TestProbeKnowsTheBallot(t *testing.T) {
	for what, n := range map[reflect.Type]int{
		reflect.TypeFor[Ballot](): 13, reflect.TypeFor[besides](): 14, reflect.TypeFor[Voter](): 8, reflect.TypeFor[again](): 4,
		reflect.TypeFor[poll](): 6, reflect.TypeFor[left](): 6, reflect.TypeFor[tried](): 3,
		reflect.TypeFor[permits](): 8, reflect.TypeFor[seat](): 3,
	} {
		require.Equal(t, n, what.NumField(), "is a new field of %v in Clone, Shift, AppendKey and AppendVoter?", what)
	}
}

func TestTableOfStatesIsThatOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if _, row, found := strings.Cut(line, "//\t|"); found {
			cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(row), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	want := [][]string{{""}}
	for y := noYield; y <= yieldLost; y++ {
		want[0] = append(want[0], y.String())
	}
	for s := core.None; s <= core.Lost; s++ {
		row := []string{s.String()}
		for y := noYield; y <= yieldLost; y++ {
			row = append(row, map[bool]string{true: "yes", false: "no"}[together[s][y]])
		}
		want = append(want, row)
	}
	require.Equal(t, want, rows)
}
