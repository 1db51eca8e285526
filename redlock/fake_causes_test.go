package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// What an error says of each member: its own last word, and no blame for one that was not asked, or not waited for.

// A call makes several attempts. What a member told one of them stands until it tells another thing.
func TestErrorOfAWaitSaysWhatEachMemberToldLast(t *testing.T) {
	const oom = "OOM command not allowed when used memory > 'maxmemory'."
	redlock.Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		names := memberNames(p.Members())
		for kind, get := range map[string]func(ctx context.Context) error{
			"Mutex":     func(ctx context.Context) error { _, err := p.Mutex("k").Lock(ctx); return err },
			"Fair":      func(ctx context.Context) error { _, err := p.Mutex("k", redlock.Fair()).Lock(ctx); return err },
			"RLock":     func(ctx context.Context) error { _, err := p.RWMutex("k").RLock(ctx); return err },
			"Semaphore": func(ctx context.Context) error { _, err := p.Semaphore("k", 2).Acquire(ctx); return err },
			"Campaign":  func(ctx context.Context) error { _, err := p.Election("k").Campaign(ctx, nil); return err },
			"Multi":     func(ctx context.Context) error { _, err := p.Multi([]string{"j", "k"}).Lock(ctx); return err },
		} {
			p.EveryLink(func(l *redistest.Link) { l.Fail(redistest.Named("EVALSHA"), -1, oom) }, 0, 1)
			for _, patience := range []time.Duration{time.Minute, 1100 * time.Millisecond} { // NoQuorumAfter is two seconds
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				err := get(ctx)
				cancel()
				rt.Says(t, err, redlock.ErrNoQuorum, names[0]+": "+oom, kind)
				require.ErrorContains(t, err, names[1]+": "+oom, kind)
				require.NotContains(t, err.Error(), names[2], "%s: it is up and votes", kind)
				p.EveryLink(func(l *redistest.Link) { l.Heal() }, 0, 1)
				require.NoError(t, p.Lock(t, "other").Unlock(t.Context()), "the next outage has all of NoQuorumAfter")
				p.EveryLink(func(l *redistest.Link) { l.Fail(redistest.Named("EVALSHA"), -1, oom) }, 0, 1)
			}
			p.EveryLink(func(l *redistest.Link) { l.Heal() }, 0, 1)
		}
	}, redlock.Quiet)
}

func memberNames(all []redlock.MemberInfo) (names []string) {
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

// A member that is up is not blamed for those that are down, and not by a call either that fails at once.
func TestErrorOfAWaitBlamesOnlyMembersThatCannotBeAsked(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		names := memberNames(p.Members())
		d.Cut(1, 2)
		for range 3 {
			_, err := p.Client.Mutex("k").Lock(t.Context())
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotContains(t, err.Error(), names[0])
			require.ErrorContains(t, err, names[1]+": ")
			require.ErrorContains(t, err, names[2]+": ")
			require.NotContains(t, err.Error(), "no answer")
			time.Sleep(time.Second)
		}
	}, redlock.Quiet)
}

func TestErrorOfACallWhoseContextEndedBlamesNobody(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		h := rt.Must(p.Lock(t, "h").Handoff())(t)
		p.Slow(20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond)
		for call, err := range map[string]error{
			"Unlock": p.Lock(t, "k").Unlock(ended), "Extend": p.Lock(t, "l").Extend(ended, 30*time.Second),
			"Leases.Unlock": allOf(t, p, "m").Unlock(ended), "SetLimit": p.Semaphore("s", 2).SetLimit(ended, 1),
			"Adopt": errOfAdopt(ended, p, h),
		} {
			rt.Says(t, err, context.Canceled, "0 of 3 members agreed, need 2 (0 refused, 0 failed or silent, 3 not waited for)", call)
			require.NotContains(t, err.Error(), "no answer", call)
		}
		require.ErrorContains(t, rt.Err(p.Mutex("n").TryLock(rt.Within(t, 10*time.Millisecond))), "3 not waited for")
	}, redlock.Quiet)
}

