package member

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
