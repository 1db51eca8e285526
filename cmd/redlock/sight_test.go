package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/timeline"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// permitsAt is what three members say when all name the same holders, with a slot each.
func permitsAt(tokens ...uint64) *redlock.Inspection {
	in := &redlock.Inspection{Key: "k", Limit: -1}
	for range 3 {
		in.Members = append(in.Members, redlock.MemberView{Limit: -1})
	}
	for i, token := range tokens {
		slots := []redlock.Slot{{Number: i, Token: token}}
		owner := strings.Repeat(string(rune('a'+i)), 6)
		in.Holders = append(in.Holders, redlock.Holder{VoteView: redlock.VoteView{Owner: owner, Slots: slots}, Votes: 3})
		for m := range in.Members {
			in.Members[m].Votes = append(in.Members[m].Votes, redlock.VoteView{Owner: owner, Slots: slots})
		}
	}
	return in
}

func nobody() *redlock.Inspection {
	return &redlock.Inspection{Key: "k", Kind: redlock.KindMutex, Members: make([]redlock.MemberView, 3)}
}

func TestWatchTellsEveryChangeOfSlots(t *testing.T) {
	t.Parallel()
	var last sightLines
	look := func(in *redlock.Inspection) []string {
		return last.changed(&sight{lock: nobody(), semaphore: in})
	}
	for _, step := range []struct {
		in   *redlock.Inspection
		want string
	}{
		{permitsAt(7), `"k": semaphore, 1 slot held by 1 holder (aaaaaa: slot 0 token 7), 0 waiting`},
		{permitsAt(7), ""},
		{permitsAt(7, 6, 5, 4), `"k": semaphore, 4 slots held by 4 holders, 0 waiting`},
		{permitsAt(7, 6, 5, 4), ""},
		{permitsAt(7, 6, 5, 6), `"k": semaphore, 4 slots held by 4 holders, 0 waiting`},
		{permitsAt(), `"k": semaphore, no slot held, 0 waiting`},
	} {
		assert.Equal(t, step.want, strings.Join(look(step.in), "; "))
	}
}

func TestTimelineOfAWatchIsWhatItsLooksSaw(t *testing.T) {
	t.Parallel()
	s := newSeen("k", time.Second, time.Unix(1_795_000_000, 0))
	for i, ttl := range []time.Duration{0, 9, 8, 9, 0} { // of the holder: it waits first, and is renewed in between
		in, who := nobody(), []string{"", "", "host", "", ""}[i] // members learn who it is after its first votes
		vote := redlock.VoteView{Owner: "aaaaaa", Who: who, Token: 7, TTL: ttl * time.Second}
		if in.Members[0].Member = "m"; ttl > 0 {
			in.Holders, in.Members[0].Votes = []redlock.Holder{{VoteView: vote, Votes: 2}}, []redlock.VoteView{vote}
		} else if i == 0 {
			in.Members[0].Queue = []redlock.Waiter{{Owner: "aaaaaa", Who: who, Live: true, Waiting: 300 * time.Millisecond}}
		}
		s.look(s.log.Start.Add(time.Duration(i+1)*time.Second), &sight{lock: in})
	}
	hold := timeline.Hold{
		Lock: `"k"`, Who: "host", Token: 7, Asked: 700 * time.Millisecond, From: 2 * time.Second, To: 4 * time.Second,
		Renewed: []time.Duration{4 * time.Second}, Text: "Owner aaaaaa",
	}
	assert.Equal(t, []timeline.Hold{hold}, s.timeline().Holds)
	assert.Equal(t, []timeline.Spell{{Kind: timeline.Votes, Who: "m", From: hold.From, To: hold.To, Text: "aaaaaa"}}, s.timeline().Spells)
}

// Nothing is free while a slot is held, or while too few members say. Members that refuse to tell of
// a semaphore do not keep watch from its end.
func TestFreeIsSaidOfSlotsToo(t *testing.T) {
	t.Parallel()
	failing := func(err error) *redlock.Inspection {
		in := permitsAt()
		in.Members[0].Err, in.Members[1].Err = err, err
		return in
	}
	held := nobody()
	held.Holders = []redlock.Holder{{VoteView: redlock.VoteView{Owner: "aaaaaa", Token: 7}, Votes: 3}}
	silent := nobody()
	silent.Members[0].Err, silent.Members[1].Err = context.DeadlineExceeded, context.DeadlineExceeded
	for name, c := range map[string]struct {
		s    sight
		want bool
	}{
		"nothing":            {sight{lock: nobody()}, true},
		"a lock":             {sight{lock: held, semaphore: permitsAt()}, false},
		"silent members":     {sight{lock: silent}, false},
		"no slot":            {sight{lock: nobody(), semaphore: permitsAt()}, true},
		"a slot":             {sight{lock: nobody(), semaphore: permitsAt(7)}, false},
		"silent about slots": {sight{lock: nobody(), semaphore: failing(context.DeadlineExceeded)}, false},
		"refused":            {sight{lock: nobody(), semaphore: failing(&member.ReplyError{Kind: member.KindAuth})}, true},
	} {
		assert.Equal(t, c.want, c.s.free(), "%v", name)
	}
}

// A key is that of one name at most, whatever braces the name has.
func TestNamesAreReadFromKeys(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a", "a:b", "{a}", "{a}b", "a{b}c", "}{", "{}a", "{a", "a}", "{a}:b", "{{a}}", "x{a}:{b}", "{a}:{a}", ":", "{a}:",
	} {
		for _, of := range []string{semaphoreKeys, latchKeys} {
			key := slot.Sibling(of, name)
			if got, ok := nameOf(of, key); !ok || got != name {
				t.Errorf("%q is read as %q, %v", key, got, ok)
			}
		}
	}
	for _, key := range []string{"redquorum:s1", "redquorum:s1:", "redquorum:s1:a", "redquorum:sq:{a}", "a"} {
		if name, ok := nameOf(semaphoreKeys, key); ok {
			t.Errorf("%q is read as %q", key, name)
		}
	}
}

// What less than a majority has is listed with --all alone, and what nobody knows never.
func TestLsListsWhatAMajorityHas(t *testing.T) {
	t.Parallel()
	known := func(n int) *redlock.Inspection {
		in := &redlock.Inspection{Key: "k", Members: make([]redlock.MemberView, 3)}
		for i := range n {
			in.Latch = &redlock.LatchState{}
			in.Members[i].Latch = in.Latch
		}
		return in
	}
	minority := permitsAt(7)
	minority.Holders = nil
	for name, c := range map[string]struct {
		found    func(all bool) bool
		some, of bool // listed, and listed with --all
	}{
		"latch at 2":      {func(all bool) bool { return latchFound(known(2), all) != nil }, true, true},
		"latch at 1":      {func(all bool) bool { return latchFound(known(1), all) != nil }, false, true},
		"latch at none":   {func(all bool) bool { return latchFound(known(0), all) != nil }, false, false},
		"slots":           {func(all bool) bool { return slotsFound(permitsAt(7), all) != nil }, true, true},
		"no majority":     {func(all bool) bool { return slotsFound(minority, all) != nil }, false, true},
		"nothing of them": {func(all bool) bool { return slotsFound(permitsAt(), all) != nil }, false, false},
	} {
		if some, all := c.found(false), c.found(true); some != c.some || all != c.of {
			t.Errorf("%s: listed %v, with --all %v", name, some, all)
		}
	}
}
