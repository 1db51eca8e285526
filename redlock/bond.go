package redlock

import (
	"context"
	"time"
)

func (alone) expire(l *lease) { l.lose(l.lapsed()) }

func (alone) forget(l *lease) {
	l.c.keeper.remove(l)
	ownersOf.of(l.c).remove(l)
}

func (alone) renewed(time.Time) {}

func (alone) extend(ctx context.Context, l *lease, ttl time.Duration) error {
	return l.c.keeper.extend(ctx, l, ttl)
}

func (alone) apart() error { return nil }

func (alone) held(l *lease) (int, time.Time) { return 1, l.granted }
