package redlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// What callers see: arguments that cannot work, calls after the end, re-entry, hand-off, errors, events.

func TestArgumentsThatCannotWorkAreNamed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		evals := p.links[0].Call(redistest.Named("EVALSHA"), -1, func([]string) {})
		ctx := t.Context()
		for _, tc := range []struct {
			name    string
			opts    []LockOption
			ctx     context.Context
			problem string
		}{
			{"k", nil, nil, "nil context"},
			{"", nil, ctx, "empty"},
			{strings.Repeat("x", 1025), nil, ctx, "1025 bytes"},
			{"redquorum:tokens", nil, ctx, "library's own"},
			{"k", []LockOption{TTL(0)}, ctx, "not positive"},
			{"k", []LockOption{TTL(-time.Second)}, ctx, "not positive"},
			{"k", []LockOption{TTL(time.Nanosecond)}, ctx, "no validity"},
			{"k", []LockOption{TTL(2 * time.Millisecond)}, ctx, "no validity"},
			{"k", []LockOption{TTL(31 * time.Second)}, ctx, "MaxTTL"},
			{"k", []LockOption{AutoRenew(0)}, ctx, "not positive"},
		} {
			m := p.Mutex(tc.name, tc.opts...)
			for op, call := range map[string]func() error{
				"Lock":    func() error { _, err := m.Lock(tc.ctx); return err },
				"TryLock": func() error { _, err := m.TryLock(tc.ctx); return err },
				"Do": func() error {
					return m.Do(tc.ctx, func(context.Context, *Lease) error { t.Error("called"); return nil })
				},
			} {
				err := call()
				require.ErrorIs(t, err, ErrInput, op)
				require.ErrorContains(t, err, tc.problem, op)
				var in *InputError
				require.ErrorAs(t, err, &in)
			}
		}
		require.Zero(t, evals.Hits(), "no member was asked")

		l := p.lock(t, "k")
		var none context.Context
		require.ErrorIs(t, l.Unlock(none), ErrInput)
		require.ErrorIs(t, l.Extend(none, time.Second), ErrInput)
		require.ErrorIs(t, l.Extend(ctx, 0), ErrInput)
		require.ErrorIs(t, l.Extend(ctx, time.Minute), ErrInput)
		_, err := p.Adopt(none, Handoff{})
		require.ErrorIs(t, err, ErrInput)
		_, err = p.Adopt(ctx, Handoff{})
		require.ErrorIs(t, err, ErrInput)
		require.NoError(t, l.Err(), "a mistake ends no lease")
		require.NoError(t, l.Unlock(ctx))
	})
}

func TestAnyBytesAreAName(t *testing.T) {
	all := string(func() (b []byte) {
		for i := range 256 {
			b = append(b, byte(i))
		}
		return b
	}())
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		two := peers(t, cluster, 2, quiet)
		for _, name := range []string{"\x00", " ", "\r\n", "{", "}", "{}", "{}x", "a{b}c", "}{", "{{x}}", all, strings.Repeat("ü", 512)} {
			l := two[0].hold(t, name)
			require.Equal(t, name, l.Key())
			waiting := two[1].lockLater(t.Context(), name)
			synctest.Wait()
			require.True(t, waiting.pending(), "%q", name)
			require.NoError(t, l.Unlock(t.Context()))
			next := waiting.get(t)
			require.Greater(t, next.Token(), l.Token())
			require.NoError(t, next.Unlock(t.Context()))
			synctest.Wait()
			leftovers(t, cluster)
		}
	})
}

