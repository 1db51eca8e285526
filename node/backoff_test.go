package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/stretchr/testify/require"
)

// A server that answers thousands takes longer than DialTimeout for each. Its clients must not begin anew for ever.
func TestAttemptIsGivenMoreTimeWhereTheServerAcceptsAndIsSlow(t *testing.T) {
	for _, tc := range []struct {
		slow  time.Duration
		dials int // until it is up; 0: never
	}{{900 * time.Millisecond, 1}, {1900 * time.Millisecond, 2}, {3900 * time.Millisecond, 3}, {4100 * time.Millisecond, 0}} {
		t.Run(fmt.Sprint(tc.slow), faketime.In(func(t *testing.T) {
			f := newFake(slow("CLIENT ID", tc.slow))
			n := start(t, Config{Dialer: f})
			time.Sleep(time.Minute)
			require.Equal(t, tc.dials > 0, n.State().Up)
			if tc.dials > 0 {
				require.Len(t, f.dialled(), tc.dials)
			}
			_ = n.Close(t.Context())
			time.Sleep(tc.slow) // the server ends
		}))
	}
}

func TestPatienceGrowsOnlyWithAttemptsThatWereAccepted(t *testing.T) {
	late := fmt.Errorf("handshake: %w", context.DeadlineExceeded)
	for _, tc := range []struct {
		err  error
		from int
		want int
	}{
		{late, 0, 1}, {late, 1, 2}, {nil, 2, 0},
		{&dialError{"TLS: ", context.DeadlineExceeded}, 1, 2},
		{&dialError{"", context.DeadlineExceeded}, 1, 0},
		{errConnecting, 1, 0},
	} {
		require.Equal(t, tc.want, slower(tc.from, tc.err), "after %d and %v", tc.from, tc.err)
	}
	for k, want := range []time.Duration{1, 2, 4, 4, 4} {
		require.Equal(t, want*time.Second, patience(k, time.Second), "after %d", k)
	}
}
