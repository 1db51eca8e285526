package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// deployment is a set of members that a client may be opened at.
type deployment struct {
	urls    []string
	servers []redistest.Server // that have keys and channels
	away    redistest.Server   // hangs from a moment before Close on, or nil
	stop    func()             // makes it hang
	resume  func()
}

func servers[S redistest.Server](list []S) (out []redistest.Server) {
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

func plainDeployment(t *testing.T) *deployment {
	cluster := rt.Real(t, 3)
	return &deployment{urls: urls(cluster), servers: servers(cluster.Servers)}
}

// hangingDeployment has a member that hangs when its client is closed.
func hangingDeployment(t *testing.T) *deployment {
	cluster := rt.Real(t, 3)
	away := cluster.Real(2)
	t.Cleanup(away.Resume)
	return &deployment{urls: urls(cluster), servers: servers(cluster.Servers), away: away, stop: away.Pause, resume: away.Resume}
}

func shardedDeployment(t *testing.T) *deployment {
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	s, err := redistest.StartSharded(ending(t), redistest.ShardedConfig{Masters: 3, NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	url := "redis-cluster://" + strings.Join(s.Addrs(), ",") + "?failover_lag=0s"
	return &deployment{urls: []string{url}, servers: servers(s.Servers)}
}

func groupDeployment(t *testing.T) *deployment {
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	g, err := redistest.StartGroup(ending(t), redistest.GroupConfig{DownAfter: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close() })
	url := "redis-sentinel://" + strings.Join(g.Addrs(), ",") + "/" + g.Name + "?failover_lag=0s"
	return &deployment{urls: []string{url}, servers: servers(g.Servers[:1])}
}

// given collects what a busy client was given.
type given struct {
	mu     sync.Mutex
	leases []*redlock.Lease
	handed map[string]bool // names that were handed off, and not adopted by the same client
}

func (l *given) add(lease *redlock.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases = append(l.leases, lease)
}

func (l *given) hand(name string, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handed[name] = now; !now {
		delete(l.handed, name)
	}
}

// caller does everything that a client can be asked for, until it is closed. Every other caller wants a name that
// all of its kind want, so that most of them wait.
func (l *given) caller(c, other *redlock.Client, round, g int) {
	ctx := context.Background()
	for i := 0; ; i++ {
		name := fmt.Sprintf("closed:%d:own:%d:%d", round, g, i)
		shared := g%2 == 0
		if shared {
			name = fmt.Sprintf("closed:%d:all:%d", round, g/2%4)
		}
		get := c.Mutex(name).Lock
		switch g / 8 % 4 {
		case 1:
			get = c.Mutex(name).TryLock
		case 2:
			get = c.Mutex(name, redlock.As(fmt.Sprint("owner", g))).Lock
		case 3:
			get = c.Mutex(name, redlock.AutoRenew(300*time.Millisecond)).Lock
		}
		if i%5 == 4 {
			err := c.Mutex(name).Do(ctx, func(_ context.Context, lease *redlock.Lease) error { l.add(lease); return nil })
			if errors.Is(err, redlock.ErrClosed) {
				return
			}
			continue
		}
		lease, err := get(ctx)
		if errors.Is(err, redlock.ErrClosed) {
			return
		} else if err != nil {
			continue
		}
		l.add(lease)
		switch deed := i % 6; {
		case deed == 1:
			_ = lease.Extend(ctx, 20*time.Second)
		case deed == 2 && !shared:
			l.handOff(ctx, lease, c, c)
			continue
		case deed == 3 && !shared:
			l.handOff(ctx, lease, c, other)
			continue
		case deed == 5 && !shared: // keeps it until Close ends it
			continue
		case deed == 0 && g/8%4 == 2: // once more, by the same owner
			if again, err := get(ctx); err == nil {
				l.add(again)
				_ = again.Unlock(ctx)
			}
		}
		_ = lease.Unlock(ctx)
	}
}

// handOff gives a lease to a client, which unlocks it. What nobody has adopted is nobody's to release.
func (l *given) handOff(ctx context.Context, lease *redlock.Lease, from, to *redlock.Client) {
	h, err := lease.Handoff()
	if err != nil {
		_ = lease.Unlock(ctx)
		return
	}
	l.hand(h.Key(), true)
	adopted, err := to.Adopt(ctx, h)
	if err != nil {
		return
	}
	if to == from {
		l.hand(h.Key(), false)
		l.add(adopted)
	}
	_ = adopted.Unlock(ctx)
}

// What a client leaves at its members when Close has returned: nothing but leases that were handed off and that nobody
// has adopted. And every lease that it ever gave out is over.
func TestNothingOfAClientIsLeftAfterClose(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *deployment{
		"three servers": plainDeployment, "a member hangs": hangingDeployment,
		"a Redis Cluster": shardedDeployment, "a group with Sentinels": groupDeployment,
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t)
			for round := range 4 {
				d.closeBusy(t, round)
			}
		})
	}
}

