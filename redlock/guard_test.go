package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// short is a deployment whose longest lease is a second, so that a quarantine is one.
func short(c *redlock.Config) {
	c.MaxTTL, c.TTL, c.Entry = time.Second, time.Second, 300*time.Millisecond
	c.NoQuorumAfter = -1
}

func voting(t testing.TB, cluster *redistest.Cluster, n int, opts ...redlock.Option) *redlock.Peer {
	t.Helper()
	p := redlock.Guarded(t, cluster, opts...)
	p.Voting(t, n)
	return p
}

// voters is bubble with one client of a fresh deployment, when all members vote.
func voters(t *testing.T, n int, test func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer), opts ...redlock.Option) {
	t.Helper()
	redlock.Bubble(t, n, func(t *testing.T, cluster *redistest.Cluster) {
		test(t, cluster, voting(t, cluster, n, append([]redlock.Option{short, redlock.WithFreshMembers()}, opts...)...))
	})
}

func markerOf(t testing.TB, cluster *redistest.Cluster, i int, field string) string {
	t.Helper()
	v := redlock.Admin(t, cluster.Servers[i], "HGET", "redquorum:boot", field)
	s, _ := v.(string)
	return s
}

func cycle(t testing.TB, p *redlock.Peer, key string) uint64 {
	t.Helper()
	l := p.Lock(t, key)
	require.NoError(t, l.Unlock(t.Context()))
	return l.Token()
}

// meshed are addresses of members that only a Dialer knows, and the option that has it.
func meshed(cluster *redistest.Cluster) (urls []string, ways redlock.Option) {
	paths := map[string]redistest.Dialer{}
	for i, s := range cluster.Servers {
		address := fmt.Sprintf("member-%d.mesh:6379", i)
		paths[address] = s.Dialer()
		urls = append(urls, "redis://"+address)
	}
	return urls, func(c *redlock.Config) {
		c.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			return paths[address].DialContext(ctx, network, address)
		}
	}
}

// dialling is a client that Open makes, with a Dialer of the user's.
func dialling(t testing.TB, cluster *redistest.Cluster, opts ...redlock.Option) *redlock.Peer {
	t.Helper()
	urls, ways := meshed(cluster)
	return &redlock.Peer{Client: opened(t, urls, append(opts, ways)...)}
}

// A proxy or a mesh between the client and its members: all that a dial does not decide is as without it.
func TestMembersBehindADialerOfTheUsersAreGuarded(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := dialling(t, cluster, short, redlock.WithFreshMembers())
		p.Voting(t, 3)
		cycle(t, p, "k")
		require.NoError(t, cluster.Restart(false, 1))
		p.Until(t, 1, redlock.MemberQuarantined)
		p.Until(t, 1, redlock.MemberVoting)
	})
}

// It may be a deployment that lost everything at once, however old its servers are: somebody may still hold.
func TestFirstStartWaitsForTheLongestLease(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		time.Sleep(time.Minute)
		began := time.Now()
		p := redlock.Guarded(t, cluster, short)
		p.Until(t, 4, redlock.MemberQuarantined)
		err := p.Try(t, "k")
		require.ErrorIs(t, err, redlock.ErrQuarantined)
		q := rt.As[*member.QuarantineError](t, err)
		require.WithinDuration(t, began.Add(time.Second), q.Until, 100*time.Millisecond)
		err = p.LockFor(t, "k", 100*time.Millisecond)
		require.ErrorIs(t, err, redlock.ErrQuarantined)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		l := rt.Must(p.Mutex("k").Lock(t.Context()))(t) // waits it out
		require.GreaterOrEqual(t, time.Since(began), time.Second-time.Millisecond)
		require.Less(t, time.Since(began), 1500*time.Millisecond)
		require.NoError(t, l.Unlock(t.Context()))

		// A second client finds the markers and votes at once.
		second := time.Now()
		voting(t, cluster, 5, short)
		require.Less(t, time.Since(second), 200*time.Millisecond)
	})
}

