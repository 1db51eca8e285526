package quorum

import (
	"errors"
	"fmt"
	"testing"
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
			if c := (&Call{Outcome: Refused, Err: e}); c.Undelivered() != want || kind.Passes() != want {
				t.Errorf("kind %d: undelivered %v, want %v", kind, c.Undelivered(), want)
			}
		}
	}
	for outcome, want := range map[Outcome]bool{Unanswered: false, Answered: false, Unknown: true, NotSent: true} {
		if c := (&Call{Outcome: outcome, Err: errors.New("why")}); c.Undelivered() != want {
			t.Errorf("%v: undelivered %v", outcome, c.Undelivered())
		}
	}
}