func TestCloseEndsLeasesAndWaits(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		tr := &tracer{}
		p, other := join(t, cluster, WithTracer(tr)), join(t, cluster)
		theirs := other.hold(t, "theirs")
		l := p.hold(t, "k", TTL(20*time.Second))
		h, err := p.lock(t, "handed").Handoff()
		require.NoError(t, err)
		waiting := p.lockLater(t.Context(), "theirs")
		inLine := p.lockLater(t.Context(), "theirs")
		behind := p.lockLater(t.Context(), "k")
		synctest.Wait()
		start := time.Now()
		require.NoError(t, p.Close())
		require.Zero(t, time.Since(start))
		for _, w := range []*locking{waiting, inLine, behind} {
			<-w.done
			require.ErrorIs(t, w.err, ErrClosed)
		}
		require.ErrorIs(t, l.Err(), ErrClosed)
		require.ErrorIs(t, l.Err(), ErrLost)
		require.ErrorIs(t, context.Cause(l.Context()), ErrClosed)
		require.ErrorIs(t, l.Unlock(t.Context()), ErrClosed)
		require.Equal(t, LostClosed, tr.losses()[0].Reason)

		_, err = p.Mutex("k").Lock(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		_, err = p.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		_, err = p.Adopt(t.Context(), h)
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, p.Close(), "twice")

		require.NoError(t, theirs.Err())
		require.NoError(t, theirs.Unlock(t.Context()))
		require.NoError(t, other.lock(t, "k").Unlock(t.Context()), "at once")
		time.Sleep(30 * time.Second) // what was handed off has nobody
		leftovers(t, cluster)
	})
}

func TestCloseReturnsWhileMembersHangAndLeavesNoGoroutine(t *testing.T) {
	for _, hung := range [][]int{{0}, {0, 1, 2}} {
		bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
			join(t, cluster).Close()
			synctest.Wait()
			before := runtime.NumGoroutine()
			p := join(t, cluster)
			p.hold(t, "k")
			cluster.Pause(hung...)
			waiting := p.lockLater(t.Context(), "k")
			synctest.Wait()
			start := time.Now()
			require.NoError(t, p.Close())
			require.LessOrEqual(t, time.Since(start), 3*time.Second)
			<-waiting.done
			cluster.Resume()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.LessOrEqual(t, runtime.NumGoroutine(), before)
			time.Sleep(30 * time.Second)
			leftovers(t, cluster)
		})
	}
}

func TestLeaseIsUnlockedOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		l := p.lock(t, "k")
		ctx := l.Context()
		require.NoError(t, l.Unlock(t.Context()))
		require.ErrorIs(t, l.Err(), ErrReleased)
		require.ErrorIs(t, context.Cause(ctx), ErrReleased)
		next := p.hold(t, "k")
		require.ErrorIs(t, l.Unlock(t.Context()), ErrNotHeld)
		require.ErrorIs(t, l.Extend(t.Context(), time.Second), ErrNotHeld)
		_, err := l.Handoff()
		require.ErrorIs(t, err, ErrNotHeld)
		require.NoError(t, next.Err())
		require.Equal(t, 3, votesAt(cluster, next), "the next lease is not touched by that")
	})
}

func TestUnlockOfALeaseThatAMajorityNoLongerHasSaysSo(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		l := p.hold(t, "k")
		steal(t, cluster, "k", time.Minute, 0, 1)
		require.NoError(t, l.Unlock(t.Context()), "a majority had it")
		l = p.hold(t, "j")
		steal(t, cluster, "j", time.Minute, 0, 1, 2)
		require.ErrorIs(t, l.Unlock(t.Context()), ErrLost)
		synctest.Wait()
		for i, left := range []int64{1, 1, 1, 0, 0} {
			require.Equal(t, left, admin(t, cluster.Servers[i], "EXISTS", "j"), "only our own was deleted")
		}
	})
}

func TestHandedOffLeaseGoesOnElsewhere(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p, other := join(t, cluster), join(t, cluster)
		l := p.hold(t, "k", AutoRenew(9*time.Second))
		h, err := l.Handoff()
		require.NoError(t, err)
		require.ErrorIs(t, l.Err(), ErrHandedOff)
		require.ErrorIs(t, l.Unlock(t.Context()), ErrNotHeld)
		for _, shown := range []string{fmt.Sprint(h), fmt.Sprintf("%v %+v %#v %s", h, h, h, &h)} {
			require.NotContains(t, shown, UUID(p.Client))
		}
		back, err := ParseHandoff(h.Secret())
		require.NoError(t, err)
		require.Equal(t, h, back)

		time.Sleep(5 * time.Second)
		start := time.Now()
		adopted, err := other.Adopt(t.Context(), back)
		require.NoError(t, err)
		require.Equal(t, l.Token(), adopted.Token())
		require.Equal(t, start.Add(validity(9*time.Second)), adopted.ValidUntil())
		time.Sleep(time.Minute)
		require.NoError(t, adopted.Err(), "renewed by its new holder")
		_, err = p.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrHeld)

		again, err := p.Adopt(t.Context(), back) // a mistake, and found out
		require.NoError(t, err)
		require.NoError(t, adopted.Unlock(t.Context()))
		synctest.Wait()
		leftovers(t, cluster)
		<-again.Done()
		require.Equal(t, LostRefused, lostFor(again))
		synctest.Wait()
		leftovers(t, cluster)
		_, err = other.Adopt(t.Context(), back)
		require.ErrorIs(t, err, ErrNotHeld)
	})
}

