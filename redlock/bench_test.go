package redlock

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
)

// open connects to the cluster as a user would: over TCP, without fault links. Its servers were made for
// the test, and where they are restarted they remember everything.
func open(tb testing.TB, cluster *redistest.Cluster, opts ...Option) *Client {
	tb.Helper()
	var urls []string
	for _, s := range cluster.Servers {
		urls = append(urls, "redis://"+s.Addr())
	}
	c, err := Open(tb.Context(), urls, append([]Option{WithFreshMembers(), func(c *Config) { c.RestartGuard = GuardOff }}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// go test -run '^$' -bench LockUnlock -benchmem -count 10 ./redlock | tee new.txt && benchstat old.txt new.txt
func BenchmarkLockUnlock(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("members=%d/callers=%d", n, callers), func(b *testing.B) {
				c := open(b, rt.Real(b, n))
				names := make([]string, 1000)
				for i := range names {
					names[i] = fmt.Sprintf("warm:%d", i)
				}
				var next atomic.Int64
				cycle := func() {
					l, err := c.Mutex(names[next.Add(1)%int64(len(names))]).Lock(b.Context())
					if err == nil {
						err = l.Unlock(b.Context())
					}
					if err != nil {
						b.Error(err)
					}
				}
				for range 2 * len(names) {
					cycle()
				}
				b.ReportAllocs()
				b.ResetTimer()
				if callers == 1 {
					for b.Loop() {
						cycle()
					}
					return
				}
				b.SetParallelism(callers / 2)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						cycle()
					}
				})
			})
		}
	}
}

// What 10,000 leases cost a client each time they are renewed, without the servers and the network: a
// renewal is decided by one member's answer after the other.
func BenchmarkRenewalIsBooked(b *testing.B) {
	const leases = 10_000
	for _, n := range []int{1, 5} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			c := open(b, rt.Real(b, n))
			var batches [][]renewItem
			for i := range leases {
				if i%perCall == 0 {
					batches = append(batches, nil)
				}
				a := c.newAttempt(c.cfg.lockOf(fmt.Sprintf("lease:%d", i)), terms{kind: &exclusive, ttl: time.Hour, renew: true}, ballot.Past{}, nil)
				l := newLease(b.Context(), &a.hold, result{Grant: ballot.Grant{Token: int64(i) + 1, Until: time.Now().Add(time.Hour)}}, time.Now())
				c.keeper.add(l)
				last := &batches[len(batches)-1]
				*last = append(*last, renewItem{l: l, ttl: time.Hour})
			}
			calls := make([]member.Call, n)
			for i := range calls {
				require.Eventually(b, func() bool { return c.state(i).Votes }, 5*time.Second, time.Millisecond)
				calls[i] = member.Call{Index: i, Result: member.Result{Outcome: member.Answered, State: c.state(i)}}
				for range perCall {
					calls[i].Reply.Elems = append(calls[i].Reply.Elems, member.Reply{Int: 1})
				}
			}
			items := make([]renewItem, perCall)
			b.ReportAllocs()
			round := 0
			for b.Loop() {
				batch := batches[round%len(batches)]
				round++
				r := &renewal{k: &c.keeper, sent: time.Now(), items: items[:copy(items, batch)]}
				for i := range calls {
					calls[i].Reply.Elems = calls[i].Reply.Elems[:len(batch)]
					r.Judge(nil, &calls[i])
					calls[i].Reply.Elems = calls[i].Reply.Elems[:perCall]
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perCall, "ns/renewal")
		})
	}
}
