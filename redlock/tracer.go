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

// Tracer receives events about what a client does, for metrics and spans. To receive further
// events, implement the optional interfaces below on the same value. The client looks for them
// once, in New.
//
// The client calls these methods concurrently, and never under a mutex of the library. They must be
// quick, because some run on the goroutine that reads a member's answers. No event holds a secret.
type Tracer interface {
	// AcquireStart is called when Lock or TryLock begins. The context that it returns goes to
	// AcquireEnd, and to the events of RequestTracer and WakeTracer that belong to this
	// acquisition.
	AcquireStart(ctx context.Context, e AcquireStart) context.Context
	// AcquireEnd is called when Lock or TryLock returns.
	AcquireEnd(ctx context.Context, e AcquireEnd)
}

// AcquireStart describes a Lock or TryLock that begins.
type AcquireStart struct {
	Key  string
	Kind Kind
	Try  bool
	TTL  time.Duration
}

// AcquireEnd describes how a Lock or TryLock ended. Err is nil for a grant.
type AcquireEnd struct {
	Key         string
	Kind        Kind
	Err         error
	Token       uint64
	Votes       int           // members whose votes counted for the grant; 0 without one
	Elapsed     time.Duration // duration of the whole call
	Validity    time.Duration // what was left when the call returned
	SecondRound bool          // the counters disagreed, so the token needed a raise
	Waited      bool          // the call had to wait for the lock
}

// LostTracer receives leases that ended although their holder did not end them. A permit of a fixed TTL is none of them.
type LostTracer interface{ Lost(e *LostError) }

// ReleaseTracer receives unlocks.
type ReleaseTracer interface{ Released(e Released) }

// Released describes an Unlock. Err is what Unlock returned.
type Released struct {
	Key  string
	Kind Kind
	Held time.Duration // from the grant to the end of Unlock
	Err  error
}

// RenewTracer receives what became of each lease that was to be renewed, also by an Extend. The rounds of the client, which
// renew many leases at once, are for RenewalTracer.
type RenewTracer interface{ Renewed(e Renewed) }

// Renewed describes the renewal of one lease.
type Renewed struct {
	Key      string
	Kind     Kind
	OK       bool          // a majority renewed the lease before it ended; else it is lost
	Validity time.Duration // what was left then, if OK
}

func (l *lease) renewal(ok bool, validity time.Duration) Renewed {
	return Renewed{Key: l.key, Kind: l.hold.terms.kind.name, OK: ok, Validity: validity}
}

// RenewalTracer receives the rounds in which the client renews leases by itself. A round sends one
// script for up to 64 leases to all members. An Extend is no such round.
type RenewalTracer interface {
	// RenewalStart is called before the round is sent. The context that it returns goes to
	// RenewalEnd, and to the RequestTracer for each request of the round.
	RenewalStart(e RenewalStart) context.Context
	// RenewalEnd is called once for each round: when all of its leases are decided, or when every
	// member has answered or failed. Members may still answer later.
	RenewalEnd(ctx context.Context, e RenewalEnd)
}

// RenewalStart describes a round of renewals that begins.
type RenewalStart struct {
	Leases int
	// Each ranges over the leases. It yields each lock with the context that AcquireStart returned
	// for it. The context is context.Background() for an adopted lease. Each may be used only
	// during the call.
	Each iter.Seq2[LockName, context.Context]
}

// RenewalEnd describes how a round of renewals ended.
type RenewalEnd struct {
	Leases    int
	Renewed   int // a majority renewed them, and they had not ended meanwhile
	Refused   int // a majority refused them, so they are lost
	Undecided int // neither; the client asks again soon, while their validity lasts
	Members   int // members that had answered
	Need      int // answers that decide
	Elapsed   time.Duration
	Validity  time.Duration // the least that is left of any renewed lease
}

// MemberTracer receives members that come up and go down.
type MemberTracer interface {
	Member(name string, up bool, cause error)
}

// GuardTracer receives each step of the restart guard at a member:
//
//   - "marked" and "forgot": this client marked the member.
//   - "quarantined": the client found the member in quarantine. until is the end of the quarantine.
//   - "lifted": the quarantine is over. until is the moment from which the member votes.
//   - "restored": the counters were restored from other members.
//   - "tokens_by_clock": tokens continue from the member's clock.
type GuardTracer interface {
	Guard(member, step string, until time.Time)
}

