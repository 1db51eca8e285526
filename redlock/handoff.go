package redlock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
)

// Handoff is a lease in transit to another process: what Client.Adopt needs to go on with it. Whoever
// has it can release the lock, so treat it as a secret: its String is masked, MarshalText is not.
type Handoff struct {
	key   string
	owner string
	token uint64
	terms terms
}

type handoffWire struct {
	Key    []byte `json:"k"`
	Owner  string `json:"o"`
	Token  uint64 `json:"t"`
	TTL    int64  `json:"l"` // ms
	Renew  bool   `json:"r"`
	MaxMS  int64  `json:"m"`
	Format int    `json:"v"`
}

const handoffPrefix = "redquorum1."

// MarshalText encodes the handoff as one printable word.
func (h Handoff) MarshalText() ([]byte, error) {
	b, err := json.Marshal(handoffWire{
		Key: []byte(h.key), Owner: h.owner, Token: h.token, Format: 1,
		TTL: millis(h.terms.ttl), Renew: h.terms.renew, MaxMS: h.terms.maxHold.Milliseconds(),
	})
	if err != nil {
		return nil, err
	}
	return []byte(handoffPrefix + base64.RawURLEncoding.EncodeToString(b)), nil
}

// UnmarshalText decodes what MarshalText made. The error is an *InputError and quotes nothing.
func (h *Handoff) UnmarshalText(text []byte) error {
	body, found := strings.CutPrefix(string(text), handoffPrefix)
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if !found || err != nil {
		return badInput("handoff", "not a lease: it must begin with %q and be whole", handoffPrefix)
	}
	var w handoffWire
	if json.Unmarshal(raw, &w) != nil || w.Format != 1 || len(w.Key) == 0 || w.Token == 0 ||
		w.TTL < 1 || w.TTL > int64(1<<40) || !strings.Contains(w.Owner, ":") {
		return badInput("handoff", "not a lease, or one of another version")
	}
	*h = Handoff{key: string(w.Key), owner: w.Owner, token: w.Token, terms: terms{
		ttl: time.Duration(w.TTL) * time.Millisecond, renew: w.Renew, maxHold: time.Duration(w.MaxMS) * time.Millisecond,
	}}
	return nil
}

// Key returns the name of the lock.
func (h Handoff) Key() string { return h.key }

// Token returns the fencing token.
func (h Handoff) Token() uint64 { return h.token }

func (h Handoff) String() string {
	return fmt.Sprintf("lease %s (token %d)", quorum.Quote(h.key), h.token)
}

// GoString masks the owner, as String does.
func (h Handoff) GoString() string { return h.String() }

// Handoff stops looking after the lease without releasing it: its context ends with ErrHandedOff, no
// renewal is sent, and the members keep it for what is left of its TTL. Another process, or another
// client of this one, takes it over with Client.Adopt before that.
func (l *Lease) Handoff() (Handoff, error) {
	if l.Err() != nil || !l.end(ErrHandedOff) {
		return Handoff{}, l.notHeld("handoff")
	}
	l.c.attempts.remove(l.a)
	l.mu.Lock()
	t := l.a.terms
	if !t.renew {
		t.ttl = max(time.Millisecond, min(t.ttl, clock.Until(l.until, time.Now())))
	}
	l.mu.Unlock()
	return Handoff{key: l.key, owner: l.a.owner, token: l.token, terms: t}, nil
}

// Adopt takes over a lease that was handed off, with one round that extends it: for its own TTL if it
// is auto-renewed, for what was left of it otherwise. It has the same token. The lease must not be
// adopted twice.
//
// Errors: ErrNotHeld if a majority no longer has it, ErrNoQuorum if too few members answered, ErrInput.
func (c *Client) Adopt(ctx context.Context, h Handoff) (*Lease, error) {
	if ctx == nil {
		return nil, badInput("adopt", "nil context")
	}
	if h.key == "" {
		return nil, badInput("adopt", "empty handoff")
	}
	if err := checkTTL(h.terms.ttl, c.cfg); err != nil {
		return nil, badInput("adopt", "TTL: %v", err)
	}
	if c.isClosed() {
		return nil, &keyError{op: "adopt", key: h.key, err: ErrClosed}
	}
	a := &attempt{c: c, keys: c.cfg.keysOf(h.key), terms: h.terms, owner: h.owner}
	a.b = newBallot(h.owner, len(c.members), h.terms, &c.cfg)
	a.b.token = int64(h.token)
	for i := range a.b.m {
		a.b.m[i].sent = 1 // each may have it: all are owed the release
	}
	now := time.Now()
	// What a majority is about to confirm, and no more: a renewal only lengthens. Nobody has the lease
	// before that.
	until := now.Add(clock.Validity(h.terms.ttl, c.cfg.Drift))
	l := newLease(ctx, a, grant{token: int64(h.token), until: until}, false, now)
	r := c.keeper.renew(&renewal{items: []renewItem{{l: l, ttl: h.terms.ttl}}, manual: true, adopt: true, ctx: ctx}, now)
	defer r.Free()
	v, cause := r.Wait(ctx, c.cfg.MemberTimeout)
	if v == quorum.Won && l.Err() == nil && c.keeper.add(l) {
		return l, nil
	}
	f := quorum.Failure{Op: "adopt", Key: h.key, Need: c.need, Votes: r.Votes(c.members), Early: v == quorum.Lost}
	l.end(ErrNotHeld)
	if _, no, _ := f.Counts(); no >= c.need {
		return nil, &QuorumError{Failure: f, kind: ErrNotHeld, cause: cause}
	}
	return nil, &QuorumError{Failure: f, kind: ErrNoQuorum, cause: cause}
}
