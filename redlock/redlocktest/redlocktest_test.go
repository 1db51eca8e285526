package redlocktest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// nightly is a job as a user would write it.
func nightly(ctx context.Context, client *redlock.Client) error {
	return client.Mutex("nightly").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
		<-ctx.Done() // it works
		return context.Cause(ctx)
	})
}

func TestJobStopsWhenItsLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := redlocktest.New(t, 3)
		stopped := make(chan error, 1)
		go func() { stopped <- nightly(t.Context(), d.Client) }()
		d.Await("nightly")
		d.Take("nightly")
		if err := <-stopped; !errors.Is(err, redlock.ErrLost) {
			t.Fatal(err)
		}
	})
}

// The test that the README shows is the one above.
func TestREADMEShowsATestThatPasses(t *testing.T) {
	ours, err := os.ReadFile("redlocktest_test.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(ours), "\nfunc TestJobStopsWhenItsLeaseIsLost(")
	require.True(t, found)
	code, _, _ = strings.Cut(code, "\n}\n")
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "func TestJobStopsWhenItsLeaseIsLost("+code+"\n}\n")
}

// fake runs a test in a bubble with three members.
func fake(t *testing.T, test func(t *testing.T, d *redlocktest.Deployment), opts ...redlock.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, redlocktest.New(t, 3, opts...)) })
}

func hold(t *testing.T, d *redlocktest.Deployment, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	l, err := d.Client.Mutex("k", opts...).Lock(t.Context())
	require.NoError(t, err)
	return l
}

func TestItWorksInRealTime(t *testing.T) {
	d := redlocktest.New(t, 3, redlock.WithConfig(redlock.Config{
		MemberTimeout: 10 * time.Second, DialTimeout: 10 * time.Second, StallTimeout: 20 * time.Second, // of a busy machine
	}))
	l := hold(t, d)
	d.Await("k")
	d.Lose(l)
	require.ErrorIs(t, l.Err(), redlock.ErrLost)
	taken := d.Take("k")
	_, err := d.Client.Mutex("k").TryLock(t.Context())
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, taken.Unlock(t.Context()))
	require.NoError(t, hold(t, d).Unlock(t.Context()))
}

func TestLeaseOfAnyKindIsLost(t *testing.T) {
	for kind, lock := range map[string]func(ctx context.Context, c *redlock.Client) (*redlock.Lease, error){
		"mutex": func(ctx context.Context, c *redlock.Client) (*redlock.Lease, error) { return c.Mutex("k").Lock(ctx) },
		"fixed": func(ctx context.Context, c *redlock.Client) (*redlock.Lease, error) {
			return c.Mutex("k", redlock.TTL(time.Second)).Lock(ctx)
		},
		"fair": func(ctx context.Context, c *redlock.Client) (*redlock.Lease, error) {
			return c.Mutex("k", redlock.Fair()).Lock(ctx)
		},
		"write": func(ctx context.Context, c *redlock.Client) (*redlock.Lease, error) { return c.RWMutex("k").Lock(ctx) },
		"read":  func(ctx context.Context, c *redlock.Client) (*redlock.Lease, error) { return c.RWMutex("k").RLock(ctx) },
		"semaphore": func(ctx context.Context, c *redlock.Client) (*redlock.Lease, error) {
			return c.Semaphore("k", 2).Acquire(ctx)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			fake(t, func(t *testing.T, d *redlocktest.Deployment) {
				l, err := lock(t.Context(), d.Client)
				require.NoError(t, err)
				at := time.Now()
				d.Lose(l)
				require.Less(t, time.Since(at), time.Second, "it is not waited for the end of the lease")
				var lost *redlock.LostError
				require.ErrorAs(t, l.Err(), &lost)
				select {
				case <-l.Done():
				default:
					t.Error("its context has not ended")
				}
				next, err := lock(t.Context(), d.Client)
				require.NoError(t, err, "it is free again")
				require.Greater(t, next.Token(), l.Token())
			})
		})
	}
}