func TestHandoffThatNobodyAdoptsEndsWithItsTTL(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		l := p.hold(t, "k", TTL(9*time.Second))
		time.Sleep(4 * time.Second)
		h, err := l.Handoff()
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		_, err = p.Adopt(t.Context(), h)
		require.ErrorIs(t, err, ErrNotHeld)
		leftovers(t, cluster)
	})
}

// Data of another kind under the name: tolerated at a minority, reported at a majority, never waited for.
func TestKeyThatIsNoLockIsReported(t *testing.T) {
	for kind, cmds := range map[string][][]string{
		"string":   {{"SET", "k", "x"}},
		"with TTL": {{"SET", "k", "x", "PX", "60000"}},
		"list":     {{"RPUSH", "k", "x"}},
		"no TTL":   {{"HSET", "k", "somebody:1", "1"}},
	} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
				p := join(t, cluster)
				for i := range 3 {
					if i == 2 {
						l := p.hold(t, "k")
						require.Equal(t, 3, l.Votes(), "a minority is tolerated")
						require.NoError(t, l.Unlock(t.Context()))
						synctest.Wait()
					}
					for _, cmd := range cmds {
						admin(t, cluster.Servers[i], cmd...)
					}
				}
				start := time.Now()
				_, err := p.Mutex("k").TryLock(t.Context())
				require.ErrorIs(t, err, ErrForeignKey)
				require.NotErrorIs(t, err, ErrHeld)
				_, err = p.Mutex("k").Lock(t.Context())
				require.ErrorIs(t, err, ErrForeignKey)
				require.Less(t, time.Since(start), 10*time.Millisecond)

				// It comes up while somebody waits.
				held := p.hold(t, "j")
				waiting := p.lockLater(t.Context(), "j")
				other := join(t, cluster)
				theirs := other.lockLater(t.Context(), "j")
				time.Sleep(100 * time.Millisecond)
				for i := range 3 {
					admin(t, cluster.Servers[i], "DEL", "j")
					for _, cmd := range cmds {
						cmd = slices.Clone(cmd)
						cmd[1] = "j"
						admin(t, cluster.Servers[i], cmd...)
					}
				}
				<-theirs.done
				require.ErrorIs(t, theirs.err, ErrForeignKey)
				require.Error(t, held.Unlock(t.Context()))
				<-waiting.done
				require.ErrorIs(t, waiting.err, ErrForeignKey)
			})
		})
	}
}

func TestSilenceIsNotReportedAsHeld(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refused []int
		dead    []int
		want    error
	}{
		{"all refuse", []int{0, 1, 2, 3, 4}, nil, ErrHeld},
		{"a majority refuses, the rest is dead", []int{0, 1, 2}, []int{3, 4}, ErrHeld},
		{"a majority is dead, the rest refuses", []int{0, 1}, []int{2, 3, 4}, ErrNoQuorum},
		{"all dead", nil, []int{0, 1, 2, 3, 4}, ErrNoQuorum},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
				p := join(t, cluster)
				steal(t, cluster, "k", time.Hour, tc.refused...)
				if len(tc.dead) > 0 {
					cluster.Kill(tc.dead...)
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, try := p.Mutex("k").TryLock(ctx)
				_, lock := p.Mutex("k").Lock(ctx)
				for _, err := range []error{try, lock} {
					for _, kind := range []error{ErrHeld, ErrNoQuorum, ErrForeignKey, ErrTooSlow} {
						require.Equal(t, kind == tc.want, errors.Is(err, kind), "%v: %v", kind, err)
					}
					var q *QuorumError
					require.ErrorAs(t, err, &q)
					require.Len(t, q.Votes, 5)
					require.Equal(t, 3, q.Need)
					require.Equal(t, "k", q.Key)
				}
				require.Equal(t, tc.want == ErrHeld, errors.Is(lock, context.DeadlineExceeded))
				if len(tc.dead) == 0 {
					require.NotContains(t, try.Error(), "no answer", "who was not waited for is not blamed")
				}
				if len(tc.dead) > 0 {
					require.ErrorIs(t, try, member.ErrDown, "each member's cause can be asked for")
				}
			})
		})
	}
}

