package redlock

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
)

// A snapshot of a machine that is started twice: both have the client's name, and the number of its next attempt.
func TestCopyOfAProcessIsAnotherOwner(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, one, two *Peer) {
		two.uuid = one.uuid
		two.seq.Store(one.seq.Load())
		l := one.Hold(t, "k")
		require.ErrorIs(t, two.Try(t, "k"), ErrHeld)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// What a push grants is not known to the replicas that must acknowledge a vote. Without a date it counts for nothing, and
// the attempt asks: TestAttemptIsTrusted says what becomes of it.
func TestPushWhereReplicasMustAcknowledgeHasNoDate(t *testing.T) {
	p, ok := pushOf([]byte("g me:1 7 1000 - 2500"), member.State{})
	require.True(t, ok)
	require.EqualValues(t, 1000, p.Server)
	p, ok = pushOf([]byte("g me:1 7 1000 - 2500"), member.State{Acks: true})
	require.True(t, ok)
	require.Zero(t, p.Server)
	require.EqualValues(t, 7, p.Token)
}

// at is a member whose server is a process of that name. It tells nobody that it is up.
type at struct {
	Yes
	process string
}

func (a *at) Name() string { return "a name of " + a.process }
func (a *at) State() member.State {
	st := a.Yes.State()
	st.RunID = a.process
	return st
}

// manyAt is at without an epoch, as a cluster is.
type manyAt struct{ at }

func (c *manyAt) State() member.State {
	st := c.at.State()
	st.Epoch = 0
	return st
}

func TestOpenComparesMembersThatTellNobody(t *testing.T) {
	a, b, again := &manyAt{at{process: "a"}}, &manyAt{at{process: "b"}}, &manyAt{at{process: "a"}}
	for _, c := range []struct {
		members []member.Member
		err     error
	}{{[]member.Member{a, b}, nil}, {[]member.Member{a, b, again}, ErrDuplicateMember}} {
		client := rt.Must(New(c.members))(t)
		require.ErrorIs(t, client.ready(t.Context(), time.Second), c.err)
		require.NoError(t, client.Close())
	}
}

// spread is a cluster: each slot has a master. It tells nobody that one is up. What asked does comes before each answer.
type spread struct {
	Yes
	masters map[uint16]ability.Process
	asked   func()
}

func (s *spread) State() member.State {
	st := s.Yes.State()
	st.Epoch = 0
	return st
}

func (s *spread) StateOf(slot uint16) member.State {
	if s.asked != nil {
		s.asked()
	}
	st := s.State()
	p, up := s.masters[slot]
	st.Up, st.Votes, st.Epoch, st.RunID = up, up, p.Epoch, p.RunID
	return st
}

func (s *spread) Processes() []ability.Process { return slices.Collect(maps.Values(s.masters)) }

// Votes of one cluster under two names are one vote from the first answer on, whichever masters were reached first.
func TestOneClusterUnderTwoNamesHasOneVoteBeforeAnybodyIsTold(t *testing.T) {
	beside := &briefed{at{process: "q"}}
	at := func(slots ...any) *spread { // slot, epoch, process
		s := &spread{masters: make(map[uint16]ability.Process)}
		for m := range slices.Chunk(slots, 3) {
			s.masters[uint16(m[0].(int))] = ability.Process{Epoch: uint64(m[1].(int)), RunID: m[2].(string)}
		}
		return s
	}
	votes := func(c *Client, slot uint16) (who string) {
		for i, st := range c.statesOf(slot) {
			if st.Votes {
				who += string(rune('0' + i))
			}
		}
		return who
	}
	with := func(t *testing.T, members ...member.Member) *Client {
		c := rt.Must(New(members))(t)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	t.Run("all masters are known", func(t *testing.T) {
		one, two := at(1, 1, "p", 2, 2, "q"), at(1, 4, "p", 2, 3, "q")
		c := with(t, one, at(1, 1, "x", 2, 2, "y"), two)
		require.Equal(t, "01", votes(c, 1))
		require.Equal(t, "01", votes(c, 2))
		require.ErrorIs(t, c.ready(t.Context(), time.Second), ErrDuplicateMember)
	})
	t.Run("an answer is judged", func(t *testing.T) {
		c := with(t, at(1, 1, "p"), at(1, 1, "p"))
		require.True(t, c.briefOf(0, 1).Votes)
		require.False(t, c.briefOf(1, 1).Votes)
	})
	t.Run("a listener is told", func(t *testing.T) {
		one := at(1, 1, "p")
		c := with(t, one, at(1, 1, "p"))
		c.links[0].Changed(one.State())
		require.EqualValues(t, 2, c.barred.Load())
	})
	t.Run("an earlier connection is seen later", func(t *testing.T) {
		one, two := at(2, 6, "q"), at(3, 6, "r")
		c := with(t, one, two)
		require.Equal(t, "0", votes(c, 2))
		require.Equal(t, "1", votes(c, 3))
		one.masters[1], two.masters[1] = ability.Process{Epoch: 5, RunID: "p"}, ability.Process{Epoch: 5, RunID: "p"}
		require.Equal(t, "0", votes(c, 1))
	})
	t.Run("a third tells that two are one", func(t *testing.T) {
		third := at()
		third.asked = func() { third.masters = at(1, 1, "p", 2, 2, "q").masters }
		require.Equal(t, "0", votes(with(t, at(1, 1, "p"), at(1, 1, "q"), third), 1))
	})
	t.Run("beside a server of it", func(t *testing.T) {
		require.Equal(t, "0", votes(with(t, beside, at(1, 1, "p", 2, 2, "q")), 1))
	})
	t.Run("nobody tells which process it is", func(t *testing.T) {
		c := with(t, at(1, 1, ""), at(1, 1, ""))
		require.Equal(t, "01", votes(c, 1))
		list := c.compared[0].Load()
		require.NotNil(t, list)
		require.Equal(t, "01", votes(c, 1))
		require.Same(t, list, c.compared[0].Load(), "it is compared once")
	})
}

// briefed is at with the short way.
type briefed struct{ at }

func (b *briefed) Brief() member.Brief {
	st := b.State()
	return st.Brief
}

// Votes of one process under two names are one vote from the first answer on, whenever the listener hears of it.
func TestOneProcessUnderTwoNamesHasOneVoteBeforeAnybodyIsTold(t *testing.T) {
	for name, of := range map[string]func(process string) member.Member{
		"whole states": func(process string) member.Member { return &at{process: process} },
		"their briefs": func(process string) member.Member { return &briefed{at{process: process}} },
	} {
		t.Run(name, func(t *testing.T) {
			members := func(processes ...string) (all []member.Member) {
				for _, p := range processes {
					all = append(all, of(p))
				}
				return all
			}
			for _, c := range []struct {
				members []member.Member
				err     error
			}{
				{members("a", "a", "a"), ErrNoQuorum},
				{members("a", "a", "b"), nil},
				{members("a", "b", "a", "b", "c"), nil},
				{members("a", "b", "a", "b", "a"), ErrNoQuorum},
			} {
				client := rt.Must(New(c.members))(t)
				l, err := client.Mutex("k").TryLock(t.Context())
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
				} else {
					require.NoError(t, err)
					require.NoError(t, l.Unlock(t.Context()))
				}
				require.NoError(t, client.Close())
			}
		})
	}
}

// The server does not say which keys it forbids.
func TestErrorOfOpenNamesTheKeysThatAUserLacks(t *testing.T) {
	denied := &member.ReplyError{Kind: member.KindAuth, Text: "NOPERM this user has no permissions to access one of the keys used as arguments"}
	rt.Says(t, withNeed(fmt.Errorf("marker: %w", denied)), denied, "~redquorum:*")
	denied.Text = "NOPERM this user has no permissions to access one of the channels used as arguments"
	require.ErrorContains(t, withNeed(denied), "&redquorum:inbox:*")
	for _, other := range []error{nil, member.ErrDown, &member.ReplyError{Kind: member.KindAuth, Text: "WRONGPASS invalid username-password pair"}} {
		require.Equal(t, other, withNeed(other))
	}
}

func TestPolicyThatEvictsLocksAndAFullMemberAreRead(t *testing.T) {
	type says struct {
		policy        string
		limited, full bool
	}
	for info, want := range map[string]says{
		"# Memory\r\nused_memory:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n":       {},
		"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n":                       {"allkeys-lru", false, false},
		"# Memory\r\nmaxmemory:1048576\r\nmaxmemory_policy:volatile-ttl\r\nother:1\r\n":     {"volatile-ttl", true, false},
		"maxmemory_human:1M\r\nmaxmemory:1048576\r\nmaxmemory_policy:noeviction\r\nx:y\r\n": {"", true, false},
		"used_memory:900\r\nmaxmemory:800\r\nmem_not_counted_for_evict:99\r\n":              {"", true, true},
		"used_memory:900\r\nmaxmemory:800\r\nmem_not_counted_for_evict:100\r\n":             {"", true, false},
		"": {},
	} {
		policy, limited, full := memoryOf(info)
		require.Equal(t, want, says{policy, limited, full}, info)
	}
}

func TestFairIsRefusedByAKindThatHasNoStrictOrder(t *testing.T) {
	other := terms{kind: &kind{name: "other"}, ttl: time.Second}
	Fair()(&other)
	require.ErrorContains(t, other.check(&Config{}), "a lock of kind other has no option Fair")
}

func TestDurationWithoutItsUnitIsRefused(t *testing.T) {
	fields := []string{"MaxTTL", "MaxHold", "MemberTimeout", "NoQuorumAfter", "DialTimeout", "StallTimeout", "PingInterval", "CredentialsEvery"}
	for _, name := range fields {
		for d, why := range map[time.Duration]string{60: name + " is 60ns, must be at least 1ms", 1 << 62: "must be at most 876000h0m0s"} {
			cfg := Config{}
			reflect.ValueOf(&cfg).Elem().FieldByName(name).SetInt(int64(d))
			rt.Says(t, cfg.withDefaults().validate(), ErrInput, why, name)
		}
	}
	for _, d := range []time.Duration{-1, 0, time.Millisecond, 100 * 365 * 24 * time.Hour} {
		require.NoError(t, Config{MaxHold: d, NoQuorumAfter: d}.withDefaults().validate(), d)
		require.NoError(t, (&terms{kind: &exclusive, maxHold: d}).check(&Config{}), d)
	}
	err := (&terms{kind: &exclusive, maxHold: 60}).check(&Config{})
	require.ErrorContains(t, err, "MaxHold is 60ns, must be at least 1ms: a number without a unit counts nanoseconds, write 60*time.Second or the like")
	_, err = node.New(node.Config{Addr: "127.0.0.1:1", PingInterval: 1000})
	require.ErrorContains(t, err, "node: Config.PingInterval is 1µs, must be at least 1ms")
}

func TestOneMemberIsNotAskedForTwiceAtATime(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		asked, release := 0, make(chan struct{})
		c := Config{Credentials: func(_ context.Context, member string) (string, string, error) {
			asked++
			<-release
			return "u", "of " + member, nil
		}}
		target := rt.Must(node.ParseTarget("redis-sentinel://a,b/m"))(t)
		give := c.credentialsOf(target)
		done := make(chan string)
		go func() { _, password, _ := give(t.Context()); done <- password }()
		synctest.Wait()
		ctx := rt.Within(t, time.Second)
		_, _, err := give(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, asked)
		close(release)
		require.Equal(t, "of m@a:26379,b:26379", <-done)
		_, _, err = give(t.Context())
		require.NoError(t, err)
		require.Nil(t, Config{}.credentialsOf(target))
	})
}

