package cluster

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// Bounds of what is owed, as in package node.
const (
	maxDebts = 65536
	retry    = 100 * time.Millisecond // pause before a debt is tried again
)

// owed are the releases that must still reach a master: which one is known when they are sent. A debt is
// tried until it is answered or its time has passed.
type owed struct {
	kick chan struct{} // capacity 1

	mu    sync.Mutex // a leaf
	debts map[*debt]struct{}
}

type debt struct {
	owed  *owed
	call  quorum.Call
	until time.Time

	flying bool      // guarded by owed.mu
	after  time.Time // likewise
}

// owing reports whether a release has to be sent again. One that the topology refused was not executed.
func owing(c *quorum.Call) bool {
	if c.Outcome != quorum.Refused {
		return c.Outcome != quorum.Answered
	}
	switch refusalKind(c.Err) {
	case quorum.KindCluster, quorum.KindLoading, quorum.KindReadOnly, quorum.KindBusy, quorum.KindOverloaded:
		return true
	}
	return false
}

func refusalKind(err error) quorum.Kind {
	switch e := err.(type) {
	case *quorum.ReplyError:
		return e.Kind
	case *RedirectError:
		return quorum.KindCluster
	}
	return quorum.KindOther
}

func (o *owed) init() {
	o.kick, o.debts = make(chan struct{}, 1), make(map[*debt]struct{})
}

// add copies c, which stays its owner's.
func (o *owed) add(c *quorum.Call) {
	d := &debt{owed: o, until: c.OweUntil, after: time.Now().Add(retry / 10)}
	d.call = quorum.Call{Cmd: bytes.Clone(c.Cmd), Tagged: c.Tagged, Always: c.Always, Slot: c.Slot, Shared: c.Shared, Late: true, Sink: d}
	o.mu.Lock()
	if len(o.debts) < maxDebts {
		o.debts[d] = struct{}{}
	}
	o.mu.Unlock()
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

// Done implements quorum.Sink.
func (d *debt) Done(c *quorum.Call) {
	d.owed.mu.Lock()
	defer d.owed.mu.Unlock()
	d.flying = false
	if c.Outcome == quorum.Answered || !owing(c) {
		delete(d.owed.debts, d)
		return
	}
	d.after = time.Now().Add(retry)
}

// due marks the debts to be sent now as flying; next is when there are more.
func (o *owed) due(now time.Time) (out []*debt, next time.Duration) {
	next = time.Hour
	o.mu.Lock()
	defer o.mu.Unlock()
	for d := range o.debts {
		switch {
		case d.flying:
		case !now.Before(d.until):
			delete(o.debts, d)
		case d.after.After(now):
			next = min(next, d.after.Sub(now))
		default:
			d.flying = true
			out = append(out, d)
			next = min(next, retry)
		}
	}
	return out, next
}

// pay sends what is due.
func (cl *Cluster) pay(now time.Time) (next time.Duration) {
	debts, next := cl.owed.due(now)
	for _, d := range debts {
		cl.Submit(&d.call)
	}
	return next
}

// drain waits until nothing is owed, or ctx or life ends.
func (o *owed) drain(ctx, life context.Context) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		o.mu.Lock()
		left := len(o.debts)
		o.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		case <-life.Done():
			return
		}
	}
}