// Everything that can go wrong, and no word of it tells who holds what.
func TestNoErrorOrLogTellsAnOwner(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		var mu sync.Mutex
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(b)
		}), &slog.HandlerOptions{Level: slog.LevelDebug}))
		tr := &tracer{}
		p, other := join(t, cluster, WithLogger(logger), WithTracer(tr)), join(t, cluster)
		var said []string
		note := func(err error) {
			require.Error(t, err)
			said = append(said, err.Error(), fmt.Sprintf("%+v %#v", err, err))
			for u := errors.Unwrap(err); u != nil; u = errors.Unwrap(u) {
				said = append(said, u.Error())
			}
		}
		try := func(name string, opts ...LockOption) error {
			_, err := p.Mutex(name, opts...).TryLock(t.Context())
			return err
		}
		other.hold(t, "held")
		note(try("held"))
		admin(t, cluster.Servers[0], "SET", "foreign", "x")
		admin(t, cluster.Servers[1], "SET", "foreign", "x")
		note(try("foreign"))
		_, err := p.Mutex("foreign").Lock(t.Context())
		note(err)
		skew(t, cluster, "raise", 5, 7, 9)
		p.slow(time.Millisecond, time.Millisecond, time.Millisecond)
		p.everyLink(func(l *redistest.Link) { l.Fail(redistest.WithArg(script.Raise.SHA), 1, "ERR "+UUID(p.Client)[:3]) })
		note(try("raise"))
		note(try("slow", TTL(3*time.Millisecond)))
		p.everyLink(func(l *redistest.Link) { l.Fail(redistest.WithArg(script.Acquire.SHA), 1, "LOADING loading") })
		note(try("loading"))
		l := p.hold(t, "stolen", AutoRenew(3*time.Second))
		steal(t, cluster, "stolen", time.Minute, 0, 1, 2)
		<-l.Done()
		note(l.Err())
		note(l.Unlock(t.Context()))
		l = p.hold(t, "doubt")
		h := p.hold(t, "handed")
		cluster.Pause()
		note(l.Extend(t.Context(), 30*time.Second))
		note(l.Unlock(t.Context()))
		note(l.Unlock(t.Context()))
		note(try("silent"))
		handed, err := h.Handoff()
		require.NoError(t, err)
		said = append(said, fmt.Sprintf("%v %+v %#v", handed, handed, handed))
		_, err = p.Adopt(t.Context(), handed)
		note(err)
		cluster.Kill()
		synctest.Wait()
		note(try("down"))
		_, err = p.Mutex("down").Lock(t.Context())
		note(err)
		_ = p.Close()
		note(try("closed"))
		mu.Lock()
		said = append(said, log.String())
		mu.Unlock()
		tr.mu.Lock()
		said = append(said, fmt.Sprintf("%+v %+v %+v %v %v", tr.starts, tr.ends, tr.lost, tr.released, tr.members))
		tr.mu.Unlock()
		require.NotEmpty(t, log.String())
		for _, s := range said {
			require.NotContains(t, strings.ReplaceAll(s, `c:(*redlock.Client)`, ""), UUID(p.Client))
			require.NotContains(t, s, UUID(other.Client))
		}
	})
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestSameOwnerEntersAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p, other := join(t, cluster), join(t, cluster)
		m := p.Mutex("k", As("job 7"))
		first, err := m.Lock(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		evals := p.count(script.Acquire)
		again, err := p.Mutex("k", As("job 7")).TryLock(t.Context())
		require.NoError(t, err)
		require.Same(t, first, again)
		third, err := m.Lock(t.Context())
		require.NoError(t, err)
		require.Same(t, first, third)
		require.Equal(t, []int{0, 0, 0}, hits(evals), "the members see one hold")

		for _, m := range []*Mutex{p.Mutex("k"), p.Mutex("k", As("job 8")), other.Mutex("k", As("job 7"))} {
			_, err := m.TryLock(t.Context())
			require.ErrorIs(t, err, ErrHeld, "only the same owner of the same client")
		}
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, first.Err())
		require.Equal(t, 3, votesAt(cluster, first), "as many unlocks as locks")
		require.NoError(t, first.Unlock(t.Context()))
		require.ErrorIs(t, first.Unlock(t.Context()), ErrNotHeld)
		synctest.Wait()
		leftovers(t, cluster)

		next, err := m.Lock(t.Context())
		require.NoError(t, err)
		require.NotSame(t, first, next)
		synctest.Wait()
		steal(t, cluster, "k", 15*time.Second, 0, 1, 2)
		<-next.Done()
		_, err = m.TryLock(t.Context())
		require.ErrorIs(t, err, ErrHeld, "a lost lease is not entered again")
	})
}

