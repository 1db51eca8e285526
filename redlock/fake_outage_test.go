package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Members that die, stop, forget their scripts or throw their clients out, each by itself.

// Three of five die. Who asks is told so, and by which members; a release is in doubt, and is done when they are back. The
// same client goes on by itself.
func TestThreeOfFiveDeadIsNoQuorumWithThreeCausesAndHealsByItself(t *testing.T) {
	dead := []int{1, 2, 4}
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		p := voting(t, cluster, 5, short, redlock.WithFreshMembers(), func(c *redlock.Config) {
			c.NoQuorumAfter, c.MaxTTL = 300*time.Millisecond, 10*time.Second
		})
		held := p.Hold(t, "held", redlock.TTL(10*time.Second))
		cluster.Kill(dead...)
		died := time.Now()
		_, try := p.Mutex("k").TryLock(t.Context())
		_, lock := p.Mutex("k").Lock(t.Context())
		require.GreaterOrEqual(t, time.Since(died), 300*time.Millisecond)
		require.Less(t, time.Since(died), 2*time.Second)
		for _, err := range []error{try, lock} {
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, redlock.ErrHeld)
			var q *redlock.QuorumError
			require.ErrorAs(t, err, &q)
			for i, v := range q.Votes {
				require.Equal(t, slices.Contains(dead, i), v.Err != nil, "member %d: %v", i, err)
				if v.Err != nil {
					require.ErrorContains(t, err, cluster.Servers[i].Addr()+": ")
				}
			}
		}
		require.ErrorIs(t, held.Unlock(t.Context()), redlock.ErrInDoubt)
		require.NoError(t, cluster.Restart(true, dead...)) // with its key at three
		require.EqualValues(t, 1, redlock.Admin(t, cluster.Servers[1], "EXISTS", "held"))
		p.Voting(t, 5)
		next := p.Hold(t, "held")
		require.Greater(t, next.Token(), held.Token())
		require.Equal(t, 5, next.Votes())
		require.NoError(t, next.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
	})
}

// Two of five stop, and then two others. The lease is at the others all the while, and comes back to those that go on.
func TestLeaseIsRenewedWhileMinoritiesAreStopped(t *testing.T) {
	const ttl = 1500 * time.Millisecond
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Hold(t, "k", redlock.AutoRenew(ttl))
		for _, stopped := range [][]int{{0, 1}, {2, 3}} {
			cluster.Pause(stopped...)
			for end := time.Now().Add(3 * ttl); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				for i, s := range cluster.Servers {
					if !slices.Contains(stopped, i) {
						require.Positive(t, redlock.Admin(t, s, "PTTL", "k"), "member %d lost the lock", i)
					}
				}
				require.NoError(t, l.Err())
			}
			cluster.Resume(stopped...)
			p.Settle(t, 5)
			time.Sleep(2 * ttl)
			require.Equal(t, 5, l.Votes())
			require.Equal(t, 5, votesAt(cluster, l))
		}
		require.NoError(t, l.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
	})
}

