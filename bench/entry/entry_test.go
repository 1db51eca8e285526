package entry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/server"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func servers(t *testing.T, kind entry.Kind, n int) server.Set {
	t.Helper()
	if why, install := server.Missing(kind); why != "" {
		t.Skipf("%s; %s", why, install)
	}
	var set server.Set
	var err error
	if kind == entry.Redis {
		set, err = server.StartRedis(t.Context(), n, false)
	} else {
		set, err = server.Start(t.Context(), kind, n, t.TempDir())
	}
	require.NoError(t, err)
	t.Cleanup(set.Close)
	return set
}

// Every entry acquires, refuses a second client, releases, can be acquired again, and leaves nothing, or what its
// Leaves explains.
func TestConformance(t *testing.T) {
	sets := map[string]server.Set{}
	set := func(t *testing.T, kind entry.Kind, n int) server.Set {
		key := fmt.Sprint(kind, n)
		if sets[key] == nil {
			t.Helper()
			if why, install := server.Missing(kind); why != "" {
				t.Skipf("%s; install it: %s", why, install)
			}
		}
		return sets[key]
	}
	for _, kind := range []entry.Kind{entry.Redis, entry.Postgres, entry.Etcd, entry.ZooKeeper} {
		for _, n := range []int{1, 3} {
			if why, _ := server.Missing(kind); why == "" && (n == 1 || kind == entry.Redis) {
				sets[fmt.Sprint(kind, n)] = servers(t, kind, n)
			}
		}
	}
	for _, spec := range entry.All() {
		for _, n := range []int{1, 3} {
			if spec.Child != nil || spec.Name == "floor-mutex" || spec.Members != nil && n > 1 || spec.Kind != entry.Redis && n > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", spec.Name, n), func(t *testing.T) {
				t.Parallel()
				conform(t, spec, set(t, spec.Kind, n))
				if spec.Fits(n, entry.Together) {
					conformReaders(t, spec, set(t, spec.Kind, n))
				}
				if spec.Fits(n, entry.Sets) {
					conformSets(t, spec, set(t, spec.Kind, n))
				}
				if spec.Fits(n, entry.Permits) && !spec.Floor { // a contender of the floor wants one permit, and no other
					conformPermits(t, spec, set(t, spec.Kind, n))
				}
				if spec.Fits(n, entry.Arrivals) {
					conformLatch(t, spec, set(t, spec.Kind, n))
				}
				if spec.Fits(n, entry.Leading) {
					conformElection(t, spec, set(t, spec.Kind, n))
				}
			})
		}
	}
}

func conform(t *testing.T, spec *entry.Spec, set server.Set) {
	const lease = 30 * time.Second
	env := entry.Env{Members: set.Members(), Lease: lease, Shape: entry.Separate}
	// The last shape that fits counts.
	for _, shape := range []string{entry.Shared, entry.ReadWrite, entry.Uncontended, entry.Separate} {
		if spec.Fits(len(env.Members), shape) {
			env.Shape = shape
		}
	}
	ctx := t.Context()
	dial := func() entry.Locker {
		l := rt.Must(spec.Open(ctx, env))(t)
		t.Cleanup(l.Close)
		return l
	}
	one, two := dial(), dial()
	prefix := "conform:" + spec.Name + ":"
	name := prefix + "name"

	held := rt.Must(one.Acquire(ctx, name))(t)
	n := rt.Must(set.Left(ctx, prefix))(t)
	if !strings.HasPrefix(spec.Name, "postgres-") || spec.Name == "postgres-row" { // advisory locks are counted with those of all names
		require.Positive(t, n, "Left does not see a lock that is held: it would not see a leak")
	}

	refuses(ctx, t, func(ctx context.Context) error { _, err := two.Acquire(ctx, name); return err }, "acquired by two")

	require.NoError(t, held.Release(ctx))
	held = rt.Must(two.Acquire(ctx, name))(t)

	// A waiter gets it when it is released.
	got := passing(ctx, func() (entry.Held, error) { return one.Acquire(ctx, name) })
	require.NoError(t, held.Release(ctx))
	require.NoError(t, <-got)

	most := 0
	if spec.Leaves != "" {
		most = (len(env.Members) - 1) / 2
	}
	left(ctx, t, set, prefix, most)
}

