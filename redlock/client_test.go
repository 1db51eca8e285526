package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/member"
)

// A snapshot of a machine that is started twice: both have the client's name, and the number of its next attempt.
func TestCopyOfAProcessIsAnotherOwner(t *testing.T) {
	Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		one, two := JoinAll(t, cluster), JoinAll(t, cluster)
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
		client, err := New(c.members, NoGuard)
		require.NoError(t, err)
		require.ErrorIs(t, client.ready(t.Context(), time.Second), c.err)
		require.NoError(t, client.Close())
	}
}

// briefed is at with the short way.
type briefed struct{ at }

func (b *briefed) Brief() member.Brief {
	st := b.State()
	return st.Brief()
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
				client, err := New(c.members, NoGuard)
				require.NoError(t, err)
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
