package redlock_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Faults that other lock libraries have, or had, each as a test that it is not here. The numbers are
// those of a study of the peers: V, what was verified by running them; S, redsync's; R, rueidislock's.
// A row without a function names the tests elsewhere that cover it.
var peersFaults = []struct {
	id    string
	fault string
	test  func(t *testing.T)
	in    []string
}{
	{"V1 S1", "a cancelled acquire leaves keys on every member", cancelAtEveryStep, []string{"TestCancelAtAnyMomentLeavesNothingBehind", "TestCallWithAContextThatHasEndedAsksNobody"}},
	{"V2 S2", "one member free and two held by another, and the vote of the free one is orphaned", noOrphanOnTheFreeMember, nil},
	{"V3 S3", "unlock waits for a hung member, and the lease looks valid afterwards", unlockBesideAHungMember, []string{"TestRoundEndsWithTheAnswerThatDecidesIt"}},
	{"V4 S3", "lock waits for a hung member although a majority has answered", nil, []string{"TestRoundEndsWithTheAnswerThatDecidesIt"}},
	{"S3", "extend has no time-out of its own", extendBesideHungMembers, nil},
	{"V5 R1", "clocks of clients and servers apart make a lock void", clocksHoursApart, nil},
	{"V6", "an owner whose name begins another's takes over its lock", ownerThatBeginsAnother, nil},
	{"V7 S9", "a TTL too short to be one gives a lock that does not exist", ttlOfNothing, []string{"TestArgumentsThatCannotWorkAreNamed"}},
	{"V8", "who holds one lock is refused a free one besides", nil, []string{"TestSameOwnerEntersAgain"}},
	{"V9", "an even number of members and a tie hang for ever", tieOfEvenMembers, nil},
	{"V10 S4", "a call on a connection that hangs outlives its context", callsOnHungConnections, []string{"TestNoCallOutlivesItsContextWhileMembersHang"}},
	{"S5 R4", "a lost reply makes an attempt its own rival", lostReplyIsNoRival, []string{"TestUnknownIsNeverAYesAndIsAlwaysCleanedUp"}},
	{"S6", "extend brings back a lock that another had in between", extendAfterAnother, []string{"TestLostLeaseIsNotRevivedByALateRenewal"}},
	{"S7", "a context's end is reported as something else", contextEndIsTold, nil},
	{"S8", "extend accepts a lease that is over", extendAfterTheEnd, nil},
	{"S8", "a member that was missing never gets the lease", memberThatWasMissing, []string{"TestRenewalGivesTheLeaseBackToMembersThatDoNotHaveIt"}},
	{"R2", "a stale foreign key on one member blocks the lock", foreignKeyOnOneMember, []string{"TestKeyThatIsNoLockIsReported"}},
	{"R3", "the end of a lease waits for a renewal that hangs", endWhileARenewalHangs, []string{"TestLeaseEndsExactlyWithItsValidityWhileEveryMemberHangs"}},
	{"R5", "keys on one server are counted as independent votes", nil, []string{"TestMemberThatIsListedTwiceVotesOnce", "TestOneServerUnderTwoNamesIsNotTwoMembers"}},
	{"R6", "a waiter spins", nil, []string{"TestWaitingCostsOneMessageASecond"}},
}

func TestPeersFaults(t *testing.T) {
	t.Parallel()
	for _, f := range peersFaults {
		if f.test != nil {
			t.Run(f.id+" "+f.fault, f.test)
		}
	}
}

// The tables of this package name tests: those must exist.
func TestTablesNameTestsThatExist(t *testing.T) {
	exists := testsHere(t)
	named := 0
	check := func(row string, covered bool, in []string) {
		t.Helper()
		require.True(t, covered || len(in) > 0, row)
		for _, name := range in {
			require.True(t, exists[name], "%s: no %s", row, name)
			named++
		}
	}
	for _, f := range peersFaults {
		check(f.fault, f.test != nil, f.in)
	}
	for _, c := range redissonCases {
		check(c.name, c.test != nil || c.why != "", c.in)
	}
	require.Greater(t, named, 20)
	require.False(t, exists["TestThatDoesNotExist"])
}

// testsHere is the test functions of this package.
func testsHere(t *testing.T) map[string]bool {
	t.Helper()
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	all := make(map[string]bool)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				all[fn.Name.Name] = true
			}
		}
	}
	return all
}

