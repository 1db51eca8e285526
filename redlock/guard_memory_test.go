package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The restart guard on the wire, in fake time: what a member is sent, and what of its words counts, while
// it may have forgotten.

// rarely pings once an hour: whatever is noticed was not noticed by a ping.
func rarely(c *redlock.Config) { c.PingInterval = time.Hour }

// tags records the last argument, the marker id, of every call of a script on a path.
func tags(l *redistest.Link, s script.Script) *[]string {
	var out []string
	l.Call(redistest.WithArg(s.SHA), -1, func(cmd []string) { out = append(out, cmd[len(cmd)-1]) })
	return &out
}

// A refusal which says that the member is, or will soon be, another than it was, ends the generation.
func TestRefusalThatMayMeanAnotherMemoryEndsTheGeneration(t *testing.T) {
	for _, tc := range []struct {
		text string
		ends bool
	}{
		{"FORGOT marker", true},
		{"LOADING Redis is loading the dataset in memory", true},
		{"READONLY You can't write against a read only replica.", true},
		{"MISCONF Redis is configured to save RDB snapshots", false}, // the memory is the same
		{"OOM command not allowed when used memory > 'maxmemory'.", false},
		{"BUSY Redis is busy running a script.", false},
	} {
		t.Run(tc.text, inVoters(3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			before := p.State(1)
			p.Links[1].Fail(redistest.WithArg(script.Acquire.SHA), 1, tc.text)
			cycle(t, p, "k")
			synctest.Wait()
			after := p.State(1)
			require.Equal(t, tc.ends, after.Gen > before.Gen)
			require.True(t, after.Votes, "the marker says that it is the same, after all")
			require.Equal(t, before.Epoch, after.Epoch, "on the same connection")
		}, rarely))
	}
}

// Between the suspicion and the look at the marker nothing of the member counts.
func TestMemberDoesNotVoteWhileItIsLookedAt(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.Links[1].Fail(redistest.WithArg(script.Acquire.SHA), 1, "READONLY You can't write against a read only replica.")
		p.Links[1].DelayReply(redistest.Named("EVAL"), 1, 300*time.Millisecond)
		cycle(t, p, "k")
		synctest.Wait()
		require.False(t, p.State(1).Votes)
		time.Sleep(time.Second)
		require.True(t, p.State(1).Votes)
	}, rarely)
}

// A member that is emptied while the connection is down is the same process: only its marker tells.
func TestFlushWhileNobodyLooksEndsTheGeneration(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		before := p.State(1)
		p.Away(1)
		require.NoError(t, cluster.Flush(1))
		p.Links[1].Refuse(false)
		p.Until(t, 1, redlock.MemberQuarantined)
		require.Equal(t, before.RunID, p.State(1).RunID)
		require.Greater(t, p.State(1).Gen, before.Gen)
	}, rarely)
}

// A test suite empties its members between tests. The first answer says what that means; with both options it means nothing.
func TestMembersThatAreEmptiedVoteAtOnceOnlyIfNothingIsEverHeldThere(t *testing.T) {
	for name, off := range map[string]bool{"guard off, and fresh": true, "fresh": false} {
		t.Run(name, inBubble(3, func(t *testing.T, cluster *redistest.Cluster) {
			p := voting(t, cluster, 3, short, redlock.WithFreshMembers(), func(c *redlock.Config) {
				if off {
					c.RestartGuard = redlock.GuardOff
				}
			})
			old := p.Lock(t, "k")
			for range 3 {
				time.Sleep(time.Millisecond)
				require.NoError(t, cluster.Flush(0, 1, 2))
				l, err := p.Mutex("k").TryLock(t.Context())
				if !off {
					require.ErrorIs(t, err, redlock.ErrQuarantined)
					continue
				}
				require.NoError(t, err)
				require.Greater(t, l.Token(), old.Token())
				unlock(t, l)
			}
		}))
	}
}

