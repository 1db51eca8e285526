package redlockgocron

import (
	"context"
	"errors"
	"sync"

	"github.com/redquorum/redquorum/redlock"
)

// ErrNotLeader is the error of Elector.IsLeader in a process that does not lead.
var ErrNotLeader = errors.New("redlockgocron: this process does not lead")

// Elector is a gocron.Elector: the process that leads runs the jobs. It is safe for concurrent use.
type Elector struct {
	election *redlock.Election

	mu    sync.Mutex // guards the field below
	lease *redlock.Lease
}

// NewElector makes an Elector. It leads only while Run is called. NewElector panics if e is nil.
func NewElector(e *redlock.Election) *Elector {
	if e == nil {
		panic("redlockgocron: nil election")
	}
	return &Elector{election: e}
}

// Run campaigns, again and again, until ctx ends. value is what redlock.Election.Leader tells others
// while this process leads. Run resigns before it returns. Errors are those of redlock.Election.Run.
func (e *Elector) Run(ctx context.Context, value []byte) error {
	return e.election.Run(ctx, value, func(ctx context.Context, lease *redlock.Lease) error {
		e.set(lease)
		defer e.set(nil)
		<-ctx.Done()
		return nil
	})
}

func (e *Elector) set(lease *redlock.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lease = lease
}

// Lease returns the lease with which this process leads, or nil. Its Context ends before another
// process can lead, and its Token is the term.
func (e *Elector) Lease() *redlock.Lease {
	e.mu.Lock()
	lease := e.lease
	e.mu.Unlock()
	if lease == nil || lease.Err() != nil {
		return nil
	}
	return lease
}

// IsLeader implements gocron.Elector: nil if this process leads, else ErrNotLeader. It asks no
// member: it looks at the lease and at the clock.
func (e *Elector) IsLeader(context.Context) error {
	if e.Lease() == nil {
		return ErrNotLeader
	}
	return nil
}