// Readers have the lock together and exclude writers. A writer excludes readers, and its release
// lets them in.
func conformReaders(t *testing.T, spec *entry.Spec, set server.Set) {
	ctx := t.Context()
	lockers := dialTwo(ctx, t, spec, set, entry.Together)
	name := "readers:" + spec.Name
	read := func(ctx context.Context, i int) (entry.Held, error) {
		return lockers[i%2].(entry.ReadLocker).AcquireShared(ctx, name)
	}
	write := func(ctx context.Context, i int) (entry.Held, error) { return lockers[i%2].Acquire(ctx, name) }
	var readers []entry.Held
	for i := range 4 {
		h, err := read(ctx, i)
		require.NoError(t, err, "reader %d beside others", i)
		readers = append(readers, h)
	}
	got := make(chan entry.Held, 1)
	go func() {
		h, err := write(ctx, 1)
		assert.NoError(t, err)
		got <- h
	}()
	refuses(ctx, t, func(ctx context.Context) error { _, err := write(ctx, 0); return err }, "a writer beside readers")
	for i, h := range readers {
		require.Empty(t, got, "a writer beside readers")
		require.NoError(t, h.Release(ctx), "reader %d", i)
	}
	writer := <-got
	require.NotNil(t, writer)

	refuses(ctx, t, func(ctx context.Context) error { _, err := read(ctx, 0); return err }, "a reader beside a writer")
	var waiting []<-chan error
	for i := range 4 {
		waiting = append(waiting, passing(ctx, func() (entry.Held, error) { return read(ctx, i) }))
	}
	require.NoError(t, writer.Release(ctx))
	for _, done := range waiting {
		require.NoError(t, <-done)
	}
	left(ctx, t, set, name, 0)
}

// A set has what it asked for, or nothing.
func conformSets(t *testing.T, spec *entry.Spec, set server.Set) {
	ctx := t.Context()
	l := dialTwo(ctx, t, spec, set, entry.Sets)[0]
	prefix := "sets:" + spec.Name + ":"
	names := []string{prefix + "c", prefix + "a", prefix + "b"}
	held := rt.Must(l.(entry.SetLocker).AcquireAll(ctx, names))(t)
	refuses(ctx, t, func(ctx context.Context) error {
		_, err := l.(entry.SetLocker).AcquireAll(ctx, []string{prefix + "c", prefix + "d"})
		return err
	}, "acquired by two")
	require.NoError(t, held.Release(ctx))
	left(ctx, t, set, prefix, 0)
}

// refuses makes sure that an attempt, which waits, has nothing yet.
func refuses(ctx context.Context, t *testing.T, attempt func(context.Context) error, wrong string) {
	t.Helper()
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	require.Error(t, attempt(short), wrong)
}

func passing(ctx context.Context, acquire func() (entry.Held, error)) <-chan error {
	done := make(chan error, 1)
	go func() {
		h, err := acquire()
		if err == nil {
			err = h.Release(ctx)
		}
		done <- err
	}()
	return done
}

func left(ctx context.Context, t *testing.T, set server.Set, name string, most int) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, err := set.Left(ctx, name)
		return err == nil && n <= most
	}, time.Minute, 10*time.Millisecond, "keys are left")
}

func dialTwo(ctx context.Context, t *testing.T, spec *entry.Spec, set server.Set, shape string) (all [2]entry.Locker) {
	t.Helper()
	for i := range all {
		l := rt.Must(spec.Open(ctx, entry.Env{Members: set.Members(), Lease: 30 * time.Second, Shape: shape}))(t)
		t.Cleanup(l.Close)
		all[i] = l
	}
	return all
}

// cleaned deletes what an entry keeps by design: then nothing is left.
func cleaned(ctx context.Context, t *testing.T, l entry.Locker, set server.Set, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		if c, ok := l.(entry.Cleaner); ok { // what is under way to a member that is behind may make it again
			if err := c.Clean(ctx, name); err != nil {
				return false
			}
		}
		n, err := set.Left(ctx, name)
		return err == nil && n == 0
	}, time.Minute, 10*time.Millisecond, "keys are left")
}