// moments of a command at a member at which the caller may give up. Ways take 1 ms and more, see below.
var moments = []struct {
	name  string
	after func(rtt time.Duration) time.Duration
}{
	{"reaches", func(time.Duration) time.Duration { return 0 }},
	{"is answered by", func(time.Duration) time.Duration { return 1 }},
	{"has been heard from", func(rtt time.Duration) time.Duration { return rtt/2 + 1 }},
}

// cancelAtEveryStep cancels at each command of an acquisition, at each member: when it arrives there,
// while its answer, or the push that it made the member send, is on the way, and right after that was
// heard. Then no key must be left on any member.
func cancelAtEveryStep(t *testing.T) {
	rtts := []time.Duration{2 * time.Millisecond, 4 * time.Millisecond, 6 * time.Millisecond}

	// try plays an acquisition that is cancelled at one step. begin makes the situation and returns what
	// goes on after the call has begun; with is whose command the step is.
	type step struct {
		name   string
		script script.Script
	}
	acquires, waits, yields := step{"acquire", script.Acquire}, step{"wait", script.Wait}, step{"yield", script.Yield}
	raises, releases := step{"raise", script.Raise}, step{"release", script.Release}
	type situation struct {
		name    string
		steps   []step
		holders bool // the step is a command of the holder
		begin   func(t *testing.T, cluster *redistest.Cluster, p, other *peer) (during func())
	}
	held := func(t *testing.T, cluster *redistest.Cluster, _, other *peer) func() {
		l := other.Hold(t, "k")
		time.Sleep(10 * time.Millisecond)
		return func() {
			time.Sleep(30 * time.Millisecond)
			base := int64(l.Token())
			skew(t, cluster, "k", base+30, base+20, base+10) // so that the hand-over needs a raise
			if err := l.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	for _, s := range []situation{
		{"free", []step{acquires, raises}, false, func(t *testing.T, cluster *redistest.Cluster, _, _ *peer) func() {
			skew(t, cluster, "k", 30, 20, 10) // so that there is a second round
			return func() {}
		}},
		{"held", []step{acquires, waits, raises}, false, held},
		{"handed over", []step{releases}, true, held},
		{"split", []step{acquires, waits, yields}, false, func(t *testing.T, cluster *redistest.Cluster, _, other *peer) func() {
			third := join(t, cluster, quiet)
			near := func(p *peer, i int) {
				far := []time.Duration{20 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond}
				far[i] = 2 * time.Millisecond
				p.Slow(far...)
			}
			near(other, 1)
			near(third, 2)
			return func() {
				x, y := other.LockLater(t.Context(), "k"), third.LockLater(t.Context(), "k")
				for _, w := range []*locking{x, y} {
					go func() {
						<-w.Done
						if w.Err != nil {
							t.Error(w.Err)
							return
						}
						_ = w.Lease.Unlock(context.Background())
					}()
				}
				<-x.Done
				<-y.Done
			}
		}},
	} {
		for _, sc := range s.steps {
			cancelled, reached := 0, 0
			for i := range 3 {
				for _, m := range moments {
					name := fmt.Sprintf("%s, when %s %s member %d", s.name, sc.name, m.name, i)
					ok := t.Run(name, func(t *testing.T) {
						pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *peer) {
							p.Slow(rtts...)
							if s.name == "split" {
								p.Slow(rtts[0], 20*time.Millisecond, 20*time.Millisecond)
							}
							during := s.begin(t, cluster, p, other)
							whose := p
							if s.holders {
								whose = other
							}
							ctx, cancel := context.WithCancel(t.Context())
							defer cancel()
							met := whose.Links[i].Call(redistest.WithArg(sc.script.SHA), 1, func([]string) {
								if d := m.after(rtts[i]); d > 0 {
									time.AfterFunc(d, cancel)
								} else {
									cancel()
								}
							})
							w := p.LockLater(ctx, "k")
							unlocked := make(chan error, 1)
							go func() { // others may wait for it
								<-w.Done
								if w.Err != nil {
									unlocked <- nil
									return
								}
								unlocked <- w.Lease.Unlock(context.Background())
							}()
							during()
							require.NoError(t, <-unlocked)
							reached += met.Hits()
							if w.Err != nil {
								cancelled++
								require.ErrorIs(t, w.Err, context.Canceled)
							}
							time.Sleep(100 * time.Millisecond) // what is under way arrives
							leftovers(t, cluster)
							l, err := other.Mutex("k").TryLock(t.Context())
							require.NoError(t, err, "nobody is in the way")
							require.NoError(t, l.Unlock(t.Context()))
						}, quiet)
					})
					if !ok {
						return
					}
				}
			}
			require.Greater(t, reached, 2, "%s, %s: the step is not one", s.name, sc.name)
			require.Greater(t, cancelled, 1, "%s, %s: nothing was cancelled", s.name, sc.name)
		}
	}
}