// keepsContending has each client take a lock of all and one of its own, over and over, until the context ends. It returns what
// went wrong, once all are back.
func keepsContending(ctx context.Context, book *ledger, all []*redlock.Peer) (wait func() []error) {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for i, p := range all {
		for _, name := range []string{"all", fmt.Sprint("own", i)} {
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := p.Mutex(name).Lock(ctx)
					if err == nil {
						book.granted(i, l, floor{})
						time.Sleep(time.Millisecond)
						err = l.Unlock(context.WithoutCancel(ctx))
					}
					if err != nil && ctx.Err() == nil {
						rt.Locked(&mu, func() { errs = append(errs, err) })
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
	}
	return func() []error { wg.Wait(); return errs }
}

// What befalls connections and scripts costs nobody a lock: exclusion and the order of tokens stay, and nothing is left.
func TestServersForgetScriptsAndThrowClientsOut(t *testing.T) {
	for what, befalls := range map[string]func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer, round int){
		"scripts": func(t *testing.T, cluster *redistest.Cluster, _ []*redlock.Peer, _ int) {
			for _, s := range cluster.Servers {
				redlock.Admin(t, s, "SCRIPT", "FLUSH")
			}
		},
		"connections": func(_ *testing.T, _ *redistest.Cluster, all []*redlock.Peer, round int) {
			members := []int{round % 3}
			if round%3 == 0 {
				members = nil // all of them
			}
			for _, p := range all {
				p.EveryLink(func(l *redistest.Link) { l.Cut() }, members...)
			}
		},
	} {
		t.Run(what, inAmong(3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
			for i, p := range all {
				p.Jitter(uint64(i), time.Millisecond, time.Millisecond, time.Millisecond)
			}
			book := newLedger(scene{names: []string{"all", "own0", "own1"}})
			ctx, stop := context.WithCancel(t.Context())
			wait := keepsContending(ctx, book, all)
			for round := range 8 {
				time.Sleep(23 * time.Millisecond)
				befalls(t, cluster, all, round)
			}
			time.Sleep(100 * time.Millisecond) // some reconnect after a pause
			grants := func() int { return rt.Under(&book.mu, func() int { return book.grants }) }
			before := grants()
			time.Sleep(100 * time.Millisecond)
			require.Greater(t, grants(), before+10)
			stop()
			for _, err := range wait() { // who asked when all were thrown out had nobody to ask
				nobody := errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrInDoubt) || errors.Is(err, redlock.ErrLost)
				require.True(t, what == "connections" && nobody, "%v", err)
			}
			require.Empty(t, book.verdict())
			time.Sleep(10 * time.Second)
			redlock.Leftovers(t, cluster)
		}))
	}
}

// Connections end while all members are well: the process was frozen, or a proxy has a bound for idle connections. The next
// call that does not wait for the lock is made on the connections that come then, and nothing of the first one stays.
func TestCallThatDoesNotWaitOutlivesConnectionsThatHaveEnded(t *testing.T) {
	got := func(l *redlock.Lease, err error) error {
		if err != nil {
			return err
		}
		return l.Unlock(context.Background())
	}
	for fault, end := range map[string]func(p *redlock.Peer){
		"before the call":            func(p *redlock.Peer) { p.EveryLink(func(l *redistest.Link) { l.Cut() }) },
		"before the call, and known": func(p *redlock.Peer) { p.EveryLink(func(l *redistest.Link) { l.Cut() }); synctest.Wait() },
		"under the call": func(p *redlock.Peer) {
			p.EveryLink(func(l *redistest.Link) { l.CutBefore(redistest.Named("EVALSHA"), 1) })
		},
		"under the answer": func(p *redlock.Peer) {
			p.EveryLink(func(l *redistest.Link) { l.CutAfter(redistest.Named("EVALSHA"), 1) })
		},
		"at two members": func(p *redlock.Peer) { p.EveryLink(func(l *redistest.Link) { l.Cut() }, 0, 2) },
	} {
		for kind, call := range map[string]func(t testing.TB, p *redlock.Peer, l *redlock.Lease) error{
			"TryLock": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				return got(p.Mutex("k").TryLock(t.Context()))
			},
			"fair": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				return got(p.Mutex("k", redlock.Fair()).TryLock(t.Context()))
			},
			"TryRLock": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				return got(p.RWMutex("k").TryRLock(t.Context()))
			},
			"TryAcquire": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				return got(p.Semaphore("k", 2).TryAcquire(t.Context()))
			},
			"Multi": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				l, err := p.Multi([]string{"j", "k"}).TryLock(t.Context())
				if err != nil {
					return err
				}
				return l.Unlock(context.Background())
			},
			"Limit": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				_, err := p.Semaphore("s", 2).Limit(t.Context())
				return err
			},
			"Extend": func(t testing.TB, _ *redlock.Peer, l *redlock.Lease) error {
				return l.Extend(t.Context(), 30*time.Second)
			},
		} {
			t.Run(fault+"/"+kind, inAlone(3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				l := p.Lock(t, "held")
				time.Sleep(2 * time.Second)
				end(p)
				began := time.Now()
				require.NoError(t, call(t, p, l))
				require.LessOrEqual(t, time.Since(began), 200*time.Millisecond, "MemberTimeout")
				time.Sleep(time.Second)
				require.NoError(t, l.Unlock(t.Context()))
				synctest.Wait()
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet))
		}
	}
}