// There are as many permits as the limit says, each with a slot of its own. One that is given back goes to a
// waiter.
func conformPermits(t *testing.T, spec *entry.Spec, set server.Set) {
	ctx := t.Context()
	clients := dialTwo(ctx, t, spec, set, entry.Permits)
	name, slots := "permits:"+spec.Name, map[int]bool{}
	acquire := func(ctx context.Context, i int) (entry.Held, error) {
		return clients[i%2].(entry.PermitLocker).AcquirePermit(ctx, name, 3)
	}
	var held []entry.Held
	for i := range 3 {
		h, err := acquire(ctx, i)
		require.NoError(t, err, "permit %d of 3", i)
		if s, ok := h.(entry.Slotted); ok {
			require.Less(t, s.Slot(), 3)
			require.False(t, slots[s.Slot()], "slot %d twice", s.Slot())
			slots[s.Slot()] = true
		}
		held = append(held, h)
	}
	refuses(ctx, t, func(ctx context.Context) error { _, err := acquire(ctx, 1); return err }, "four of three permits")
	got := passing(ctx, func() (entry.Held, error) { return acquire(ctx, 1) })
	if spec.Kind == entry.Postgres { // its waiters wait for one permit, whichever that is
		for _, h := range held {
			require.NoError(t, h.Release(ctx))
		}
		held = nil
	} else {
		require.NoError(t, held[0].Release(ctx))
		held = held[1:]
	}
	require.NoError(t, <-got)
	for _, h := range held {
		require.NoError(t, h.Release(ctx))
	}
	cleaned(ctx, t, clients[0], set, name)
}

// A latch opens for all with the last arrival, and not before.
func conformLatch(t *testing.T, spec *entry.Spec, set server.Set) {
	ctx := t.Context()
	clients := dialTwo(ctx, t, spec, set, entry.Arrivals)
	name := "latch:" + spec.Name
	open := make(chan error, 2)
	var latches [2]entry.Latch
	for i, c := range clients {
		l := rt.Must(c.(entry.Latcher).Latch(ctx, name, 3))(t)
		latches[i] = l
		go func() { open <- l.Await(ctx) }()
	}
	require.NoError(t, latches[0].Arrive(ctx))
	require.NoError(t, latches[1].Arrive(ctx))
	refuses(ctx, t, latches[0].Await, "open after two of three")
	require.Empty(t, open)
	require.NoError(t, latches[0].Arrive(ctx))
	for range 2 {
		require.NoError(t, <-open)
	}
	cleaned(ctx, t, clients[0], set, name)
}

// One leads at a time. Who resigns is followed by the other, and observers hear of both.
func conformElection(t *testing.T, spec *entry.Spec, set server.Set) {
	ctx := t.Context()
	clients := dialTwo(ctx, t, spec, set, entry.Leading)
	name := "election:" + spec.Name
	watching, stop := context.WithCancel(ctx)
	told, ended := make(chan string, 8), make(chan struct{})
	go func() {
		defer close(ended)
		if err := clients[1].(entry.Elector).Observe(watching, name, func(v string) { told <- v }); err != nil && watching.Err() == nil {
			t.Error(err)
		}
	}()
	first := rt.Must(clients[0].(entry.Elector).Campaign(ctx, name, "one"))(t)
	require.Equal(t, "one", <-told)
	refuses(ctx, t, func(ctx context.Context) error {
		_, err := clients[1].(entry.Elector).Campaign(ctx, name, "two")
		return err
	}, "two leaders")
	second := make(chan entry.Held, 1)
	go func() {
		h, err := clients[1].(entry.Elector).Campaign(ctx, name, "two")
		assert.NoError(t, err)
		second <- h
	}()
	require.NoError(t, first.Release(ctx))
	h := <-second
	require.NotNil(t, h)
	require.Equal(t, "two", <-told)
	require.NoError(t, h.Release(ctx))
	stop()
	<-ended
	cleaned(ctx, t, clients[0], set, name)
}

// Entries that hold locks for long keep them beyond their lease. They hold theirs at the same time.
func TestRenewal(t *testing.T) {
	const lease = time.Second
	set := servers(t, entry.Redis, 1)
	ctx := t.Context()
	held := map[string]entry.Held{}
	for _, spec := range entry.All() {
		if spec.Kind != entry.Redis || !spec.Fits(1, entry.Renewed) {
			continue
		}
		l, err := spec.Open(ctx, entry.Env{Members: set.Members(), Lease: lease, Shape: entry.Renewed, Renew: true})
		require.NoError(t, err, spec.Name)
		defer l.Close()
		held[spec.Name], err = l.Acquire(ctx, "renew:"+spec.Name+":")
		require.NoError(t, err, spec.Name)
	}
	// Three leases long; a lock that ends is seen at the next look.
	tick := time.NewTicker(lease / 5)
	defer tick.Stop()
	for range 15 {
		<-tick.C
		for name, h := range held {
			if e, ok := h.(entry.Extender); ok {
				require.NoError(t, e.Extend(ctx), name)
			}
			require.Positive(t, rt.Must(set.Left(ctx, "renew:"+name+":"))(t), "%s: the lock is gone", name)
		}
	}
	for name, h := range held {
		require.NoError(t, h.Release(ctx), name)
	}
}
