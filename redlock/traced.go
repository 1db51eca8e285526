package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// The questions of a round, as the Judge sees them.
const (
	opAcquire = "acquire"
	opWait    = "wait"
	opYield   = "yield"
	opClaim   = "claim"
	opRaise   = "raise"
	opReserve = "reserve"
	opRelease = "release"
	opExtend  = "extend"
	opRejoin  = "rejoin"
)

// traced is where the events about a hold belong; nil: nobody wants them.
type traced struct {
	acquire context.Context

	mu     sync.Mutex      // a leaf
	unlock context.Context // of the release; nil: that of acquire
}

// of is the context of a request.
func (t *traced) of(op string) context.Context {
	if t == nil {
		return context.Background()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if op == opRelease && t.unlock != nil {
		return t.unlock
	}
	return t.acquire
}

// unlocking makes ctx the one that the release belongs to.
func (t *traced) unlocking(ctx context.Context) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.unlock = ctx
	}
}

// requested tells of a request that has ended.
func (c *Client) requested(ctx context.Context, lock LockName, r *quorum.Round, call *member.Call) {
	if c.trace.Request == nil || call.Outcome == member.NotSent {
		return
	}
	at := call.At
	if at.IsZero() {
		at = time.Now()
	}
	if ctx == nil {
		ctx = context.Background()
	}
	c.trace.Request(ctx, Request{
		LockName: lock, Member: c.members[call.Index].Name(), Op: r.Op, Sent: r.Sent, Took: clock.Elapsed(r.Sent, at), Err: call.Err,
	})
}

// woken tells what moves an attempt.
func (c *Client) woken(t *traced, lock LockName, by WakeReason) {
	if c.trace.Woken != nil && by != "" {
		c.trace.Woken(t.of(opWait), lock, by)
	}
}
