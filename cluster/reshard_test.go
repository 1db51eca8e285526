package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
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
		rt.Locked(&c.mu, func() { c.passed = max(c.passed, passed) })
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

func (c *contest) note(err error) { rt.Locked(&c.mu, func() { c.errs = append(c.errs, err) }) }

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
}

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

func (h *handOvers) tracer() redlock.Tracer {
	return redlock.Tracer{CallStart: h.start, CallEnd: h.end, Woken: h.woken}
}

func (h *handOvers) start(ctx context.Context, _ redlock.CallStart) context.Context {
	return context.WithValue(ctx, heardLast{}, new(atomic.Value))
}

func (h *handOvers) woken(ctx context.Context, _ redlock.LockName, by redlock.WakeReason) {
	ctx.Value(heardLast{}).(*atomic.Value).Store(by)
}

func (h *handOvers) end(ctx context.Context, e redlock.CallEnd) {
	if e.Err != nil || !e.Waited {
		return
	}
	by, _ := ctx.Value(heardLast{}).(*atomic.Value).Load().(redlock.WakeReason)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = make(map[redlock.WakeReason]int)
	}
	if h.by[by]++; by == "poll" {
		h.untold(errUntold)
	}
}

// check says that who waited was told. A push that comes from the slot's new master cannot be dated, and makes
// its client ask: that counts as "expiry" here, where no lease ends by itself.
func (h *handOvers) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	all := 0
	for _, n := range h.by {
		all += n
	}
	t.Logf("locks that were waited for, by what was heard last: %v", h.by)
	require.Greater(t, h.by["notify"], all/2, "hand-overs that were told, of %d", all)
}

// reshard moves the slot of one lock from master to master, so often at least, under callers of several clients.
func reshard(t *testing.T, config redistest.ShardedConfig, callers, moved int, length time.Duration, opts ...func(*redlock.Config)) {
	s := start(t, config)
	const name = "resharded"
	n := int(slot.Of(name))
	timed, stop := context.WithTimeout(t.Context(), length+3*time.Minute)
	defer stop()
	ctx, end := context.WithCancelCause(timed)
	heard := handOvers{untold: end}
	var clients []*redlock.Client
	for range max(2, callers/16) {
		clients = append(clients, open(t, s, append([]func(*redlock.Config){unhurried, traced(heard.tracer())}, opts...)...))
	}
	from := s.Index(s.Owner(t.Context(), n))
	var c contest
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(nil)
	for i := range callers {
		wg.Go(func() { c.run(ctx, clients[i%len(clients)], name) })
	}
	// Nobody else wants this one. While the slot moves it is nowhere, and its counters are: TRYAGAIN.
	var alone contest
	wg.Go(func() { alone.run(ctx, clients[0], "{"+name+"} alone") })
	// These travel together with calls of the slot that moves. They go on while it is nowhere.
	others := make([]contest, callers/8)
	for i := range others {
		wg.Go(func() { others[i].run(ctx, clients[i%len(clients)], fmt.Sprint(names[i%3], " of ", i)) })
	}
	var moves, pauses []time.Duration
	for start := time.Now(); time.Since(start) < length || len(moves) < moved; {
		to := (from + 1) % s.Masters
		between := func() {}
		if len(moves)%4 == 3 { // whoever moves it is slow with the last step: nobody of its slot can be served meanwhile
			between = func() { require.NoError(t, others[0].more(ctx, 10)) }
		}
		began := time.Now()
		require.NoError(t, s.MoveWith(ctx, n, from, to, between))
		moves = append(moves, time.Since(began))
		from = to
		require.NoError(t, c.more(ctx, 1))
		pauses = append(pauses, time.Since(began))
		require.NoError(t, c.more(ctx, int64(callers))) // what a move may have lost shows before the next one
		require.NoError(t, alone.more(ctx, 1))
	}
	end(nil)
	wg.Wait()
	require.NotErrorIs(t, context.Cause(ctx), errUntold)
	c.check(t)
	heard.check(t)
	alone.check(t)
	for i := range others {
		others[i].check(t)
	}
	if length == 0 {
		return
	}
	slices.Sort(moves)
	slices.Sort(pauses)
	move, pause := moves[len(moves)/2], pauses[len(pauses)/2]
	t.Logf("%d moves, in the middle of %v; from its beginning to the next grant %v", len(moves), move, pause)
	// Moving a slot costs its callers no more than MemberTimeout as it is shipped. A slow machine makes the moves
	// slower, too: they are a dozen calls each, as many as it takes the callers to go on.
	require.Less(t, pause, 200*time.Millisecond+8*move, "what moving a slot costs")
	require.Less(t, c.longest, heartbeat)
	require.Less(t, alone.longest, heartbeat)
	// In line everybody waits for the others once. Who is passed over does so for most of the grants, 768 at least.
	require.Less(t, c.passed, int64(8*callers), "grants to others while one waited")
}

// Once round all masters, of which one is new in the cluster: it has nothing to forget, and votes at once. No heartbeat helps.
func TestSlotIsMovedUnderItsContenders(t *testing.T) {
	t.Parallel()
	reshard(t, redistest.ShardedConfig{Masters: 4, Spare: 1, Server: sharded(t)}, 16, 4, 0, slow)
}