func TestMemberThatRestartsIsQuarantinedAndRestored(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("with its data %v", keep), inBubble(5, func(t *testing.T, cluster *redistest.Cluster) {
			p := voting(t, cluster, 5, short, redlock.WithFreshMembers())
			q := voting(t, cluster, 5, short)
			cycle(t, p, "k")
			synctest.Wait()    // its late calls count on as well
			for i := range 5 { // counters far ahead of any clock: only memory keeps their order
				redlock.Admin(t, cluster.Servers[i], "HSET", "redquorum:tokens", redlock.BucketOf("k"), "9000000000000000")
			}
			last := cycle(t, p, "k")
			require.EqualValues(t, 9000000000000001, last)
			held := p.Hold(t, "held") // renewed all the while
			cluster.Kill(1)
			down := time.Now()
			require.NoError(t, cluster.Restart(keep, 1))
			p.Voting(t, 4)
			for time.Since(down) < 5*time.Second {
				next := cycle(t, q, "k")
				require.Greater(t, next, last)
				last = next
				time.Sleep(20 * time.Millisecond)
				if st := p.State(1); st.Votes && st.Up {
					require.GreaterOrEqual(t, time.Since(down), time.Second-time.Millisecond, "q after the restart at the earliest")
				}
			}
			p.Voting(t, 5)
			q.Voting(t, 5)
			require.Equal(t, "w", markerOf(t, cluster, 1, "state"))
			require.Equal(t, "0", markerOf(t, cluster, 1, "clk"))
			require.Greater(t, cycle(t, p, "k"), last)
			require.Greater(t, redlock.Counter(t, cluster.Servers[1], "k"), int64(9000000000000001))
			time.Sleep(time.Second)
			require.NoError(t, held.Err())
			require.Equal(t, 5, votesAt(cluster, held), "it is given back when the member votes")
			require.GreaterOrEqual(t, redlock.Counter(t, cluster.Servers[1], "held"), int64(held.Token()))
			require.NoError(t, held.Unlock(t.Context()))
		}))
	}
}

// Three of five lose their memory under a living holder: without the quarantine a rival has a majority.
func TestMajorityThatForgetsUnderAHolderLetsNobodyIn(t *testing.T) {
	for _, members := range [][]int{{0, 1, 2}, {0, 1, 2, 3, 4}} {
		redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
			a := voting(t, cluster, 5, short, redlock.WithFreshMembers())
			b := voting(t, cluster, 5, short)
			held := a.Lock(t, "k", redlock.TTL(time.Second))
			require.Eventually(t, func() bool { return held.Votes() == 5 }, time.Second, time.Millisecond)
			restart(t, cluster, false, members...)
			next := b.Lock(t, "k")
			require.Error(t, held.Err(), "%v: two holders", members)
			require.Greater(t, next.Token(), held.Token())
			require.NoError(t, next.Unlock(t.Context()))
		})
	}
}

// To a client that is new, members that were all emptied look like those of a first start, whatever it asks their servers.
func TestNewClientAtMembersThatWereAllEmptiedGetsNoLockThatIsHeld(t *testing.T) {
	long := func(c *redlock.Config) { c.MaxTTL, c.TTL = 10*time.Second, 10*time.Second } // longer than a client waits for answers
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), inBubble(n, func(t *testing.T, cluster *redistest.Cluster) {
			a := voting(t, cluster, n, long, redlock.WithFreshMembers())
			time.Sleep(20 * time.Second)
			held := a.Lock(t, "k", redlock.TTL(10*time.Second))
			for _, l := range a.Links {
				l.BlackHole()
			}
			for _, s := range cluster.Servers {
				redlock.Admin(t, s, "FLUSHALL")
				redlock.Admin(t, s, "SCRIPT", "FLUSH")
			}
			b := redlock.Guarded(t, cluster, long)
			next := b.Lock(t, "k")
			require.False(t, time.Now().Before(held.ValidUntil()), "two holders")
			require.Greater(t, next.Token(), held.Token())
			require.NoError(t, next.Unlock(t.Context()))
		}))
	}
}