func TestTooFewMembersWithinReachAreToleratedForAWhile(t *testing.T) {
	start := time.Now()
	votes, down, rests := member.State{Brief: member.Brief{Votes: true}, Up: true}, member.State{}, member.State{Up: true, Quarantine: start}
	for name, tc := range map[string]struct {
		lost     time.Duration // ago; negative: a majority was within reach
		patience time.Duration
		states   []member.State
		errs     []error
		want     bool
	}{
		"for long":          {2 * time.Second, 2 * time.Second, []member.State{votes, down, down}, nil, true},
		"not for so long":   {2*time.Second - 1, 2 * time.Second, []member.State{votes, down, down}, nil, false},
		"for ever":          {time.Hour, -1, []member.State{votes, down, down}, nil, false},
		"from now on":       {-1, 2 * time.Second, []member.State{votes, down, down}, nil, false},
		"one is back":       {time.Hour, 0, []member.State{votes, down, votes}, nil, false},
		"one will vote":     {time.Hour, 0, []member.State{votes, down, rests}, nil, false},
		"two of four":       {time.Hour, 0, []member.State{votes, down, votes, down}, nil, true},
		"two have refused":  {time.Hour, 0, []member.State{votes, votes, votes}, []error{nil, errReply, errReply}, true},
		"one has refused":   {time.Hour, 0, []member.State{votes, votes, votes}, []error{nil, errReply, nil}, false},
		"none has, of some": {time.Hour, 0, []member.State{votes, votes, down}, make([]error, 3), false},
	} {
		var r reach
		if tc.lost >= 0 {
			r.lost = start.Add(-tc.lost)
		}
		_, over := r.left(&Client{need: len(tc.states)/2 + 1, cfg: Config{NoQuorumAfter: tc.patience}}, tc.states, tc.errs, start)
		require.Equal(t, tc.want, over, name)
	}
}
