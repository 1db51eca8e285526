package redlock

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// Handoff is a lease in transit to another process: what Client.Adopt needs to go on with it. It is
// a secret, because its bearer can release the lock. So fmt, slog, JSON and other encoders print
// its key, kind and token only. Secret returns all of it, as text for ParseHandoff.
type Handoff struct {
	key   string
	owner *string // not to be seen by what prints the fields of a value
	token uint64
	terms terms
}

// handoffWire is the text of a handoff. Format 1 is that of a mutex: a text without a kind is one.
// A client ignores fields that it does not know, and refuses formats that it does not know. So
// every other kind needs a Format above 1: clients that know none but the mutex then refuse it.
type handoffWire struct {
	Kind   Kind   `json:"c"`
	Key    []byte `json:"k"`
	Owner  string `json:"o"`
	Token  uint64 `json:"t"`
	TTL    int64  `json:"l"` // ms
	Renew  bool   `json:"r"`
	MaxMS  int64  `json:"m"`
	Format int    `json:"v"`

	Permits string `json:"p,omitempty"` // of a semaphore: what the lease has
	Limit   int    `json:"n,omitempty"` // and how many slots there are
}

const (
	handoffPrefix = "redquorum1."
	newestFormat  = 2 // of all kinds
	shownHandoff  = "lease "
)

// Secret encodes the handoff as one printable word, with the authority to release the lock. The
// zero Handoff has none.
func (h Handoff) Secret() string {
	if h.owner == nil {
		return ""
	}
	w := handoffWire{
		Kind: h.Kind(), Key: []byte(h.key), Owner: *h.owner, Token: h.token, Format: h.terms.kind.format,
		TTL: script.Millis(h.terms.ttl), Renew: h.terms.renew, MaxMS: h.terms.maxHold.Milliseconds(),
	}
	if more := h.terms.more(); more.slots() > 0 {
		w.Permits, w.Limit = more.has().String(), more.slots()
	}
	b, _ := json.Marshal(w) // of strings, numbers and booleans: it cannot fail
	return handoffPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseHandoff decodes what Secret returned. The error matches ErrInput and quotes nothing.
func ParseHandoff(secret string) (Handoff, error) {
	body, found := strings.CutPrefix(secret, handoffPrefix)
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if !found || err != nil {
		if strings.HasPrefix(strings.TrimPrefix(secret, `"`), shownHandoff) {
			return Handoff{}, badInput("handoff", "this is what fmt, JSON and logs show of a Handoff, without its authority: send what Handoff.Secret returns")
		}
		return Handoff{}, badInput("handoff", "not a lease: it must be what Handoff.Secret returned, begin with %q and be whole", handoffPrefix)
	}
	var w handoffWire
	if json.Unmarshal(raw, &w) != nil || w.Format < 1 || w.Format > newestFormat || len(w.Key) == 0 || w.Token == 0 ||
		w.TTL < 1 || w.TTL > int64(1<<40) || !strings.Contains(w.Owner, ":") {
		return Handoff{}, badInput("handoff", "not a lease, or one of another version")
	}
	k := kindOf(cmp.Or(w.Kind, KindMutex))
	if k == nil || k.format != w.Format {
		return Handoff{}, badInput("handoff", "a lease of a kind that this version does not know")
	}
	held, _ := permit.Parse(w.Permits)
	t := terms{
		kind: k, ttl: time.Duration(w.TTL) * time.Millisecond, renew: w.Renew, maxHold: time.Duration(w.MaxMS) * time.Millisecond,
		extra: k.extra.with(held, w.Limit),
	}
	if has := t.extra.has(); t.extra.fits(&t) != nil || len(has) != len(held) || has != nil && uint64(has[0].Token) != w.Token {
		return Handoff{}, badInput("handoff", "not a lease, or one of another version")
	}
	return Handoff{key: string(w.Key), owner: &w.Owner, token: w.Token, terms: t}, nil
}

// Key returns the name of the lock with the Config.Prefix of the client that handed it off, because
// another may adopt it.
func (h Handoff) Key() string { return h.key }

// Kind returns the kind of the lock, "" for the zero Handoff.
func (h Handoff) Kind() Kind {
	if h.terms.kind == nil {
		return ""
	}
	return h.terms.kind.name
}

// Token returns the fencing token.
func (h Handoff) Token() uint64 { return h.token }

// Format prints the key, kind and token, the same with every verb of fmt.
func (h Handoff) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, shownHandoff+"%s (%s, token %d)", printable.Quote(h.key), h.Kind(), h.token)
}

