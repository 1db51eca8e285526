package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// An episode is one fault that a workload lives through: it is injected under traffic, lasts, is healed,
// and must leave no trace.
type episode struct {
	name   string
	goes   bool                 // whether work goes on meanwhile: a majority is well
	inject func() (heal func()) // heal must bring back everything
	felt   func() int           // how often the fault was felt; must grow. nil: the injection itself is proof
	mute   bool                 // felt can be told after the healing only
}

// floor is how many tenures a second there are at least while a majority is well: a hundredth of what two idle
// cores do.
const floor = 2.0

// faulty skips a test unless faults are to be played: they take real time, in which a busy machine can be late. whole says
// whether every combination of crashes is to be played, and the random application for long, too.
func faulty(t testing.TB) (whole bool) {
	t.Helper()
	faults := os.Getenv("REDQUORUM_FAULTS")
	if faults == "" {
		t.Skip("FAULTS: make test-faults sets REDQUORUM_FAULTS and plays it")
	}
	return faults == "all"
}

// span is how long most faults last.
const span = 10 * time.Second

// seeded is a source of random faults. The seed is told, and REDQUORUM_SEED replays it.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("REDQUORUM_SEED"); text != "" {
		seed = rt.Must(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("REDQUORUM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 4))
}

// quick makes clients notice within a second what they notice within two or three by default.
func quick(c *redlock.Config) {
	c.Entry = 300 * time.Millisecond
	c.PingInterval = 100 * time.Millisecond
	c.StallTimeout = 700 * time.Millisecond
	c.DialTimeout = 2 * time.Second // of a busy machine
}

// rows is the workload of most rows of the table: brisk, and light enough for a machine with two cores.
func rows() terms { return terms{clients: 6, keys: 2, hold: 2 * time.Millisecond, config: quick} }

// play lives through an episode.
func (w *workload) play(t testing.TB, e episode) {
	t.Helper()
	errs, felt := len(w.errors()), 0
	if e.felt != nil {
		felt = e.felt()
	}
	before, began := w.Len(), time.Now()
	heal := e.inject()
	<-time.After(span) // the fault lasts; nothing is waited for
	rate := float64(w.Len()-before) / time.Since(began).Seconds()
	if e.goes {
		w.progress(t, 2*len(w.clients)) // nobody is left out while it lasts
		require.GreaterOrEqual(t, rate, floor, "%s: tenures a second meanwhile; last errors: %v", e.name, w.lastErrors())
	}
	if e.felt != nil && !e.mute {
		require.Eventually(t, func() bool { return e.felt() > felt }, 20*time.Second, 5*time.Millisecond, "%s: the fault was not felt", e.name)
	}
	heal()
	healed := time.Now()
	for _, c := range w.clients {
		voting(t, c, w.cluster.Len())
	}
	whole := time.Since(healed)
	if e.felt != nil {
		felt = e.felt() - felt
		require.Positive(t, felt, "%s: the fault was not felt", e.name)
	}
	w.progress(t, len(w.clients))
	t.Logf("%-44s %6.0f tenures/s meanwhile, %3d errors, felt %d times; all members vote again after %v",
		e.name, rate, len(w.errors())-errs, felt, whole.Round(time.Millisecond))
}

// lasting are the keys that a member keeps for good.
var lasting = []string{"redquorum:tokens", "redquorum:boot", "redquorum:quarantine"}

// servers starts real servers that are not all alike.
func servers(t testing.TB, configs ...redistest.RealConfig) *redistest.Cluster {
	t.Helper()
	rt.Needs(t)
	cluster := &redistest.Cluster{}
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	for _, config := range configs {
		cluster.Servers = append(cluster.Servers, rt.Must(redistest.StartReal(t.Context(), config))(t))
	}
	return cluster
}

// nothingLeft waits until nothing but what lasts is on any member: the TTL of a lease and of a place in
// line have passed by then at the latest.
func nothingLeft(t testing.TB, cluster *redistest.Cluster, allowed ...string) {
	t.Helper()
	var left []string
	require.Eventually(t, func() bool {
		var err error
		left, err = cluster.Leftovers(context.Background(), append(allowed, lasting...)...)
		return err == nil && len(left) == 0
	}, 10*time.Second, 20*time.Millisecond, "left behind: %v", &left)
}

// admin executes a command at a member, beside all paths.
func admin(t testing.TB, s redistest.Server, args ...string) any {
	t.Helper()
	v, err := s.Do(context.Background(), args...)
	require.NoError(t, err, "%v", args)
	return v
}

// counted adds up a number that members tell in their INFO. It is 0 where they tell nothing.
func counted(cluster *redistest.Cluster, section, name string, members ...int) (n int) {
	for _, i := range members {
		v, err := cluster.Servers[i].Do(context.Background(), "INFO", section)
		if text, ok := v.(string); err == nil && ok {
			_, rest, _ := strings.Cut(text, name)
			digits, _, _ := strings.Cut(rest, "\r")
			m, _ := strconv.Atoi(digits)
			n += m
		}
	}
	return n
}
