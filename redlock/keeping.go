package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// What a client keeps after the last Unlock: docs/protocol/passing.md, "Keeping".

// giveWay is called before an attempt asks members for a lock of a kind, whose key is given. What the client keeps of that name, and
// excludes it, is released before. But if callers stand in line for that, it is theirs.
func (c *Client) giveWay(key string, k *kind) {
	if sitesOf.of(c).kept.Load() == 0 {
		return
	}
	name := k.line(c.cfg.nameOf(key))
	sh := sitesOf.of(c).shard(name)
	var ends, leaving []*tenure
	sh.mu.Lock()
	if s := sh.m[name]; s != nil {
		leaving = slices.Clone(s.leaving)
		for _, t := range s.open {
			if t.kept && len(s.places) == 0 && !(t.kind.together && k.together) {
				ends = append(ends, t)
			}
		}
	}
	for _, t := range ends {
		t.overLocked()
	}
	sh.mu.Unlock()
	for _, t := range ends {
		t.giveBack(false)
	}
	for _, t := range leaving {
		<-t.left
	}
}

// takes gets what the client keeps of a name, if it keeps it for such callers; nil: the caller is to go on. If members have to be
// asked whether anybody waits, a caller that does not wait for the lock waits for their answers here, others do so in line.
func (c *Client) takes(ctx context.Context, w *want) (*Lease, result) {
	if sitesOf.of(c).kept.Load() == 0 || !w.passes(&c.cfg) {
		return nil, result{}
	}
	s := c.shareKept(ctx, w)
	if s == nil {
		return nil, result{}
	}
	l, ok := s.begin(s.granted)
	if !ok {
		return nil, result{}
	}
	return l, result{Grant: wait.Grant{In: s.of.in}, passed: true}
}

// shareKept gets the next share of a tenure that is kept, nil if there is none.
func (c *Client) shareKept(ctx context.Context, w *want) *share {
	sh, done, now := sitesOf.of(c).shard(w.name), ctx.Done(), time.Now()
	sh.mu.Lock()
	s := sh.m[w.name]
	if s == nil || s.busy > 0 || len(s.places) > 0 {
		sh.mu.Unlock()
		return nil
	}
	t := s.passing(w.terms)
	if t == nil || !t.kept {
		sh.mu.Unlock()
		return nil
	}
	var next *share
	if t.lasts(now) {
		next = t.nextShareLocked(ctx, w.terms, now)
	}
	if next != nil || !w.try { // who waits stands in line once: others would come before it
		sh.mu.Unlock()
		return next
	}
	p := &place{turn: make(chan struct{}), width: w.terms.kind.width, terms: w.terms, ctx: ctx, done: done}
	if err := sh.standLocked(s, p, c.closed); (err != nil || p.share == nil) && sitesOf.of(c).leave(w.name, p) {
		return nil
	}
	return p.share
}
