package redlockgocron

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// inFakeTime runs a test with the clients of two processes, on one processor: timers of a bubble that run at the same moment
// on two of them crash the race detector (Go 1.26).
func inFakeTime(t *testing.T, test func(t *testing.T, ours, theirs *redlock.Client)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		long := redlock.Config{MaxTTL: 5 * time.Minute}
		d := redlocktest.New(t, 3, long)
		test(t, d.Client, d.Open(long))
	})
}

// process is a scheduler with one job, of one process of the fleet.
type process struct {
	gocron.Scheduler
	job     gocron.Job
	ran     chan struct{}
	skipped chan error
	idle    chan struct{} // it does not lead, and has skipped a run
}

// IncrementJob implements gocron.Monitor.
func (p *process) IncrementJob(_ uuid.UUID, _ string, _ []string, status gocron.JobStatus) {
	if status == gocron.Skip {
		p.idle <- struct{}{}
	}
}

// RecordJobTiming implements gocron.Monitor.
func (p *process) RecordJobTiming(time.Time, time.Time, uuid.UUID, string, []string) {}

func start(t *testing.T, task func(), opts ...gocron.SchedulerOption) *process {
	t.Helper()
	p := &process{ran: make(chan struct{}, 10), skipped: make(chan error, 10), idle: make(chan struct{}, 10)}
	s, err := gocron.NewScheduler(append(opts, gocron.WithStopTimeout(20*time.Second), gocron.WithMonitor(p))...)
	require.NoError(t, err)
	p.Scheduler = s
	p.job, err = s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(task), gocron.WithName("nightly"), gocron.WithEventListeners(
		gocron.AfterJobRuns(func(uuid.UUID, string) { p.ran <- struct{}{} }),
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { p.skipped <- err }),
	))
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { _ = s.Shutdown() })
	return p
}

func nothing() {}

func runs(t *testing.T, p *process) {
	t.Helper()
	require.NoError(t, p.job.RunNow())
	select {
	case <-p.ran:
	case err := <-p.skipped:
		t.Fatalf("the run was skipped: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the job has not run")
	}
}

func skips(t *testing.T, p *process) {
	t.Helper()
	require.NoError(t, p.job.RunNow())
	select {
	case <-p.ran:
		t.Fatal("the job ran a second time")
	case err := <-p.skipped:
		require.ErrorIs(t, err, redlock.ErrHeld)
	case <-time.After(time.Minute):
		t.Fatal("nothing has happened")
	}
}

func released(t *testing.T, c *redlock.Client, name string) {
	t.Helper()
	ctx := rt.Within(t, time.Minute)
	require.NoError(t, rt.Must(c.Mutex(name).Lock(ctx))(t).Unlock(ctx))
}

