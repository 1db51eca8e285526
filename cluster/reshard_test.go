package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// contest has contenders take one lock in turn, and watches from outside that there is one holder at a
// time, that tokens rise, and that nobody is passed over.
type contest struct {
	holder  atomic.Pointer[redlock.Lease]
	grants  atomic.Int64
	overlap atomic.Int64

	mu      sync.Mutex // guards the fields below
	token   uint64
	last    time.Time
	longest time.Duration // between two grants
	passed  int64         // grants to others while one caller waited, who may have waited in vain
	fell    int
	errs    []error
}

func (c *contest) run(ctx context.Context, client *redlock.Client, name string) {
	for ctx.Err() == nil {
		before := c.grants.Load()
		lease, err := client.Mutex(name).Lock(ctx)
		passed := c.grants.Load() - before
		c.mu.Lock()
		c.passed = max(c.passed, passed)
		c.mu.Unlock()
		if err != nil {
			if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
				c.note(fmt.Errorf("lock: %w", err))
			}
			continue
		}
		if other := c.holder.Swap(lease); other != nil && other.Err() == nil {
			c.overlap.Add(1)
		}
		c.grants.Add(1)
		c.mu.Lock()
		if lease.Token() <= c.token {
			c.fell++
		}
		c.token = lease.Token()
		now := time.Now()
		if !c.last.IsZero() {
			c.longest = max(c.longest, now.Sub(c.last))
		}
		c.last = now
		c.mu.Unlock()
		time.Sleep(200 * time.Microsecond)
		c.holder.CompareAndSwap(lease, nil)
		err = lease.Unlock(context.WithoutCancel(ctx))
		var lost *redlock.LostError
		if errors.As(err, &lost) && time.Now().After(lost.Until) {
			continue // the machine slept for as long as the lease was to last
		}
		if err != nil {
			c.note(fmt.Errorf("unlock: %w", err))
		}
	}
}

func (c *contest) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// safe says what must never be, whatever callers see.
func (c *contest) safe(t *testing.T) {
	t.Helper()
	require.Zero(t, c.overlap.Load(), "two holders")
	require.Zero(t, c.fell, "tokens that do not rise")
}

// check says what callers must never see.
func (c *contest) check(t *testing.T) {
	t.Helper()
	t.Logf("%d grants, longest pause %v, at most %d to others while one waited", c.grants.Load(), c.longest, c.passed)
	require.NoError(t, errors.Join(c.errs[:min(len(c.errs), 3)]...), "%d errors", len(c.errs))
	c.safe(t)
	require.Less(t, c.longest, heartbeat)
}

// more waits until so many locks more have been granted.
func (c *contest) more(ctx context.Context, n int64) error {
	for want := c.grants.Load() + n; c.grants.Load() < want; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d grants: %w", c.grants.Load()+n-want, n, context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// heartbeat is how long a lost push goes unnoticed in these contests: a third of Config.Entry.
const heartbeat = 10 * time.Second

// unhurried has time-outs that a busy machine does not reach. An error is then one that a server gave, or that
// the client made of a redirect; and a hand-over that needed a heartbeat cannot be taken for a slow one.
func unhurried(c *redlock.Config) {
	*c = redlock.Config{FreshMembers: true, Logger: c.Logger, Entry: 3 * heartbeat,
		DialTimeout: time.Minute, MemberTimeout: time.Minute, StallTimeout: time.Minute, NoQuorumAfter: time.Minute}
}

// handOvers counts the locks that were waited for, by what was heard last before each.
type handOvers struct {
	untold func(cause error) // called when there was one that nobody was told of

	mu sync.Mutex
	by map[redlock.WakeReason]int
}

var errUntold = errors.New("a lock was handed over, and it took a heartbeat to find out")

type heardLast struct{}

func (h *handOvers) AcquireStart(ctx context.Context, _ redlock.AcquireStart) context.Context {
	return context.WithValue(ctx, heardLast{}, new(atomic.Value))
}

func (h *handOvers) Woken(ctx context.Context, e redlock.Wake) {
	ctx.Value(heardLast{}).(*atomic.Value).Store(e.By)
}

func (h *handOvers) AcquireEnd(ctx context.Context, e redlock.AcquireEnd) {
	if e.Err != nil || !e.Waited {
		return
	}
	by, _ := ctx.Value(heardLast{}).(*atomic.Value).Load().(redlock.WakeReason)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = make(map[redlock.WakeReason]int)
	}
	if h.by[by]++; by == redlock.WokenByPoll {
		h.untold(errUntold)
	}
}

