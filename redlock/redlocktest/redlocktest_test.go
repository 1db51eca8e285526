package redlocktest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

func fake(t *testing.T, test func(t *testing.T, d *redlocktest.Deployment), cfg ...redlock.Config) {
	t.Helper()
	inFake(test, cfg...)(t)
}

func inFake(test func(t *testing.T, d *redlocktest.Deployment), cfg ...redlock.Config) func(t *testing.T) {
	return faketime.In(func(t *testing.T) { test(t, redlocktest.New(t, 3, cfg...)) })
}

func hold(t *testing.T, d *redlocktest.Deployment, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	return rt.Must(d.Client.Mutex("k", opts...).Lock(t.Context()))(t)
}

func TestItWorksInRealTime(t *testing.T) {
	d := redlocktest.New(t, 3, redlock.Config{
		MemberTimeout: 10 * time.Second, DialTimeout: 10 * time.Second, StallTimeout: 20 * time.Second, // of a busy machine
	})
	l := hold(t, d)
	d.Await("k")
	d.Lose(l)
	require.ErrorIs(t, l.Err(), redlock.ErrLost)
	taken := d.Take("k")
	require.ErrorIs(t, rt.Err(d.Client.Mutex("k").TryLock(t.Context())), redlock.ErrHeld)
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
			return c.Semaphore("k", 1).Acquire(ctx) // of two, the next might be the other one, whose tokens are its own
		},
	} {
		t.Run(kind, inFake(func(t *testing.T, d *redlocktest.Deployment) {
			l := rt.Must(lock(t.Context(), d.Client))(t)
			at := time.Now()
			d.Lose(l)
			require.Less(t, time.Since(at), time.Second, "it is not waited for the end of the lease")
			require.ErrorAs(t, l.Err(), new(*redlock.LostError))
			select {
			case <-l.Done():
			default:
				t.Error("its context has not ended")
			}
			next, err := lock(t.Context(), d.Client)
			require.NoError(t, err, "it is free again")
			require.Greater(t, next.Token(), l.Token())
		}))
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
		require.ErrorIs(t, rt.Err(d.Client.Mutex("k").TryLock(t.Context())), redlock.ErrHeld)
	})
}

func TestPausedMembersAnswerNobodyUntilTheyAreResumed(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		d.Pause(1, 2)
		require.ErrorIs(t, rt.Err(d.Client.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
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
		t.Run(name, inFake(func(t *testing.T, d *redlocktest.Deployment) {
			l := hold(t, d)
			verb(d, 0, 1)
			d.AwaitState(redlock.MemberQuarantined, 0, 1)
			require.ErrorIs(t, rt.Err(d.Client.Mutex("other").TryLock(t.Context())), redlock.ErrQuarantined)
			require.Error(t, rt.Err(d.Open().Mutex("k").TryLock(t.Context())), "two members do not vote, whatever they remember")
			began := time.Now()
			d.AwaitState(redlock.MemberVoting)
			require.Greater(t, time.Since(began), 25*time.Second)
			require.Less(t, time.Since(began), 35*time.Second)
			<-l.Done()
			require.ErrorIs(t, l.Err(), redlock.ErrLost, "a majority has forgotten it")
		}))
	}
}

func TestStepEndsKeysEarly(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		l := hold(t, d, redlock.TTL(20*time.Second))
		d.Step(21 * time.Second)
		second := rt.Must(d.Open().Mutex("k").TryLock(t.Context()))(t)
		require.NoError(t, l.Err(), "two holders: what no lock stands")
		require.Greater(t, second.Token(), l.Token(), "the storage tells them apart")
		d.Step(-21*time.Second, 0)
	})
}

func TestSomebodyElseHasALabelOfItsOwn(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		d.Take("k")
		time.Sleep(time.Second) // it has told the members, again if one was not there yet
		require.ErrorContains(t, rt.Err(d.Client.Mutex("k").TryLock(t.Context())), "somebody else (")
	}, redlock.Config{Label: "billing"})
}

// fatal is a testing.TB whose Fatalf is a panic, which the test catches.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Fatalf(format string, args ...any) { panic(&fatal{said: fmt.Sprintf(format, args...)}) }

