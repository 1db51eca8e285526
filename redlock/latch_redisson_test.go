package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// What the tests of the reference system ask of its RCountDownLatch, by property, and what its users have
// met beyond them.
func TestLatchCasesOfTheReferenceSystem(t *testing.T) {
	for what, test := range map[string]func(t *testing.T, a, b *redlock.Peer){
		"await with a time-out returns when it is over, and the latch goes on": func(t *testing.T, a, b *redlock.Peer) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			at := time.Now()
			err := a.Latch("l", 1).Await(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, redlock.ErrNoQuorum, "nothing is wrong but that it is shut")
			require.Equal(t, time.Second, time.Since(at))
			require.NoError(t, b.Latch("l", 1).CountDown(t.Context()))
			require.NoError(t, a.Latch("l", 1).Await(t.Context()))
		},
		"several clients count down and others await": func(t *testing.T, a, b *redlock.Peer) {
			gates := []*gate{awaitLater(t.Context(), a.Latch("l", 10)), awaitLater(t.Context(), b.Latch("l", 10))}
			for i := range 10 {
				require.NoError(t, []*redlock.Peer{a, b}[i%2].Latch("l", 10).CountDown(t.Context()))
				require.Equal(t, 9-i, remaining(t, b.Latch("l", 10)))
			}
			for _, g := range gates {
				g.open(t)
			}
		},
		"counting down behind zero changes nothing": func(t *testing.T, a, b *redlock.Peer) {
			for range 3 {
				require.NoError(t, a.Latch("l", 1).CountDown(t.Context()))
				require.Zero(t, remaining(t, b.Latch("l", 1)))
			}
			require.NoError(t, b.Latch("l", 1).Await(t.Context()))
		},
		"the count that was set first stays": func(t *testing.T, a, b *redlock.Peer) {
			require.NoError(t, a.Latch("l", 2).CountDown(t.Context()))
			synctest.Wait() // every member has it
			require.ErrorIs(t, b.Latch("l", 5).CountDown(t.Context()), redlock.ErrConflict)
			require.Equal(t, 1, remaining(t, b.Latch("l", 0)))
		},
		"a latch that is not set does not open, and neither does one that has expired": func(t *testing.T, a, b *redlock.Peer) {
			g := awaitLater(t.Context(), a.Latch("l", 2))
			g.shut(t)
			short := b.Latch("other", 2, redlock.Life(time.Second))
			require.NoError(t, short.CountDown(t.Context()))
			time.Sleep(2 * time.Second)
			other := awaitLater(t.Context(), a.Latch("other", 2))
			other.shut(t)
			for range 2 {
				require.NoError(t, b.Latch("l", 2).CountDown(t.Context()))
			}
			g.open(t)
			require.NoError(t, a.Latch("other", 2).Arrive(t.Context(), "x"))
			require.NoError(t, a.Latch("other", 2).Arrive(t.Context(), "y"))
			other.open(t)
		},
		"a deletion opens nothing": func(t *testing.T, a, b *redlock.Peer) {
			g := awaitLater(t.Context(), a.Latch("l", 1))
			synctest.Wait()
			require.NoError(t, b.Latch("l", 1).Delete(t.Context()))
			time.Sleep(5 * time.Second)
			g.shut(t)
			require.NoError(t, b.Latch("l", 1).CountDown(t.Context()))
			g.open(t)
		},
		"a count down that is repeated after an error counts once, if it has a name": func(t *testing.T, a, b *redlock.Peer) {
			for i := range 3 {
				a.EveryLink(func(l *redistest.Link) { l.Pause() })
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				if err := a.Latch("l", 2).Arrive(ctx, "part"); i == 0 { // later it may know that it has counted
					require.Error(t, err)
				}
				cancel()
				a.EveryLink(func(l *redistest.Link) { l.Resume() })
			}
			require.NoError(t, a.Latch("l", 2).Arrive(t.Context(), "part"))
			require.Equal(t, 1, remaining(t, b.Latch("l", 2)))
		},
		"many wait in one client, and all are told": func(t *testing.T, a, b *redlock.Peer) {
			var gates []*gate
			for range 200 {
				gates = append(gates, awaitLater(t.Context(), a.Latch("l", 3)))
			}
			for i := range 3 {
				require.NoError(t, b.Latch("l", 3).Arrive(t.Context(), fmt.Sprint(i)))
			}
			for _, g := range gates {
				g.open(t)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			redlock.Pair(t, 3, func(t *testing.T, _ *redistest.Cluster, a, b *redlock.Peer) { test(t, a, b) }, redlock.Quiet)
		})
	}
}