// check says that who waited was told. A push that comes from the slot's new master cannot be dated, and makes
// its client ask: that counts as redlock.WokenByExpiry here, where no lease ends by itself.
func (h *handOvers) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	all := 0
	for _, n := range h.by {
		all += n
	}
	t.Logf("locks that were waited for, by what was heard last: %v", h.by)
	require.Greater(t, h.by[redlock.WokenByGrant], all/2, "hand-overs that were told, of %d", all)
}

// reshard moves the slot of one lock from master to master under 64 callers of four clients.
func reshard(t *testing.T, server redistest.RealConfig, length time.Duration) {
	s := start(t, redistest.ShardedConfig{Replicas: 1, Server: server})
	const name, callers = "resharded", 64
	n := int(slot.Of(name))
	timed, stop := context.WithTimeout(t.Context(), length+2*time.Minute)
	defer stop()
	ctx, end := context.WithCancelCause(timed)
	heard := handOvers{untold: end}
	var clients []*redlock.Client
	for range 4 {
		clients = append(clients, open(t, s, unhurried, redlock.WithTracer(&heard)))
	}
	from := s.Index(s.Owner(t.Context(), n))
	var c contest
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(nil)
	for i := range callers {
		wg.Go(func() { c.run(ctx, clients[i%4], name) })
	}
	// Nobody else wants this one. While the slot moves it is nowhere, and its counters are: TRYAGAIN.
	var alone contest
	wg.Go(func() { alone.run(ctx, clients[0], "{"+name+"} alone") })
	var moves, pauses []time.Duration
	for start := time.Now(); time.Since(start) < length || len(moves) < 12; {
		to := (from + 1) % s.Masters
		between := func() {}
		if len(moves)%4 == 3 { // whoever moves it is slow with the last step: nobody can be served meanwhile
			between = func() { time.Sleep(200 * time.Millisecond) }
		}
		began := time.Now()
		require.NoError(t, s.MoveWith(ctx, n, from, to, between))
		moves = append(moves, time.Since(began))
		from = to
		require.NoError(t, c.more(ctx, 1))
		pauses = append(pauses, time.Since(began))
		require.NoError(t, c.more(ctx, callers)) // what a move may have lost shows before the next one
		require.NoError(t, alone.more(ctx, 1))
	}
	end(nil)
	wg.Wait()
	require.NotErrorIs(t, context.Cause(ctx), errUntold)
	slices.Sort(moves)
	slices.Sort(pauses)
	move, pause := moves[len(moves)/2], pauses[len(pauses)/2]
	t.Logf("%d moves, in the middle of %v; from its beginning to the next grant %v", len(moves), move, pause)
	// Moving a slot costs its callers no more than MemberTimeout as it is shipped. A slow machine makes the moves
	// slower, too: they are a dozen calls each, as many as it takes the callers to go on.
	require.Less(t, pause, 200*time.Millisecond+8*move, "what moving a slot costs")
	c.check(t)
	heard.check(t)
	alone.check(t)
	// In line everybody waits for the others once. Who is passed over does so for most of the grants, 768 at least.
	require.Less(t, c.passed, int64(8*callers), "grants to others while one waited")
}

// Three seconds, by servers with sharded channels and without.
func TestSlotIsMovedBackAndForthUnderItsContenders(t *testing.T) {
	t.Parallel()
	reshardBoth(t, 3*time.Second)
}

func TestLongSlotIsMovedBackAndForthUnderItsContenders(t *testing.T) { reshardBoth(t, 30*time.Second) }