func TestVerbsThatCannotBeDoneSayWhy(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
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
		says("there is no member 3: they are numbered from 0 to 2", func() { d.Cut(3) })
		says(`after 30s nobody holds "nothing", and members have no keys`, func() { d.Await("nothing") })
		says(`there is no state "votnig": it is one of ["voting"`, func() { d.AwaitState("votnig") })
		says("lose: nil lease", func() { d.Lose(nil) })
		l := hold(t, d)
		synctest.Wait()
		says(`nobody holds "q", and members have the keys ["0/k" "1/k" "2/k"]`, func() { d.Await("q") })
		says(`0 slots of the semaphore "k" are held, and not 1`, func() { d.AwaitPermits("k", 1) })
		says(`0 wait for "k", and not 2`, func() { d.AwaitWaiting("k", 2) })
		says(`evict "q": none of the members [0] has anything of that name, and members have the keys`, func() { d.Evict("q", 0) })
		says(`not all members are down: member 0 is voting; member 2 is voting`, func() { d.AwaitState(redlock.MemberDown, 0, 2) })
		d.Pause(0, 1)
		says(`take "k": redlock: `, func() { d.Take("k") })
		says("(of the members, [0 1] do not run: Resume them first)", func() { d.Take("k") })
		d.Resume()
		d.AwaitState(redlock.MemberVoting)
		require.NoError(t, l.Unlock(t.Context()))
		says(`lose "k": the lease has ended by itself: lease released`, func() { d.Lose(l) })
		d.Restart()
		says("(call AwaitState(redlock.MemberVoting) first)", func() { d.Take("k") })
	})
}

// The members lose what one lock has, and go on voting: a minority gets it back, and a majority lets somebody else in.
func TestEvictDeletesOneLock(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		l, beside := hold(t, d), d.Client.Mutex("beside")
		kept := rt.Must(beside.Lock(t.Context()))(t)
		synctest.Wait()
		d.Evict("k", 0)
		require.Equal(t, []string{"0/env:beside", "1/env:beside", "1/env:k", "2/env:beside", "2/env:k"}, d.Leftovers())
		d.AwaitState(redlock.MemberVoting)
		time.Sleep(11 * time.Second) // a renewal
		require.Contains(t, d.Leftovers(), "0/env:k", "it was given back")
		require.NoError(t, l.Err())

		d.Evict("k", 0, 1)
		other := rt.Must(d.Open(redlock.Config{Prefix: "env:"}).Mutex("k").TryLock(t.Context()))(t)
		require.NoError(t, l.Err(), "two holders")
		require.Greater(t, other.Token(), l.Token())
		<-l.Done()
		require.ErrorIs(t, l.Err(), redlock.ErrLost)
		require.NoError(t, kept.Err())

		permit := rt.Must(d.Client.Semaphore("s", 1).Acquire(t.Context()))(t)
		synctest.Wait()
		d.Evict("s")
		<-permit.Done()
		require.ErrorIs(t, permit.Err(), redlock.ErrLost)

		require.NoError(t, d.Client.Latch("l", 1).Arrive(t.Context(), "a"))
		synctest.Wait()
		d.Evict("l")
		require.Equal(t, 1, rt.Must(d.Open(redlock.Config{Prefix: "env:"}).Latch("l", 1).Remaining(t.Context()))(t))
	}, redlock.Config{Prefix: "env:"})
}

