package cluster_test

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// What the router costs: lock and unlock of names that nobody else wants by 1, 64 and 512 callers of one client (W1
// and W2 of bench/), at a cluster of three masters and at three plain masters that share the names as the cluster's
// slots do. The two take turns, so that whatever else the machine does hits both; the ratio is what counts.
//
//	go test -run '^$' -bench Router -benchtime 20x ./cluster
func BenchmarkRouter(b *testing.B) {
	s := start(b, redistest.ShardedConfig{Masters: 3})
	over := open(b, s)
	var plain [3]*redlock.Client
	servers := map[string][]*redistest.Real{"cluster": s.Servers}
	for i := range plain {
		r := rt.Must(redistest.StartReal(b.Context(), redistest.RealConfig{}))(b)
		b.Cleanup(func() { _ = r.Close() })
		plain[i] = openAll(b, []string{"redis://" + r.Addr()})
		servers["plain"] = append(servers["plain"], r)
	}
	clientOf := map[string]func(name string) *redlock.Client{
		"cluster": func(string) *redlock.Client { return over },
		"plain":   func(name string) *redlock.Client { return plain[int(slot.Of(name))*3/slot.Count] },
	}
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { compare(b, servers, clientOf, callers) })
	}
}

func spentBy(b *testing.B, servers []*redistest.Real) (sum float64) {
	for _, r := range servers {
		info := rt.Must(r.Do(b.Context(), "INFO", "cpu"))(b)
		for _, m := range regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`).FindAllStringSubmatch(info.(string), -1) {
			seconds := rt.Must(strconv.ParseFloat(m[1], 64))(b)
			sum += seconds
		}
	}
	return sum
}

func compare(b *testing.B, servers map[string][]*redistest.Real, clientOf map[string]func(name string) *redlock.Client, callers int) {
	keys := max(64, 4096/callers)
	names := make([][]string, callers)
	for w := range names {
		for k := range keys {
			names[w] = append(names[w], fmt.Sprintf("bench:%d:%d", w, k))
		}
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
	for kind := range clientOf { // slots are used once
		turn(kind, 300*time.Millisecond)
	}
	clear(done)
	clear(spent)
	kinds := []string{"cluster", "plain"}
	before := map[string]float64{"cluster": spentBy(b, servers["cluster"]), "plain": spentBy(b, servers["plain"])}
	for i := 0; b.Loop(); i++ {
		turn(kinds[i%2], 150*time.Millisecond)
		turn(kinds[(i+1)%2], 150*time.Millisecond)
	}
	rate := func(kind string) float64 { return float64(done[kind]) / spent[kind].Seconds() }
	for _, kind := range kinds {
		b.ReportMetric(rate(kind), kind+"/s")
		b.ReportMetric((spentBy(b, servers[kind])-before[kind])*1e6/float64(done[kind]), kind+"-server-us/op")
	}
	b.ReportMetric(rate("cluster")/rate("plain"), "ratio")
}
