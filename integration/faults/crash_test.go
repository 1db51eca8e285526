package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

const (
	maxTTL = time.Second // of the leases here, and so the length of a quarantine
	// agoAtLeast is the age of a snapshot that a member comes back with: every lease and, above all, many
	// tokens are younger.
	agoAtLeast = 2 * time.Second
	// Work must go on at these rates while no more than a minority is missing, in tenures a second: in each
	// phase of each crash, and in the median of a phase. A machine with nothing else to do reaches 100.
	slowest, typical = 0.5, 5
)

// deployment is five real servers under traffic: 16 clients that hurry, and three that hold a key of their
// own for most of a lease's length, because what is forgotten matters only while somebody holds.
type deployment struct {
	cluster     *redistest.Cluster
	brisk, slow *workload
	checked     int // tenures of brisk
	snapshot    time.Time
	rates       map[string][]float64 // tenures a second, by phase
	ages        []time.Duration      // of the snapshots that members came back with
	healed      []time.Duration      // from the last restart until all clients had the votes of all
}

// deploy starts a deployment. configure may be nil.
func deploy(t testing.TB, configure func(*redlock.Config)) *deployment {
	t.Helper()
	config := func(c *redlock.Config) {
		c.DialTimeout = 5 * time.Second // a busy machine takes its time; a dead member refuses at once
		if configure != nil {
			configure(c)
		}
	}
	d := &deployment{cluster: rt.Real(t, 5), rates: map[string][]float64{}}
	d.brisk = start(t, d.cluster, terms{keys: 2, hold: 10 * time.Millisecond, config: config})
	d.slow = start(t, d.cluster, terms{
		clients: 3, name: "slow", hold: maxTTL * 7 / 10, ttl: maxTTL, config: config,
	})
	d.takeSnapshots(t)
	return d
}

// end checks the whole history of both workloads.
func (d *deployment) end(t testing.TB, atLeast int) {
	t.Helper()
	brisk, slow := d.brisk.end(), d.slow.end()
	brisk.safe(t, atLeast)
	slow.safe(t, 3)
}

// takeSnapshots lets every member write an RDB file, and puts it aside.
func (d *deployment) takeSnapshots(t testing.TB) {
	t.Helper()
	for i := range d.cluster.Len() {
		r := d.cluster.Real(i)
		r.Keep(redistest.SavedOnly)
		require.NoError(t, r.Snapshot())
		r.Keep(redistest.AppendOnly)
	}
	d.snapshot = time.Now()
}

// ageSnapshots waits until the snapshots are old enough.
func (d *deployment) ageSnapshots(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return time.Since(d.snapshot) >= agoAtLeast }, 2*agoAtLeast, 5*time.Millisecond)
}

// comeBack starts a killed member.
func (d *deployment) comeBack(i int, w way) error {
	r := d.cluster.Real(i)
	switch w {
	case empty:
		return r.Restart(false)
	case appended:
		return r.Restart(true)
	case saved:
		age := time.Since(d.snapshot)
		if age < agoAtLeast {
			return fmt.Errorf("the snapshot is only %v old", age)
		}
		d.ages = append(d.ages, age)
	}
	r.Keep(redistest.SavedOnly)
	if err := r.Rollback(); err != nil {
		return err
	}
	r.Keep(redistest.AppendOnly)
	_, err := r.Do(context.Background(), "CONFIG", "SET", "appendonly", "yes") // for the next time; settled waits until it is written
	return err
}

// goOn waits until work has gone on: every client of the brisk workload has had a key. It must be quick
// enough.
func (d *deployment) goOn(t testing.TB, phase string) {
	t.Helper()
	before, began := d.brisk.Len(), time.Now()
	d.brisk.progress(t, len(d.brisk.clients))
	rate := float64(d.brisk.Len()-before) / time.Since(began).Seconds()
	require.GreaterOrEqual(t, rate, slowest, "tenures a second, %s", phase)
	d.rates[phase] = append(d.rates[phase], rate)
}

// survive lives through a crash, and returns when all clients have the votes of all members again.
func (d *deployment) survive(t testing.TB, c crash) {
	t.Helper()
	d.goOn(t, "healthy")
	if slices.Contains(c.ways, saved) {
		d.ageSnapshots(t)
	}
	began := map[int]time.Time{} // the new processes
	back := func(k int) {
		began[c.members[k]] = time.Now()
		require.NoError(t, d.comeBack(c.members[k], c.ways[k]))
	}
	switch {
	case len(c.members) == 1:
		d.cluster.Kill(c.members[0])
		d.goOn(t, "one dead")
		back(0)
	case c.order == oneByOne:
		d.cluster.Kill(c.members[0])
		d.goOn(t, "one dead")
		back(0)
		d.cluster.Kill(c.members[1])
		d.goOn(t, "two missing")
		back(1)
	default:
		d.cluster.Kill(c.members[0])
		d.goOn(t, "one dead")
		d.cluster.Kill(c.members[1])
		d.goOn(t, "two missing")
		first, last := 0, 1
		if c.order == reversed {
			first, last = 1, 0
		}
		back(first)
		back(last)
	}
	healing := time.Now()
	d.goOn(t, "in quarantine")
	d.settled(t)
	d.healed = append(d.healed, time.Since(healing))
	for i, at := range began {
		d.rested(t, i, at)
	}
	d.check(t)
	d.takeSnapshots(t)
}