func (d *deployment) open(t *testing.T) *redlock.Client {
	t.Helper()
	c := opened(t, d.urls, redlock.WithConfig(redlock.Config{FreshMembers: true, DialTimeout: 10 * time.Second}))
	require.Eventually(t, func() bool {
		for slot := range uint16(64) {
			for _, st := range redlock.StatesOf(c, slot*256) {
				if !st.Votes || !st.Inbox {
					return false
				}
			}
		}
		return true
	}, 20*time.Second, time.Millisecond)
	return c
}

func (d *deployment) closeBusy(t *testing.T, round int) {
	t.Helper()
	c, other := d.open(t), d.open(t)
	all := &given{handed: make(map[string]bool)}
	var callers sync.WaitGroup
	for g := range 64 {
		callers.Go(func() { all.caller(c, other, round, g) })
	}
	enough := 100 * (1 + round)
	require.Eventually(t, func() bool { all.mu.Lock(); defer all.mu.Unlock(); return len(all.leases) >= enough },
		20*time.Second, time.Millisecond, "busy")
	if d.stop != nil {
		d.stop()
	}
	began := time.Now()
	require.NoError(t, c.Close())
	took := time.Since(began)
	at := d.left(t, c, round) // at once
	ended := func(lease *redlock.Lease) bool {
		select {
		case <-lease.Done():
			return lease.Err() != nil
		default:
			return false
		}
	}
	all.mu.Lock()
	open := 0
	for _, lease := range all.leases {
		if !ended(lease) {
			open++
		}
	}
	leases := len(all.leases)
	all.mu.Unlock()
	callers.Wait()
	require.Less(t, took, 2500*time.Millisecond, "Close is bounded, whoever hangs")
	require.Zero(t, open, "leases of %d whose contexts are open after Close", leases)
	for _, lease := range all.leases { // nobody adds any more
		require.Error(t, lease.Err())
	}
	if d.resume != nil {
		d.resume()
	}
	require.NoError(t, other.Close())
	var left []string
	for _, key := range at.keys { // those of the other client's have the names of their first owners
		if name := strings.TrimSuffix(key[strings.Index(key, "closed:"):], "}"); !all.handed[name] {
			left = append(left, key)
		}
	}
	require.Empty(t, left, "%d votes and places are left in round %d", len(left), round)
	require.Empty(t, at.channels, "subscriptions of the client")
}

// remains is what is seen of a client at the members.
type remains struct{ keys, channels []string }