func TestAwaitKnowsSemaphoresAndThoseWhoWait(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		s := d.Client.Semaphore("s", 3)
		d.AwaitPermits("s", 0)
		d.AwaitWaiting("s", 0)
		var held []*redlock.Lease
		acquired := make(chan *redlock.Lease, 10)
		acquire := func(n int) {
			l, err := d.Client.Semaphore("s", 3, redlock.Permits(n)).Acquire(t.Context())
			if err == nil {
				acquired <- l
			}
		}
		go acquire(1)
		d.Await("s")
		held = append(held, <-acquired)
		d.AwaitPermits("s", 1)
		go acquire(2)
		d.AwaitPermits("s", 3)
		held = append(held, <-acquired)
		for n := range 3 {
			d.AwaitWaiting("s", n)
			go acquire(1)
		}
		d.AwaitWaiting("s", 3)
		require.ErrorIs(t, rt.Err(s.TryAcquire(t.Context())), redlock.ErrHeld)
		require.NoError(t, held[1].Unlock(t.Context()))
		<-acquired
		<-acquired
		d.AwaitWaiting("s", 1)
		d.AwaitPermits("s", 3)

		l := hold(t, d)
		for range 2 { // of one client: one is in line at the members
			go func() { _, _ = d.Client.Mutex("k").Lock(t.Context()) }()
		}
		d.AwaitWaiting("k", 1)
		other := d.Open()
		go func() { _, _ = other.RWMutex("k").RLock(t.Context()) }()
		d.AwaitWaiting("k", 2)
		require.NoError(t, l.Unlock(t.Context()))
		d.Await("k")
	})
}

func TestCutAndHealReturnWhenTheClientsKnow(t *testing.T) {
	know := func(t *testing.T, d *redlocktest.Deployment) {
		other, closed := d.Open(), d.Open()
		require.NoError(t, closed.Close())
		d.Pause(2) // who is stopped is not waited for
		d.Cut(1, 2)
		for _, c := range []*redlock.Client{d.Client, other} {
			for i, m := range c.Members() {
				require.Equal(t, i > 0, m.State == redlock.MemberDown, "member %d: %s", i, m.State)
			}
			require.ErrorIs(t, rt.Err(c.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
		}
		d.Heal()
		for _, c := range []*redlock.Client{d.Client, other} {
			require.NoError(t, rt.Must(c.Mutex("k").TryLock(t.Context()))(t).Unlock(t.Context()))
		}
		d.Cut(2)
		d.Resume()
		d.Forget(2)
		d.Heal(2)
		require.Equal(t, redlock.MemberQuarantined, d.Client.Members()[2].State)
	}
	t.Run("fake time", inFake(know))
	t.Run("real time", func(t *testing.T) {
		know(t, redlocktest.New(t, 3, redlock.Config{MemberTimeout: 10 * time.Second, DialTimeout: 10 * time.Second, StallTimeout: 20 * time.Second}))
	})
}

func TestLoseTakesNothingOfAnybodyElse(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		ours := rt.Must(d.Client.RWMutex("k").RLock(t.Context()))(t)
		theirs := rt.Must(d.Open().RWMutex("k").RLock(t.Context()))(t)
		d.Lose(ours)
		require.ErrorIs(t, ours.Err(), redlock.ErrLost)
		require.NoError(t, theirs.Extend(t.Context(), 29*time.Second))
		require.NoError(t, theirs.Unlock(t.Context()))

		d.Lose(ours) // again: nothing
		next := hold(t, d)
		d.Lose(ours)
		require.NoError(t, next.Extend(t.Context(), 29*time.Second))

		synctest.Wait()
		d.Evict("k") // it has lost all already, and has not heard
		other := d.Take("k")
		d.Lose(next)
		require.ErrorIs(t, next.Err(), redlock.ErrLost)
		require.NoError(t, other.Extend(t.Context(), 29*time.Second), "which took it before")
	})
}

// The table "When only short-lived programs come" in docs/restarts.md, cell by cell: processes that live for half a second
// each, and nobody else. Each of them wants the lock at once. Cost: 5 s, of a client for each of them.
func TestShortLivedProcessesAloneHealADeployment(t *testing.T) {
	for kind, members := range map[string][]int{"a minority": {1}, "a majority": {0, 2}, "all": {0, 1, 2}} {
		for data, restart := range map[string]func(d *redlocktest.Deployment){
			"with data":    func(d *redlocktest.Deployment) { d.Restart(members...) },
			"without data": func(d *redlocktest.Deployment) { d.Forget(members...) },
		} {
			for _, alone := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
				t.Run(fmt.Sprintf("%s restarted %s, and nobody came for %v", kind, data, alone), inFake(func(t *testing.T, d *redlocktest.Deployment) {
					d.Crash(d.Client)
					require.NoError(t, d.Client.Close()) // it would dial for a day
					time.Sleep(time.Minute)              // the first deployment is over
					restart(d)
					started := time.Now()
					time.Sleep(alone)
					locked, whole := healed(t, d)
					safe := alone + 30*time.Second // a MaxTTL
					if len(members) == 1 {
						require.Equal(t, alone, locked.Sub(started))
					} else {
						require.WithinDuration(t, started.Add(safe), locked, 500*time.Millisecond, "the first process after that has the lock")
					}
					require.WithinDuration(t, started.Add(safe), whole, 1100*time.Millisecond)
				}))
			}
		}
	}
}

