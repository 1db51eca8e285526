package entry

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

func init() {
	const module = "github.com/go-redsync/redsync/v4"
	inner := []string{"get", "del", "pexpire"}
	shapes := []string{Uncontended, Shared, Separate, Renewed, Memory}
	contended := []string{Shared, Separate}
	eager := func(_ int) time.Duration { return 500*time.Microsecond + rand.N(1500*time.Microsecond) }
	for _, s := range []struct {
		name, note string
		shapes     []string
		pool       func(ctx context.Context, addr string) (redsyncPool, error)
		options    []redsync.Option
	}{
		{"redsync-goredis", "redsync over go-redis, defaults, tries without end", shapes, goredisPool, nil},
		{"redsync-rueidis", "redsync over rueidis, defaults, tries without end", shapes, rueidisPool, nil},
		{"redsync-goredis-ff", "redsync over go-redis, WithFailFast", []string{Uncontended}, goredisPool, []redsync.Option{redsync.WithFailFast(true)}},
		{"redsync-rueidis-ff", "redsync over rueidis, WithFailFast", []string{Uncontended}, rueidisPool, []redsync.Option{redsync.WithFailFast(true)}},
		{"redsync-goredis-eager", "redsync over go-redis, tries again after 0.5–2 ms", contended, goredisPool, []redsync.Option{redsync.WithRetryDelayFunc(eager)}},
		{"redsync-rueidis-eager", "redsync over rueidis, tries again after 0.5–2 ms", contended, rueidisPool, []redsync.Option{redsync.WithRetryDelayFunc(eager)}},
	} {
		leaves := ""
		if strings.HasSuffix(s.name, "-ff") {
			leaves = "WithFailFast returns at the majority; a SET that is still on its way may arrive behind the release"
		}
		register(Spec{
			Name: s.name, Note: s.note, Kind: Redis, Module: module, Shapes: s.shapes, Inner: inner, Leaves: leaves,
			Open: func(ctx context.Context, env Env) (Locker, error) { return openRedsync(ctx, env, s.pool, s.options) },
		})
	}
}

type redsyncPool struct {
	pool  redsyncredis.Pool
	close func()
}

func goredisPool(_ context.Context, addr string) (redsyncPool, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	return redsyncPool{redsyncgoredis.NewPool(c), func() { _ = c.Close() }}, nil
}

func rueidisPool(_ context.Context, addr string) (redsyncPool, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true})
	if err != nil {
		return redsyncPool{}, err
	}
	return redsyncPool{redsyncrueidis.NewPool(rueidiscompat.NewAdapter(c)), c.Close}, nil
}

type redsyncLocker struct {
	pools   []redsyncPool
	sync    *redsync.Redsync
	options []redsync.Option
}

func openRedsync(ctx context.Context, env Env, dial func(context.Context, string) (redsyncPool, error), options []redsync.Option) (Locker, error) {
	l := &redsyncLocker{options: append([]redsync.Option{redsync.WithExpiry(env.Lease), redsync.WithTries(1 << 30)}, options...)}
	var pools []redsyncredis.Pool
	for _, m := range env.Members {
		p, err := dial(ctx, m)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.pools = append(l.pools, p)
		pools = append(pools, p.pool)
	}
	l.sync = redsync.New(pools...)
	return l, nil
}

func (l *redsyncLocker) Close() {
	for _, p := range l.pools {
		p.close()
	}
}

func (l *redsyncLocker) Acquire(ctx context.Context, name string) (Held, error) {
	m := l.sync.NewMutex(name, l.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{m}, nil
}

type redsyncHeld struct{ m *redsync.Mutex }

func (h redsyncHeld) Release(ctx context.Context) error {
	ok, err := h.m.UnlockContext(ctx)
	if err == nil && !ok {
		err = errNotHeld
	}
	return err
}

func (h redsyncHeld) Extend(ctx context.Context) error {
	ok, err := h.m.ExtendContext(ctx)
	if err == nil && !ok {
		err = errNotHeld
	}
	return err
}
