package ability

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

type sink struct{ _ byte } // so that two have different addresses

func (*sink) Done(*member.Call) {}
func (*sink) Asking() bool      { return true }

func TestHopAsks(t *testing.T) {
	if !Asking(&member.Call{Hop: &sink{}}) || Asking(&member.Call{}) {
		t.Error("the hop asks, and nobody else")
	}
}

// Only what a server may execute later is sent again: never what was answered, nor what it forbids or does not know.
func TestUndeliveredIsWhatMayStillBeExecuted(t *testing.T) {
	passes := map[member.Kind]bool{
		member.KindOther: false, member.KindForeign: false, member.KindForgot: false, member.KindAuth: false,
		member.KindNoScript: true, member.KindReadOnly: true, member.KindLoading: true, member.KindBusy: true, member.KindOverloaded: true, member.KindCluster: true,
	}
	for kind, want := range passes {
		err := error(&member.ReplyError{Kind: kind, Text: "text"})
		for _, e := range []error{err, fmt.Errorf("sent elsewhere: %w", err)} {
			if r := (&member.Result{Outcome: member.Refused, Err: e}); Undelivered(r) != want || Passes(kind) != want {
				t.Errorf("kind %d: undelivered %v, want %v", kind, Undelivered(r), want)
			}
		}
	}
	for outcome, want := range map[member.Outcome]bool{member.Unanswered: false, member.Answered: false, member.Unknown: true, member.NotSent: true} {
		if r := (&member.Result{Outcome: outcome, Err: errors.New("why")}); Undelivered(r) != want {
			t.Errorf("%v: undelivered %v", outcome, Undelivered(r))
		}
	}
}

// What is owed outlives the call: its owner uses the bytes again, and its batch has gone.
func TestReleaseThatIsSentAgainSharesNothingWithItsCall(t *testing.T) {
	var ended atomic.Bool
	var first, again sink
	c := &member.Call{
		Command:  member.Command{Cmd: []byte("release"), Tagged: true, Slot: 7, Marks: resp.Marks{Shared: 3}, Item: &resp.Item{Batch: "a script", Kind: resp.ReleaseItem}},
		Delivery: member.Delivery{Always: true, OweUntil: time.Now(), Ended: &ended},
		Sink:     &first, Index: 2, Hop: &first, Result: member.Result{Outcome: member.NotSent, Err: member.ErrDown},
	}
	copied := Again(c, &again)
	clear(c.Cmd)
	want := member.Call{
		Command:  member.Command{Cmd: []byte("release"), Tagged: true, Slot: 7, Marks: resp.Marks{Shared: 3}},
		Delivery: member.Delivery{Always: true, Late: true}, Sink: &again,
	}
	if !reflect.DeepEqual(copied, want) {
		t.Errorf("%+v\nwant %+v", copied, want)
	}
}

func TestCallIsOverWhenItsAttemptHasEnded(t *testing.T) {
	var ended atomic.Bool
	d := &member.Delivery{Ended: &ended}
	if Over(d) || Over(&member.Delivery{}) {
		t.Error("over too early")
	}
	ended.Store(true)
	if !Over(d) {
		t.Error("not over")
	}
}