// A member that followed a stale copy and is a master again has the same process, its connections, and the marker that came
// along with the copy.
func TestMembersThatWereReplicasOfACopyGiveNoVoteWhileALeaseRunsThatTheyForgot(t *testing.T) {
	long := func(c *redlock.Config) { c.MaxTTL, c.TTL = 10*time.Second, 10*time.Second }
	for _, connected := range []bool{true, false} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint("the other client was there before: ", connected, ", members: ", n), inBubble(n, func(t *testing.T, cluster *redistest.Cluster) {
				a, b := voting(t, cluster, n, long, redlock.WithFreshMembers()), (*redlock.Peer)(nil)
				cycle(t, a, "k")
				for _, s := range cluster.Servers {
					require.NoError(t, s.Snapshot())
				}
				cycle(t, a, "k")
				if connected {
					b = voting(t, cluster, n, long)
				}
				time.Sleep(20 * time.Second)
				held := a.Lock(t, "k", redlock.TTL(10*time.Second))
				for _, l := range a.Links {
					l.BlackHole()
				}
				for _, s := range cluster.Servers[:n/2+1] {
					require.NoError(t, s.(*redistest.Embedded).Reload())
				}
				time.Sleep(1100 * time.Millisecond) // a ping: what a look in that has seen is believed
				if !connected {
					b = redlock.Guarded(t, cluster, long)
				}
				next := b.Lock(t, "k")
				require.False(t, time.Now().Before(held.ValidUntil()), "two holders")
				require.Greater(t, next.Token(), held.Token())
				require.NoError(t, next.Unlock(t.Context()))
			}))
		}
	}
}

func TestFlushIsSeenByTheFirstGrant(t *testing.T) {
	voters(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		cycle(t, p, "k")
		synctest.Wait()
		require.NoError(t, cluster.Flush(2))
		gen := p.State(2).Gen
		cycle(t, p, "k")
		p.Voting(t, 4)
		p.Until(t, 2, redlock.MemberQuarantined)
		require.Greater(t, p.State(2).Gen, gen)
	}, func(c *redlock.Config) { c.PingInterval = time.Hour })
}

func TestFlushThatNobodyUsesIsSeenWithinTenPings(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		require.NoError(t, cluster.Flush(1))
		at := time.Now()
		p.Voting(t, 2)
		require.LessOrEqual(t, time.Since(at), 10*time.Second)
		p.Voting(t, 3)
		require.Equal(t, "w", markerOf(t, cluster, 1, "state"))
	})
}

// One member alone has nobody to ask: order goes on from its clock, and that is said.
func TestSingleMemberThatForgetsGoesOnByItsClock(t *testing.T) {
	redlock.Bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		told := &guardTold{}
		p := voting(t, cluster, 1, short, redlock.WithFreshMembers(), redlock.WithTracer(told))
		last := cycle(t, p, "k")
		restart(t, cluster, false, 0)
		p.Voting(t, 0)
		p.Voting(t, 1)
		require.Greater(t, cycle(t, p, "k"), last)
		require.Equal(t, "1", markerOf(t, cluster, 0, "clk"))
		steps, _ := told.of(p.Members()[0].Name)
		require.Equal(t, "marked forgot tokens_by_clock", steps)
	})
}

func TestStrictKeepsAMemberOutThatNobodyCanRestore(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		strict := func(c *redlock.Config) { c.RestartGuard = redlock.Strict }
		p := voting(t, cluster, 3, short, strict, redlock.WithFreshMembers())
		cycle(t, p, "k")
		restart(t, cluster, false, 0, 1)
		p.Voting(t, 1)
		time.Sleep(time.Minute)
		require.Equal(t, redlock.MemberRestoring, p.Members()[0].State)
		require.ErrorIs(t, p.Try(t, "k"), redlock.ErrQuarantined)
	})
}

func TestGreaterMaxTTLIsRaisedAndAdopted(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		at := time.Now()
		long := voting(t, cluster, 3, short, func(c *redlock.Config) { c.MaxTTL = 10 * time.Second })
		require.GreaterOrEqual(t, time.Since(at), time.Second, "one ping, so that all have learnt of it")
		require.Equal(t, "10000", markerOf(t, cluster, 0, "q"))
		time.Sleep(1100 * time.Millisecond)
		require.NoError(t, long.Close()) // the other must have learnt of it
		restart(t, cluster, false, 1)
		at = time.Now()
		p.Voting(t, 2)
		p.Voting(t, 3)
		require.GreaterOrEqual(t, time.Since(at), 9*time.Second, "the client with the short leases waits for the long ones")
	})
}

