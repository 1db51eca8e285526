package member

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seen is a Sink, and a Hop, that remembers whom it was told of.
type seen struct{ calls []*Call }

func (s *seen) Done(c *Call) { s.calls = append(s.calls, c) }

func TestHopIsToldInPlaceOfTheSink(t *testing.T) {
	var sink, hop seen
	c := &Call{Sink: &sink, Hop: &hop}
	c.Finish()
	if len(sink.calls) != 0 || len(hop.calls) != 1 || hop.calls[0] != c {
		t.Errorf("told: sink %d, hop %d", len(sink.calls), len(hop.calls))
	}
	c.Hop = nil
	c.Finish()
	if len(sink.calls) != 1 || len(hop.calls) != 1 {
		t.Errorf("told: sink %d, hop %d", len(sink.calls), len(hop.calls))
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