func noOrphanOnTheFreeMember(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		for round := range 50 {
			name := fmt.Sprint("k", round)
			steal(t, cluster, name, time.Minute, 0, 1)
			p.Slow(time.Millisecond, time.Millisecond, time.Duration(round%7)*time.Millisecond)
			require.ErrorIs(t, p.Try(t, name), redlock.ErrHeld)
			require.ErrorIs(t, p.LockFor(t, name, 20*time.Millisecond), redlock.ErrHeld)
			time.Sleep(20 * time.Millisecond)
			require.Equal(t, int64(0), admin(t, cluster.Servers[2], "EXISTS", name), "round %d", round)
			for _, i := range []int{0, 1} {
				require.Equal(t, "1", admin(t, cluster.Servers[i], "HGET", name, "somebody:1"), "the other's is untouched")
				admin(t, cluster.Servers[i], "DEL", name)
			}
		}
		leftovers(t, cluster)
	}, quiet)
}

func unlockBesideAHungMember(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		p.Slow(3*time.Millisecond, 5*time.Millisecond, 7*time.Millisecond)
		l := p.Hold(t, "k")
		time.Sleep(10 * time.Millisecond)
		cluster.Pause(0)
		start := time.Now()
		require.NoError(t, l.Unlock(context.Background()))
		require.Equal(t, 7*time.Millisecond, time.Since(start), "the second of three answers")
		require.ErrorIs(t, l.Err(), redlock.ErrReleased)
		require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrReleased)
		require.False(t, l.ValidUntil().After(start), "nothing of a lease that was unlocked may be relied on")
		cluster.Resume(0)
		time.Sleep(10 * time.Millisecond)
		leftovers(t, cluster)
	}, quiet)
}

func extendBesideHungMembers(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		l := p.Hold(t, "k", redlock.TTL(10*time.Second))
		cluster.Pause(0)
		start := time.Now()
		require.NoError(t, l.Extend(context.Background(), 20*time.Second))
		require.Zero(t, time.Since(start))
		cluster.Pause(1)
		require.ErrorIs(t, l.Extend(context.Background(), 25*time.Second), redlock.ErrNoQuorum)
		require.Equal(t, 200*time.Millisecond, time.Since(start), "MemberTimeout, whatever the context says")
		require.NoError(t, l.Err(), "what was granted before still holds")
		cluster.Resume()
	}, quiet)
}

func clocksHoursApart(t *testing.T) {
	for _, step := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour} {
		bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
			for i := range 3 { // against the clients' clocks, and against one another
				cluster.Embedded(i).Step(step + time.Duration(i)*time.Minute)
			}
			all := peers(t, cluster, 2, quiet)
			l := all[0].Hold(t, "k", redlock.TTL(10*time.Second))
			require.Equal(t, 3, votesAt(cluster, l), "%v", step)
			for _, s := range cluster.Servers {
				require.Equal(t, int64(10000), admin(t, s, "PTTL", "k"))
			}
			require.ErrorIs(t, all[1].Try(t, "k"), redlock.ErrHeld)
			next := all[1].Lock(t, "k")
			require.Error(t, l.Err())
			require.Greater(t, next.Token(), l.Token())
		})
	}
}

func ownerThatBeginsAnother(t *testing.T) {
	for _, numbers := range [][2]uint64{{12, 1}, {1, 12}} {
		among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
			for i, p := range all { // owners differ by their last digits only
				redlock.NumberOwners(p.Client, redlock.UUID(all[0].Client), numbers[i])
			}
			first := all[0].Hold(t, "k", redlock.TTL(10*time.Second))
			require.ErrorIs(t, all[1].Try(t, "k"), redlock.ErrHeld)
			synctest.Wait() // and its release freed nothing
			require.NoError(t, first.Err())
			require.Equal(t, 3, votesAt(cluster, first))
		}, quiet)
	}
}