// A majority forgets a lease that runs, and the next thing that happens is a call of a client that has rested for a while.
func TestMembersThatForgotWhileAClientRestedGiveItNoVote(t *testing.T) {
	for how, forget := range map[string]func(t *testing.T, cluster *redistest.Cluster){
		"flushed": func(t *testing.T, cluster *redistest.Cluster) {
			require.NoError(t, cluster.Servers[0].Flush())
			require.NoError(t, cluster.Servers[1].Flush())
		},
		"restarted": func(t *testing.T, cluster *redistest.Cluster) { restart(t, cluster, false, 0, 1) },
		"given an old snapshot": func(t *testing.T, cluster *redistest.Cluster) { // with counters, so that no grant compares the marker
			for _, s := range cluster.Servers[:2] {
				redlock.Admin(t, s, "HSET", "redquorum:boot", "id", "older 5")
				redlock.Admin(t, s, "DEL", "k")
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			for _, rested := range []time.Duration{1500, 5500, 9500, 12500, 19500} {
				rested *= time.Millisecond
				voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, holder *redlock.Peer) {
					rival := dialling(t, cluster)
					rival.Voting(t, 3)
					time.Sleep(rested)
					held := holder.Lock(t, "k")
					synctest.Wait()
					forget(t, cluster)
					require.Error(t, rival.Try(t, "k"), "two holders, after a rest of %v", rested)
					require.NoError(t, held.Err())
				}, func(c *redlock.Config) { c.MaxTTL, c.TTL = 30*time.Second, 30*time.Second })
			}
		})
	}
}

// A client that waits looks at its members when it asks, and seldom otherwise. Members that forgot give it nothing, whether it
// asks or they push.
func TestMembersThatForgotWhileAClientWaitedGiveItNoVote(t *testing.T) {
	for _, waited := range []time.Duration{100, 1500, 2900} {
		waited *= time.Millisecond
		voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, holder *redlock.Peer) {
			rival := dialling(t, cluster)
			rival.Voting(t, 3)
			held := holder.Lock(t, "k")
			synctest.Wait()
			disperse := throng(t, cluster, "k", 1000, time.Hour)
			waiting := rival.LockLater(t.Context(), "k")
			time.Sleep(waited)
			disperse()
			for _, s := range cluster.Servers[:2] {
				redlock.Admin(t, s, "HSET", "redquorum:boot", "id", "older 5")
				redlock.Admin(t, s, "DEL", "k")
			}
			time.Sleep(5 * time.Second) // a heartbeat of the one, and none of the other
			require.True(t, waiting.Pending(), "two holders, after a wait of %v", waited)
			_ = held.Unlock(t.Context()) // it is lost
			require.NoError(t, waiting.Get(t).Unlock(t.Context()))
		}, func(c *redlock.Config) { c.MaxTTL, c.TTL = 30*time.Second, 30*time.Second })
	}
}

// A client that marked a first deployment looks at a member, never comes to mark it, and meets it again
// long after: whoever has marked it meanwhile may hold there.
func TestFirstDeploymentIsOverAfterAWhile(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		time.Sleep(time.Minute) // servers older than MaxTTL
		marking := func(cmd []string) bool { return len(cmd) > 6 && cmd[0] == "EVAL" && cmd[len(cmd)-2] == "n" }
		a := redlock.GuardedVia(t, cluster, func(p *redlock.Peer) {
			p.Links[2].Call(marking, -1, func([]string) { p.Links[2].Refuse(true) })
			p.Links[2].CutBefore(marking, -1)
		}, short, func(c *redlock.Config) { c.FreshMembers = true }) // no longer than the first deployment lasts
		a.Voting(t, 2)
		b := voting(t, cluster, 3, short)
		time.Sleep(time.Minute) // an age of marking
		b.Away(0)
		held := b.Lock(t, "k", redlock.TTL(time.Second))
		synctest.Wait()
		b.Links[2].Pause() // b does not see what happens to member 2
		require.NoError(t, cluster.Flush(2))
		a.Links[2].Heal()
		a.Links[2].Refuse(false)
		for until := time.Now().Add(900 * time.Millisecond); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			if l, err := a.Mutex("k").TryLock(t.Context()); err == nil {
				require.Error(t, held.Err(), "two holders, tokens %d and %d", held.Token(), l.Token())
				break
			}
		}
	})
}

