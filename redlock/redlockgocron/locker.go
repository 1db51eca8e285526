// Package redlockgocron runs the jobs of gocron once in a fleet. A Locker has each run of a job take
// a lock, so any process may have the next run. An Elector has one process run all jobs until it is
// replaced.
//
//	locker := redlockgocron.NewLocker(client, redlockgocron.AtLeast(10*time.Second))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
//	elector := redlockgocron.NewElector(client.Election("scheduler"))
//	go elector.Run(ctx, []byte(address))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// gocron does not stop a job whose lease is lost. So let a long job look at the context of its lease
// (Locker.Lease, Elector.Lease), and give the token to the storages that it writes to.
package redlockgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

var (
	_ gocron.Locker  = (*Locker)(nil)
	_ gocron.Lock    = (*lock)(nil)
	_ gocron.Elector = (*Elector)(nil)
)

// Locker is a gocron.Locker. Each run of a job takes the Mutex of the job's name. If another process
// has it, gocron skips the run. It is safe for concurrent use.
type Locker struct {
	client  *redlock.Client
	prefix  string
	atLeast time.Duration
	opts    []redlock.LockOption

	mu   sync.Mutex // guards the fields below
	held map[string]*redlock.Lease
}

// Option changes what NewLocker makes.
type Option func(*Locker)

// AtLeast holds the lock for d after the run began, even if the job ends sooner. Then a process
// whose clock is behind by less than 0.9 d finds the lock held, and does not run the job once more.
// Choose more than the clocks of the fleet differ, and less than the time between two runs.
//
// With it, Lock waits for a lock that it does not get for 0.1 d, and at most for a second. If many
// processes ask in the same moment, the votes of the members may be split so that none of them has a
// majority, and without the wait none would run the job.
//
// A run that has ended does not wait for d. The lock is left to the members, and freed after d. If the client is closed
// before that, or the process ends, the lock frees itself when its lease ends. That is after d, and
// at most the greater of d and Config.TTL later. d may be Config.MaxTTL at most: with more, Lock
// returns redlock.ErrInput, and gocron runs no job. AtLeast panics if d is negative.
func AtLeast(d time.Duration) Option {
	if d < 0 {
		panic(fmt.Sprintf("redlockgocron: AtLeast(%v): it must not be negative", d))
	}
	return func(l *Locker) { l.atLeast = d }
}

// Prefix is put before the name of each job to make that of its lock. Without it, jobs and other
// locks of one name exclude each other.
func Prefix(s string) Option { return func(l *Locker) { l.prefix = s } }

// LockOptions are those of the Mutex of each job. As and Fair have no use here.
func LockOptions(opts ...redlock.LockOption) Option {
	return func(l *Locker) { l.opts = append(l.opts, opts...) }
}

// NewLocker makes a Locker. All processes that share jobs give the same Prefix. A nil Option changes
// nothing. NewLocker panics if client is nil.
func NewLocker(client *redlock.Client, opts ...Option) *Locker {
	if client == nil {
		panic("redlockgocron: nil client")
	}
	l := &Locker{client: client, held: make(map[string]*redlock.Lease)}
	for _, o := range opts {
		if o != nil {
			o(l)
		}
	}
	return l
}

// Lease returns the lease under which this process runs the job of a name now, or nil. Its Context
// ends when another process may run the job, and its Token is for storages.
func (l *Locker) Lease(job string) *redlock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[job]
}

// Lock implements gocron.Locker. Without AtLeast it does not wait. Errors are those of
// redlock.Mutex.TryLock, and redlock.ErrHeld means that another process runs the job.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.lock(ctx, l.client.Mutex(l.prefix+job, l.opts...))
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if l.atLeast > 0 && clock.Until(lease.ValidUntil(), began) < l.atLeast { // from now on the members keep it so long
		if err := lease.Extend(ctx, l.atLeast); err != nil {
			return nil, errors.Join(fmt.Errorf("redlockgocron: at least %v: %w", l.atLeast, err), lease.Unlock(context.WithoutCancel(ctx)))
		}
	}
	l.mu.Lock()
	l.held[job] = lease
	l.mu.Unlock()
	return &lock{l, job, lease, began}, nil
}

// lock obtains the lock of a job. Who obtains it keeps it for longer than anybody waits here, so no two
// have it for the same run.
func (l *Locker) lock(ctx context.Context, m *redlock.Mutex) (*redlock.Lease, error) {
	lease, err := m.TryLock(ctx)
	wait := min(l.atLeast/10, time.Second)
	if wait <= 0 || !errors.Is(err, redlock.ErrHeld) {
		return lease, err
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lease, late := m.Lock(waiting)
	if late != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, err // held: the end of the wait is ours alone
	}
	return lease, late
}

// lock is a gocron.Lock.
type lock struct {
	l     *Locker
	job   string
	lease *redlock.Lease
	began time.Time
}

// Unlock implements gocron.Lock. gocron calls it with the context of the job, which has ended if the
// job was removed or the scheduler is shut down. The lock is given back all the same.
func (k *lock) Unlock(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	k.l.mu.Lock()
	if k.l.held[k.job] == k.lease {
		delete(k.l.held, k.job)
	}
	k.l.mu.Unlock()
	left := k.l.atLeast - time.Since(k.began)
	if left <= 0 {
		return k.lease.Unlock(ctx)
	}
	// The members have it for what is left at least: each grant and each renewal was for more. Handed
	// off, it outlives the client.
	handoff, err := k.lease.Handoff()
	if err != nil {
		return err
	}
	time.AfterFunc(left, func() { // ends within two rounds; if the client is closed by then, at once
		if lease, err := k.l.client.Adopt(ctx, handoff); err == nil {
			_ = lease.Unlock(ctx) // else its lease ends by itself
		}
	})
	return nil
}
