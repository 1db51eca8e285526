package redlock_test

import (
	"context"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Four clients take sets of five names in any order, and single names between, while two of five members are killed, twice.
// Nobody has a name that another one has, tokens of each name rise, and all come to their end.
func TestSetsOfNamesExcludeAndDoNotDeadlockWhileMembersDie(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	clients := several(t, cluster, 4, patient)
	names := []string{"a", "b", "c", "d", "e"}
	h := newHistory()
	var rounds atomic.Int64
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- joined(2*len(clients), func(i int) error {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			c := clients[i/2]
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				set := make([]string, 0, len(names))
				for _, k := range rng.Perm(len(names))[:1+rng.IntN(len(names))] {
					set = append(set, names[k])
				}
				if err := h.set(context.Background(), c, i, set); err != nil {
					return err
				}
				rounds.Add(1)
			}
		})
	}()
	advance := func(n int64) {
		t.Helper()
		goal := rounds.Load() + n
		require.Eventually(t, func() bool { return rounds.Load() >= goal || len(done) > 0 }, time.Minute, time.Millisecond)
	}
	advance(40)
	for _, dead := range [][]int{{3, 4}, {0, 1}} {
		cluster.Kill(dead...)
		advance(40)
		require.NoError(t, cluster.Restart(true, dead...))
		settle(t, 5, clients...)
		advance(40)
	}
	close(stop)
	require.NoError(t, <-done)
	h.verify(t)
	t.Logf("%d sets, %d tenures", rounds.Load(), h.len())
	clean(t, cluster)
}

// set takes names, all or none, and books a tenure of each.
func (h *history) set(ctx context.Context, c *redlock.Client, who int, names []string) error {
	patience, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	leases, err := c.Multi(names).Lock(patience)
	if err != nil {
		return err
	}
	from := time.Now()
	time.Sleep(100 * time.Microsecond) // the work
	to := time.Now()
	if until := leases.ValidUntil(); clock.Until(until, to) < 0 {
		to = until
	}
	for _, l := range leases.All() {
		h.add(tenure{Client: who, Key: l.Key(), Token: l.Token(), From: h.clock(from), To: h.clock(to)})
	}
	return leases.Unlock(context.WithoutCancel(ctx))
}

// While names are free, a set costs each member two commands, whatever its size.
func TestSetOfNamesCostsTwoCommandsPerMember(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	c := dialed(t, cluster, patient, func(c *redlock.Config) { c.PingInterval = time.Hour })
	calls := func() (n int) {
		for _, s := range cluster.Servers {
			info := admin(t, s, "INFO", "commandstats").(string)
			if found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(info); found != nil {
				of, err := strconv.Atoi(found[1])
				require.NoError(t, err)
				n += of
			}
		}
		return n
	}
	for _, size := range []int{2, 4, 16, redlock.MaxNames} {
		names := make([]string, size)
		for i := range names {
			names[i] = string(rune('A'+i%26)) + string(rune('a'+i/26))
		}
		take := func() {
			leases, err := c.Multi(names).Lock(ending(t))
			require.NoError(t, err)
			require.NoError(t, leases.Unlock(t.Context()))
			clean(t, cluster)
		}
		for n, try := 0, 0; n != 6; try++ { // while the counters of the names disagree, it takes a second round
			require.Less(t, try, 100, "%d names: %d commands", size, n)
			n = -calls()
			take()
			n += calls()
		}
	}
}