func TestMemberInQuarantineIsAskedForNothing(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		held := p.Lock(t, "k", redlock.AutoRenew(time.Second))
		require.NoError(t, cluster.Restart(false, 2))
		p.Until(t, 2, redlock.MemberQuarantined)
		sent := 0
		for _, s := range []script.Script{script.Acquire, script.Wait, script.Yield, script.Raise, script.Extend, script.Rejoin} {
			p.Links[2].Call(redistest.WithArg(s.SHA), -1, func([]string) { sent++ })
		}
		waiting := p.LockLater(t.Context(), "other")
		waiting.Get(t)
		behind := p.LockLater(t.Context(), "k")
		time.Sleep(500 * time.Millisecond) // a renewal, at least
		require.NoError(t, held.Err())
		require.Equal(t, redlock.MemberQuarantined, p.Members()[2].State)
		require.Zero(t, sent)
		require.NoError(t, held.Unlock(t.Context()))
		behind.Get(t)
	}, func(c *redlock.Config) { c.Entry = time.Minute })
}

// A queue that came back from a snapshot must not be served: those in it may be long gone, or hold the
// lock by a majority of the others.
func TestReleaseInQuarantineHandsOverToNobody(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		patient := func(c *redlock.Config) { c.Entry, c.MaxTTL, c.TTL = time.Minute, 10*time.Second, 10*time.Second }
		p := voting(t, cluster, 3, patient, redlock.WithFreshMembers())
		q := voting(t, cluster, 3, patient)
		held := p.Hold(t, "k")
		waiting := q.LockLater(t.Context(), "k")
		require.Eventually(t, func() bool { return redlock.Admin(t, cluster.Servers[2], "EXISTS", redlock.QueueOf("k")) == int64(1) }, time.Second, time.Millisecond)
		q.Away(2) // what becomes of member 2 is p's doing alone
		cluster.Kill(2)
		require.NoError(t, cluster.Restart(true, 2)) // comes back with lock and queue
		p.Until(t, 2, redlock.MemberQuarantined)
		// As if a client had restored it meanwhile: then FORGOT would not hold the grant back.
		redlock.Skew(t, cluster, "k", 0, 0, 0)
		redlock.Admin(t, cluster.Servers[2], "HSET", member.TokensKey, redlock.BucketOf("k"), "5")
		sent := tags(p.Links[2], script.Release)
		require.NoError(t, held.Unlock(t.Context()))
		waiting.Get(t)
		synctest.Wait()
		require.Equal(t, []string{"!"}, *sent)
		require.Equal(t, int64(0), redlock.Admin(t, cluster.Servers[2], "EXISTS", "k"))
		require.Equal(t, int64(1), redlock.Admin(t, cluster.Servers[2], "EXISTS", redlock.QueueOf("k")), "there was somebody to serve")
	})
}

// A release that is owed goes out first of all on the next connection, and under the member's standing of
// now: it may have forgotten in between.
func TestDebtsCarryTheNewStanding(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		held := p.Hold(t, "k")
		id := markerOf(t, cluster, 2, "id")
		sent := tags(p.Links[2], script.Release)
		p.Away(2)
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, cluster.Restart(true, 2))
		p.Links[2].Refuse(false)
		p.Until(t, 2, redlock.MemberQuarantined)
		synctest.Wait()
		require.NotEqual(t, id, markerOf(t, cluster, 2, "id"))
		require.Equal(t, []string{"!"}, *sent)
		require.Equal(t, int64(0), redlock.Admin(t, cluster.Servers[2], "EXISTS", "k"))

		// The same process with the same memory: handed over as ever.
		p.Voting(t, 3)
		held = p.Hold(t, "k")
		id = markerOf(t, cluster, 2, "id")
		*sent = nil
		p.Away(2)
		require.NoError(t, held.Unlock(t.Context()))
		p.Until(t, 2, redlock.MemberDown)
		p.Links[2].Refuse(false)
		p.Voting(t, 3)
		synctest.Wait()
		require.Equal(t, []string{id}, *sent)
	})
	// Also what Close pays.
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		held := p.Hold(t, "k")
		sent := tags(p.Links[2], script.Release)
		p.Away(2)
		require.NoError(t, held.Unlock(t.Context()))
		p.Voting(t, 2)
		require.NoError(t, cluster.Restart(true, 2))
		p.Links[2].Refuse(false)
		require.NoError(t, p.Close())
		require.Equal(t, []string{"!"}, *sent)
		require.Equal(t, int64(0), redlock.Admin(t, cluster.Servers[2], "EXISTS", "k"))
	})
}