// settled waits until all members vote for all clients, and a lease really gets all votes.
func (d *deployment) settled(t testing.TB) {
	t.Helper()
	for _, c := range slices.Concat(d.brisk.clients, d.slow.clients) {
		voting(t, c, d.cluster.Len())
	}
	allVotes(t, d.brisk.clients[0], d.cluster.Len())
	for _, s := range d.cluster.Servers { // an append-only file that was just switched on
		require.Eventually(t, func() bool {
			info, _ := admin(t, s, "INFO", "persistence").(string)
			return strings.Contains(info, "aof_enabled:1") && strings.Contains(info, "aof_rewrite_in_progress:0") &&
				strings.Contains(info, "aof_rewrite_scheduled:0")
		}, 20*time.Second, 5*time.Millisecond)
	}
}

// allVotes waits until a lease of a name of its own has the votes of n members.
func allVotes(t testing.TB, c *redlock.Client, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		lease, err := c.Mutex("probe").Lock(t.Context())
		if err != nil {
			return false
		}
		defer func() { _ = lease.Unlock(context.WithoutCancel(t.Context())) }()
		for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if lease.Votes() == n { // the last votes come after the decision
				return true
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond)
}

// rested checks that no client had member i's vote before every lease that its former process may have
// voted for had ended.
func (d *deployment) rested(t testing.TB, i int, began time.Time) {
	t.Helper()
	for _, c := range slices.Concat(d.brisk.clients, d.slow.clients) {
		// On a busy machine a member may seem down for a moment, once more.
		if m := c.Members()[i]; m.State == redlock.MemberVoting {
			require.GreaterOrEqual(t, m.Since.Sub(began), maxTTL, "member %d voted too early: %+v", i, m)
		}
	}
}

// check judges what was booked since the last time, with a little before it: a part of a history that a
// fenced lock can produce is one, too. The whole is judged in the end.
func (d *deployment) check(t testing.TB) {
	t.Helper()
	all := d.brisk.Holds()
	v := judge.Check(all[max(0, d.checked-100):])
	d.checked = len(all)
	require.True(t, v.Clean(), "%s", v)
	v = judge.Check(d.slow.Holds())
	require.True(t, v.Clean(), "%s", v)
}

// One or two of five members are killed under traffic, and come back in every way and order. Locks are
// taken all the time, never by two at once, and tokens rise. make test-faults plays all 285, and draws 60 with
// FAULTS=each.
func TestFaultsMembersCrashAndComeBack(t *testing.T) {
	n, lanes, shift := 60, 2, 10
	if faulty(t) {
		n, shift = -1, 12
	}
	plan := drawCrashes(seeded(t), n)
	var next atomic.Int64
	var done sync.WaitGroup
	var mu sync.Mutex
	var all deployment
	all.rates = map[string][]float64{}
	for lane := range lanes {
		done.Go(func() {
			for !t.Failed() {
				k := int(next.Add(1)) - 1
				if k*shift >= len(plan) {
					return
				}
				part := plan[k*shift : min(len(plan), (k+1)*shift)]
				t.Run(fmt.Sprintf("crashes %d to %d", k*shift+1, k*shift+len(part)), func(t *testing.T) {
					t.Logf("lane %d:%s", lane, list(part))
					d := deploy(t, func(c *redlock.Config) {
						if lane%2 == 1 {
							c.PingInterval = 250 * time.Millisecond // notices more, and sooner
						}
					})
					for i, c := range part {
						d.survive(t, c)
						t.Logf("%d. %v: all vote again after %v", i+1, c, d.healed[i].Round(time.Millisecond))
					}
					d.end(t, 3*16*len(part))
					mu.Lock()
					defer mu.Unlock()
					all.gather(d)
				})
			}
		})
	}
	done.Wait()
	t.Logf("%d crashes: %s", len(plan), &all)
	for phase, rates := range all.rates {
		slices.Sort(rates)
		require.GreaterOrEqual(t, rates[len(rates)/2], float64(typical), "tenures a second, %s", phase)
	}
}