// MarshalText prints the same in JSON, in slog and in other encodings. It cannot be read back: Secret can.
func (h Handoff) MarshalText() ([]byte, error) { return fmt.Append(nil, h), nil }

// Handoff stops looking after the lease without releasing it: its context ends with ErrHandedOff,
// and the client sends no more renewals. The members keep the lease for what is left of its TTL. If
// the caller got the lease by waiting, a moment ago, that is at most Config.Entry.
//
// Before that, while the lease is held and renewed, Handoff waits for members that have not answered yet
// whether they give it their votes. It waits for Config.StallTimeout at most, and for half of the lease's
// validity.
//
// Another process, or another client of this one, takes the lease over with Client.Adopt before
// that. The lease keeps its terms: an auto-renewed lease is renewed for what is left of its
// MaxHold, and a lease with a fixed TTL ends when it would have ended. A read lease that renews
// itself cannot be handed off, because readers of one client share what they hold: ErrInput.
func (l *Lease) Handoff() (Handoff, error) {
	if l.none() {
		return Handoff{}, noLease("handoff")
	}
	if l.spent.Load() {
		return Handoff{}, l.givenUp("handoff")
	}
	if err := l.bound().apart(); err != nil {
		return Handoff{}, err
	}
	late, stop := context.WithTimeout(context.Background(), min(l.c.cfg.StallTimeout, clock.Until(l.ValidUntil(), time.Now())/2))
	defer stop()
	l.hold.settle(late, l.Done())
	h, err := l.handOff()
	if err == nil {
		l.hold.settle(late, nil) // for a call that had begun by then, and was not submitted
		l.hold.leave()
	}
	return h, err
}

// handOff is Handoff without the wait for calls under way.
func (l *lease) handOff() (Handoff, error) {
	_ = l.err() // ends it if its validity is over
	if _, ended := l.end(ErrHandedOff); !ended {
		return Handoff{}, l.notHeld("handoff")
	}
	now := time.Now()
	l.mu.Lock()
	t := l.hold.terms.with(l.hold.b.Permits())
	t.renew = l.renew
	switch left, limit := clock.Until(l.term.Until(), now), l.term.Limit(); {
	case t.renew && !limit.IsZero():
		t.maxHold = max(time.Millisecond, clock.Until(limit, now))
	case t.renew:
	case !limit.IsZero(): // granted for less while waiting, and to be renewed once
		t.ttl = max(time.Millisecond, min(t.ttl, clock.Until(limit, now)))
	default:
		t.ttl = max(time.Millisecond, min(t.ttl, left))
	}
	l.mu.Unlock()
	l.hold.handOff()
	return Handoff{key: l.hold.wire.Name, owner: &l.hold.owner, token: l.token, terms: t}, nil
}

// Adopt takes over a lease that was handed off, with one round that extends it. It extends an
// auto-renewed lease for its own TTL, any other for what was left of it, and no lease for more than
// Config.MaxTTL of this client. The lease keeps its token.
// Of those that adopt one hand-off, one gets the lease, and the others ErrNotHeld: each member takes
// the vote from the owner that h names, and gives it to a new one. Lease.Handoff returns a hand-off
// of that one.
//
// After ErrNoQuorum some members may have done so, and keep their vote for that TTL from then on. Call
// Adopt again, with the same client, while the lease lasts.
//
// Errors:
//   - ErrNotHeld if a majority of the members no longer have the lease.
//   - ErrNoQuorum if too few members answered.
//   - ErrClosed.
//   - ErrInput.
func (c *Client) Adopt(ctx context.Context, h Handoff) (*Lease, error) { return c.adopt(ctx, h, true) }

// Borrow is Adopt for a process that has a lease for one step and leaves it to the next, as each
// command of a script does: end what it returns with Lease.Handoff, or with Unlock. The lease keeps
// its owner, so h stays good, and nothing keeps others that have h from the lease meanwhile.
func (c *Client) Borrow(ctx context.Context, h Handoff) (*Lease, error) {
	return c.adopt(ctx, h, false)
}

