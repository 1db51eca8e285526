package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// within runs a function while a lock of the name "k" is held, with a context that ends with the lease.
type within func(t testing.TB, p *caller, f func(ctx context.Context))

var nestings = map[string]within{
	"Mutex": func(t testing.TB, p *caller, f func(ctx context.Context)) { doing(t, p.Client.Mutex("k").Do, f) },
	"Fair": func(t testing.TB, p *caller, f func(ctx context.Context)) {
		doing(t, p.Client.Mutex("k", redlock.Fair()).Do, f)
	},
	"RWMutex":      func(t testing.TB, p *caller, f func(ctx context.Context)) { doing(t, p.RWMutex("k").Do, f) },
	"RWMutex.read": func(t testing.TB, p *caller, f func(ctx context.Context)) { doing(t, p.RWMutex("k").RDo, f) },
	"an owner's Mutex": func(t testing.TB, p *caller, f func(ctx context.Context)) {
		doing(t, p.Client.Mutex("k", redlock.As("me")).Do, f)
	},
	"Multi": func(t testing.TB, p *caller, f func(ctx context.Context)) {
		require.NoError(t, p.Multi([]string{"j", "k"}).Do(t.Context(), func(ctx context.Context, _ *redlock.Leases) error { f(ctx); return nil }))
	},
	"Election.Run": func(t testing.TB, p *caller, f func(ctx context.Context)) {
		ctx, stop := context.WithCancel(t.Context())
		err := p.Election("k").Run(ctx, nil, func(ctx context.Context, _ *redlock.Lease) error { f(ctx); stop(); return nil })
		require.ErrorIs(t, err, context.Canceled)
	},
	"Lease.Context": func(t testing.TB, p *caller, f func(ctx context.Context)) {
		l := p.Hold(t, "k")
		ctx, cancel := context.WithTimeout(context.WithValue(l.Context(), redlock.LockName{}, 1), 10*time.Hour)
		f(ctx)
		cancel()
		require.NoError(t, l.Unlock(t.Context()))
	},
	"Leases.Context": func(t testing.TB, p *caller, f func(ctx context.Context)) {
		l := allOf(t, p, "k", "l")
		f(l.Context())
		require.NoError(t, l.Unlock(t.Context()))
	},
	"Mutex, and another lock in that": func(t testing.TB, p *caller, f func(ctx context.Context)) {
		doing(t, p.Client.Mutex("k").Do, func(ctx context.Context) {
			require.NoError(t, p.Client.Mutex("a").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error { f(ctx); return nil }))
		})
	},
}

func doing(t testing.TB, do func(context.Context, func(context.Context, *redlock.Lease) error) error, f func(ctx context.Context)) {
	t.Helper()
	require.NoError(t, do(t.Context(), func(ctx context.Context, _ *redlock.Lease) error { f(ctx); return nil }))
}

// waitsFor are the calls that wait for the lock of that name. They give back what they get.
func waitsFor(p *caller) map[string]func(ctx context.Context) error {
	got := func(l *redlock.Lease, err error) error {
		if err != nil {
			return err
		}
		return l.Unlock(context.Background())
	}
	sets := func(m *redlock.Multi) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			return m.Do(ctx, func(context.Context, *redlock.Leases) error { return nil })
		}
	}
	return map[string]func(ctx context.Context) error{
		"Mutex":         func(ctx context.Context) error { return got(p.Client.Mutex("k").Lock(ctx)) },
		"another owner": func(ctx context.Context) error { return got(p.Client.Mutex("k", redlock.As("you")).Lock(ctx)) },
		"Fair":          func(ctx context.Context) error { return got(p.Client.Mutex("k", redlock.Fair()).Lock(ctx)) },
		"RWMutex":       func(ctx context.Context) error { return got(p.RWMutex("k").Lock(ctx)) },
		"Campaign":      func(ctx context.Context) error { return got(p.Election("k").Campaign(ctx, nil)) },
		"Run": func(ctx context.Context) error {
			ctx, stop := context.WithCancelCause(ctx)
			defer stop(nil)
			err := p.Election("k").Run(ctx, nil, func(context.Context, *redlock.Lease) error { stop(errLed); return nil })
			if context.Cause(ctx) == errLed {
				return nil
			}
			return err
		},
		"Multi": sets(p.Multi([]string{"h", "k"})),
		"Join":  sets(redlock.Join(p.Client.Mutex("k"), p.Client.Mutex("z"))),
		"read":  func(ctx context.Context) error { return got(p.RWMutex("k").RLock(ctx)) },
	}
}

var errLed = errors.New("it has led")

// A wait whose context ends with a lease of the lock can never succeed: it fails at once, whatever kinds the two have,
// and says how an owner enters its lease again. Readers are held beside each other.
func TestWaitInsideALeaseOfTheSameLockFailsAtOnce(t *testing.T) {
	for outer, hold := range nestings {
		t.Run(outer, inOne(3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
			hold(t, p, func(ctx context.Context) {
				for inner, wait := range waitsFor(p) {
					began := time.Now()
					short, cancel := context.WithTimeout(ctx, 10*time.Second)
					err := wait(short)
					cancel()
					require.Zero(t, time.Since(began), "%s: %v", inner, err)
					switch {
					case outer != "RWMutex.read":
						rt.Says(t, err, redlock.ErrNested, "As", inner)
						require.NotErrorIs(t, err, redlock.ErrHeld, inner)
					case inner == "read":
						require.NoError(t, err)
					default:
						require.ErrorIs(t, err, redlock.ErrUpgrade, inner)
					}
				}
				require.ErrorIs(t, rt.Err(p.Client.Mutex("k").TryLock(ctx)), redlock.ErrHeld, "who does not wait is told what the members say")
				l := rt.Must(p.Client.Mutex("another").Lock(ctx))(t)
				unlock(t, l)
				require.NoError(t, p.Semaphore("k", 1).Do(ctx, func(context.Context, *redlock.Lease) error { return nil }), "another lock")
			})
			if outer != "Election.Run" { // what a leader has proclaimed stays for a while
				noKeysAtRest(t, d)
			}
		}, redlock.Quiet))
	}
}

// A context that has only the values of a lease's outlives it, so its waiter is served when the lease ends.
func TestWaitWithAContextThatOutlivesTheLeaseIsServedAfterIt(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		for inner, wait := range waitsFor(p) {
			var served chan error
			doing(t, p.Client.Mutex("k").Do, func(ctx context.Context) {
				served = make(chan error, 1)
				go func() {
					later, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
					defer cancel()
					served <- wait(later)
				}()
				time.Sleep(time.Second)
				require.Empty(t, served, inner)
			})
			require.NoError(t, <-served, inner)
		}
	}, redlock.Quiet)
}

// A lease that has ended is around nobody, and permits are held beside each other.
func TestOnlyALeaseThatExcludesTheCallIsAroundIt(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		require.NoError(t, p.Semaphore("k", 2).Do(t.Context(), func(ctx context.Context, _ *redlock.Lease) error {
			return p.Semaphore("k", 2).Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
				return p.Client.Mutex("k").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
			})
		}))
		require.NoError(t, p.Client.Mutex("k", redlock.As("me")).Do(t.Context(), func(ctx context.Context, _ *redlock.Lease) error {
			return p.Multi([]string{"a", "k"}, redlock.As("me")).Do(ctx, func(ctx context.Context, _ *redlock.Leases) error {
				return p.RWMutex("k", redlock.As("me")).RDo(ctx, func(context.Context, *redlock.Lease) error { return nil })
			})
		}), "one owner")
		noKeysAtRest(t, d)
	}, redlock.Quiet)
}