func reshardBoth(t *testing.T, length time.Duration) {
	t.Run("sharded", func(t *testing.T) { reshard(t, sharded(t), length) })
	t.Run("not sharded", func(t *testing.T) { reshard(t, unsharded(t), length) })
}

// Callers whose calls travel together, on names of their own, under slots that move: one that has moved away is
// found in the middle of such a command, and costs the others nothing.
func TestCallsTravelTogetherWhileSlotsMove(t *testing.T) {
	t.Parallel()
	s := start(t, redistest.ShardedConfig{Masters: 3})
	client := open(t, s, unhurried)
	const callers = 64
	all := []string{"a", "b", "c", "d", "e", "f", "g", "h"} // the first two move
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	var done, elsewhere atomic.Int64
	errs := make(chan error, callers)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			slots := all
			if i%2 == 0 {
				slots = all[2:]
			}
			var last uint64
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				m := client.Mutex(fmt.Sprintf("{%s}:%d", slots[(i+n)%len(slots)], i))
				lease, err := m.TryLock(ctx)
				if errors.Is(err, redlock.ErrNoQuorum) && strings.Contains(err.Error(), ": redirected ") {
					elsewhere.Add(1) // two masters name each other until they have heard of the move: TryLock does not wait for that
					lease, err = m.Lock(ctx)
				}
				if err == nil {
					if n%len(slots) == 0 { // the same slot as before
						if lease.Token() <= last {
							err = fmt.Errorf("token %d after %d", lease.Token(), last)
						}
						last = lease.Token()
					}
					err = errors.Join(err, lease.Unlock(ctx))
				}
				if err != nil {
					errs <- err
					return
				}
				done.Add(1)
			}
		})
	}
	moves := 0
	for began := time.Now(); time.Since(began) < 2*time.Second || moves < 12; moves++ {
		n := int(slot.Of("{" + all[moves%2] + "}"))
		var from int
		require.Eventually(t, func() bool { from = s.Settled(ctx, n); return from >= 0 }, 10*time.Second, time.Millisecond)
		to := (from + 1) % s.Masters
		require.NoError(t, s.MoveWith(ctx, n, from, to, func() {
			for want := done.Load() + callers/2; done.Load() < want && ctx.Err() == nil; { // those of other slots go on
				time.Sleep(time.Millisecond)
			}
		}))
	}
	close(stop)
	wg.Wait()
	select {
	case err := <-errs:
		require.NoError(t, err)
	default:
	}
	commands := 0
	for _, r := range s.Servers[:s.Masters] {
		info, err := r.Do(t.Context(), "INFO", "commandstats")
		require.NoError(t, err)
		m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(info.(string))
		require.NotNil(t, m)
		calls, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		commands += calls
		keys, err := r.Do(t.Context(), "KEYS", "{[a-h]}:*")
		require.NoError(t, err)
		require.Empty(t, keys, "locks that are left")
	}
	t.Logf("%d locks in %d commands, %d moves", done.Load(), commands, moves)
	require.Less(t, elsewhere.Load(), 1+done.Load()/100, "a move is heard of soon")
	require.Less(t, int64(commands), done.Load(), "each lock is two calls")
}

// A master says of each item of a batch whether it serves its slot, and executes the others. What it does not serve
// it has not touched: an unlock is not told that it was interrupted.
func TestBatchAtAMasterOfSomeOfItsSlots(t *testing.T) {
	t.Parallel()
	s := start(t, redistest.ShardedConfig{Masters: 3})
	batch := ""
	for _, source := range redlock.Scripts() {
		if strings.Contains(source, "Carries several acquires and releases") {
			batch = source
		}
	}
	require.NotEmpty(t, batch)
	here := s.Owner(t.Context(), int(slot.Of("here")))
	away := ""
	for i := 0; away == "" || s.Owner(t.Context(), int(slot.Of(away))) == here; i++ {
		away = fmt.Sprint("away", i)
	}
	key := func(prefix, name string) string { return slot.Sibling(prefix, name) }
	args := []string{"EVAL", batch, "0", "4848", "15", key("redquorum:q", "here"), key("redquorum:q", away)}
	for _, name := range []string{"here", away} {
		tokens := key("redquorum:tokens", name)
		args = append(args, name, tokens, name, tokens, key("redquorum:w", name))
	}
	for range 4 {
		args = append(args, "owner:1", "60000")
	}
	args = append(args, strings.Repeat("7     ", 4))
	// The last argument of a release is the waiter to prefer; nobody is called 60000.
	got, err := here.Do(t.Context(), append(args, "")...)
	require.NoError(t, err)
	all := got.([]any)
	require.Len(t, all, 4)
	require.Positive(t, all[0])
	require.Equal(t, int64(1), all[1])
	for _, refused := range all[2:] {
		require.ErrorContains(t, refused.(error), "TRYAGAIN the slot is not served here")
	}
}