func TestTakePassesThoseWhoWait(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		l := hold(t, d)
		other := d.Open()
		waiting := make(chan error, 1)
		go func() {
			next, err := other.Mutex("k").Lock(t.Context())
			if err == nil {
				<-next.Done()
				err = next.Err()
			}
			waiting <- err
		}()
		synctest.Wait()
		taken := d.Take("k")
		require.ErrorIs(t, <-waiting, redlock.ErrLost, "it had the lock before Take did")
		<-l.Done()
		require.ErrorIs(t, l.Err(), redlock.ErrLost)
		require.NoError(t, taken.Err())
	})
}

func TestCutLetsSomebodyElseIn(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		l := hold(t, d, redlock.TTL(5*time.Second))
		d.Cut(0, 1)
		d.AwaitState(redlock.MemberDown, 0, 1)
		require.ErrorIs(t, l.Extend(t.Context(), 5*time.Second), redlock.ErrNoQuorum)
		<-l.Done()
		d.Take("k")
		d.Heal()
		d.AwaitState(redlock.MemberVoting)
		_, err := d.Client.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
	})
}

func TestPausedMembersAnswerNobodyUntilTheyAreResumed(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		d.Pause(1, 2)
		_, err := d.Client.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		d.Resume()
		d.AwaitState(redlock.MemberVoting)
		hold(t, d)
	})
}

// What follows a restart is as on a server: the member is silent until every lease has ended, also for a client that
// comes later and would take the members for new ones.
func TestMemberThatWasRestartedIsQuarantined(t *testing.T) {
	for name, verb := range map[string]func(d *redlocktest.Deployment, members ...int){
		"Restart": (*redlocktest.Deployment).Restart, "Forget": (*redlocktest.Deployment).Forget, "Flush": (*redlocktest.Deployment).Flush,
	} {
		t.Run(name, func(t *testing.T) {
			fake(t, func(t *testing.T, d *redlocktest.Deployment) {
				l := hold(t, d)
				verb(d, 0, 1)
				d.AwaitState(redlock.MemberQuarantined, 0, 1)
				_, err := d.Client.Mutex("other").TryLock(t.Context())
				require.ErrorIs(t, err, redlock.ErrQuarantined)
				_, err = d.Open().Mutex("k").TryLock(t.Context())
				require.Error(t, err, "two members do not vote, whatever they remember")
				began := time.Now()
				d.AwaitState(redlock.MemberVoting)
				require.Greater(t, time.Since(began), 25*time.Second)
				require.Less(t, time.Since(began), 35*time.Second)
				<-l.Done()
				require.ErrorIs(t, l.Err(), redlock.ErrLost, "a majority has forgotten it")
			})
		})
	}
}

func TestStepEndsKeysEarly(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		l := hold(t, d, redlock.TTL(20*time.Second))
		d.Step(21 * time.Second)
		second, err := d.Open().Mutex("k").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Err(), "two holders: what no lock stands")
		require.Greater(t, second.Token(), l.Token(), "the storage tells them apart")
		d.Step(-21*time.Second, 0)
	})
}

// fatal is a testing.TB whose Fatalf is a panic, which the test catches.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Fatalf(format string, args ...any) { panic(&fatal{said: format}) }

func TestVerbsThatCannotBeDoneSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := redlocktest.New(&fatal{TB: t}, 3)
		says := func(what string, verb func()) {
			t.Helper()
			defer func() {
				f, ok := recover().(*fatal)
				require.True(t, ok, "it does not fail")
				require.Contains(t, f.said, what)
			}()
			verb()
		}
		says("there is no member", func() { d.Cut(3) })
		says("after %v", func() { d.Await("nothing") })
		other := d.Open()
		d.Crash(other)
		says("that client", func() { d.Crash(other) })
		says("that client", func() { d.Delay(redlocktest.New(t, 1).Client, time.Second) })
		d.Pause(0, 1)
		says("take", func() { d.Take("k") })
		says("keys of members", func() { d.Leftovers() })
	})
}