// The wait until all have learnt of longer leases holds for every client that asks for them, not only for
// the one that raised q.
func TestSecondClientWithAGreaterMaxTTLWaitsToo(t *testing.T) {
	voters(t, 1, func(t *testing.T, cluster *redistest.Cluster, a *redlock.Peer) {
		long := func(c *redlock.Config) { c.MaxTTL, c.TTL = 10*time.Second, 10*time.Second }
		time.Sleep(100 * time.Millisecond)
		b := redlock.Guarded(t, cluster, short, long)
		b.Until(t, 0, redlock.MemberQuarantined)
		c := voting(t, cluster, 1, short, long)
		held := rt.Must(c.Mutex("k", redlock.TTL(10*time.Second)).TryLock(t.Context()))(t)
		b.Die()
		c.Die()
		restart(t, cluster, false, 0)
		l := a.Lock(t, "k")
		require.Error(t, held.Err(), "two holders: tokens %d, %d", held.Token(), l.Token())
	})
}

// Restored means: to what the others know, before anything else is granted there.
func TestCountersAreRestoredBeforeTheMemberVotes(t *testing.T) {
	voters(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		const unused = "16383"
		for i := range 5 {
			redlock.Admin(t, cluster.Servers[i], "HSET", "redquorum:tokens", unused, strconv.Itoa(9_000_000_000_000_000+i))
		}
		cluster.Kill(4)
		require.NoError(t, cluster.Restart(true, 4)) // a restored counter of its own counts for nothing
		p.Voting(t, 4)
		p.Voting(t, 5)
		v := redlock.Admin(t, cluster.Servers[4], "HGET", "redquorum:tokens", unused)
		require.GreaterOrEqual(t, v, "9000000000000002", "the greatest that three others know")
	})
}

type guardTold struct {
	mu    sync.Mutex
	steps map[string][]string
	until map[string]time.Time // of the last step
}

func (g *guardTold) Guard(member, step string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.steps == nil {
		g.steps, g.until = map[string][]string{}, map[string]time.Time{}
	}
	g.steps[member] = append(g.steps[member], step)
	g.until[member] = until
}

func (g *guardTold) of(member string) (steps string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	steps = strings.Join(g.steps[member], " ")
	delete(g.steps, member)
	return steps, g.until[member]
}

func linesOf(log *transcript, member, text string) (out []string) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "member="+member) && strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// A first start says of each member, in one line, why it waits, how long, and what skips
// that; so does the error of who does not wait, and names the members.
func TestFirstStartSaysWhyItWaitsAndWhatSkipsThat(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		var log transcript
		told := &guardTold{}
		began := time.Now()
		p := redlock.Guarded(t, cluster, short, redlock.WithLogger(log.logger()), redlock.WithTracer(told))
		p.Until(t, 4, redlock.MemberQuarantined)
		synctest.Wait()
		err := p.LockFor(t, "k", 100*time.Millisecond)
		require.ErrorIs(t, err, redlock.ErrQuarantined)
		for i, m := range p.Members() {
			lines := linesOf(&log, m.Name, "does not vote")
			require.Len(t, lines, 1, "%s", log.String())
			for _, text := range []string{"used for the first time", "may be one that lost everything", "for=1", "until=", "Config.FreshMembers"} {
				require.Contains(t, lines[0], text)
			}
			require.Contains(t, err.Error(), m.Name+": member is in quarantine until "+m.Until.Format(time.TimeOnly))
			require.WithinDuration(t, began.Add(time.Second), m.Until, 100*time.Millisecond)
			steps, until := told.of(m.Name)
			require.Equal(t, "marked", steps, "member %d", i)
			require.WithinDuration(t, m.Until, until, time.Millisecond)
		}
	})
}

