//go:build linux || darwin

package faults

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// appSpan is how long the random application runs: ten minutes in make test-faults (four with FAULTS=each), and as long
// as REDQUORUM_APP_SOAK says in make soak-app.
func appSpan(t testing.TB) (span time.Duration, soak bool) {
	t.Helper()
	if text := os.Getenv("REDQUORUM_APP_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err, "REDQUORUM_APP_SOAK")
		return d, true
	}
	if faulty(t) {
		return 10 * time.Minute, false
	}
	return 4 * time.Minute, false
}

// Several processes with clients of different settings do at random what programs do with locks,
// while members, paths and processes fail. They take locks of all kinds, on the same names: plain
// and fair ones, readers, writers that become readers, and sets of several names in any order. All
// is judged from outside, on one clock:
//
//   - nobody believes in a lock that another believes in, but readers together, and one that was
//     forced out;
//   - tokens rise, lock by lock; a reader's lies between those of the writers around it, and a
//     downgrade keeps it;
//   - a client that was closed leaves nothing at the members, whatever it was doing, and in the end nothing is left;
//   - where a majority is well and somebody waits, the lock is had when the leases have ended that are left, or
//     within the lifetime of an entry; so no sets wait for each other;
//   - a lease that was forced out at a majority is not renewed;
//   - a release that a member refused for a passing reason comes to it when the reason has passed;
//   - a lease's context ends with its validity;
//   - each slot of a semaphore is believed in by one, below the limit in force; its tokens rise;
//   - leaders are judged with all other locks of their name; observers hear of one leader for each token, and of
//     tokens and values that do not fall;
//   - a latch opens for nobody before so many arrivals have begun, and once open for all who wait;
//   - a lease that is renewed is lost only if no majority of the members serves it, as a full one does;
//   - a member that was restarted has no vote that counts until every lease that it may have forgotten has ended;
//   - an error has the words of a member that refuses, and such a member votes again when it does so no more.
func TestFaultsRandomApplication(t *testing.T) {
	span, soak := appSpan(t)
	seed := seeded(t).Uint64() // of the plan; when things happen is the machine's
	members := 3
	if rand.New(rand.NewPCG(seed, 0)).IntN(3) == 0 {
		members = 5
	}
	cluster := rt.Real(t, members)
	var mu sync.Mutex
	r := newAppRun(t, cluster, seed, func(f finding) {
		mu.Lock()
		defer mu.Unlock()
		t.Log(f)
	})
	t.Cleanup(r.end)
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	for place := range appProcesses {
		r.spawn(place)
	}
	var beside sync.WaitGroup
	beside.Go(func() { r.watch(ctx) })
	var samples []appSample
	beside.Go(func() { samples = r.sample(ctx, max(time.Second, span/1000)) })
	if soak {
		beside.Go(func() { r.tellNow(ctx) })
	}
	pause(ctx, 2*time.Second) // of quiet
	r.plan(ctx, seed)
	beside.Wait()
	whole := r.finish()
	t.Logf("%d members: %s", members, r.j.summary())
	played, unmet := r.j.refusalsTold(t)
	t.Logf("%d looks at what closed clients left", r.closes)
	if soak {
		r.write(t, samples)
		require.Empty(t, grown(samples), "uses more and more")
	}
	require.Empty(t, r.j.found)
	require.True(t, whole, "a process did not end by itself")
	require.GreaterOrEqual(t, r.j.grants, int(span.Seconds())*5, "too little happened to say anything")
	for sort, rate := range appRates {
		require.GreaterOrEqual(t, r.j.sorts[sort].granted, int(span.Seconds()*rate), "too few of sort %s", sort)
	}
	t.Logf("%d times a latch was open, %d changes of a limit", r.j.counts.opened, len(r.j.counts.limits))
	require.GreaterOrEqual(t, r.j.counts.opened, int(span.Seconds()/10), "too few latches opened")
	t.Logf("observers heard of leaders %d times, of nobody %d times", r.j.leaders.heard, r.j.leaders.nobody)
	require.GreaterOrEqual(t, r.j.leaders.heard, int(span.Seconds()/2), "observers heard of too few leaders")
	require.GreaterOrEqual(t, r.j.reused, int(span.Seconds()), "too few leases of what a client kept")
	require.GreaterOrEqual(t, r.j.rested, int(span.Seconds()/10), "too few votes of members that were restarted")
	for _, x := range appRefusals {
		require.GreaterOrEqual(t, played[x.name], int(span.Minutes()/15), "too few of: %s", x.name)
	}
	require.Empty(t, unmet, "no client met these")
	for seat := range r.links {
		require.Positive(t, r.j.perSeat[seat], "seat %d never had a lock", seat)
	}
}

