package cluster_test

import (
	"context"
	"flag"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Tests of real clusters wait for servers more than they compute: more of them run at a time than there are
// processors, unless -parallel says otherwise.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0))))
	}
	goleak.VerifyTestMain(withShared{m})
}

// withShared runs all tests, and then ends the cluster that some of them share.
type withShared struct{ m *testing.M }

func (w withShared) Run() int {
	code := w.m.Run()
	if common.s != nil {
		_ = common.s.Close()
	}
	return code
}

func long(t *testing.T) {
	t.Helper()
	rt.Long(t, "storms, and what waits for leases")
}

// becomes waits for something that a busy machine, too, has done within a minute. Servers are asked, so it does not ask too often.
func becomes(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(3 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "not within a minute: %s", what)
	}
}

var common struct {
	once sync.Once
	s    *redistest.Sharded
	err  error
}

// shared is a cluster of three masters for tests that break nothing. Each has names of its own there, and all slots are marked.
func shared(t testing.TB) *redistest.Sharded {
	t.Helper()
	rt.Needs(t)
	common.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if common.s, common.err = redistest.StartSharded(ctx, redistest.ShardedConfig{}); common.err != nil {
			return
		}
		// Its first client marks all slots before any test does something else, and perhaps closes its client meanwhile.
		var c *redlock.Client
		if c, common.err = redlock.Open(ctx, []string{urlOf(common.s)}, configOf()); common.err == nil {
			common.err = c.Close()
		}
	})
	require.NoError(t, common.err)
	return common.s
}