// healed has processes come until all members vote, and returns when the first had the lock, and when that was.
func healed(t *testing.T, d *redlocktest.Deployment) (locked, whole time.Time) {
	for began := time.Now(); whole.IsZero(); {
		require.Less(t, time.Since(began), 2*time.Minute, "they never do")
		c := d.Open()
		l, err := c.Mutex("nightly").TryLock(t.Context())
		if err == nil {
			if locked.IsZero() {
				locked = time.Now()
			}
			require.NoError(t, l.Unlock(t.Context()))
		}
		time.Sleep(500 * time.Millisecond)
		if !slices.ContainsFunc(c.Members(), func(m redlock.MemberInfo) bool { return m.State != redlock.MemberVoting }) {
			whole = time.Now()
		}
		require.NoError(t, c.Close())
	}
	return locked, whole
}

// Each line of the README's table of outages is one here. Its figures are measured from the outage on: until the holder's
// context ends, until a Lock fails, until the next holder has the lock. Cost: 2 s, of 30 deployments.
func TestOutagesAreAsTheReadmeSays(t *testing.T) {
	readme := string(rt.Must(os.ReadFile(filepath.Join("..", "..", "README.md")))(t))
	type members = *redlocktest.Deployment
	lost := redlocktest.Network{LoseRequests: true, LoseReplies: true}
	mutex := func(c *redlock.Client) (*redlock.Lease, error) { return c.Mutex("k").Lock(context.Background()) }
	leader := func(c *redlock.Client) (*redlock.Lease, error) {
		return c.Election("k").Campaign(context.Background(), nil)
	}
	crashes := []func(d members){func(d members) { d.Crash(d.Client) }, func(d members) { d.Network(d.Client, lost) }}
	for _, row := range []struct {
		line string
		take func(c *redlock.Client) (*redlock.Lease, error)
		free error // of a TryLock of another name meanwhile
		ways []func(d members)
	}{
		{"one member dies, hangs, restarts or is emptied | goes on%.0[1]s | is had at once | is had when it is unlocked", mutex, nil,
			[]func(d members){func(d members) { d.Cut(0) }, func(d members) { d.Pause(0) }, func(d members) { d.Restart(0) }, func(d members) { d.Flush(0) }}},
		{"two or three cannot be reached, but live on | ends after %[1]s | `ErrNoQuorum`: from `TryLock` within 0.2 s, from `Lock` after %[3]s, from later ones after 0.2 s | is had when they are back", mutex, redlock.ErrNoQuorum,
			[]func(d members){func(d members) { d.Cut(0, 1) }, func(d members) { d.Cut() }, func(d members) { d.Pause(0, 1) }}},
		{"two or three die and restart, or are emptied | ends after %[2]s | `ErrQuarantined` from `TryLock` when they are back; `Lock` waits | is had %[5]s after they are back", mutex, redlock.ErrQuarantined,
			[]func(d members){func(d members) { d.Restart() }, func(d members) { d.Forget(0, 1) }, func(d members) { d.Flush() }}},
		{"the holder is cut off, dies, or is paused | ends after %[1]s; of a paused one, when it wakes up | is had at once | is had after %[4]s", mutex, nil, crashes},
		{"a leader is cut off, dies, or is paused | ends after %[1]s; of a paused one, when it wakes up | is had at once | another leads after %[4]s", leader, nil, crashes},
	} {
		var ended, failed, next []time.Duration
		for i := range 2 * len(row.ways) { // right after a renewal, and before the next one
			fake(t, func(t *testing.T, d *redlocktest.Deployment) {
				lease, other, got := rt.Must(row.take(d.Client))(t), d.Open(), make(chan struct{})
				time.Sleep(time.Duration(i%2) * (time.Until(lease.ValidUntil())/3 - 100*time.Millisecond))
				began := time.Now()
				go func() {
					defer close(got)
					waited, err := row.take(other)
					if err != nil {
						failed = append(failed, time.Since(began))
					}
					for err != nil {
						waited, err = row.take(other)
					}
					next = append(next, time.Since(began))
					assert.NoError(t, waited.Unlock(t.Context()))
				}()
				row.ways[i/2](d)
				time.Sleep(time.Second)
				free, err := other.Mutex("free").TryLock(t.Context())
				require.ErrorIs(t, err, row.free)
				_ = free.Unlock(t.Context())
				select {
				case <-lease.Done():
					ended = append(ended, time.Since(began))
				case <-time.After(31 * time.Second):
					require.NoError(t, lease.Unlock(t.Context()))
				}
				d.Heal()
				d.Resume()
				<-got
			})
		}
		line := "| " + fmt.Sprintf(row.line, span(ended), span(append(ended, 0)), span(failed), span(next), span(append(next, 31*time.Second))) + " |" // 31: a look may come a PingInterval later
		t.Log(line)
		assert.True(t, strings.Contains(readme, "\n"+line+"\n"), "README.md has another line")
	}
}