// Two goroutines of one owner ask at the same time: one gets the lock, the other gets its lease, without
// waiting behind it.
func TestSameOwnerInLineEntersWithTheFirst(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p, other := join(t, cluster), join(t, cluster)
		held := other.hold(t, "k")
		one, two := p.lockLater(t.Context(), "k", As("me")), p.lockLater(t.Context(), "k", As("me"))
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, held.Unlock(t.Context()))
		require.Same(t, one.get(t), two.get(t))
		require.NoError(t, one.lease.Unlock(t.Context()))
		require.NoError(t, one.lease.Err())
		require.NoError(t, two.lease.Unlock(t.Context()))
		synctest.Wait()
		leftovers(t, cluster)
	})
}

func TestWithoutAnOwnerASecondLockWaits(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		p.hold(t, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Mutex("k").Lock(ctx)
		require.ErrorIs(t, err, ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestDoRunsWhileTheLockIsHeld(t *testing.T) {
	type key struct{}
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		ctx := context.WithValue(t.Context(), key{}, "value")
		boom := errors.New("boom")

		var inside context.Context
		err := p.Mutex("k").Do(ctx, func(ctx context.Context, l *Lease) error {
			inside = ctx
			require.NoError(t, ctx.Err())
			require.Equal(t, "value", ctx.Value(key{}))
			require.Equal(t, "value", l.Context().Value(key{}))
			require.Positive(t, l.Token())
			require.NoError(t, l.Err())
			return boom
		})
		require.ErrorIs(t, err, boom)
		require.ErrorIs(t, inside.Err(), context.Canceled)
		synctest.Wait()
		leftovers(t, cluster)

		// The lease is lost meanwhile: the context ends, with the cause, and both errors come back.
		err = p.Mutex("k", TTL(time.Second)).Do(ctx, func(ctx context.Context, l *Lease) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), ErrLost)
			return boom
		})
		require.ErrorIs(t, err, boom)
		require.ErrorIs(t, err, ErrLost)

		// The caller's context ends: the work does, and the lock is freed all the same.
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err = p.Mutex("k").Do(short, func(ctx context.Context, l *Lease) error {
			<-ctx.Done()
			require.NoError(t, l.Err())
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		leftovers(t, cluster)

		require.PanicsWithValue(t, "oh", func() {
			_ = p.Mutex("k").Do(ctx, func(context.Context, *Lease) error { panic("oh") })
		})
		synctest.Wait()
		leftovers(t, cluster)

		other := join(t, cluster)
		other.hold(t, "k")
		require.ErrorIs(t, p.Mutex("k").Do(short, func(context.Context, *Lease) error { t.Error("called"); return nil }), context.DeadlineExceeded)
	})
}

func TestTheLeaseOutlivesTheContextThatAskedForIt(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		ctx, cancel := context.WithCancel(t.Context())
		l, err := p.Mutex("k").Lock(ctx)
		require.NoError(t, err)
		cancel()
		time.Sleep(2 * time.Minute)
		require.NoError(t, l.Err())
		require.NoError(t, l.Context().Err())
		require.NoError(t, l.Unlock(context.WithoutCancel(ctx)))
	})
}

func TestCallWithAContextThatHasEndedAsksNobody(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		evals := p.links[0].Call(redistest.Named("EVALSHA"), -1, func([]string) {})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := p.Mutex("k").TryLock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		_, err = p.Mutex("k").Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Zero(t, evals.Hits())
	})
}