// RequestTracer receives every request about a lock that was sent to a member. The event comes when
// the answer arrives, or when it is known that no answer will come. The event of a late answer
// comes after the end of its acquisition.
type RequestTracer interface {
	// Request is called on the goroutine that read the answer. ctx is the context of the
	// acquisition. For a release it is that of Unlock, and for an Extend that of Extend. For a
	// renewal by the client it is that of RenewalStart, or context.Background() without a
	// RenewalTracer.
	Request(ctx context.Context, e Request)
}

// Request describes one command to one member.
type Request struct {
	// Key is empty if several leases share the request: a renewal. So is Kind.
	Key    string
	Kind   Kind
	Member string
	Op     string        // acquire, wait, yield, claim, raise, release, extend, rejoin, downgrade, proclaim, resign, observe, arrive, await, limit, set limit
	Sent   time.Time     // when the request was submitted, so that time in line counts
	Took   time.Duration // time since Sent
	// Err is nil if the member answered, even with a refusal. If the member answered with an error,
	// Err is a *member.ReplyError. With any other error it is unknown whether the member executed
	// the command.
	Err error
}

// LatchTracer receives the calls about latches, which nobody acquires.
type LatchTracer interface {
	// LatchStart is called when a call begins. The context that it returns goes to LatchEnd, and to
	// the RequestTracer for each request of the call. A request that carries the arrivals of several
	// calls belongs to the last of them.
	LatchStart(ctx context.Context, e LatchStart) context.Context
	// LatchEnd is called when the call returns.
	LatchEnd(ctx context.Context, e LatchEnd)
}

// LatchStart describes a call about a latch that begins.
type LatchStart struct {
	Key string
	Op  string // count down, arrive, await, remaining, delete latch, wait at barrier
}

// LatchEnd describes how a call about a latch ended.
type LatchEnd struct {
	Key     string
	Op      string
	Err     error
	Elapsed time.Duration
}

// WakeTracer receives what wakes a Lock that waits.
type WakeTracer interface {
	Woken(ctx context.Context, e Wake)
}

// Wake describes one such event.
type Wake struct {
	Key  string
	Kind Kind
	By   WakeReason
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
	c.trace.request.Request(ctx, Request{
		Key: lock.Key, Kind: lock.Kind, Member: c.members[call.Index].Name(), Op: r.Op, Sent: r.Sent, Took: clock.Elapsed(r.Sent, at), Err: call.Err,
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
	if h.c.trace.request == nil {
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
	t := h.c.trace.wake
	if t == nil || by == "" {
		return
	}
	ctx := context.Background()
	if h.traced != nil {
		ctx = h.traced.acquire
	}
	t.Woken(ctx, Wake{Key: h.name(), Kind: h.terms.kind.name, By: by})
}

// renewalTrace is what a round of renewals collects for its tracer. Guarded by renewal.mu.
type renewalTrace struct {
	left     int // calls that are not done, those of rejoin among them
	answered int // members
	renewed  int
	refused  int
	decided  int
	end      time.Time // the earliest validity of a lease that was renewed
	told     bool
}

// traced begins the trace of a round.
func (n *renewal) traced(t RenewalTracer) {
	n.trace = &renewalTrace{left: len(n.k.c.members)}
	n.ctx = t.RenewalStart(RenewalStart{Leases: len(n.items), Each: func(yield func(LockName, context.Context) bool) {
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
	t.renewed += bits.OnesCount64(renewed)
	t.refused += bits.OnesCount64(lost)
	t.decided += bits.OnesCount64(decided)
	for j := range among(renewed) {
		if end := n.end(n.items[j].TTL()); t.end.IsZero() || end.Before(t.end) {
			t.end = end
		}
	}
}

// heard is called when a call of the round is done, and everything that followed from it.
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
	tell := !t.told && (t.left == 0 || t.decided == len(n.items))
	t.told = t.told || tell
	e := RenewalEnd{
		Leases: len(n.items), Renewed: t.renewed, Refused: t.refused, Undecided: len(n.items) - t.decided,
		Members: t.answered, Need: n.k.c.need,
	}
	end := t.end
	n.mu.Unlock()
	if !tell {
		return
	}
	now := time.Now()
	if e.Elapsed = clock.Elapsed(n.sent, now); !end.IsZero() {
		e.Validity = max(0, clock.Until(end, now))
	}
	n.k.c.trace.renewal.RenewalEnd(n.ctx, e)
}
