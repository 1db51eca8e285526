package entry

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func init() {
	for _, s := range []struct {
		name, note string
		retry      time.Duration
		shapes     []string
	}{
		{"bsm-redislock", "bsm/redislock over go-redis, tries again after 100 ms, as in its documentation", 100 * time.Millisecond, []string{Uncontended, Shared, Separate, Renewed, Memory}},
		{"bsm-redislock-eager", "bsm/redislock over go-redis, tries again after 1 ms", time.Millisecond, []string{Shared, Separate}},
	} {
		register(Spec{
			Name: s.name, Note: s.note, Kind: Redis, Module: "github.com/bsm/redislock", Members: []int{1}, Shapes: s.shapes,
			Inner: []string{"get", "set", "del", "pexpire", "pttl", "getrange", "mget", "exists"},
			Open: func(_ context.Context, env Env) (Locker, error) {
				c := redis.NewClient(&redis.Options{Addr: env.Members[0]})
				return &bsmLocker{redis: c, locks: redislock.New(c), lease: env.Lease, retry: s.retry}, nil
			},
		})
	}
}

type bsmLocker struct {
	redis *redis.Client
	locks *redislock.Client
	lease time.Duration
	retry time.Duration
}

func (l *bsmLocker) Close() { _ = l.redis.Close() }

func (l *bsmLocker) Acquire(ctx context.Context, name string) (Held, error) {
	if _, ok := ctx.Deadline(); !ok { // without one it gives up after the lease
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Hour)
		defer cancel()
	}
	lock, err := l.locks.Obtain(ctx, name, l.lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(l.retry)})
	if err != nil {
		return nil, err
	}
	return bsmHeld{lock, l.lease}, nil
}

type bsmHeld struct {
	lock  *redislock.Lock
	lease time.Duration
}

func (h bsmHeld) Release(ctx context.Context) error { return h.lock.Release(ctx) }

func (h bsmHeld) Extend(ctx context.Context) error { return h.lock.Refresh(ctx, h.lease, nil) }
