package redlock

import (
	"context"
	"iter"
	"time"
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
	// Released is called when Unlock returns, and when the release of Lease.Release is decided.
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

// CallStart describes a call that begins. Op is what errors call it; one that begins with "try " does not wait.
type CallStart struct {
	LockName
	Op  string        // lock, try lock, read lock, try read lock, acquire permit, try acquire permit, campaign, arrive, count down, await, remaining, delete latch, wait at barrier
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
	Passed      bool          // the members gave no vote for it: another caller has passed it on, or, unless Waited, the client had kept it, though it may have asked whether anybody waits
}

// Released describes an Unlock, or a Release. Err is what Unlock returned, or would have.
type Released struct {
	LockName
	Held time.Duration // from the grant to the end of Unlock, or to the decision
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

// WakeReason says what woke a waiting Lock. "notify": a member granted the waiting request, which is one
// vote. For any other reason the waiter asks again, the member that came back, or all members: "poll" is
// a heartbeat, every third of Config.Entry. "expiry": the lock should have ended, by a member's word, or
// a push proved nothing. "member": one can be asked that could not be asked before.
type WakeReason string

const (
	wokenByGrant  WakeReason = "notify"
	wokenByPoll   WakeReason = "poll"
	wokenByExpiry WakeReason = "expiry"
	wokenByMember WakeReason = "member"
)

// start tells that a call begins, and returns the context of its events; nil: none is wanted.
func (t *Tracer) start(ctx context.Context, e CallStart) context.Context {
	switch {
	case t.CallStart != nil:
		return t.CallStart(ctx, e)
	case !t.ofCalls():
		return nil
	}
	return ctx
}

// ofCalls reports whether anything is told of a call.
func (t *Tracer) ofCalls() bool {
	return t.CallStart != nil || t.CallEnd != nil || t.Request != nil || t.Woken != nil
}

func (t *Tracer) end(ctx context.Context, e CallEnd) {
	if t.CallEnd != nil {
		t.CallEnd(ctx, e)
	}
}