// Counters are read from members that know, and whether one does is read with them, in one step: this
// client believes two members that were emptied a moment ago.
func TestCountersOfAMemberThatForgotSinceAreNotLent(t *testing.T) {
	voters(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		cycle(t, p, "k")
		restart(t, cluster, false, 4)
		p.Until(t, 4, redlock.MemberQuarantined)
		require.NoError(t, cluster.Flush(0, 1))
		time.Sleep(10 * time.Second)
		require.True(t, p.State(0).Votes, "nobody has told")
		require.Equal(t, redlock.MemberRestoring, p.Members()[4].State, "two members know, three are needed")
		require.Equal(t, "g", markerOf(t, cluster, 4, "state"))
	}, rarely)
}

// aged is a member whose generation ends while its answers are on their way.
type aged struct {
	redlock.Yes
	ended *bool // set between calls
	say   func(script string) (n int64, ended bool, o member.Outcome)
}

func (a *aged) State() member.State {
	st := a.Yes.State()
	if *a.ended {
		st.Gen++
	}
	return st
}

func (a *aged) Submit(c *member.Call) {
	if a.say == nil || !*a.ended {
		a.Yes.Submit(c) // answers of the generation that has ended, or will
		return
	}
	n, ended, outcome := a.say(redlock.ScriptOf(c))
	st := a.State()
	if ended {
		st = a.Yes.State()
	}
	c.State, c.At, c.Outcome, c.Err = st.Brief, time.Now(), outcome, nil
	c.Reply = member.Reply{Kind: ':', Int: n}
	if redlock.ScriptOf(c) == script.Extend.SHA {
		c.Reply = member.Reply{Kind: '*', Elems: []member.Reply{c.Reply}}
	}
	c.Sink.Done(c)
}

func agedClient(t *testing.T, ended *bool, say ...func(string) (int64, bool, member.Outcome)) *redlock.Client {
	members := make([]member.Member, 3)
	for i := range members {
		a := &aged{ended: ended}
		if i < len(say) {
			a.say = say[i]
		}
		members[i] = a
	}
	c := rt.Must(redlock.New(members))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRenewalByAnEndedGenerationDoesNotCount(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		ended := false
		c := agedClient(t, &ended)
		l := rt.Must(c.Mutex("k", redlock.TTL(10*time.Second)).Lock(t.Context()))(t)
		time.Sleep(time.Second)
		require.NoError(t, l.Extend(t.Context(), 10*time.Second))
		until := l.ValidUntil()
		time.Sleep(time.Second)
		ended = true
		require.ErrorIs(t, l.Extend(t.Context(), 10*time.Second), redlock.ErrNoQuorum)
		require.Equal(t, until, l.ValidUntil())
		require.ErrorIs(t, rt.Err(c.Mutex("other").TryLock(t.Context())), redlock.ErrNoQuorum, "nor do votes")
	})
}

func TestRejoinByAnEndedGenerationDoesNotCount(t *testing.T) {
	for _, old := range []bool{false, true} {
		faketime.Test(t, func(t *testing.T) {
			ended := false
			has := func(string) (int64, bool, member.Outcome) { return 1, false, member.Answered }
			lost := func(sha string) (int64, bool, member.Outcome) {
				if sha == script.Rejoin.SHA {
					return 1, old, member.Answered
				}
				return 0, false, member.Answered
			}
			silent := func(string) (int64, bool, member.Outcome) { return 0, false, member.Unknown }
			l := rt.Must(agedClient(t, &ended, has, lost, silent).Mutex("k", redlock.TTL(10*time.Second)).Lock(t.Context()))(t)
			time.Sleep(time.Second)
			until := l.ValidUntil()
			ended = true
			_ = l.Extend(t.Context(), 10*time.Second) // its round is lost: the rejoin comes after it
			require.Equal(t, !old, l.ValidUntil().After(until), "of one that has a vote and one that took the lease back")
		})
	}
}

