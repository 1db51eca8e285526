package redlock

import (
	"context"
	"iter"
	"math/bits"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// Tracer has functions that receive events about what a client does, for metrics and spans. A
// function that is nil hears nothing and costs nothing.
//
// The client calls them concurrently, and never under a mutex of the library. They must be quick,
// because some run on the goroutine that reads a member's answers. No event holds a secret.
type Tracer struct {
	// CallStart is called when a call begins that gets a lock, or that is about a latch or a barrier.
	// The context that it returns goes to CallEnd, and to Request and Woken for what belongs to the
	// call. A request that carries the arrivals of several calls belongs to the last of them.
	CallStart func(ctx context.Context, e CallStart) context.Context
	// CallEnd is called when such a call returns.
	CallEnd func(ctx context.Context, e CallEnd)
	// Woken is called when something wakes a Lock that waits.
	Woken func(ctx context.Context, lock LockName, by WakeReason)
	// RenewalStart is called before a renewal is sent: a round of the client, which is one script for up
	// to 64 leases, an Extend or an Adopt. ctx is that of the caller, or context.Background() for the
	// client's own. The context that is returned goes to RenewalEnd, and to Request for each request.
	RenewalStart func(ctx context.Context, e RenewalStart) context.Context
	// RenewalEnd is called once for each: when all of its leases are decided, or when every member has
	// answered or failed. Members may still answer later.
	RenewalEnd func(ctx context.Context, e RenewalEnd)
	// Lost is called for a lease that ended although its holder did not end it. A permit of a fixed TTL
	// is none of them.
	Lost func(e *LostError)
	// Released is called when Unlock returns.
	Released func(e Released)
	// Request is called for every request about a lock that was sent to a member, when the answer
	// arrives, on the goroutine that read it, or when it is known that no answer will come. The event of
	// a late answer comes after the end of its call. ctx is that of the call; of a release, that of
	// Unlock.
	Request func(ctx context.Context, e Request)
	// Member is called when a member comes up or goes down.
	Member func(name string, up bool, cause error)
	// Guard is called for each step of the restart guard at a member:
	//
	//   - "marked" and "forgot": this client marked the member.
	//   - "quarantined": the client found the member in quarantine. until is the end of the quarantine.
	//   - "lifted": the quarantine is over. until is the moment from which the member votes.
	//   - "restored": the counters were restored from other members.
	//   - "tokens_by_clock": tokens continue from the member's clock.
	Guard func(member, step string, until time.Time)
}

// CallStart describes a call that begins. Op is what errors call it: lock, try lock, read lock, try
// read lock, acquire permit, try acquire permit, campaign; of KindLatch count down, arrive, await,
// remaining, delete latch, wait at barrier.
type CallStart struct {
	LockName
	Op  string        // lock, try lock, read lock, try read lock, acquire permit, try acquire permit, campaign, arrive, count down, await, remaining, delete latch, wait at barrier
	Try bool          // it does not wait
	TTL time.Duration // of the lease; 0 of KindLatch
}

// CallEnd describes how a call ended. Err is nil for a success. What follows Elapsed is of a lease.
type CallEnd struct {
	CallStart
	Err         error
	Elapsed     time.Duration // duration of the whole call
	Token       uint64
	Votes       int           // members whose votes counted for the grant; 0 without one
	Validity    time.Duration // what was left when the call returned
	SecondRound bool          // the counters disagreed, so the token needed a raise
	Waited      bool          // the call had to wait for the lock
}

// Released describes an Unlock. Err is what Unlock returned.
type Released struct {
	LockName
	Held time.Duration // from the grant to the end of Unlock
	Err  error
}

// RenewalStart describes a renewal that begins.
type RenewalStart struct {
	Leases int
	// Each ranges over the leases. It yields each lock with the context that CallStart returned for
	// it. The context is context.Background() for an adopted lease. Each may be used only during the
	// call.
	Each iter.Seq2[LockName, context.Context]
}

// RenewalEnd describes how a renewal ended.
type RenewalEnd struct {
	Leases    int
	Renewed   int // a majority renewed them, and they had not ended meanwhile
	Refused   int // a majority refused them, so they are lost
	Undecided int // neither; the client asks again soon, while their validity lasts
	Members   int // members that had answered
	Need      int // answers that decide
	Elapsed   time.Duration
	Validity  time.Duration // the least that is left of any renewed lease
	// Each ranges over the leases that are decided. It yields each lock with true if its lease was
	// renewed. It may be used only during the call.
	Each iter.Seq2[LockName, bool]
}

// Request describes one command to one member.
type Request struct {
	LockName // "" if several leases share the request: a renewal
	Member   string
	Op       string        // acquire, wait, yield, claim, raise, release, extend, rejoin, downgrade, proclaim, resign, observe, arrive, await, limit, set limit
	Sent     time.Time     // when the request was submitted, so that time in line counts
	Took     time.Duration // time since Sent
	// Err is nil if the member answered, even with a refusal. If the member answered with an error,
	// Err is a *member.ReplyError. With any other error it is unknown whether the member executed
	// the command.
	Err error
}

// WakeReason says what woke a waiting Lock.
type WakeReason string

// A grant is one member's vote. For any other reason the waiter asks again: the member that came
// back, or all members.
const (
	// a member granted the waiting request
	WokenByGrant WakeReason = "notify"
	WokenByPoll  WakeReason = "poll" // a heartbeat, every third of Config.Entry
	// The lock should have ended, by a member's word, or a push proved nothing.
	WokenByExpiry WakeReason = "expiry"
	WokenByMember WakeReason = "member" // a member can be asked that could not be asked before
)

// start tells that a call begins, and returns the context of its events; nil: none is wanted.
func (t *Tracer) start(ctx context.Context, e CallStart) context.Context {
	switch {
	case t.CallStart != nil:
		return t.CallStart(ctx, e)
	case t.CallEnd == nil && t.Request == nil && t.Woken == nil:
		return nil
	}
	return ctx
}

func (t *Tracer) end(ctx context.Context, e CallEnd) {
	if t.CallEnd != nil {
		t.CallEnd(ctx, e)
	}
}

// traced is where the requests about a hold belong.
type traced struct{ acquire, unlock context.Context }

// requested tells of a request that has ended.
func (c *Client) requested(ctx context.Context, lock LockName, r *quorum.Round, call *member.Call) {
	if call.Outcome == member.NotSent {
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

func (h *hold) lock() LockName { return LockName{Kind: h.terms.kind.name, Key: h.name()} }

// requested tells of a request about the hold.
func (h *hold) requested(r *quorum.Round, call *member.Call) {
	var ctx context.Context
	h.mu.Lock()
	if t := h.traced; t != nil {
		if ctx = t.acquire; r.Op == opRelease && t.unlock != nil {
			ctx = t.unlock
		}
	}
	h.mu.Unlock()
	h.c.requested(ctx, h.lock(), r, call)
}

// unlocking makes ctx the one that the release belongs to.
func (h *hold) unlocking(ctx context.Context) {
	if h.c.trace.Request == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.traced == nil { // adopted
		h.traced = &traced{acquire: ctx}
	}
	h.traced.unlock = ctx
}

// woken tells what moves the attempt that gathers the hold.
func (h *hold) woken(by WakeReason) {
	if h.c.trace.Woken == nil || by == "" {
		return
	}
	ctx := context.Background()
	if h.traced != nil {
		ctx = h.traced.acquire
	}
	h.c.trace.Woken(ctx, h.lock(), by)
}

// renewalTrace is what a renewal collects for the tracer. Guarded by renewal.mu.
type renewalTrace struct {
	left     int    // calls that are not done, those of rejoin among them
	answered int    // members
	renewed  uint64 // by item, as those below
	refused  uint64
	decided  uint64
	end      time.Time // the earliest validity of a lease that was renewed
	told     bool
}

// traced begins the trace of a renewal.
func (n *renewal) traced(start func(ctx context.Context, e RenewalStart) context.Context) {
	if n.ctx == nil {
		n.ctx = context.Background()
	}
	if n.trace = (&renewalTrace{left: len(n.k.c.members)}); start == nil {
		return
	}
	n.ctx = start(n.ctx, RenewalStart{Leases: len(n.items), Each: func(yield func(LockName, context.Context) bool) {
		for i := range n.items {
			l := n.items[i].l
			ctx := context.Background()
			l.hold.mu.Lock()
			if l.hold.traced != nil {
				ctx = l.hold.traced.acquire
			}
			l.hold.mu.Unlock()
			if !yield(l.hold.lock(), ctx) {
				return
			}
		}
	}})
}

// countLocked books what was decided of some leases.
func (n *renewal) countLocked(renewed, lost, decided uint64) {
	t := n.trace
	t.renewed |= renewed
	t.refused |= lost
	t.decided |= decided
	for j := range among(renewed) {
		if end := n.end(n.items[j].TTL()); t.end.IsZero() || end.Before(t.end) {
			t.end = end
		}
	}
}

// heard is called when a call of the renewal is done, and everything that followed from it.
func (n *renewal) heard(answered bool) {
	t := n.trace
	if t == nil {
		return
	}
	n.mu.Lock()
	t.left--
	if answered {
		t.answered++
	}
	decided := bits.OnesCount64(t.decided)
	tell := !t.told && (t.left == 0 || decided == len(n.items))
	t.told = t.told || tell
	e := RenewalEnd{
		Leases: len(n.items), Renewed: bits.OnesCount64(t.renewed), Refused: bits.OnesCount64(t.refused), Undecided: len(n.items) - decided,
		Members: t.answered, Need: n.k.c.need,
	}
	end, renewed, which := t.end, t.renewed, t.decided
	n.mu.Unlock()
	if !tell || n.k.c.trace.RenewalEnd == nil {
		return
	}
	now := time.Now()
	if e.Elapsed = clock.Elapsed(n.sent, now); !end.IsZero() {
		e.Validity = max(0, clock.Until(end, now))
	}
	e.Each = func(yield func(LockName, bool) bool) {
		for j := range among(which) {
			if !yield(n.items[j].l.hold.lock(), renewed&(1<<j) != 0) {
				return
			}
		}
	}
	n.k.c.trace.RenewalEnd(n.ctx, e)
}