// left looks for what is left of c. Entries and votes tell whose they are; a hash that has gone meanwhile is no one's.
func (d *deployment) left(t *testing.T, c *redlock.Client, round int) (r remains) {
	t.Helper()
	for i, s := range d.servers {
		if s == d.away {
			continue
		}
		for _, pattern := range []string{"closed:%d:*", "redquorum:q:{closed:%d:*", "redquorum:w:{closed:%d:*"} {
			keys, _ := admin(t, s, "KEYS", fmt.Sprintf(pattern, round)).([]any)
			for _, key := range keys {
				var fields []any
				if name := key.(string); strings.HasPrefix(name, "redquorum:q:") {
					fields, _ = admin(t, s, "ZRANGE", name, "0", "-1").([]any)
				} else {
					fields, _ = admin(t, s, "HKEYS", name).([]any)
				}
				for _, field := range fields {
					if strings.HasPrefix(fmt.Sprint(field), redlock.UUID(c)+":") {
						r.keys = append(r.keys, key.(string))
					}
				}
			}
		}
		channels, _ := admin(t, s, "PUBSUB", "CHANNELS", script.Inbox(redlock.UUID(c))+"*").([]any)
		for _, channel := range channels {
			rest := strings.TrimPrefix(channel.(string), script.Inbox(redlock.UUID(c)))
			r.channels = append(r.channels, fmt.Sprintf("%v at server %d", rest, i))
		}
	}
	return r
}

// closer closes its client at the first event of one kind.
type closer struct {
	deaf
	at     string
	once   sync.Once
	mu     sync.Mutex
	c      *redlock.Client
	result chan error
}

func (x *closer) event(kind string) {
	x.mu.Lock()
	c := x.c
	x.mu.Unlock()
	if kind == x.at && c != nil {
		x.once.Do(func() { x.result <- c.Close() })
	}
}

func (x *closer) AcquireEnd(context.Context, redlock.AcquireEnd) { x.event("AcquireEnd") }
func (x *closer) Lost(*redlock.LostError)                        { x.event("Lost") }
func (x *closer) Renewed(redlock.Renewed)                        { x.event("Renewed") }
func (x *closer) Request(context.Context, redlock.Request)       { x.event("Request") }
func (x *closer) Member(string, bool, error)                     { x.event("Member") }
func (x *closer) Enabled(context.Context, slog.Level) bool       { return true }
func (x *closer) Handle(context.Context, slog.Record) error      { x.event("slog"); return nil }
func (x *closer) WithAttrs([]slog.Attr) slog.Handler             { return x }
func (x *closer) WithGroup(string) slog.Handler                  { return x }

// A callback runs on a goroutine that Close would wait for. Close returns there at once, and completes behind it.
func TestCloseFromACallbackReturnsAtOnceAndCompletes(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"AcquireEnd", "Lost", "Renewed", "Request", "Member", "slog"} {
		t.Run(at, func(t *testing.T) {
			d := plainDeployment(t)
			x := &closer{at: at, result: make(chan error, 1)}
			c, err := redlock.Open(t.Context(), d.urls, redlock.WithFreshMembers(), redlock.WithTracer(x), redlock.WithLogger(slog.New(x)))
			require.NoError(t, err)
			lease := locked(t, c, "closed:0:held", redlock.AutoRenew(300*time.Millisecond))
			x.mu.Lock()
			x.c = c
			x.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, _ = c.Mutex("closed:0:next").TryLock(ctx)
			switch at {
			case "Lost":
				_, err = c.ForceUnlock(ctx, "closed:0:held")
				require.NoError(t, err)
			case "Member", "slog":
				for _, of := range []string{"normal", "pubsub"} {
					admin(t, d.servers[0], "CLIENT", "KILL", "TYPE", of, "SKIPME", "yes")
				}
			}
			soon := func(done chan error, otherwise string) {
				t.Helper()
				select {
				case err := <-done:
					require.NoError(t, err)
				case <-time.After(10 * time.Second):
					t.Fatal(otherwise)
				}
			}
			soon(x.result, "Close waits for who called it")
			closed := make(chan error, 1)
			go func() { closed <- c.Close() }() // this one waits until all is done
			soon(closed, "the closing does not complete")
			select {
			case <-lease.Done():
				require.Error(t, lease.Err())
			case <-time.After(10 * time.Second):
				t.Fatal("a lease goes on")
			}
			require.Zero(t, d.left(t, c, 0))
		})
	}
}