// One line and one event for each step: of the client that marks a member which forgot, of one that finds
// it in quarantine, and when it votes again.
func TestEachStepOfTheGuardIsTold(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		var logs [2]transcript
		var told [2]guardTold
		var all []*redlock.Peer
		for i := range told {
			all = append(all, redlock.Guarded(t, cluster, short, redlock.WithFreshMembers(), redlock.WithLogger(logs[i].logger()), redlock.WithTracer(&told[i])))
			all[i].Voting(t, 5)
		}
		member := all[0].Members()[2].Name
		for i, want := range []string{"marked", ""} {
			steps, _ := told[i].of(member)
			require.Equal(t, want, steps)
		}
		all[1].Links[2].Refuse(true) // the other marks it
		began := time.Now()
		require.NoError(t, cluster.Restart(true, 2))
		all[0].Until(t, 2, redlock.MemberQuarantined)
		all[1].Links[2].Refuse(false)
		all[1].Until(t, 2, redlock.MemberQuarantined)
		for i, want := range []string{"forgot", "quarantined"} {
			synctest.Wait()
			steps, until := told[i].of(member)
			require.Equal(t, want, steps)
			require.WithinDuration(t, began.Add(time.Second), until, 100*time.Millisecond)
		}
		require.Len(t, linesOf(&logs[0], member, "it may have forgotten leases that still run"), 1, "%s", logs[0].String())
		require.Len(t, linesOf(&logs[1], member, "may have forgotten, and does not vote yet"), 1, "%s", logs[1].String())
		all[0].Voting(t, 5)
		all[1].Voting(t, 5)
		synctest.Wait()
		var ends []string
		for i := range told {
			steps, _ := told[i].of(member)
			ends = append(ends, steps)
			want := 0
			if steps == "restored" {
				want = 1
			}
			require.Len(t, linesOf(&logs[i], member, "votes again, its token counters are restored"), want, "%s", logs[i].String())
		}
		require.Contains(t, ends, "restored")
		for _, steps := range ends {
			require.Contains(t, []string{"", "restored"}, steps)
		}
	})
}

// stuckAt is a Handler that does not return from one line until it is let.
type stuckAt struct {
	slog.Handler
	line string
	let  chan struct{}
}

func (h stuckAt) Enabled(context.Context, slog.Level) bool { return true }

func (h stuckAt) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.line {
		<-h.let
	}
	return nil
}

func (h stuckAt) WithAttrs([]slog.Attr) slog.Handler { return h }

// As TestMembersThatWereReplicasOfACopyGiveNoVoteWhileALeaseRunsThatTheyForgot, at a client whose Logger, or Tracer, does not
// return: the supervisor of a node is in it, and nobody looks at the member.
func TestClientWhoseCallbackBlocksLooksAllTheSame(t *testing.T) {
	long := func(c *redlock.Config) { c.MaxTTL, c.TTL = 10*time.Second, 10*time.Second }
	for _, who := range []string{"Logger", "Tracer.Member"} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(who, ", members: ", n), inBubble(n, func(t *testing.T, cluster *redistest.Cluster) {
				let := make(chan struct{})
				a := voting(t, cluster, n, long, redlock.WithFreshMembers())
				cycle(t, a, "k")
				for _, s := range cluster.Servers {
					require.NoError(t, s.Snapshot())
				}
				cycle(t, a, "k")
				b := redlock.Guarded(t, cluster, long, func(c *redlock.Config) {
					switch who {
					case "Logger":
						c.Logger = slog.New(stuckAt{slog.DiscardHandler, "redlock: member is up", let})
					case "Tracer.Member":
						c.Tracer.Member = func(_ string, up bool, _ error) {
							if up {
								<-let
							}
						}
					}
				})
				defer func() { close(let); time.Sleep(time.Second) }()
				for range 40 { // a client that is busy, so that looks go out, if anybody sees to it
					time.Sleep(500 * time.Millisecond)
					if l, err := b.Mutex("other", redlock.TTL(10*time.Second)).TryLock(t.Context()); err == nil {
						require.NoError(t, l.Unlock(t.Context()))
					}
				}
				held := a.Lock(t, "k", redlock.TTL(10*time.Second))
				for _, l := range a.Links {
					l.BlackHole()
				}
				for _, s := range cluster.Servers[:n/2+1] {
					require.NoError(t, s.(*redistest.Embedded).Reload())
				}
				time.Sleep(1100 * time.Millisecond) // a ping: what a look in that has seen is believed
				ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
				defer stop()
				next, err := b.Mutex("k", redlock.TTL(10*time.Second)).TryLock(ctx)
				if err == nil {
					require.False(t, time.Now().Before(held.ValidUntil()) && held.Err() == nil, "two holders: tokens %d and %d", held.Token(), next.Token())
				}
			}))
		}
	}
}

// A call that took longer than MemberTimeout, and whose members go on to answer what they answered, does not go on for ever.
func TestTryIsMadeOnceMoreWhenItsTimeIsOver(t *testing.T) {
	redlock.Alone(t, 1, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		require.Equal(t, 1, redlock.ComesBack(p.Client, "k", time.Now().Add(-time.Minute), 3))
		require.Equal(t, 3, redlock.ComesBack(p.Client, "k", time.Now(), 3))
	}, redlock.Quiet)
}