func ttlOfNothing(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		asked := p.Count(script.Acquire)
		for _, ttl := range []time.Duration{-time.Second, 0, 1, time.Microsecond, 999 * time.Microsecond, time.Millisecond, 2 * time.Millisecond} {
			for _, opt := range []redlock.LockOption{redlock.TTL(ttl), redlock.AutoRenew(ttl)} {
				_, err := p.Mutex("k", opt).Lock(t.Context())
				require.ErrorIs(t, err, redlock.ErrInput, "%v", ttl)
				require.ErrorIs(t, p.Try(t, "k", opt), redlock.ErrInput, "%v", ttl)
			}
		}
		require.Equal(t, []int{0, 0, 0}, hits(asked))
		l := p.Hold(t, "k", redlock.TTL(10500*time.Microsecond)) // milliseconds are what members know
		for _, s := range cluster.Servers {
			require.Positive(t, admin(t, s, "PTTL", "k"))
		}
		require.ErrorIs(t, l.Extend(t.Context(), 0), redlock.ErrInput)
		require.ErrorIs(t, l.Extend(t.Context(), time.Microsecond), redlock.ErrInput)
		require.Equal(t, 3, votesAt(cluster, l))
	}, quiet)
}

func tieOfEvenMembers(t *testing.T) {
	for _, n := range []int{2, 4, 6} {
		among(t, n, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
			near, far := make([]time.Duration, n), make([]time.Duration, n)
			for i := range n {
				near[i], far[n-1-i] = 2*time.Millisecond, 2*time.Millisecond
				if i >= n/2 {
					near[i], far[n-1-i] = 20*time.Millisecond, 20*time.Millisecond
				}
			}
			all[0].Slow(near...)
			all[1].Slow(far...)

			// Both ask once: half of the members each.
			type result struct {
				l   *redlock.Lease
				err error
			}
			results := make(chan result, 2)
			start := time.Now()
			for _, p := range all {
				go func() {
					l, err := p.Mutex("once").TryLock(t.Context())
					results <- result{l, err}
				}()
			}
			for range 2 {
				r := <-results
				require.ErrorIs(t, r.err, redlock.ErrHeld)
			}
			require.LessOrEqual(t, time.Since(start), 20*time.Millisecond, "known with the last answer")
			time.Sleep(50 * time.Millisecond)
			leftovers(t, cluster)

			// Both wait: the tie is broken, and each has it in turn.
			waits := []*locking{all[0].LockLater(t.Context(), "k"), all[1].LockLater(t.Context(), "k")}
			for _, w := range waits {
				go func() {
					<-w.Done
					if w.Err == nil {
						_ = w.Lease.Unlock(context.Background())
					}
				}()
			}
			start = time.Now()
			first, second := waits[0].Get(t), waits[1].Get(t)
			require.NotEqual(t, first.Token(), second.Token())
			require.Less(t, time.Since(start), time.Second)
			time.Sleep(100 * time.Millisecond)
			leftovers(t, cluster)
		}, quiet)
	}
}

func callsOnHungConnections(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		cluster.Pause()
		const limit = 100 * time.Millisecond
		done := make(chan time.Duration, 12)
		start := time.Now()
		for i := range 12 { // together, on the connections that hang
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, err := p.Mutex(fmt.Sprint("k", i)).TryLock(ctx)
				if err == nil {
					t.Error("locked without a member")
				}
				done <- time.Since(start)
			}()
		}
		for range 12 {
			require.Equal(t, limit, <-done)
		}
		cluster.Resume()
		time.Sleep(5 * time.Second)
		leftovers(t, cluster)
	}, func(c *redlock.Config) { c.MemberTimeout = 10 * time.Second })
}

func lostReplyIsNoRival(t *testing.T) {
	for _, fault := range unanswered[:2] { // executed, and no answer
		for broken := 1; broken <= 3; broken++ {
			pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *peer) {
				for i := range broken {
					fault.fault(p.Links[i])
				}
				start := time.Now()
				l := p.Lock(t, "k", redlock.TTL(30*time.Second))
				require.Less(t, time.Since(start), 6*time.Second, "%s at %d: its own votes are not in its way until they end", fault.name, broken)
				require.ErrorIs(t, other.Try(t, "k"), redlock.ErrHeld)
				require.NoError(t, l.Unlock(t.Context()))
				time.Sleep(6 * time.Second)
				leftovers(t, cluster)
			})
		}
	}
}

