package cluster_test

import (
	"fmt"
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

// What the router costs: lock and unlock by 64 callers, each on names of its own, at a cluster of three
// masters and at three plain masters that share the names as the cluster's slots do. The two take turns, so that
// whatever else the machine does hits both; the ratio is what counts.
//
//	go test -run '^$' -bench Router -benchtime 20x ./cluster
func BenchmarkRouter(b *testing.B) {
	s := start(b, redistest.ShardedConfig{Masters: 3})
	over := open(b, s)
	var plain [3]*redlock.Client
	for i := range plain {
		r, err := redistest.StartReal(b.Context(), redistest.RealConfig{})
		require.NoError(b, err)
		b.Cleanup(func() { _ = r.Close() })
		plain[i] = openAll(b, []string{"redis://" + r.Addr()})
	}
	const callers, keys = 64, 64
	names := make([][keys]string, callers)
	for w := range names {
		for k := range names[w] {
			names[w][k] = fmt.Sprintf("bench:%d:%d", w, k)
		}
	}
	clientOf := map[string]func(name string) *redlock.Client{
		"cluster": func(string) *redlock.Client { return over },
		"plain":   func(name string) *redlock.Client { return plain[int(slot.Of(name))*3/slot.Count] },
	}
	done := make(map[string]int64)
	spent := make(map[string]time.Duration)
	turn := func(kind string, length time.Duration) {
		var n atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for w := range callers {
			wg.Go(func() {
				for i := 0; time.Since(began) < length; i++ {
					name := names[w][i%keys]
					l, err := clientOf[kind](name).Mutex(name).TryLock(b.Context())
					if err == nil {
						err = l.Unlock(b.Context())
					}
					if err != nil {
						b.Error(err)
						return
					}
					n.Add(1)
				}
			})
		}
		wg.Wait()
		done[kind] += n.Load()
		spent[kind] += time.Since(began)
	}
	for kind := range clientOf { // every slot is used once
		turn(kind, 300*time.Millisecond)
	}
	clear(done)
	clear(spent)
	kinds := []string{"cluster", "plain"}
	for i := 0; b.Loop(); i++ {
		turn(kinds[i%2], 150*time.Millisecond)
		turn(kinds[(i+1)%2], 150*time.Millisecond)
	}
	rate := func(kind string) float64 { return float64(done[kind]) / spent[kind].Seconds() }
	for _, kind := range kinds {
		b.ReportMetric(rate(kind), strings.ReplaceAll(kind, " ", "_")+"/s")
	}
	b.ReportMetric(rate("cluster")/rate("plain"), "ratio")
}