// gather adds another deployment's figures.
func (d *deployment) gather(x *deployment) {
	for phase, rates := range x.rates {
		d.rates[phase] = append(d.rates[phase], rates...)
	}
	d.ages = append(d.ages, x.ages...)
	d.healed = append(d.healed, x.healed...)
	d.checked += x.brisk.Len()
}

func (d *deployment) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tenures", d.checked)
	for _, phase := range []string{"healthy", "one dead", "two missing", "in quarantine"} {
		if rates := d.rates[phase]; len(rates) > 0 {
			slices.Sort(rates)
			fmt.Fprintf(&b, "; %s: %.0f/s in the median, %.0f/s at least", phase, rates[len(rates)/2], rates[0])
		}
	}
	if n := len(d.healed); n > 0 {
		slices.Sort(d.healed)
		fmt.Fprintf(&b, "; all members vote again %v after the last restart in the median, %v at most",
			d.healed[n/2].Round(time.Millisecond), d.healed[n-1].Round(time.Millisecond))
	}
	if n := len(d.ages); n > 0 {
		slices.Sort(d.ages)
		fmt.Fprintf(&b, "; snapshots %v to %v old", d.ages[0].Round(time.Millisecond), d.ages[n-1].Round(time.Millisecond))
	}
	return b.String()
}

// way is what a killed member comes back with.
type way uint8

const (
	empty    way = iota // nothing
	appended            // its append-only file: everything
	saved               // an RDB snapshot some seconds old
	marked              // nothing but the marker of the former process: empty, but GuardOff believes it
)

func (w way) String() string {
	return [...]string{"empty", "with its AOF", "with an old RDB", "with a marker alone"}[w]
}

// order is that of the kills and restarts of two members.
type order uint8

const (
	oneByOne order = iota // the second is killed as soon as the first answers again
	inOrder               // both are dead at once, and the first killed comes back first
	reversed              // both are dead at once, and the first killed comes back last
)

// crash is one or two members that are killed and come back.
type crash struct {
	members []int // in the order of the kills
	ways    []way // of the members
	order   order
}

func (c crash) String() string {
	if len(c.members) == 1 {
		return fmt.Sprintf("%d dies and comes back %s", c.members[0], c.ways[0])
	}
	a := fmt.Sprintf("%d %s", c.members[0], c.ways[0])
	b := fmt.Sprintf("%d %s", c.members[1], c.ways[1])
	switch c.order {
	case oneByOne:
		return fmt.Sprintf("%d dies and comes back %s, then %d %s", c.members[0], c.ways[0], c.members[1], c.ways[1])
	case reversed:
		a, b = b, a
	}
	return fmt.Sprintf("%d and %d die, then come back %s, %s", c.members[0], c.members[1], a, b)
}

// everyCrash lists every crash of one of five members, and of two neighbours in the clients' list, in every
// order of the kills and of the restarts, each member coming back in each way: 15 and 270. Members are
// alike, so pairs that are no neighbours would add nothing but time.
func everyCrash() (one, two []crash) {
	ways := []way{empty, appended, saved}
	for a := range 5 {
		for _, x := range ways {
			one = append(one, crash{members: []int{a}, ways: []way{x}})
			for _, b := range []int{(a + 1) % 5, (a + 4) % 5} {
				for _, y := range ways {
					for _, o := range []order{oneByOne, inOrder, reversed} {
						two = append(two, crash{[]int{a, b}, []way{x, y}, o})
					}
				}
			}
		}
	}
	return one, two
}

// drawCrashes returns n of them in a random order, a fifth of one member; n < 0: all.
func drawCrashes(rng *rand.Rand, n int) []crash {
	one, two := everyCrash()
	shuffle := func(list []crash) {
		rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	}
	shuffle(one)
	shuffle(two)
	if n >= 0 {
		one, two = one[:n/5], two[:n-n/5]
	}
	all := slices.Concat(one, two)
	shuffle(all)
	return all
}

func TestEveryCrashIsThereOnce(t *testing.T) {
	one, two := everyCrash()
	require.Len(t, one, 5*3)
	require.Len(t, two, 5*2*3*3*3)
	seen := map[string]bool{}
	for _, c := range slices.Concat(one, two) {
		require.False(t, seen[c.String()], "%v", c)
		seen[c.String()] = true
	}
	require.Len(t, drawCrashes(rand.New(rand.NewPCG(1, 1)), -1), 285)
	require.Len(t, drawCrashes(rand.New(rand.NewPCG(1, 1)), 20), 20)
}

// list prints one per line.
func list[T fmt.Stringer](all []T) string {
	var b strings.Builder
	for i, x := range all {
		fmt.Fprintf(&b, "\n  %d. %v", i+1, x)
	}
	return b.String()
}