func span(took []time.Duration) string {
	if len(took) == 0 {
		return "never"
	}
	least, most := slices.Min(took).Round(time.Second).Seconds(), slices.Max(took).Round(time.Second).Seconds()
	return map[bool]string{true: fmt.Sprint(most, " s"), false: fmt.Sprint(least, " to ", most, " s")}[least == most]
}

func TestNetworkDelaysEachWayOfOneClientAtTheMembersThatItNames(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		near := d.Open()
		require.NoError(t, rt.Must(near.Mutex("k").Lock(t.Context()))(t).Unlock(t.Context())) // else the first token takes a second round
		synctest.Wait()
		d.Network(d.Client, redlocktest.Network{Request: 30 * time.Millisecond, Reply: 10 * time.Millisecond}, 0, 1)
		sent := time.Now()
		locking := rt.Begin(func() (*redlock.Lease, error) { return d.Client.Mutex("k").Lock(t.Context()) })
		time.Sleep(29 * time.Millisecond)
		held := func() int { return len(rt.Must(near.Inspect(t.Context(), "k"))(t).Holders) }
		require.Zero(t, held(), "the requests are under way, but for that to member 2")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, held())
		l := locking.Get(t)
		require.Equal(t, 40*time.Millisecond, time.Since(sent), "and a majority has answered")

		d.Delay(d.Client, 7*time.Millisecond) // of each way: 3.5 ms
		sent = time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, 7*time.Millisecond, time.Since(sent))
		d.Delay(d.Client, 0)
		sent = time.Now()
		require.NoError(t, hold(t, d).Unlock(t.Context()))
		require.Zero(t, time.Since(sent), "the delay before is no more")
	})
}

// What is lost on the way is not executed, and what is lost on the way back is: nobody knows which of the two it was.
func TestNetworkLosesOneWayWithoutAWord(t *testing.T) {
	for name, tc := range map[string]struct {
		n        redlocktest.Network
		executed bool
	}{
		"requests": {redlocktest.Network{LoseRequests: true}, false},
		"replies":  {redlocktest.Network{LoseReplies: true}, true},
		"both":     {redlocktest.Network{LoseRequests: true, LoseReplies: true}, false},
	} {
		t.Run(name, inFake(func(t *testing.T, d *redlocktest.Deployment) {
			other := d.Open()
			d.Network(d.Client, tc.n, 0, 1)
			tried := rt.Go(func() error { return rt.Err(d.Client.Mutex("k").TryLock(t.Context())) })
			synctest.Wait()
			seen := rt.Must(other.Inspect(t.Context(), "k"))(t)
			require.Equal(t, tc.executed, len(seen.Holders) == 1, "%+v", seen.Holders)
			require.ErrorIs(t, <-tried, redlock.ErrNoQuorum)
			for _, m := range d.Client.Members()[:2] {
				require.Equal(t, redlock.MemberVoting, m.State, "it is silent, not down")
			}
			d.AwaitState(redlock.MemberDown, 0, 1) // by StallTimeout
		}))
	}
}

