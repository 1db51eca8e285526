package entry

import (
	"context"
	"fmt"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

func (l *redquorum) AcquirePermit(ctx context.Context, name string, limit int) (Held, error) {
	lease, err := l.client.Semaphore(name, limit, l.options...).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return redquorumPermit{redquorumHeld{lease}}, nil
}

type redquorumPermit struct{ redquorumHeld }

func (h redquorumPermit) Slot() int { return h.lease.Slot() }

func (l *redquorum) Latch(_ context.Context, name string, count int) (Latch, error) {
	return redquorumLatch{l.client.Latch(name, count)}, nil
}

type redquorumLatch struct{ latch *redlock.Latch }

func (l redquorumLatch) Arrive(ctx context.Context) error { return l.latch.CountDown(ctx) }
func (l redquorumLatch) Await(ctx context.Context) error  { return l.latch.Await(ctx) }

func (l *redquorum) Campaign(ctx context.Context, name, value string) (Held, error) {
	return heldLease(l.client.Election(name, l.options...).Campaign(ctx, []byte(value)))
}

func (l *redquorum) Observe(ctx context.Context, name string, told func(value string)) error {
	for leader := range l.client.Election(name).Observe(ctx) {
		if !leader.None {
			told(string(leader.Value))
		}
	}
	return ctx.Err()
}

// Clean deletes what is kept of latches for their life, and of elections for twice the longest lease.
func (l *redquorum) Clean(ctx context.Context, name string) error {
	switch l.shape {
	case Arrivals:
		return l.client.Latch(name, 0).Delete(ctx)
	case Leading:
		return forget(ctx, l.members, slot.Sibling("redquorum:e1", name), slot.Sibling("redquorum:eo", name))
	}
	return nil
}

// forget deletes keys at all members.
func forget(ctx context.Context, members []string, keys ...string) error {
	ws, err := dialWires(ctx, members)
	if err != nil {
		return err
	}
	defer ws.Close()
	f := newFan(len(members), func(r reply) bool { return r.kind == ':' })
	ws.ask(command(append([]string{"DEL"}, keys...)...), f, 0, ws.everybody(), true)
	if won, err := f.wait(ctx); err != nil || !won {
		return fmt.Errorf("keys stay: %w", errNotHeld)
	}
	return nil
}
