package main

import (
	"context"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// permitsAt is what three members say when all name the same holders, with a slot each.
func permitsAt(tokens ...uint64) *redlock.SemaphoreInspection {
	in := &redlock.SemaphoreInspection{Key: "k", Limit: -1}
	for range 3 {
		in.Members = append(in.Members, redlock.PermitView{Limit: -1})
	}
	for i, token := range tokens {
		slots := []redlock.Slot{{Number: i, Token: token}}
		owner := strings.Repeat(string(rune('a'+i)), 6)
		in.Holders = append(in.Holders, redlock.PermitHolder{Owner: owner, Slots: slots, Votes: 3})
		for m := range in.Members {
			in.Members[m].Votes = append(in.Members[m].Votes, redlock.PermitVote{Owner: owner, Slots: slots})
		}
	}
	return in
}

func nobody() *redlock.Inspection {
	return &redlock.Inspection{Key: "k", Kind: redlock.KindMutex, Members: make([]redlock.MemberView, 3)}
}

// watch says that a slot has changed hands, also where it does not list the holders.
func TestWatchTellsEveryChangeOfSlots(t *testing.T) {
	t.Parallel()
	var last sightLines
	look := func(in *redlock.SemaphoreInspection) []string {
		return last.changed(&sight{lock: nobody(), semaphore: in})
	}
	for _, step := range []struct {
		in   *redlock.SemaphoreInspection
		want string
	}{
		{permitsAt(7), `"k": semaphore, 1 slot held by 1 holder (aaaaaa: slot 0 token 7), 0 waiting`},
		{permitsAt(7), ""},
		{permitsAt(7, 6, 5, 4), `"k": semaphore, 4 slots held by 4 holders, 0 waiting`},
		{permitsAt(7, 6, 5, 4), ""},
		{permitsAt(7, 6, 5, 6), `"k": semaphore, 4 slots held by 4 holders, 0 waiting`},
		{permitsAt(), `"k": semaphore, no slot held, 0 waiting`},
	} {
		if got := strings.Join(look(step.in), "; "); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
}

// Nothing is free while a slot is held, or while too few members say. Members that refuse to tell of
// a semaphore do not keep watch from its end.
func TestFreeIsSaidOfSlotsToo(t *testing.T) {
	t.Parallel()
	failing := func(err error) *redlock.SemaphoreInspection {
		in := permitsAt()
		in.Members[0].Err, in.Members[1].Err = err, err
		return in
	}
	held := nobody()
	held.Holders = []redlock.Holder{{Owner: "aaaaaa", Token: 7, Votes: 3}}
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
		if got := c.s.free(); got != c.want {
			t.Errorf("%s: free is %v", name, got)
		}
	}
}
