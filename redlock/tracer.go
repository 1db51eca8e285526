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

// Tracer hears what a client does, for metrics and spans. Further events are heard by implementing
// the optional interfaces below on the same value; they are found once, when the client is made.
// Methods are called concurrently, never under a lock of the library, and must be quick: some run on
// the goroutine that reads a member's answers. No event holds a secret.
type Tracer interface {
	// AcquireStart is called by Lock and TryLock; the context it returns goes to AcquireEnd, and to what
	// RequestTracer and WakeTracer hear of this attempt.
	AcquireStart(ctx context.Context, e AcquireStart) context.Context
	AcquireEnd(ctx context.Context, e AcquireEnd)
}

// AcquireStart tells of a Lock or TryLock that begins.
type AcquireStart struct {
	Key  string
	Kind Kind
	Try  bool
	TTL  time.Duration
}

// AcquireEnd tells how it ended. Err is nil for a grant.
type AcquireEnd struct {
	Key         string
	Kind        Kind
	Err         error
	Token       uint64
	Votes       int           // members that had granted when it was decided
	Elapsed     time.Duration // of the whole call
	Validity    time.Duration // left when it was decided
	SecondRound bool          // the token needed a raise
	Waited      bool          // it was refused first
}

// LostTracer hears of leases that end without their holder.
type LostTracer interface{ Lost(e *LostError) }

// ReleaseTracer hears of unlocks.
type ReleaseTracer interface{ Released(e Released) }

// Released tells of one. Err is what Unlock returned.
type Released struct {
	Key  string
	Kind Kind
	Held time.Duration // from the grant to the end of Unlock
	Err  error
}

// RenewTracer hears of every renewal that was decided.
type RenewTracer interface{ Renewed(e Renewed) }

// Renewed tells of one lease.
type Renewed struct {
	Key      string
	Kind     Kind
	OK       bool          // a majority renewed it before it ended; false: it is lost
	Validity time.Duration // left then, if OK
}

func (l *Lease) renewal(ok bool, validity time.Duration) Renewed {
	return Renewed{Key: l.key, Kind: l.a.terms.kind, OK: ok, Validity: validity}
}

// RenewalTracer hears of the rounds by which the client renews leases by itself: one script for up to 64 leases,
// sent to all members. An Extend is none of them.
type RenewalTracer interface {
	// RenewalStart is called before the round is sent. The context it returns goes to RenewalEnd, and to what
	// RequestTracer hears of the round.
	RenewalStart(e RenewalStart) context.Context
	// RenewalEnd is called once for each round: when all of its leases are decided, or when every member has answered
	// or failed. Members may still answer then.
	RenewalEnd(ctx context.Context, e RenewalEnd)
}

// RenewalStart tells of a round that begins.
type RenewalStart struct {
	Leases int
	// Each ranges over them: the lock, and the context of the acquisition, as AcquireStart returned it;
	// context.Background() for a lease that was adopted. It is valid during the call.
	Each iter.Seq2[LockName, context.Context]
}

// RenewalEnd tells how it ended.
type RenewalEnd struct {
	Leases    int
	Renewed   int // by a majority, and not ended meanwhile
	Refused   int // by a majority: lost
	Undecided int // neither: asked again soon, while their validity lasts
	Members   int // that had answered
	Need      int // of them
	Elapsed   time.Duration
	Validity  time.Duration // the least that is left of a lease which was renewed
}

// MemberTracer hears of members that come and go.
type MemberTracer interface {
	Member(name string, up bool, cause error)
}

// GuardTracer hears of each step of the restart guard at a member: "marked" and "forgot" by this client,
// or found "quarantined", with the end of the quarantine; "lifted" with the moment from which it votes;
// "restored", or "tokens_by_clock" where order goes on from its clock.
type GuardTracer interface {
	Guard(member, step string, until time.Time)
}

