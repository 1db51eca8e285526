package entry

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

func init() {
	register(Spec{
		Name: "redquorum", Kind: Redis, Level: true,
		Note:   "this library, defaults, but for leases with a fixed TTL, as those of redsync, except where the work needs renewed ones (W3, W6, W9, W14, held leases of W15, W20)",
		Shapes: []string{Uncontended, Shared, Separate, InOrder, ReadWrite, Together, Sets, Room, Permits, Arrivals, Leading, Returning, Renewed, Memory},
		Inner:  ourInner,
		Open:   openRedquorum,
	})
	register(Spec{
		Name: "redquorum-new", Kind: Redis,
		Note:   "this library at members whose token counters were never used: the first lock of each slot takes a second round",
		Shapes: []string{Uncontended, Separate},
		Inner:  ourInner,
		Open:   openRedquorum,
	})
	register(Spec{
		Name: "redquorum-keep", Kind: Redis, Level: true,
		Note:   "this library, whose client keeps a lock for 50 ms after its last unlock",
		Shapes: []string{Again, Shared},
		Inner:  ourInner,
		Open: func(ctx context.Context, env Env) (Locker, error) {
			l, err := dialRedquorum(ctx, env)
			if err != nil {
				return nil, err
			}
			l.options = append(l.options, redlock.Keep(keepFor))
			return l, nil
		},
	})
	register(Spec{
		Name: "redquorum-release", Kind: Redis, Level: true,
		Note:   "this library, whose holders do not wait for the answers to their releases",
		Shapes: []string{Uncontended},
		Inner:  ourInner,
		Open: func(ctx context.Context, env Env) (Locker, error) {
			l, err := dialRedquorum(ctx, env)
			return redquorumReleases{l}, err
		},
	})
}

// keepFor is how long redquorum-keep keeps a lock that nobody wants: shorter than what the suite waits before it looks for
// keys that are left.
const keepFor = 50 * time.Millisecond

type redquorumReleases struct{ *redquorum }

func (l redquorumReleases) Acquire(ctx context.Context, name string) (Held, error) {
	lease, err := l.client.Mutex(name, l.options...).Lock(ctx)
	return redquorumReleased{lease}, err
}

type redquorumReleased struct{ lease *redlock.Lease }

func (h redquorumReleased) Release(context.Context) error { return h.lease.Release() }

type redquorum struct {
	client  *redlock.Client
	shape   string
	members []string
	options []redlock.LockOption
	counts  redquorumCounts
	last    atomic.Pointer[namedMutex]
}

type namedMutex struct {
	name string
	*redlock.Mutex
}

// redquorumCounts has the tracer: it only counts.
type redquorumCounts struct {
	acquired, second, renewed atomic.Int64

	first string // member
	lost  atomic.Int64
}

func (c *redquorumCounts) tracer() redlock.Tracer {
	return redlock.Tracer{
		CallEnd: c.ended, Member: c.member,
		RenewalEnd: func(_ context.Context, e redlock.RenewalEnd) { c.renewed.Add(int64(e.Renewed)) },
	}
}

func (c *redquorumCounts) member(name string, up bool, _ error) {
	if !up && name != c.first {
		c.lost.Add(1)
	}
}

func (c *redquorumCounts) ended(_ context.Context, e redlock.CallEnd) {
	if e.Err == nil && e.Kind != redlock.KindLatch {
		c.acquired.Add(1)
		if e.SecondRound {
			c.second.Add(1)
		}
	}
}

func openRedquorum(ctx context.Context, env Env) (Locker, error) {
	l, err := dialRedquorum(ctx, env)
	switch {
	case err != nil:
		return nil, err
	case env.readers():
		return &redquorumReadWrite{redquorum: l, keep: env.Shape == Together}, nil
	case env.Shape == InOrder:
		l.options = append(l.options, redlock.Fair())
	case env.Shape == Sets:
		return redquorumSets{l}, nil
	}
	return l, nil
}

func dialRedquorum(ctx context.Context, env Env) (*redquorum, error) {
	var urls []string
	for _, m := range env.Members {
		urls = append(urls, "redis://"+m)
	}
	l := &redquorum{shape: env.Shape, members: env.Members, options: []redlock.LockOption{redlock.TTL(env.Lease)}}
	// Its callers pass on, share and keep renewed leases only.
	if env.Renew || env.readers() || env.Shape == Leading || l.oneName() {
		l.options[0] = redlock.AutoRenew(env.Lease)
	}
	cfg := redlock.Config{FreshMembers: true, Tracer: l.counts.tracer()}
	if env.Shape == Returning {
		cfg.MaxTTL = env.Lease
	}
	if env.Slow {
		cfg.DialTimeout, cfg.MemberTimeout, cfg.StallTimeout, cfg.PingInterval = time.Minute, time.Minute, 2*time.Minute, 10*time.Minute
		cfg.NoQuorumAfter = 2 * time.Minute
	}
	l.counts.first = env.Members[0]
	var err error
	l.client, err = redlock.Open(ctx, urls, cfg)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *redquorum) Close() { _ = l.client.Close() }

// oneName tells whether callers want one name all the time.
func (l *redquorum) oneName() bool { return l.shape == Shared || l.shape == Again }

// mutex keeps the Mutex of the last name, for callers that want one name all the time, as a program does then.
func (l *redquorum) mutex(name string) *redlock.Mutex {
	m := l.last.Load()
	if m == nil || m.name != name {
		m = &namedMutex{name, l.client.Mutex(name, l.options...)}
		l.last.Store(m)
	}
	return m.Mutex
}

func (l *redquorum) Acquire(ctx context.Context, name string) (Held, error) {
	if l.oneName() {
		return heldLease(l.mutex(name).Lock(ctx))
	}
	return heldLease(l.client.Mutex(name, l.options...).Lock(ctx))
}

// Try tries a lock once.
func (l *redquorum) Try(ctx context.Context, name string) (Held, error) {
	return heldLease(l.client.Mutex(name, l.options...).TryLock(ctx))
}

// Voting counts the members that vote.
func (l *redquorum) Voting() (n int) {
	for _, m := range l.client.Members() {
		if m.State == redlock.MemberVoting {
			n++
		}
	}
	return n
}

// Lost counts how often members other than the first went down.
func (l *redquorum) Lost() int64 { return l.counts.lost.Load() }

type redquorumHeld struct{ lease *redlock.Lease }

func (h redquorumHeld) Release(ctx context.Context) error { return h.lease.Unlock(ctx) }

// Rounds tells how many acquisitions needed a raise.
func (l *redquorum) Rounds() (acquired, second int64) {
	return l.counts.acquired.Load(), l.counts.second.Load()
}

// Renewals counts the leases that were renewed.
func (l *redquorum) Renewals() int64 { return l.counts.renewed.Load() }

// Registered is the longest queue that any member knows.
func (l *redquorum) Registered(ctx context.Context, name string) (n int, err error) {
	i, err := l.client.Inspect(ctx, name)
	if err != nil {
		return 0, err
	}
	for _, m := range i.Members {
		n = max(n, len(m.Queue))
	}
	return n, nil
}