// A handed-off lease is adopted by those that have it: it is given to nobody before a majority confirms.
func TestAdoptionNeedsAMajorityThatHasTheLease(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		held := p.Hold(t, "k")
		h := handoff(t, held)
		redlock.Admin(t, cluster.Servers[1], "DEL", "k") // forgot it, and is free
		q.Links[2].Pause()
		require.ErrorIs(t, rt.Err(q.Adopt(t.Context(), h)), redlock.ErrNoQuorum, "one has it, one does not, one is silent")
		synctest.Wait()
		require.Equal(t, int64(0), redlock.Admin(t, cluster.Servers[1], "EXISTS", "k"))
	})
}

func TestLostLeaseLeavesNothing(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Hold(t, "k", redlock.TTL(10*time.Second))
		steal(t, cluster, "k", time.Minute, 0, 1, 2)
		require.ErrorIs(t, l.Extend(context.Background(), 10*time.Second), redlock.ErrLost)
		synctest.Wait()
		for _, i := range []int{3, 4} {
			require.Equal(t, int64(0), redlock.Admin(t, cluster.Servers[i], "EXISTS", "k"))
		}
	})
}

func TestReleaseIsRepeatedOnTheNextConnection(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Hold(t, "k")
		p.Away(2)
		synctest.Wait() // the client knows
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, int64(1), redlock.Admin(t, cluster.Servers[2], "EXISTS", "k"))
		p.Links[2].Refuse(false)
		p.Settle(t, 3)
		redlock.NothingLeft(t, cluster)
	})
}

func TestNothingIsRepeatedBehindItsRelease(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.Slow(20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond)
		for _, s := range cluster.Servers {
			redlock.Admin(t, s, "SCRIPT", "FLUSH")
			redlock.Admin(t, s, "SCRIPT", "LOAD", script.Release.Source) // which so needs no repair, behind the other
		}
		require.ErrorIs(t, rt.Err(p.Mutex("k").TryLock(rt.Within(t, 5*time.Millisecond))), context.DeadlineExceeded)
		time.Sleep(time.Second)
		redlock.Leftovers(t, cluster)
	})
}

// Who waits registers only where it can be told: a grant that nobody hears of blocks the lock for its TTL.
func TestNobodyRegistersWithoutAnInbox(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		p.Hold(t, "k")
		q.Links[2].Fail(redistest.Named("SUBSCRIBE"), -1, "NOPERM this user has no permissions to access one of the channels")
		redlock.Admin(t, cluster.Servers[2], "CLIENT", "KILL", "TYPE", "pubsub")
		time.Sleep(time.Second) // it may have lost the commands' connection with it
		require.True(t, q.State(2).Votes)
		require.False(t, q.State(2).Inbox)
		q.LockLater(t.Context(), "k")
		synctest.Wait()
		for i, want := range []int64{1, 1, 0} {
			require.Equal(t, want, redlock.Admin(t, cluster.Servers[i], "EXISTS", redlock.QueueOf("k")), "member %d", i)
		}
		require.NoError(t, q.Close())
	})
}

// Members in quarantine answer a release, and their answers count: that nothing is held needs no memory.
func TestUnlockIsDoneByMembersInQuarantineToo(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		held := p.Hold(t, "k", redlock.TTL(time.Second))
		restart(t, cluster, true, 1, 2)
		p.Until(t, 1, redlock.MemberQuarantined)
		p.Until(t, 2, redlock.MemberQuarantined)
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
	})
}

func TestRenewedVotesAreCounted(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Hold(t, "k", redlock.AutoRenew(10*time.Second))
		for range 20 {
			time.Sleep(5 * time.Second)
			require.Equal(t, 5, l.Votes())
			require.Equal(t, 5, l.Votes())
		}
	}, redlock.Quiet)
}

// Long tables of counters on slow members take longer to read than DialTimeout: 5 calls of 400 ms against 1 s.
func TestCountersAreRestoredThoughThatTakesLong(t *testing.T) {
	voters(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		restart(t, cluster, false, 4)
		p.Voting(t, 4)
		p.Until(t, 4, redlock.MemberQuarantined)
		for _, l := range p.Links {
			l.SetDelay(redistest.Delay{}, redistest.Delay{Fixed: 400 * time.Millisecond})
		}
		p.Until(t, 4, redlock.MemberVoting)
	}, func(c *redlock.Config) { c.RestartGuard = redlock.Strict })
}