// A member that is silent for longer than MemberTimeout is said to be, with the time: where members are far away, that is
// what must be longer.
func TestErrorNamesTheTimeThatASilentMemberHad(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		l := p.Lock(t, "held")
		h := rt.Must(p.Lock(t, "handed off").Handoff())(t)
		p.Slow(time.Second, time.Second, time.Second)
		calls := map[string]func() error{
			"TryLock": func() error { _, err := p.Mutex("k").TryLock(t.Context()); return err },
			"Multi":   func() error { _, err := p.Multi([]string{"j", "k"}).TryLock(t.Context()); return err },
			"Extend":  func() error { return l.Extend(t.Context(), 30*time.Second) },
			"Adopt":   func() error { return errOfAdopt(t.Context(), p, h) },
			"Limit":   func() error { _, err := p.Semaphore("s", 2).Limit(t.Context()); return err },
			"Latch":   func() error { _, err := p.Latch("l", 2).Remaining(t.Context()); return err },
			"Inspect": func() error { in, err := p.Inspect(t.Context(), "k"); return errors.Join(err, in.Members[0].Err) },
			"Lock": func() error {
				ctx := rt.Within(t, 600*time.Millisecond)
				_, err := p.Mutex("k").Lock(ctx)
				return err
			},
		}
		for call, f := range calls {
			err := f()
			require.ErrorContains(t, err, ": no answer within 200ms (MemberTimeout)", call)
			require.Equal(t, call == "Lock", errors.Is(err, context.DeadlineExceeded), "%s: that of the caller alone", call)
			time.Sleep(5 * time.Second)
		}
		rt.Says(t, l.Unlock(t.Context()), redlock.ErrInDoubt, "no answer within 200ms (MemberTimeout)")
	}, redlock.Quiet)
}

// A waiter that members refused, and that then has no answer in time, is not told that there is no quorum of members that refuse.
func TestErrorOfAWaitThatNobodyAnswersSaysSo(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, _ *redistest.Cluster, p, q *redlock.Peer) {
		p.Lock(t, "k")
		q.Slow(time.Second, time.Second, time.Second)
		_, err := q.Mutex("k").Lock(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		_, refused, unsure := rt.As[*redlock.QuorumError](t, err).Counts()
		require.Less(t, refused, 2, "%v", err)
		require.Equal(t, 3, refused+unsure, "%v", err)
		time.Sleep(5 * time.Second)
	}, redlock.Quiet)
}

// A majority that agrees ends the wait, though it does so too late: the others have not had their time.
func TestErrorOfAnAdoptionThatIsLateBlamesNobody(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		h := rt.Must(p.Lock(t, "k", redlock.TTL(150*time.Millisecond)).Handoff())(t)
		p.Slow(90*time.Millisecond, 90*time.Millisecond, time.Second)
		err := errOfAdopt(t.Context(), p, h)
		require.ErrorContains(t, err, "2 of 3 members agreed too late, need 2 (0 refused, 0 failed or silent, 1 not waited for)")
	}, redlock.Quiet)
}

func errOfAdopt(ctx context.Context, p *redlock.Peer, h redlock.Handoff) error {
	_, err := p.Adopt(ctx, h)
	return err
}

// A limit of 0 is not somebody who has the lock. Who waits for it to be raised is told so in the end.
func TestLimitOfNothingIsTold(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		require.NoError(t, p.Semaphore("k", 2).SetLimit(t.Context(), 0))
		for name, c := range map[string]*caller{"who has set it": p, "another client": q} {
			for n := range 2 {
				s := c.Semaphore("k", 2, redlock.Permits(n+1))
				_, err := s.TryAcquire(t.Context())
				require.ErrorIs(t, err, redlock.ErrLimit, name)
				require.NotErrorIs(t, err, redlock.ErrHeld, name)
				require.ErrorContains(t, err, "limit in force is 0", name)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err = s.Acquire(ctx)
				cancel()
				require.ErrorIs(t, err, redlock.ErrLimit, name)
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
			}
		}
		require.NoError(t, p.Semaphore("k", 2).SetLimit(t.Context(), 1))
		l := permit(t, q, "k", 2)
		_, err := p.Semaphore("k", 2).TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NotErrorIs(t, err, redlock.ErrLimit)
		unlock(t, l)
	}, redlock.Quiet)
}