func (r *appRun) watch(ctx context.Context) {
	const beat = 50 * time.Millisecond
	tick := time.NewTicker(beat)
	defer tick.Stop()
	last := judge.Now()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := judge.Now()
		r.j.tick(now - last - int64(beat))
		last = now
		if n%5 == 0 {
			r.collect(ctx)
		}
		r.notEnded()
	}
}

func (r *appRun) notEnded() {
	r.mu.Lock()
	all := slices.Clone(r.slots)
	r.mu.Unlock()
	for _, p := range all {
		select {
		case <-p.ended:
		default:
			continue
		}
		p.mu.Lock()
		died := !p.killed
		p.killed = true
		p.mu.Unlock()
		if died {
			rt.Locked(&r.j.mu, func() { r.j.wrong("process", "", "process %d (seats %v) has ended: %s", p.number, p.seats, &p.noise) })
		}
	}
}

func (r *appRun) sample(ctx context.Context, every time.Duration) (samples []appSample) {
	for {
		pause(ctx, every)
		if ctx.Err() != nil {
			return samples
		}
		connections, keys, ok := r.load(ctx)
		if !ok {
			continue
		}
		r.mu.Lock()
		use := r.use
		r.mu.Unlock()
		r.j.mu.Lock()
		const mib = 1 << 20
		samples = append(samples, appSample{time.Duration(judge.Now() - r.j.began), r.j.grants, [...]float64{
			float64(use.rss) / mib, float64(use.heap) / mib, float64(use.goroutines), float64(connections), float64(keys),
		}})
		r.j.mu.Unlock()
	}
}

func (r *appRun) tellNow(ctx context.Context) {
	for {
		pause(ctx, time.Minute)
		if ctx.Err() != nil {
			return
		}
		goroutines, heap := footprint()
		fmt.Fprintf(os.Stderr, "%s; the judge: %d goroutines, %d KiB\n", r.j.summary(), goroutines, heap>>10)
	}
}

// finish closes all clients in processes that live, and looks whether anything is left when all that was killed
// must have ended.
func (r *appRun) finish() (whole bool) {
	r.j.fault("all is mended; all clients are closed")
	pause(r.t.Context(), 2*settled)
	var done sync.WaitGroup
	var mu sync.Mutex
	whole = true
	for _, p := range slices.Clone(r.slots) {
		done.Go(func() {
			if !r.quit(p) {
				rt.Locked(&mu, func() { whole = false })
			}
		})
	}
	done.Wait()
	r.checks.Wait()
	r.j.mu.Lock()
	greatest := r.j.greatest
	r.j.mu.Unlock()
	// The queues of names whose waiters were killed live twice as long as an entry.
	pause(r.t.Context(), max(greatest, 2*appEntries[len(appEntries)-1])+200*time.Millisecond)
	r.j.mu.Lock()
	r.j.openings(judge.Now(), true)
	r.j.limited(judge.Now(), true)
	r.j.mu.Unlock()
	mortal := rt.Must(r.endingKeys(r.t.Context(), 2*greatest+latchLife))(r.t)
	left, err := r.cluster.Leftovers(r.t.Context(), append(mortal, lasting...)...)
	if err != nil || len(left) > 0 {
		rt.Locked(&r.j.mu, func() { r.j.wrong("left in the end", "", "%v, %v", left, err) })
	}
	return whole
}

func (r *appRun) end() {
	r.mu.Lock()
	all := slices.Clone(r.slots)
	r.mu.Unlock()
	for _, p := range all {
		if p != nil {
			r.kill(p)
		}
	}
}

// write keeps the samples of a soak where REDQUORUM_APP_OUT says.
func (r *appRun) write(t testing.TB, samples []appSample) {
	dir := cmp.Or(os.Getenv("REDQUORUM_APP_OUT"), ".")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app-soak.csv"), []byte(asCSV(samples)), 0o644))
}