func TestNetworkThatLosesPushesLeavesAWaiterToItsHeartbeats(t *testing.T) {
	for lost, at := range map[bool]time.Duration{false: 0, true: time.Second} {
		fake(t, func(t *testing.T, d *redlocktest.Deployment) {
			other := d.Open()
			d.Network(other, redlocktest.Network{LosePushes: lost})
			l := hold(t, d)
			granted := rt.Begin(func() (*redlock.Lease, error) { return other.Mutex("k").Lock(t.Context()) })
			time.Sleep(10 * time.Millisecond)
			freed := time.Now()
			require.NoError(t, l.Unlock(t.Context()))
			granted.Get(t)
			require.InDelta(t, at, granted.At.Sub(freed), float64(100*time.Millisecond))
		})
	}
}

func TestNetworkThatIsWholeAgainIsConnectedAgain(t *testing.T) {
	for name, mend := range map[string]func(d *redlocktest.Deployment){
		"Heal":    func(d *redlocktest.Deployment) { d.Heal() },
		"Network": func(d *redlocktest.Deployment) { d.Network(d.Client, redlocktest.Network{}) },
		"Delay":   func(d *redlocktest.Deployment) { d.Delay(d.Client, 0) },
	} {
		for broken, n := range map[string]redlocktest.Network{
			"lost": {LoseRequests: true, LoseReplies: true}, "cut": {Cut: true},
		} {
			t.Run(broken+", "+name, inFake(func(t *testing.T, d *redlocktest.Deployment) {
				d.Network(d.Client, n)
				require.ErrorIs(t, rt.Err(d.Client.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
				require.NoError(t, d.Open().Close(), "others do not notice")
				began := time.Now()
				mend(d)
				ctx := rt.Within(t, time.Second)
				l := rt.Must(d.Client.Mutex("k").Lock(ctx))(t)
				require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
				require.NoError(t, l.Unlock(t.Context()))
			}))
		}
	}
}

func TestCrashReleasesNothingAndIsForGood(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		other := d.Open()
		l := hold(t, d, redlock.AutoRenew(9*time.Second))
		time.Sleep(time.Second)
		d.Crash(d.Client)
		crashed := time.Now()
		d.Heal()
		ctx := rt.Within(t, time.Minute)
		next := rt.Must(other.Mutex("k").Lock(ctx))(t)
		require.Greater(t, time.Since(crashed), 7*time.Second, "its TTL ends, and nobody has renewed it")
		require.LessOrEqual(t, time.Since(crashed), 9*time.Second+time.Second)
		require.ErrorIs(t, l.Err(), redlock.ErrLost, "the code that used it has heard in time")
		for _, m := range d.Client.Members() {
			require.Equal(t, redlock.MemberDown, m.State)
		}
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(time.Minute)
		require.ErrorIs(t, rt.Err(d.Client.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
	})
}

func TestLeftoversAreTheKeysThatALockLeaves(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		require.Empty(t, d.Leftovers())
		l := hold(t, d)
		synctest.Wait()
		require.Equal(t, []string{"0/env:k", "1/env:k", "2/env:k"}, d.Leftovers())
		require.NoError(t, l.Unlock(t.Context()))
		synctest.Wait()
		require.Empty(t, d.Leftovers())
		hold(t, d, redlock.TTL(5*time.Second))
		synctest.Wait()
		d.Cut()
		require.Len(t, d.Leftovers(), 3, "no network stands between")
		time.Sleep(5 * time.Second)
		require.Empty(t, d.Leftovers())
	}, redlock.Config{Prefix: "env:"})
}