func TestTryDoesNotWaitForAMemberThatCannotBeReached(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		d.Cut(0, 1)
		time.Sleep(time.Second)
		began := time.Now()
		require.ErrorIs(t, rt.Err(p.Client.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
		require.LessOrEqual(t, time.Since(began), 2*time.Millisecond)
		d.Heal(0)
		p.Settle(t, 2)
		require.NoError(t, p.Try(t, "k"))
	}, redlock.Quiet)
}

// What TestSeeds loses of the scripts that all calls use is lost here of those that are seldom sent. A script is
// executed, and its reply does not come.

// losses are the ways in which the reply to a script that was executed can fail to come.
var losses = map[string]func(l *redistest.Link, m redistest.Match, n int) *redistest.Rule{
	"silence":        (*redistest.Link).LoseReply,
	"connection cut": (*redistest.Link).CutAfter,
}

// loser loses the reply to the next command that matches.
type loser = func(l *redistest.Link, m redistest.Match) *redistest.Rule

// eachLoss plays a test with each way of losing, on five members.
func eachLoss(t *testing.T, name string, test func(t *testing.T, cluster *redistest.Cluster, lose loser)) {
	for way, loss := range losses {
		t.Run(name+", "+way, inBubble(5, func(t *testing.T, cluster *redistest.Cluster) {
			test(t, cluster, func(l *redistest.Link, m redistest.Match) *redistest.Rule { return loss(l, m, 1) })
		}))
	}
}

// The replies of a forced release are lost at two members: it is done all the same, at all five. Lost at three, it is
// said that too few answered, and the lock is free. Either way the next one has it, with a greater token, and who had it
// hears of it.
func TestForcedReleaseIsDoneThoughRepliesAreLost(t *testing.T) {
	for lost := 2; lost <= 3; lost++ {
		eachLoss(t, strconv.Itoa(lost), func(t *testing.T, cluster *redistest.Cluster, lose loser) {
			holder, operator := voting(t, cluster, 5, short, redlock.WithFreshMembers()), voting(t, cluster, 5, short)
			require.False(t, rt.Must(operator.ForceUnlock(t.Context(), "another"))(t), "nobody holds it") // members have the script now
			lease := holder.Hold(t, "k")
			var rules []*redistest.Rule
			for _, l := range operator.Links[:lost] {
				rules = append(rules, lose(l, redistest.WithArg(script.RWForce.SHA)))
			}
			held, err := operator.ForceUnlock(t.Context(), "k")
			if lost == 2 {
				require.NoError(t, err)
				require.True(t, held)
			} else {
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
			}
			for i, n := range redlock.Hits(rules) {
				require.Equal(t, 1, n, "member %d", i)
			}
			next := rt.Must(holder.Mutex("k").TryLock(t.Context()))(t)
			require.Greater(t, next.Token(), lease.Token())
			<-lease.Done()
			require.ErrorIs(t, lease.Err(), redlock.ErrLost)
			require.NoError(t, next.Err())
			require.NoError(t, next.Unlock(t.Context()))
			time.Sleep(5 * time.Second)
			redlock.NothingLeft(t, cluster)
		})
	}
}