// A master that finds the cluster down, or a slot without an owner, executes nothing: each item is to be asked again.
func TestBatchAtAMasterThatServesNothingNow(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"a slot is nobody's", "the cluster is down", "the cluster is down, reads are served"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := start(t, redistest.ShardedConfig{Masters: 1})
			name, other := "here", "other"
			key := func(prefix string) string { return slot.Sibling(prefix, name) }
			do := func(args ...string) any {
				t.Helper()
				got, err := s.Servers[0].Do(t.Context(), args...)
				require.NoError(t, err)
				return got
			}
			ruin := strconv.Itoa(int(slot.Of(other)))
			switch state {
			case "a slot is nobody's":
				do("CONFIG", "SET", "cluster-require-full-coverage", "no")
				ruin = strconv.Itoa(int(slot.Of(name)))
			case "the cluster is down, reads are served":
				do("CONFIG", "SET", "cluster-allow-reads-when-down", "yes")
			}
			do("CLUSTER", "DELSLOTS", ruin)
			if state != "a slot is nobody's" {
				require.Eventually(t, func() bool {
					return strings.Contains(do("CLUSTER", "INFO").(string), "cluster_state:fail")
				}, 10*time.Second, time.Millisecond)
			}
			for _, source := range redlock.Scripts() {
				if !strings.Contains(source, "Carries several acquires and releases") {
					continue
				}
				tokens := key("redquorum:tokens")
				all := do("EVAL", source, "0", "49", "8", key("redquorum:q"), name, tokens, name, tokens,
					"owner:1", "60000", "owner:1", "7     7     ", "").([]any)
				require.Len(t, all, 2)
				for _, refused := range all {
					require.ErrorContains(t, refused.(error), "TRYAGAIN ")
				}
			}
		})
	}
}

// A release whose lock has gone with its slot, and whose queue has not, has done nothing: it is to be asked again, and
// not told that it was interrupted, which counts as a success.
func TestBatchIsStoppedBeforeItWrites(t *testing.T) {
	t.Parallel()
	s := start(t, redistest.ShardedConfig{Masters: 2})
	const name = "moving"
	n := int(slot.Of(name))
	here := s.Owner(t.Context(), n)
	key := func(prefix string) string { return slot.Sibling(prefix, name) }
	do := func(args ...string) any {
		t.Helper()
		got, err := here.Do(t.Context(), args...)
		require.NoError(t, err)
		return got
	}
	do("ZADD", key("redquorum:q"), "1", "waiter:1")
	do("HSET", key("redquorum:w"), "waiter:1", "99999999999999 60000")
	do("HSET", key("redquorum:tokens"), "7", "5")
	do("CLUSTER", "SETSLOT", strconv.Itoa(n), "MIGRATING", s.IDs[(s.Index(here)+1)%2])
	for _, source := range redlock.Scripts() {
		if !strings.Contains(source, "Carries several acquires and releases") {
			continue
		}
		all := do("EVAL", source, "0", "9", "6", key("redquorum:q"), name, key("redquorum:tokens"), "owner:1", "7     ", "").([]any)
		require.Len(t, all, 1)
		require.ErrorContains(t, all[0].(error), "TRYAGAIN the slot is not served here")
	}
	require.Equal(t, int64(1), do("ZCARD", key("redquorum:q")))
}
