package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// faulty skips a test unless faults are to be played: they take real time, in which a busy machine can be late. whole says
// whether the random application is to be played for long.
func faulty(t testing.TB) (whole bool) {
	t.Helper()
	faults := os.Getenv("REDQUORUM_FAULTS")
	if faults == "" {
		t.Skip("FAULTS: make test-faults sets REDQUORUM_FAULTS and plays it")
	}
	return faults == "all"
}

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

func open(t testing.TB, cluster *redistest.Cluster, configure func(*redlock.Config)) *redlock.Client {
	t.Helper()
	var config redlock.Config
	configure(&config)
	c := rt.Must(redlock.Open(t.Context(), cluster.URLs(), config))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func voting(t testing.TB, c *redlock.Client, n int, patience time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		there := 0
		for _, m := range c.Members() {
			if m.State == redlock.MemberVoting {
				there++
			}
		}
		return there >= n
	}, patience, 2*time.Millisecond, "members: %v", later{c})
}

// later prints the members as they are when it is printed.
type later struct{ c *redlock.Client }

func (l later) String() string { return fmt.Sprint(l.c.Members()) }

var lasting = []string{"redquorum:tokens", "redquorum:boot", "redquorum:quarantine"}

// admin executes a command at a member, beside all paths.
func admin(t testing.TB, s redistest.Server, args ...string) any {
	t.Helper()
	v, err := s.Do(context.Background(), args...)
	require.NoError(t, err, "%v", args)
	return v
}