func TestTracerHearsWhatHappens(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		tr := &tracer{}
		p := join(t, cluster, WithTracer(tr))
		synctest.Wait()
		require.Len(t, tr.members, 3, "each came up once")
		p.slow(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond)
		skew(t, cluster, "k", 5, 5, 5)
		l := p.hold(t, "k", AutoRenew(3*time.Second))
		require.Equal(t, []AcquireStart{{Key: "k", Kind: KindMutex, TTL: 3 * time.Second}}, tr.starts)
		end := tr.last()
		require.GreaterOrEqual(t, end.Votes, 2)
		end.Votes = 0
		require.Equal(t, AcquireEnd{Key: "k", Kind: KindMutex, Token: 6, Elapsed: 10 * time.Millisecond, Validity: validity(3*time.Second) - 10*time.Millisecond}, end)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 2, tr.renewals())
		_, err := p.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrHeld)
		require.True(t, tr.starts[1].Try)
		require.Equal(t, err, tr.last().Err)
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, []string{"mutex k <nil>"}, tr.released)
		l = p.hold(t, "k", TTL(time.Second))
		<-l.Done()
		synctest.Wait()
		require.Len(t, tr.losses(), 1)
		require.Equal(t, "k", tr.losses()[0].Key)
		require.Equal(t, KindMutex, tr.losses()[0].Kind)
		require.Equal(t, l.Token(), tr.losses()[0].Token)
		require.Equal(t, l.ValidUntil(), tr.losses()[0].Until)
		cluster.Kill(1)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, cluster.Servers[1].Addr()+" false", tr.members[3])
		_, _ = p.Mutex("").Lock(t.Context())
		require.Len(t, tr.starts, 3, "a mistake in the arguments is no acquisition")
		require.Len(t, tr.ends, 3)
	})
}

// Two of three addresses lead to one server: it votes once.
func TestMemberThatIsListedTwiceVotesOnce(t *testing.T) {
	bubble(t, 2, func(t *testing.T, cluster *redistest.Cluster) {
		var members []member.Member
		for i, s := range []redistest.Server{cluster.Servers[0], cluster.Servers[1], cluster.Servers[1]} {
			n, err := node.New(node.Config{Network: "tcp", Addr: fmt.Sprintf("member%d:1", i), Dialer: s.Path(), Scripts: Scripts()})
			require.NoError(t, err)
			members = append(members, n)
		}
		c, err := New(members)
		require.NoError(t, err)
		defer c.Close()
		p := &peer{Client: c}
		time.Sleep(time.Second)
		l := p.hold(t, "k")
		require.Equal(t, 2, l.Votes())
		require.NoError(t, l.Unlock(t.Context()))
		cluster.Kill(0)
		synctest.Wait()
		_, err = p.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrNoQuorum, "one server is no majority of three")
	})
}

// Tokens are numbers of scripts, which are exact below 2^53: the last ones are given out one by one, and then none, with
// an error that says so, to who asks once and to who waits.
func TestTokensAreNeverEqualAtTheEndOfTheirRange(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p, other := join(t, cluster), join(t, cluster)
		skew(t, cluster, "k", 1<<53-3, 1<<53-3, 1<<53-3)
		for want := uint64(1<<53 - 2); want < 1<<53; want++ {
			l := p.hold(t, "k")
			require.Equal(t, want, l.Token())
			if want == 1<<53-1 {
				waiting := other.lockLater(t.Context(), "k")
				synctest.Wait()
				require.NoError(t, l.Unlock(t.Context()))
				<-waiting.done
				require.ErrorIs(t, waiting.err, ErrTokensExhausted)
				require.NotErrorIs(t, waiting.err, ErrHeld)
				break
			}
			require.NoError(t, l.Unlock(t.Context()))
		}
		for _, get := range []func(context.Context) (*Lease, error){p.Mutex("k").TryLock, p.Mutex("k").Lock} {
			start := time.Now()
			_, err := get(t.Context())
			require.ErrorIs(t, err, ErrTokensExhausted)
			require.Less(t, time.Since(start), time.Second)
			require.ErrorContains(t, err, "2255")
		}
		skew(t, cluster, "k", 7, 7, 1<<53) // a minority is no harm
		require.NoError(t, p.hold(t, "k").Unlock(t.Context()))
	})
}