// RequestTracer hears of every request about a lock that was sent to a member, when its answer has
// arrived, or when it is known that none will. Late answers are told as well: after the acquisition that
// they belong to.
type RequestTracer interface {
	// Request is called on the goroutine that read the answer. ctx is that of the acquisition, for a
	// release that of Unlock, for an Extend its own, for a renewal of the client's own that of RenewalStart, or
	// context.Background() without a RenewalTracer.
	Request(ctx context.Context, e Request)
}

// Request is one command to one member.
type Request struct {
	Key    string // "" for a renewal of several leases, which share one; Kind likewise
	Kind   Kind
	Member string
	Op     string        // acquire, wait, yield, raise, release, extend, rejoin
	Sent   time.Time     // before it was submitted: time in line counts
	Took   time.Duration // from then
	// Err is nil where the member answered, with a refusal too; a *member.ReplyError where it answered
	// with an error. With any other it is not known whether the command was executed.
	Err error
}

// WakeTracer hears of what moves a Lock that waits.
type WakeTracer interface {
	Woken(ctx context.Context, e Wake)
}

// Wake is one such event.
type Wake struct {
	Key  string
	Kind Kind
	By   WakeReason
}

// WakeReason says what it was.
type WakeReason string

// A grant is one member's vote. All else makes the waiter ask: the member that came back, or all of them.
const (
	WokenByGrant  WakeReason = "notify" // a member carried out the request that waits there, and told
	WokenByPoll   WakeReason = "poll"   // it repeated its request, as it does every third of Config.Entry
	WokenByExpiry WakeReason = "expiry" // a member's lock should have ended, by its own word; or a grant was told that proves nothing
	WokenByMember WakeReason = "member" // a member can be asked that could not before
)

// traced is where the requests of an attempt belong.
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

func (a *attempt) lock() LockName { return LockName{Kind: a.terms.kind, Key: a.wire.Name} }

// requested is that of an attempt.
func (a *attempt) requested(r *quorum.Round, call *member.Call) {
	var ctx context.Context
	a.mu.Lock()
	if t := a.traced; t != nil {
		if ctx = t.acquire; r.Op == opRelease && t.unlock != nil {
			ctx = t.unlock
		}
	}
	a.mu.Unlock()
	a.c.requested(ctx, a.lock(), r, call)
}

// unlocking makes ctx the one that the release belongs to.
func (a *attempt) unlocking(ctx context.Context) {
	if a.c.trace.request == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.traced == nil { // adopted
		a.traced = &traced{acquire: ctx}
	}
	a.traced.unlock = ctx
}

// woken tells what moves the attempt.
func (a *attempt) woken(by WakeReason) {
	t := a.c.trace.wake
	if t == nil || by == "" {
		return
	}
	ctx := context.Background()
	if a.traced != nil {
		ctx = a.traced.acquire
	}
	t.Woken(ctx, Wake{Key: a.wire.Name, Kind: a.terms.kind, By: by})
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
			l.a.mu.Lock()
			if l.a.traced != nil {
				ctx = l.a.traced.acquire
			}
			l.a.mu.Unlock()
			if !yield(l.a.lock(), ctx) {
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
		if end := n.end(n.items[j].ttl); t.end.IsZero() || end.Before(t.end) {
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

type tracers struct {
	Tracer
	lost    LostTracer
	release ReleaseTracer
	renew   RenewTracer
	renewal RenewalTracer
	member  MemberTracer
	request RequestTracer
	wake    WakeTracer
}

func newTracers(t Tracer) tracers {
	out := tracers{Tracer: t}
	out.lost, _ = t.(LostTracer)
	out.release, _ = t.(ReleaseTracer)
	out.renew, _ = t.(RenewTracer)
	out.renewal, _ = t.(RenewalTracer)
	out.member, _ = t.(MemberTracer)
	out.request, _ = t.(RequestTracer)
	out.wake, _ = t.(WakeTracer)
	return out
}
