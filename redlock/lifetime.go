package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// newClient makes a client over members: those of Open, or fakes in tests. The client owns them from
// then on, and Close closes them. If newClient returns an error, they are still the caller's.
func newClient(members []member.Member, cfg Config) (*Client, error) {
	cfg.untilClosed()
	cfg = cfg.withDefaults()
	if err := errors.Join(checkMembers(len(members)), cfg.validate()); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, log: cfg.Logger, trace: cfg.Tracer,
		members: members, need: member.Majority(len(members)),
		kept: newKept(), closed: make(chan struct{}), gone: make(chan struct{}), told: make(chan struct{}),
	}
	c.naming.init()
	c.inflight.none = make(chan struct{}, 1)
	c.changes.ch = make(chan struct{})
	for _, m := range members {
		s, _ := m.(ability.Slotted)
		c.slotted = append(c.slotted, s)
		p, _ := m.(ability.Spread)
		c.spread = append(c.spread, p)
		c.perSlot = c.perSlot || s != nil
		b, _ := m.(ability.Briefed)
		c.briefed = append(c.briefed, b)
	}
	c.keeper.init(c)
	c.notifier.init(c)
	go c.keeper.run()
	go c.keeper.renewing()
	go c.notifier.run()
	for i, m := range members {
		l := &link{c: c, i: i, state: standingOf(m.State()), since: time.Now()}
		c.links = append(c.links, l)
		m.Listen(script.Inbox(c.uuid), l)
	}
	go c.tellWho()
	return c, nil
}

// Close gives back everything that the client has at the members, and ends its goroutines. When
// Close returns:
//
//   - The context of every lease has ended. If the lease was held, its error matches ErrClosed.
//   - Each Lock, TryLock and Adopt that was running has returned ErrClosed, or is about to.
//   - No member that the client can reach has a vote, an entry or a subscription of this client.
//   - Neither the Logger nor the Tracer is called any more.
//
// Leases that were handed off no longer belong to the client. Close returns within about two
// seconds, even if members hang or a Tracer blocks. What it could not give back by then ends with
// its TTL.
//
// Close may be called twice, and from any goroutine. It does not wait for functions of Do: the context of
// such a function has ended when Close returns, also where the function itself calls Close. A Tracer or a
// Logger should not wait for Close, because Close waits for it, until those two seconds are over: such a
// callback calls Close on a goroutine of its own.
func (c *Client) Close() error {
	if c == nil { // what an Open that has failed returns
		return nil
	}
	if c.closing.CompareAndSwap(false, true) {
		c.close()
		close(c.gone)
	}
	<-c.gone
	return nil
}

// close is what Close does. First nothing new begins, then everything that has begun comes to
// its release, and only then are the members closed: they carry out what was submitted before.
func (c *Client) close() {
	hushed, cancel := context.WithTimeout(context.Background(), closeWithin+cutWithin+hushWithin)
	defer cancel()
	defer c.cfg.callbacks.hush(hushed)
	last, stopCut := context.WithTimeout(hushed, closeWithin+cutWithin)
	defer stopCut()
	ctx, end := context.WithTimeoutCause(last, closeWithin, fmt.Errorf("it had %v", closeWithin))
	defer end()
	c.inflight.end()
	close(c.closed)
	<-c.keeper.done
	c.keeper.endAll()
	calls, stop := context.WithTimeout(ctx, callsWithin)
	defer stop()
	select {
	case <-c.inflight.none:
	case <-calls.Done():
		c.holds.each(func(h *hold) { h.release(true).Free() })
	}
	c.notifier.end()
	select {
	case <-c.told:
	case <-ctx.Done():
	}
	var wg sync.WaitGroup
	for _, m := range c.members {
		wg.Go(func() {
			if err := m.Close(ctx); err != nil {
				c.log.Warn("member closed with work undone", "member", m.Name(), "err", err)
			}
		})
	}
	cut := make(chan struct{})
	go func() { wg.Wait(); close(cut) }()
	// Unless the user's code blocks them:
	select {
	case <-cut:
	case <-last.Done():
	}
	for _, done := range []chan struct{}{c.keeper.paused, c.notifier.done} {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// untilClosed has a client's Logger and Tracer called until Close has returned. A Config that Open has seen keeps what it
// has: the client has that of its members.
func (c *Config) untilClosed() {
	if c.callbacks != nil {
		return
	}
	c.callbacks = &callbacks{inflight{none: make(chan struct{}, 1)}}
	c.Tracer = c.Tracer.untilClosed(c.callbacks)
	if c.Logger != nil {
		c.Logger = slog.New(logging{c.Logger.Handler(), c.callbacks})
	}
}