func extendAfterAnother(t *testing.T) {
	t.Run("its end has passed", inAmong(3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
		l := all[0].Hold(t, "k", redlock.TTL(time.Second))
		next := all[1].Lock(t, "k")
		require.NoError(t, next.Unlock(t.Context()))
		require.ErrorIs(t, l.Extend(t.Context(), 10*time.Second), redlock.ErrLost)
		nothingLeft(t, cluster)
	}, quiet))
	t.Run("it was forced open", func(t *testing.T) { // so that it still seems valid
		among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
			l := all[0].Hold(t, "k", redlock.TTL(20*time.Second))
			_, err := all[1].ForceUnlock(t.Context(), "k")
			require.NoError(t, err)
			next := all[1].Lock(t, "k")
			require.NoError(t, next.Unlock(t.Context()))
			synctest.Wait()
			require.NoError(t, l.Err())
			require.ErrorIs(t, l.Extend(t.Context(), 25*time.Second), redlock.ErrLost)
			time.Sleep(31 * time.Second) // for as long as nobody is re-joined
			nothingLeft(t, cluster)
		}, quiet)
	})
}

func contextEndIsTold(t *testing.T) {
	among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
		held := all[0].Hold(t, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := all[1].Mutex("k").Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlock.ErrHeld)
		ctx, cancel = context.WithCancel(t.Context())
		w := all[1].LockLater(ctx, "k")
		time.Sleep(time.Second)
		cancel()
		<-w.Done
		require.ErrorIs(t, w.Err, context.Canceled)
		require.ErrorIs(t, w.Err, redlock.ErrHeld)
		require.NoError(t, held.Unlock(t.Context()))
	}, quiet)
}

func extendAfterTheEnd(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		l := p.Hold(t, "k", redlock.TTL(time.Second))
		until := l.ValidUntil()
		time.Sleep(time.Until(until)) // the members would have it for some milliseconds more
		extends := p.Count(script.Extend)
		require.ErrorIs(t, l.Extend(t.Context(), 10*time.Second), redlock.ErrLost)
		require.Equal(t, []int{0, 0, 0}, hits(extends))
		require.False(t, l.ValidUntil().After(until))
	}, quiet)
}

func memberThatWasMissing(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		cluster.Kill(2)
		synctest.Wait()
		l := p.Hold(t, "k", redlock.AutoRenew(6*time.Second))
		require.Equal(t, 2, votesAt(cluster, l))
		require.NoError(t, cluster.Restart(true, 2))
		time.Sleep(5 * time.Second)
		require.Equal(t, 3, votesAt(cluster, l))
		require.Equal(t, 3, l.Votes())
	})
}

func foreignKeyOnOneMember(t *testing.T) {
	for _, foreign := range [][]string{
		{"SET", "k", "of an earlier version"},
		{"HSET", "k", "somebody:1", "1"}, // without an end
		{"RPUSH", "k", "x"},
	} {
		for at := range 3 {
			among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
				admin(t, cluster.Servers[at], foreign...)
				l, err := all[0].Mutex("k").TryLock(t.Context())
				require.NoError(t, err, "%q at %d", foreign, at)
				w := all[1].LockLater(t.Context(), "k")
				time.Sleep(5 * time.Second)
				require.True(t, w.Pending())
				require.NoError(t, l.Unlock(t.Context()))
				require.NoError(t, w.Get(t).Unlock(t.Context()))
				synctest.Wait()
				require.Equal(t, int64(1), admin(t, cluster.Servers[at], "EXISTS", "k"), "and is left alone")
				admin(t, cluster.Servers[at], "DEL", "k")
				leftovers(t, cluster)
			}, quiet)
		}
	}
}

func endWhileARenewalHangs(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		l := p.Hold(t, "k", redlock.AutoRenew(6*time.Second))
		until := l.ValidUntil()
		extends := p.Count(script.Extend)
		time.Sleep(time.Second)
		p.EveryLink((*redistest.Link).PauseReplies) // renewed at the members, and not heard of
		<-l.Done()
		require.Equal(t, until, time.Now())
		require.Positive(t, hits(extends)[0])
		p.EveryLink((*redistest.Link).Resume)
		synctest.Wait()
		require.ErrorIs(t, l.Err(), redlock.ErrLost)
		leftovers(t, cluster)
	}, quiet, func(c *redlock.Config) { c.MemberTimeout = time.Minute })
}