func (c *Client) adopt(ctx context.Context, h Handoff, anew bool) (*Lease, error) {
	if ctx == nil {
		return nil, badInput("adopt", "nil context")
	}
	if h.key == "" || h.owner == nil {
		return nil, badInput("adopt", "empty handoff")
	}
	name, err := c.cfg.own(h.key)
	if err == nil {
		err = checkName(name, &c.cfg)
	}
	if err != nil {
		return nil, badInput("adopt", "%v", err)
	}
	longest := max(h.terms.ttl, c.cfg.MaxTTL) // members may keep a vote for so long: its owner may have extended it
	h.terms.ttl = min(h.terms.ttl, c.cfg.MaxTTL)
	if err := checkTTL(h.terms.ttl, &c.cfg); err != nil {
		return nil, badInput("adopt", "TTL: %v", err)
	}
	if err := h.terms.kind.within(&c.cfg); err != nil {
		return nil, badInput("adopt", "%v", err)
	}
	if !c.inflight.enter() {
		return nil, &keyError{op: "adopt", key: name, err: ErrClosed}
	}
	if !c.inflight.enter() { // the lease leaves with its release, which may come before the last member is asked: see overtaken
		c.inflight.leave()
		return nil, &keyError{op: "adopt", key: name, err: ErrClosed}
	}
	now := time.Now()
	l, n, r := c.takeOver(ctx, name, &h, anew, longest, now)
	c.inflight.leave()
	defer r.Free()
	v, cause := r.Wait(ctx, now, c.cfg.MemberTimeout)
	f := quorum.Failure{Op: "adopt", Key: name, Need: c.need, Votes: r.Votes(c.members)}
	_, no, _ := f.Counts()
	if n.settle() == quorum.Lost { // the round may have ended by what followed from that
		no = max(no, c.need)
	}
	kind := c.tookOver(l, v, no)
	if kind == nil {
		if !c.keeper.add(l) {
			return nil, &keyError{op: "adopt", key: name, err: ErrClosed}
		}
		return &l.own, nil
	}
	c.waited(&f, v, cause)
	if kind == ErrNoQuorum && c.isClosed() { // perhaps under the round: then that is why
		return nil, &keyError{op: "adopt", key: name, err: ErrClosed}
	}
	return nil, &QuorumError{Failure: f, kind: kind, cause: cause}
}

// takeOver submits the round of an adoption. The lease is nobody's before tookOver says so. anew: it gets another owner.
func (c *Client) takeOver(ctx context.Context, name string, h *Handoff, anew bool, longest time.Duration, now time.Time) (*lease, *renewal, *quorum.Round) {
	owner, former := *h.owner, ""
	if anew {
		owner, former = c.adopter(*h.owner), *h.owner
	}
	held := &hold{c: c, wire: h.terms.kind.of(name, &c.cfg, &h.terms), terms: h.terms, owner: owner, former: former}
	held.longest = longest
	if c.trace.Request != nil {
		held.traced = &traced{acquire: context.Background()}
	}
	held.b = wait.Adopt(held.owner, wait.NewRoom(len(c.members)), held.ballotTerms(), int64(h.token))
	held.b.Won(h.terms.more().has())
	l := newLease(ctx, held, held.b.Await(), false, now) // held from when a majority has confirmed it
	n := &renewal{items: []renewItem{l.toRenew(h.terms.ttl)}, manual: true, adopt: true, ctx: ctx}
	return l, n, c.keeper.renew(n, now)
}

// tookOver ends an adoption that so many members have refused. It returns why the lease is not held, or nil.
func (c *Client) tookOver(l *lease, v quorum.Verdict, no int) error {
	h := l.hold
	if v == quorum.Won && l.err() == nil {
		return nil
	}
	owed, ended := l.end(ErrNotHeld)
	if no >= c.need {
		if ended { // before the renewal came to it: see lose
			owed.release.release(true).Free()
		}
		return ErrNotHeld
	}
	if ended { // it is the members' as before
		c.inflight.leave()
	}
	if h.former != "" {
		now := time.Now()
		c.tried(h.former, h.owner, now.Add(2*c.cfg.MaxTTL), now)
	}
	return ErrNoQuorum
}

// handOff leaves the votes to the client that adopts the lease, which releases them on connections of its own. No call that
// takes a vote or a place begins from now on.
func (h *hold) handOff() {
	h.c.holds.remove(h)
	h.mu.Lock()
	h.ended.Store(true)
	h.mu.Unlock()
}

// settle waits until no call of the owner is under way by which a member may give a vote, or a place in its queue; or until
// late has ended, or the lease is over.
func (h *hold) settle(late context.Context, over <-chan struct{}) {
	for ; h != nil; h = h.from {
		h.mu.Lock()
		settled := h.settled
		if h.taking+h.b.Taking() > 0 && settled == nil {
			settled = make(chan struct{})
			h.settled = settled
		}
		h.mu.Unlock()
		if settled == nil {
			continue
		}
		select {
		case <-settled:
		case <-late.Done():
			return
		case <-over:
			return
		}
	}
}