// A lease is given back to two members that did not have it, and their replies are lost. It lives on, and its release
// takes it from them all the same.
func TestLeaseThatIsGivenBackLivesOnThoughRepliesAreLost(t *testing.T) {
	eachLoss(t, "two", func(t *testing.T, cluster *redistest.Cluster, lose loser) {
		p := voting(t, cluster, 5, short, redlock.WithFreshMembers())
		p.Away(3, 4)
		var leases []*redlock.Lease
		for i := range 5 {
			leases = append(leases, p.Lock(t, "k"+strconv.Itoa(i)))
		}
		var rules []*redistest.Rule
		for _, l := range p.Links[3:] {
			rules = append(rules, lose(l, redistest.WithArg(script.Rejoin.SHA)))
			l.Refuse(false)
		}
		p.Voting(t, 5)
		time.Sleep(5 * time.Second)
		require.Equal(t, []int{1, 1}, redlock.Hits(rules))
		for _, l := range leases {
			require.Equal(t, 5, l.Votes())
			require.NoError(t, l.Err())
			require.NoError(t, l.Unlock(t.Context()))
		}
		redlock.NothingLeft(t, cluster)
	})
}

// guardCall matches the calls of one of the restart guard's scripts, which are sent in full, or of a page of counters.
func guardCall(name string) redistest.Match {
	if name == "page" {
		return redistest.Named("HSCAN")
	}
	all := node.GuardScripts()
	source := all[0] + map[string]string{
		"look": "return look()", "mark": all[1], "lift": all[2], "claim": all[3], "restore": all[4],
	}[name]
	return redistest.Both(redistest.Named("EVAL"), redistest.WithArg(source))
}

// The scripts of the restart guard are executed at a member that has restarted without memory, and their replies are
// lost, once for every client. It is marked, rests, has its counters again, and votes.
func TestMemberIsRestoredThoughRepliesOfTheGuardAreLost(t *testing.T) {
	for _, name := range []string{"look", "mark", "claim", "page", "restore"} {
		eachLoss(t, name, func(t *testing.T, cluster *redistest.Cluster, lose loser) {
			all := []*redlock.Peer{voting(t, cluster, 5, short, redlock.WithFreshMembers()), voting(t, cluster, 5, short)}
			for i := range 5 { // counters far ahead of any clock: only memory keeps their order
				redlock.Admin(t, cluster.Servers[i], "HSET", "redquorum:tokens", redlock.BucketOf("k"), "9000000000000000")
			}
			last, asked := cycle(t, all[0], "k"), 1
			if name == "page" { // of the others: three of four are needed
				asked = 2
			}
			var rules []*redistest.Rule
			for _, p := range all {
				rules = append(rules, lose(p.Links[asked], guardCall(name)))
			}
			down := time.Now()
			restart(t, cluster, false, 1)
			votes := 0
			for n := 0; votes < len(all) && time.Since(down) < time.Minute; n++ {
				next := cycle(t, all[n%2], "k")
				require.Greater(t, next, last)
				last, votes = next, 0
				for _, p := range all {
					if m := p.Members()[1]; m.State == redlock.MemberVoting && m.Since.After(down) {
						require.Greater(t, m.Since.Sub(down), time.Second-time.Millisecond, "it votes too early, and TTLs are in whole ms")
						votes++
					}
				}
				time.Sleep(500 * time.Millisecond)
			}
			require.Equal(t, len(all), votes, "it does not vote again")
			require.Contains(t, redlock.Hits(rules), 1, "nothing was lost")
			require.Equal(t, "w", markerOf(t, cluster, 1, "state"))
			require.Equal(t, "0", markerOf(t, cluster, 1, "clk"), "its counters are from the others' memory")
		})
	}
	eachLoss(t, "lift", func(t *testing.T, cluster *redistest.Cluster, lose loser) {
		voting(t, cluster, 5, short, redlock.WithFreshMembers())
		var rules []*redistest.Rule
		long := redlock.GuardedVia(t, cluster, func(p *redlock.Peer) {
			for _, l := range p.Links[:2] {
				rules = append(rules, lose(l, guardCall("lift")))
			}
		}, short, func(c *redlock.Config) { c.TTL, c.MaxTTL = 2*time.Second, 2*time.Second })
		long.Voting(t, 5)
		require.Equal(t, []int{1, 1}, redlock.Hits(rules))
		for i := range 5 {
			require.Equal(t, "2000", markerOf(t, cluster, i, "q"))
		}
		cycle(t, long, "k")
	})
}

