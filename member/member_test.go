package member

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/resp"
)

// Only what a server may execute later is sent again: never what was answered, nor what it forbids or does not know.
func TestUndeliveredIsWhatMayStillBeExecuted(t *testing.T) {
	passes := map[Kind]bool{
		KindOther: false, KindForeign: false, KindForgot: false, KindAuth: false,
		KindNoScript: true, KindReadOnly: true, KindLoading: true, KindBusy: true, KindOverloaded: true, KindCluster: true,
	}
	for kind, want := range passes {
		err := error(&ReplyError{Kind: kind, Text: "text"})
		for _, e := range []error{err, fmt.Errorf("sent elsewhere: %w", err)} {
			if r := (&Result{Outcome: Refused, Err: e}); r.Undelivered() != want || kind.Passes() != want {
				t.Errorf("kind %d: undelivered %v, want %v", kind, r.Undelivered(), want)
			}
		}
	}
	for outcome, want := range map[Outcome]bool{Unanswered: false, Answered: false, Unknown: true, NotSent: true} {
		if r := (&Result{Outcome: outcome, Err: errors.New("why")}); r.Undelivered() != want {
			t.Errorf("%v: undelivered %v", outcome, r.Undelivered())
		}
	}
}

// seen is a Sink, and a Hop, that remembers whom it was told of.
type seen struct{ calls []*Call }

func (s *seen) Done(c *Call) { s.calls = append(s.calls, c) }
func (s *seen) Asking() bool { return true }

func TestHopIsToldInPlaceOfTheSink(t *testing.T) {
	var sink, hop seen
	c := &Call{Sink: &sink, Hop: &hop}
	if !c.Asking() {
		t.Error("the hop asks")
	}
	c.Finish()
	if len(sink.calls) != 0 || len(hop.calls) != 1 || hop.calls[0] != c {
		t.Errorf("told: sink %d, hop %d", len(sink.calls), len(hop.calls))
	}
	c.Hop = nil
	if c.Asking() {
		t.Error("nobody asks")
	}
	c.Finish()
	if len(sink.calls) != 1 || len(hop.calls) != 1 {
		t.Errorf("told: sink %d, hop %d", len(sink.calls), len(hop.calls))
	}
}

// What is owed outlives the call: its owner uses the bytes again, and its batch has gone.
func TestReleaseThatIsSentAgainSharesNothingWithItsCall(t *testing.T) {
	var ended atomic.Bool
	var first, again seen
	c := &Call{
		Command:  Command{Cmd: []byte("release"), Tagged: true, Slot: 7, Marks: resp.Marks{Shared: 3}, Item: &resp.Item{Batch: "a script", Kind: resp.ReleaseItem}},
		Delivery: Delivery{Always: true, OweUntil: time.Now(), Ended: &ended},
		Sink:     &first, Index: 2, Hop: &first, Result: Result{Outcome: NotSent, Err: ErrDown},
	}
	copied := c.Again(&again)
	clear(c.Cmd)
	want := Call{
		Command:  Command{Cmd: []byte("release"), Tagged: true, Slot: 7, Marks: resp.Marks{Shared: 3}},
		Delivery: Delivery{Always: true, Late: true}, Sink: &again,
	}
	if !reflect.DeepEqual(copied, want) {
		t.Errorf("%+v\nwant %+v", copied, want)
	}
}

func TestCallIsOverWhenItsAttemptHasEnded(t *testing.T) {
	var ended atomic.Bool
	d := Delivery{Ended: &ended}
	if d.Over() || (&Delivery{}).Over() {
		t.Error("over too early")
	}
	ended.Store(true)
	if !d.Over() {
		t.Error("not over")
	}
}

func TestQuarantineSaysWhatItWaitsFor(t *testing.T) {
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for want, e := range map[string]*QuarantineError{
		"member is in quarantine":                                                    {},
		"member is in quarantine until its counters are restored":                    {Restoring: true},
		"member is in quarantine until 12:00:00":                                     {Until: noon},
		"member is in quarantine until 12:00:00 and until its counters are restored": {Until: noon, Restoring: true},
	} {
		require.EqualError(t, e, want)
		require.ErrorIs(t, e, ErrQuarantined)
	}
}

func TestMajoritiesShareAVoter(t *testing.T) {
	for n := 1; n <= 100; n++ {
		require.Greater(t, 2*Majority(n), n, "two majorities of %d must meet", n)
		require.LessOrEqual(t, Majority(n), n)
		require.LessOrEqual(t, 2*(Majority(n)-1), n, "%d: no more than needed", n)
	}
}