// Nobody may have a majority where many ask at once: with a least time of the hold, Lock waits for a moment.
func TestLockWaitsForAMomentWhereItIsHeldForLonger(t *testing.T) {
	for _, c := range []struct{ atLeast, wait time.Duration }{{0, 0}, {5 * time.Second, 500 * time.Millisecond}, {25 * time.Second, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			d := redlocktest.New(t, 3)
			l := NewLocker(d.Client, AtLeast(c.atLeast))
			other := d.Take("nightly")
			start := time.Now()
			_, err := l.Lock(t.Context(), "nightly")
			require.ErrorIs(t, err, redlock.ErrHeld)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.InDelta(t, c.wait, time.Since(start), float64(10*time.Millisecond))

			start = time.Now()
			time.AfterFunc(c.wait/2, func() { _ = other.Unlock(t.Context()) })
			synctest.Wait()
			held := rt.Must(l.Lock(t.Context(), "nightly"))(t)
			require.InDelta(t, c.wait/2, time.Since(start), float64(10*time.Millisecond))
			require.NoError(t, held.Unlock(t.Context()))

			gone := rt.Within(t, c.wait/2)
			time.Sleep(c.atLeast + time.Second)
			d.Take("nightly")
			require.ErrorIs(t, rt.Err(l.Lock(gone, "nightly")), context.DeadlineExceeded, "the caller's own")
		})
	}
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	require.PanicsWithValue(t, "redlockgocron: nil client", func() { NewLocker(nil) })
	require.PanicsWithValue(t, "redlockgocron: nil election", func() { NewElector(nil) })
	require.PanicsWithValue(t, "redlockgocron: AtLeast(-1s): it must not be negative", func() { AtLeast(-time.Second) })
	synctest.Test(t, func(t *testing.T) {
		l := rt.Must(NewLocker(redlocktest.New(t, 1).Client, nil, AtLeast(0), LockOptions(nil)).Lock(t.Context(), "nightly"))(t)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

func TestOneOfTwoProcessesRunsAJob(t *testing.T) {
	inFakeTime(t, func(t *testing.T, ours, theirs *redlock.Client) {
		locker := NewLocker(ours, Prefix("jobs:"))
		began, end := make(chan *redlock.Lease), make(chan struct{})
		a := start(t, func() {
			began <- locker.Lease("nightly")
			<-end
		}, gocron.WithDistributedLocker(locker))
		b := start(t, nothing, gocron.WithDistributedLocker(NewLocker(theirs, Prefix("jobs:"))))
		require.Nil(t, locker.Lease("nightly"))
		require.NoError(t, a.job.RunNow())
		lease := <-began
		require.NoError(t, lease.Err())
		require.Equal(t, "jobs:nightly", lease.Key())
		skips(t, b)
		close(end)
		<-a.ran
		released(t, theirs, "jobs:nightly")
		require.Nil(t, locker.Lease("nightly"))
		require.ErrorIs(t, lease.Err(), redlock.ErrReleased)
		runs(t, b)
	})
}

// The clock of the second process is behind: it comes to the job after the first one has run it.
func TestJobDoesNotRunAgainWhereTheClockIsBehind(t *testing.T) {
	inFakeTime(t, func(t *testing.T, ours, theirs *redlock.Client) {
		a := start(t, nothing, gocron.WithDistributedLocker(NewLocker(ours, AtLeast(2*time.Minute))))
		b := start(t, nothing, gocron.WithDistributedLocker(NewLocker(theirs, AtLeast(2*time.Minute))))
		runs(t, a)
		skips(t, b)
		require.NoError(t, a.Shutdown())
		require.NoError(t, ours.Close())
		skips(t, b) // the lock outlives the process that took it
	})
}

// The lock is free when the time is over, and not only when the lease of 30 s would end.
func TestJobIsFreeAfterTheLeastTime(t *testing.T) {
	inFakeTime(t, func(t *testing.T, ours, theirs *redlock.Client) {
		began := time.Now()
		l := rt.Must(NewLocker(ours, AtLeast(time.Second)).Lock(t.Context(), "nightly"))(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel() // the scheduler is shut down
		require.NoError(t, l.Unlock(ended))
		released(t, theirs, "nightly")
		require.WithinRange(t, time.Now(), began.Add(time.Second), began.Add(time.Second+10*time.Millisecond))

		l = rt.Must(NewLocker(ours).Lock(t.Context(), "nightly"))(t)
		require.NoError(t, l.Unlock(ended))
		lease, err := theirs.Mutex("nightly").TryLock(t.Context())
		require.NoError(t, err, "without a least time it is free at once")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

func TestLeastTimeIsOneThatMembersKeep(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c, _ *redlock.Client) {
		rt.Says(t, rt.Err(NewLocker(c, AtLeast(6*time.Minute)).Lock(t.Context(), "nightly")), redlock.ErrInput, "at least 6m0s")
		lease, err := c.Mutex("nightly").TryLock(t.Context())
		require.NoError(t, err, "nothing is held")
		require.NoError(t, lease.Unlock(t.Context()))

		// A shorter lease is made long enough before the job begins.
		l := rt.Must(NewLocker(c, AtLeast(2*time.Minute), LockOptions(redlock.TTL(10*time.Second))).Lock(t.Context(), "nightly"))(t)
		require.Greater(t, rt.Must(c.Inspect(t.Context(), "nightly"))(t).Members[0].Votes[0].TTL, 20*time.Second)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

func TestJobsRunWhereTheLeaderIs(t *testing.T) {
	inFakeTime(t, func(t *testing.T, ours, theirs *redlock.Client) {
		ea, eb := NewElector(ours.Election("scheduler")), NewElector(theirs.Election("scheduler"))
		require.ErrorIs(t, ea.IsLeader(t.Context()), ErrNotLeader)
		a, b := start(t, nothing, gocron.WithDistributedElector(ea)), start(t, nothing, gocron.WithDistributedElector(eb))

		ctx, resign := context.WithCancel(t.Context())
		resigned, other := make(chan error, 1), make(chan error, 1)
		go func() { resigned <- ea.Run(ctx, []byte("a")) }()
		leads(t, ea)
		both, end := context.WithCancel(t.Context())
		defer func() { end(); <-other }()
		go func() { other <- eb.Run(both, []byte("b")) }()
		runs(t, a)
		require.NoError(t, b.job.RunNow())
		<-b.idle
		term := ea.Lease().Token()

		resign()
		require.ErrorIs(t, <-resigned, context.Canceled)
		require.ErrorIs(t, ea.IsLeader(t.Context()), ErrNotLeader)
		leads(t, eb)
		require.Greater(t, eb.Lease().Token(), term)
		runs(t, b)
		require.Empty(t, b.ran, "it ran once: not while the other one led")
		require.NoError(t, a.job.RunNow())
		<-a.idle
		require.Empty(t, a.ran)
	})
}

func leads(t *testing.T, e *Elector) {
	t.Helper()
	for end := time.Now().Add(time.Minute); errors.Is(e.IsLeader(t.Context()), ErrNotLeader); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never leads")
		}
	}
}

// A process whose lease was lost does not lead from that moment on, whatever its goroutines do.
func TestLostLeaseEndsTheLead(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c, _ *redlock.Client) {
		e := NewElector(c.Election("scheduler"))
		lease := rt.Must(c.Election("scheduler").Campaign(t.Context(), nil))(t)
		e.set(lease)
		require.NoError(t, e.IsLeader(t.Context()))
		require.NoError(t, rt.Err(c.ForceUnlock(t.Context(), "scheduler")))
		require.ErrorIs(t, lease.Extend(t.Context(), time.Minute), redlock.ErrLost)
		require.ErrorIs(t, e.IsLeader(t.Context()), ErrNotLeader)
	})
}