// Names that cannot be resolved cost their members' votes and nothing else, from the start or later, and come back by
// themselves. The resolver says that there is no such host, or answers when nobody waits any more.
func TestNamesThatCannotBeResolvedCostTheirVotesAlone(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		urls, ways := meshed(cluster)
		var mu sync.Mutex
		broken := map[string]bool{} // whether the resolver is slow
		resolving := func(c *redlock.Config) {
			short(c)
			ways(c)
			dial := c.Dialer
			c.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
				mu.Lock()
				slow, fails := broken[address]
				mu.Unlock()
				if !fails {
					return dial(ctx, network, address)
				}
				err := &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
				if slow {
					<-ctx.Done()
					err = &net.DNSError{Err: "i/o timeout", Name: address, IsTimeout: true, IsTemporary: true}
				}
				return nil, &net.OpError{Op: "dial", Net: network, Err: err}
			}
		}
		breaks := func(slow bool, members ...int) {
			mu.Lock()
			defer mu.Unlock()
			clear(broken)
			for _, i := range members {
				broken[strings.TrimPrefix(urls[i], "redis://")] = slow
			}
		}
		p := &redlock.Peer{Client: opened(t, urls, resolving, redlock.WithFreshMembers())}
		p.Voting(t, 5)
		held := p.Lock(t, "held") // renewed all the while
		for _, slow := range []bool{false, true} {
			breaks(slow, 3, 4)
			restart(t, cluster, true, 3, 4)
			time.Sleep(20 * time.Second)
			for i, m := range p.Members() {
				var unknown *net.DNSError
				require.Equal(t, i >= 3, m.State == redlock.MemberDown, "member %d: %v", i, m.State)
				require.Equal(t, i >= 3, errors.As(m.Err, &unknown), "member %d: %v", i, m.Err)
			}
			cycle(t, p, "k")
			breaks(false)
			p.Voting(t, 5)
			cycle(t, p, "k")
		}
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(t.Context()))

		breaks(false, 0, 1)
		second := opened(t, urls, resolving)
		lease := rt.Must(second.Mutex("k").Lock(t.Context()))(t)
		require.Equal(t, 3, lease.Votes())
		require.NoError(t, lease.Unlock(t.Context()))
		breaks(false, 0, 1, 2)
		_, err := redlock.OpenWith(t.Context(), urls, resolving)
		var unknown *net.DNSError
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorAs(t, err, &unknown)
		require.ErrorContains(t, err, fmt.Sprintf("member-%d.mesh", 2))
		breaks(false)
		p.Voting(t, 5)
		synctest.Wait()
		redlock.NothingLeft(t, cluster)
	})
}

// A clock that is set is a member that forgets: a lease with five votes survives two, and not three. Tokens do not come
// from clocks, so a storage that looks at them refuses who was overtaken.
func TestLeaseWithAllVotesSurvivesTwoClocksThatAreSet(t *testing.T) {
	for set := 2; set <= 3; set++ {
		redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
			var storage fence.Memory
			a, b := redlock.JoinAll(t, cluster), redlock.JoinAll(t, cluster)
			held := a.Hold(t, "k", redlock.TTL(20*time.Second))
			require.NoError(t, storage.Check(t.Context(), "k", held.Token()))
			rival := b.LockLater(t.Context(), "k")
			time.Sleep(time.Second)
			for i := range set {
				cluster.Embedded(i).Step(20 * time.Second)
			}
			time.Sleep(10 * time.Second)
			require.NoError(t, held.Err())
			require.Equal(t, set == 2, rival.Pending(), "the control breaks nothing, or two break exclusion")
			if set == 2 {
				require.NoError(t, held.Unlock(t.Context()))
			}
			next := rival.Get(t)
			require.Greater(t, next.Token(), held.Token())
			require.NoError(t, storage.Check(t.Context(), "k", next.Token()))
			require.ErrorIs(t, storage.Check(t.Context(), "k", held.Token()), fence.ErrStale)
			require.NoError(t, next.Unlock(t.Context()))
		})
	}
}
