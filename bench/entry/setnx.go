package entry

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

func init() {
	register(Spec{
		Name: "setnx-expire", Kind: Redis, Module: "github.com/redis/go-redis/v9", Members: []int{1},
		Note:   "the recipe SETNX, EXPIRE, DEL over go-redis, polls every 10 ms. Not safe: a crash between the first two locks for ever, and DEL deletes whosever lock it is",
		Shapes: []string{Uncontended, Shared, Separate, Renewed},
		Open: func(_ context.Context, env Env) (Locker, error) {
			return &setnx{redis.NewClient(&redis.Options{Addr: env.Members[0]}), env.Lease}, nil
		},
	})
}

type setnx struct {
	redis *redis.Client
	lease time.Duration
}

func (l *setnx) Close() { _ = l.redis.Close() }

func (l *setnx) Acquire(ctx context.Context, name string) (Held, error) {
	for {
		n, err := l.redis.Do(ctx, "SETNX", name, "1").Int()
		if err != nil {
			return nil, err
		}
		if n == 1 {
			h := setnxHeld{l, name}
			if err := h.Extend(ctx); err != nil {
				return nil, err
			}
			return h, nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

type setnxHeld struct {
	l    *setnx
	name string
}

func (h setnxHeld) Release(ctx context.Context) error {
	n, err := h.l.redis.Del(ctx, h.name).Result()
	if err == nil && n == 0 {
		err = errNotHeld
	}
	return err
}

func (h setnxHeld) Extend(ctx context.Context) error {
	return h.l.redis.Do(ctx, "EXPIRE", h.name, int64(h.l.lease.Seconds())).Err()
}