func TestLongSlotIsMovedBackAndForthUnderItsContenders(t *testing.T) {
	long(t)
	for name, server := range map[string]func(t *testing.T) redistest.RealConfig{"sharded": sharded, "not sharded": unsharded} {
		t.Run(name, func(t *testing.T) {
			reshard(t, redistest.ShardedConfig{Replicas: 1, Server: server(t)}, 64, 12, 30*time.Second)
		})
	}
}

func batch(t *testing.T) string {
	t.Helper()
	other := func(source string) bool { return !strings.Contains(source, "Carries several acquires and releases") }
	found := slices.DeleteFunc(slices.Clone(redlocktest.Scripts()), other)
	require.Len(t, found, 1)
	return found[0]
}

// A master says of each item of a batch whether it serves its slot, and executes the others, each with the counters of its slot.
// What it does not serve it has not touched: an unlock is not told that it was interrupted, which counts as a success. So it is
// with a release whose lock has gone with its slot, and whose queue has not: it is to be asked again.
func TestBatchAtAMasterOfSomeOfItsSlots(t *testing.T) {
	t.Parallel()
	s := start(t, redistest.ShardedConfig{Masters: 2})
	at := func(i int) (name string) {
		for k := 0; name == "" || s.Owner(t.Context(), int(slot.Of(name))) != s.Servers[i]; k++ {
			name = fmt.Sprint("at", i, ":", k)
		}
		return name
	}
	here, near, away := at(0), at(0)+"near", at(1)
	for k := 0; s.Owner(t.Context(), int(slot.Of(near))) != s.Servers[0]; k++ {
		near = fmt.Sprint(here, "near", k)
	}
	master, key := s.Servers[0], slot.Sibling
	args := []string{"EVAL", batch(t), "0", "484848", "21", key("redquorum:q", here), key("redquorum:q", near), key("redquorum:q", away)}
	for _, name := range []string{here, near, away} {
		tokens := key("redquorum:tokens", name)
		args = append(args, name, tokens, name, tokens, key("redquorum:w", name))
	}
	for range 6 { // the last argument of a release is the waiter to prefer; nobody is called 60000
		args = append(args, "owner:1", "60000")
	}
	all := asked(t, master, append(args, strings.Repeat("7     ", 6), "")...).([]any)
	require.Len(t, all, 6)
	for i, name := range []string{here, near} {
		require.Positive(t, all[2*i])
		require.Equal(t, int64(1), all[2*i+1])
		require.NotNil(t, asked(t, master, "HGET", key("redquorum:tokens", name), "7"), "its own counter")
	}
	for _, refused := range all[4:] {
		require.ErrorContains(t, refused.(error), "TRYAGAIN the slot is not served here")
	}

	asked(t, master, "ZADD", key("redquorum:q", here), "1", "waiter:1")
	asked(t, master, "HSET", key("redquorum:w", here), "waiter:1", "99999999999999 60000")
	asked(t, master, "CLUSTER", "SETSLOT", strconv.Itoa(int(slot.Of(here))), "MIGRATING", s.IDs[1])
	all = asked(t, master, "EVAL", batch(t), "0", "9", "6", key("redquorum:q", here), here, key("redquorum:tokens", here),
		"owner:1", "7     ", "").([]any)
	require.Len(t, all, 1)
	require.ErrorContains(t, all[0].(error), "TRYAGAIN the slot is not served here")
	require.Equal(t, int64(1), asked(t, master, "ZCARD", key("redquorum:q", here)))
}

// A master that finds the cluster down, or a slot without an owner, executes nothing: each item is to be asked again.
func TestBatchAtAMasterThatServesNothingNow(t *testing.T) {
	t.Parallel()
	const name, other = "here", "other"
	tokens := slot.Sibling("redquorum:tokens", name)
	master := start(t, redistest.ShardedConfig{Masters: 1}).Servers[0]
	state := func(want string) {
		becomes(t, want, func() bool {
			return strings.Contains(asked(t, master, "CLUSTER", "INFO").(string), "cluster_state:"+want)
		})
	}
	for _, c := range []struct{ ruin, option, value, usual, state string }{
		{name, "cluster-require-full-coverage", "no", "yes", "ok"}, // a slot is nobody's
		{other, "cluster-allow-reads-when-down", "no", "no", "fail"},
		{other, "cluster-allow-reads-when-down", "yes", "no", "fail"},
	} {
		asked(t, master, "CONFIG", "SET", c.option, c.value)
		asked(t, master, "CLUSTER", "DELSLOTS", strconv.Itoa(int(slot.Of(c.ruin))))
		state(c.state)
		all := asked(t, master, "EVAL", batch(t), "0", "49", "8", slot.Sibling("redquorum:q", name), name, tokens, name, tokens,
			"owner:1", "60000", "owner:1", "7     7     ", "").([]any)
		require.Len(t, all, 2, "%+v", c)
		for _, refused := range all {
			require.ErrorContains(t, refused.(error), "TRYAGAIN ", "%+v", c)
		}
		asked(t, master, "CLUSTER", "ADDSLOTS", strconv.Itoa(int(slot.Of(c.ruin))))
		asked(t, master, "CONFIG", "SET", c.option, c.usual)
		state("ok")
	}
}
