package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/stretchr/testify/require"
)

// queueing takes turns, and tells who has them.
type queueing struct {
	t    *testing.T
	all  turns
	has  map[int]func() // ends the turn
	told chan turn
}

type turn struct {
	who  int // negative: was sent away
	done func()
}

// ask has somebody ask for a turn.
func (q *queueing) ask(ctx context.Context, who int, hurry <-chan struct{}, addr string) {
	q.t.Helper()
	go func() {
		done, ok := q.all.take(ctx, hurry, addr)
		if !ok {
			who = -who
		}
		q.told <- turn{who, done}
	}()
	synctest.Wait() // so that nobody overtakes
}

// got are those that have been answered since got was called last: who has a turn now, and negative who was sent away.
func (q *queueing) got() (who []int) {
	synctest.Wait()
	for len(q.told) > 0 {
		a := <-q.told
		q.has[a.who] = a.done
		who = append(who, a.who)
	}
	slices.Sort(who)
	return who
}

func (q *queueing) want(want ...int) {
	q.t.Helper()
	got := q.got()
	require.Equal(q.t, want, got, "answered: %v, want %v", got, want)
}

func turning(t *testing.T, limit int, f func(t *testing.T, q *queueing)) {
	faketime.Test(t, func(t *testing.T) {
		q := &queueing{t: t, all: turns{limit: limit}, has: map[int]func(){}, told: make(chan turn, 100)}
		f(t, q)
		require.Empty(t, q.all.at, "%d servers are kept when nobody has a turn", len(q.all.at))
	})
}

func TestTurnsAreGivenInOrderAndEachServerHasItsOwn(t *testing.T) {
	turning(t, 2, func(t *testing.T, q *queueing) {
		for who := 1; who <= 5; who++ {
			q.ask(t.Context(), who, nil, "a")
		}
		q.ask(t.Context(), 6, nil, "b")
		q.want(1, 2, 6)
		q.has[2]()
		q.want(3)
		q.has[1]()
		q.want(4)
		q.has[3]()
		q.has[4]()
		q.want(5)
		q.has[5]()
		q.has[6]()
		q.want()
	})
}

func TestTurnIsNotWaitedForInAHurryNorBehindTheEnd(t *testing.T) {
	turning(t, 1, func(t *testing.T, q *queueing) {
		hurry := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		q.ask(t.Context(), 1, nil, "a")
		q.ask(ctx, 2, nil, "a")
		q.ask(t.Context(), 3, hurry, "a")
		q.ask(t.Context(), 4, nil, "a")
		q.want(1)
		cancel()
		q.want(-2)
		close(hurry)
		q.want(3)
		q.has[1]() // 3 has one beyond the limit
		q.want()
		q.has[3]()
		q.want(4)
		q.has[4]()
	})
}

func TestTurnIsNotLostBetweenGivingAndGoing(t *testing.T) {
	for range 100 {
		turning(t, 1, func(t *testing.T, q *queueing) {
			ctx, cancel := context.WithCancel(t.Context())
			q.ask(t.Context(), 1, nil, "a")
			q.ask(ctx, 2, nil, "a")
			q.want(1)
			cancel()
			q.has[1]()
			if who := q.got(); who[0] == 2 {
				q.has[2]()
			}
		})
	}
}

func TestNodeShakesHandsWhenItIsItsTurn(t *testing.T) {
	s := startRedis(t)
	addr := "tcp " + s.Addr()
	var others []func()
	for range handshakes {
		done, _ := every.take(t.Context(), nil, addr)
		others = append(others, done)
	}
	waiting := func() int {
		every.mu.Lock()
		defer every.mu.Unlock()
		return every.at[addr].waiting.Len()
	}
	n := start(t, Config{Addr: s.Addr()})
	closing := start(t, Config{Addr: s.Addr()})
	until(t, "both wait", func() bool { return waiting() == 2 })
	owed := newCall("SADD", "released", "a")
	owed.OweUntil = time.Now().Add(time.Minute)
	closing.Submit(&owed.Call)
	require.NoError(t, closing.Close(patient(t)))
	require.Equal(t, "1", s.cli("SCARD", "released"), "who closes pays what is owed, and does not wait for its turn")
	require.Equal(t, 1, waiting())
	require.False(t, n.State().Up)
	for _, done := range others {
		done()
	}
	until(t, "up", func() bool { return n.State().Up })
	until(t, "the turn is over", func() bool {
		every.mu.Lock()
		defer every.mu.Unlock()
		return every.at[addr] == nil
	})
}

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
