package redlock

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// A derived key that a user could name would be lost as a lock, or locked as a key.
func TestNoLockHasTheNameOfADerivedKey(t *testing.T) {
	const derived, theirs = "redquorum:s1.3:{k}", "redisson_lock_token:{k}"
	Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		plain, shared := JoinAll(t, cluster), JoinAll(t, cluster, WithInterop())
		evals := shared.Links[0].Call(redistest.Named("EVALSHA"), -1, func([]string) {})
		refused := func(p *Peer, name, problem string) {
			t.Helper()
			owner := "A:1"
			secret := Handoff{key: name, owner: &owner, token: 5, terms: terms{kind: &exclusive, ttl: time.Second, extra: noExtra{}}}.Secret()
			handoff := rt.Must(ParseHandoff(secret))(t)
			for op, call := range map[string]func() error{
				"Lock":        func() error { _, err := p.Mutex(name).Lock(t.Context()); return err },
				"Inspect":     func() error { _, err := p.Inspect(t.Context(), name); return err },
				"ForceUnlock": func() error { _, err := p.ForceUnlock(t.Context(), name); return err },
				"Adopt":       func() error { _, err := p.Adopt(t.Context(), handoff); return err },
			} {
				rt.Says(t, call(), ErrInput, problem, op)
			}
		}
		refused(plain, derived, "names that begin with redquorum: are the library's own keys")
		refused(shared, derived, "names that begin with redquorum: are the library's own keys")
		refused(shared, theirs, "counters of Redisson's locks")
		require.Zero(t, evals.Hits(), "no member was asked")
		require.NoError(t, plain.Lock(t, theirs).Unlock(t.Context()))
	})
}

func TestHandoffIsShownByNoPrinterAndNoEncoder(t *testing.T) {
	owner := "ABCDEFGHIJKLMNOPQRSTUVWXYZ:7"
	h := Handoff{key: "k", owner: &owner, token: 5, terms: terms{kind: &exclusive, ttl: time.Second, extra: noExtra{}}}
	type around struct {
		H Handoff
		h Handoff
	}
	var out bytes.Buffer
	for _, v := range []any{h, &h, []Handoff{h}, map[string]Handoff{"x": h}, around{h, h}, &around{h, h}} {
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("handing off", "lease", v)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o"} {
			fmt.Fprintf(&out, verb, v)
		}
		_ = json.NewEncoder(&out).Encode(v)
	}
	for _, secret := range []string{h.Secret(), owner, owner[:26], fmt.Sprintf("%x", owner[:26]), fmt.Sprintf("%X", owner[:26])} {
		require.NotContains(t, out.String(), secret)
	}
	require.Contains(t, out.String(), "(mutex, token 5)")
	back := rt.Must(ParseHandoff(h.Secret()))(t)
	require.Equal(t, h, back)
	require.Empty(t, Handoff{}.Secret())
	require.Equal(t, KindMutex, back.Kind())
}

// A queue delivers a message at least once: two workers adopt what it carries.
func TestOneOfThoseThatAdoptAHandoffGetsTheLease(t *testing.T) {
	Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p, q, r := JoinAll(t, cluster), JoinAll(t, cluster), JoinAll(t, cluster)
		for name, take := range map[string]func() (*Lease, error){
			"mutex":     func() (*Lease, error) { return p.Mutex("k").Lock(t.Context()) },
			"fair":      func() (*Lease, error) { return p.Mutex("k", Fair()).Lock(t.Context()) },
			"write":     func() (*Lease, error) { return p.RWMutex("k").Lock(t.Context()) },
			"read":      func() (*Lease, error) { return p.RWMutex("k", TTL(9*time.Second)).RLock(t.Context()) },
			"campaign":  func() (*Lease, error) { return p.Election("k").Campaign(t.Context(), []byte("me")) },
			"semaphore": func() (*Lease, error) { return p.Semaphore("k", 4, Permits(2)).Acquire(t.Context()) },
		} {
			l, err := take()
			require.NoError(t, err, name)
			synctest.Wait() // for what is under way
			handed, err := l.Handoff()
			require.NoError(t, err, name)
			h, err := ParseHandoff(handed.Secret())
			require.NoError(t, err, name)
			first, err := q.Adopt(t.Context(), h)
			require.NoError(t, err, name)
			require.Equal(t, []any{l.Token(), l.Slots()}, []any{first.Token(), first.Slots()}, name)
			for _, late := range []*Peer{r, q, p} { // another client, the same, and the giver; a member may hear them first
				require.ErrorIs(t, rt.Err(late.Adopt(t.Context(), h)), ErrNotHeld, name)
			}
			require.NoError(t, first.Err(), name)
			synctest.Wait()
			again, err := first.Handoff()
			require.NoError(t, err, name)
			second, err := r.Adopt(t.Context(), again)
			require.NoError(t, err, name)
			require.NoError(t, second.Unlock(t.Context()), name)
			require.ErrorIs(t, rt.Err(q.Adopt(t.Context(), h)), ErrNotHeld, name)
			require.ErrorIs(t, rt.Err(q.Adopt(t.Context(), again)), ErrNotHeld, name)
			time.Sleep(time.Minute) // a vote that the second took at a minority ends by itself
		}
	})
}

// The release of whoever loses an adoption comes behind all that moves a vote to it: also where a member did not know the
// script, and would be sent it again, and where the round has ended before the renewal came to it.
func TestLoserOfAnAdoptionLeavesNothing(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
		h := rt.Must(p.Hold(t, "k", AutoRenew(9*time.Second)).Handoff())(t)
		q.Away(2)
		l := rt.Must(q.Adopt(t.Context(), h))(t)
		p.Slow(0, 0, 100*time.Millisecond)
		Admin(t, cluster.Servers[2], "SCRIPT", "FLUSH")
		require.ErrorIs(t, rt.Err(p.Adopt(t.Context(), h)), ErrNotHeld)
		time.Sleep(time.Second)
		require.Equal(t, *h.owner, Admin(t, cluster.Servers[2], "HKEYS", "k").([]any)[0], "it moved nothing behind its release")
		q.EveryLink(func(l *redistest.Link) { l.Heal() })
		q.Until(t, 2, "voting")
		require.NoError(t, l.Unlock(t.Context()))
		NothingLeft(t, cluster)
	})
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		h := rt.Must(p.Hold(t, "k", AutoRenew(9*time.Second)).Handoff())(t)
		p.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
		require.True(t, p.Client.inflight.enter())
		l, _, r := p.Client.takeOver(t.Context(), "k", &h, true, h.terms.ttl, time.Now())
		r.Free()
		require.ErrorIs(t, p.Client.tookOver(l, quorum.Lost, 2), ErrNotHeld)
		time.Sleep(time.Second)
		for _, s := range cluster.Servers {
			require.NotEqual(t, l.hold.owner, Admin(t, s, "HKEYS", "k").([]any)[0])
		}
	})
}

// notOurs is a member that answers inside Submit that it has no vote to move, or that it has moved one.
type notOurs struct {
	*Yes
	moved int64
	asked []string // scripts
}

func (m *notOurs) Submit(c *member.Call) {
	sha := strings.Split(string(c.Cmd), "\r\n")[4]
	m.asked = append(m.asked, sha)
	st := m.State()
	c.Outcome, c.State, c.At, c.Reply = member.Answered, st.Brief, time.Now(), member.Reply{Kind: ':', Int: 1}
	if sha == script.Adopt.SHA {
		c.Reply = member.Reply{Kind: '*', Elems: []member.Reply{{Kind: ':', Int: m.moved}}}
	}
	c.Sink.Done(c)
}

// A majority may refuse an adoption before it is sent to the others.
func TestReleaseOfALoserFollowsAnAdoptionThatIsSentAfterIt(t *testing.T) {
	h := rt.Must(Agreed(t, &Yes{}).Mutex("k").Lock(t.Context()))(t)
	last := &notOurs{Yes: &Yes{}, moved: 1}
	c := rt.Must(New([]member.Member{&notOurs{Yes: &Yes{}}, &notOurs{Yes: &Yes{}}, last}))(t)
	defer func() { _ = c.Close() }()
	require.ErrorIs(t, rt.Err(c.Adopt(t.Context(), rt.Must(h.Handoff())(t))), ErrNotHeld)
	require.Contains(t, last.asked, script.Adopt.SHA)
	require.Equal(t, script.Release.SHA, last.asked[len(last.asked)-1])
}

func TestAdoptAfterNoQuorumGoesOnWithWhatItGot(t *testing.T) {
	for _, lost := range []bool{false, true} { // the answers, or the requests
		Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
			h := rt.Must(p.Hold(t, "k", AutoRenew(9*time.Second)).Handoff())(t)
			if lost {
				q.EveryLink(func(l *redistest.Link) { l.CutAfter(redistest.WithArg(script.Adopt.SHA), 1) }, 0, 1)
			} else {
				q.Away(0, 1)
			}
			require.ErrorIs(t, rt.Err(q.Adopt(t.Context(), h)), ErrNoQuorum)
			q.EveryLink(func(l *redistest.Link) { l.Heal() })
			q.Until(t, 0, "voting")
			q.Until(t, 1, "voting")
			l := rt.Must(q.Adopt(t.Context(), h))(t)
			require.Equal(t, h.Token(), l.Token())
			require.ErrorIs(t, rt.Err(p.Adopt(t.Context(), h)), ErrNotHeld)
			require.NoError(t, l.Unlock(t.Context()))
			NothingLeft(t, cluster)
		})
	}
}

// The commands of a script each do one thing with a lease, by what the first of them printed.
func TestBorrowedLeaseLeavesItsHandoffGood(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
		held := p.Hold(t, "k", TTL(9*time.Second))
		synctest.Wait() // for what is under way
		h := rt.Must(held.Handoff())(t)
		for range 3 {
			time.Sleep(5 * time.Second)
			l := rt.Must(q.Borrow(t.Context(), h))(t)
			require.NoError(t, l.Extend(t.Context(), 9*time.Second))
			synctest.Wait()
			require.NoError(t, rt.Err(l.Handoff()))
		}
		l := rt.Must(p.Adopt(t.Context(), h))(t)
		require.ErrorIs(t, rt.Err(q.Borrow(t.Context(), h)), ErrNotHeld)
		require.NoError(t, l.Unlock(t.Context()))
		NothingLeft(t, cluster)
	})
}

// Permits of a lock without slots came from nobody who had handed it off: to encode them again fails.
func TestHandoffWithPermitsOfALockWithoutSlotsIsRefused(t *testing.T) {
	for _, kind := range []Kind{KindMutex, KindFair, KindWrite, KindRead, KindElection} {
		w := handoffWire{Kind: kind, Key: []byte("k"), Owner: "A:1", Token: 5, TTL: 9000, Format: kindOf(kind).format, Permits: "0:5", Limit: 4}
		encode := func() string {
			return handoffPrefix + base64.RawURLEncoding.EncodeToString(rt.Must(json.Marshal(w))(t))
		}
		require.ErrorIs(t, rt.Err(ParseHandoff(encode())), ErrInput, kind)
		w.Permits, w.Limit = "", 0
		require.NoError(t, rt.Err(ParseHandoff(encode())), kind)
	}
}

// MaxTTL may be raised client by client: a lease for the greater one does not end on its way to a client with the smaller.
func TestAdoptOfALongerLeaseGoesOnForTheAdoptersMaxTTL(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		q := JoinAll(t, cluster, func(c *Config) { c.TTL, c.MaxTTL = 3*time.Second, 6*time.Second })
		for name, opt := range map[string]LockOption{"renewed": AutoRenew(20 * time.Second), "fixed": TTL(20 * time.Second)} {
			held := p.Hold(t, "k", opt)
			synctest.Wait()
			h, err := held.Handoff()
			require.NoError(t, err, name)
			start := time.Now()
			l, err := q.Adopt(t.Context(), h)
			require.NoError(t, err, name)
			require.Equal(t, start.Add(Validity(6*time.Second)), l.ValidUntil(), name)
			time.Sleep(5 * time.Second)
			require.NoError(t, l.Err(), name)
			require.ErrorIs(t, p.Try(t, "k"), ErrHeld, name)
			if name == "renewed" {
				time.Sleep(time.Minute)
				require.NoError(t, l.Err(), name)
			}
			require.NoError(t, l.Unlock(t.Context()), name)
			NothingLeft(t, cluster)
		}
	})
}

// It has come to a minority: nobody has the lease, and no vote of it lasts longer than what was asked for.
func TestAdoptWithoutAQuorumLengthensAVoteByItsTTLAtMost(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
		held := p.Hold(t, "k", AutoRenew(9*time.Second))
		synctest.Wait()
		h := rt.Must(held.Handoff())(t)
		time.Sleep(5 * time.Second)
		q.Away(0, 1)
		require.ErrorIs(t, rt.Err(q.Adopt(t.Context(), h)), ErrNoQuorum)
		synctest.Wait()
		left := func(i int) int64 { return Admin(t, cluster.Servers[i], "PTTL", "k").(int64) }
		require.LessOrEqual(t, left(0), int64(4000))
		require.Greater(t, left(2), int64(4000), "a minority has lengthened it")
		require.LessOrEqual(t, left(2), int64(9000))
		time.Sleep(9 * time.Second)
		NothingLeft(t, cluster)
	})
}

// A member that the adoption has not reached has the vote of the former owner, and no other release names that.
func TestReleaseOfAnAdoptedLeaseLeavesNoVoteOfItsFormerOwner(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
		l := p.Hold(t, "k", TTL(25*time.Second))
		synctest.Wait()
		q.Away(2)
		q.Until(t, 2, MemberDown)
		require.NoError(t, rt.Must(q.Adopt(t.Context(), rt.Must(l.Handoff())(t)))(t).Unlock(t.Context()))
		q.EveryLink(func(l *redistest.Link) { l.Heal() }, 2)
		time.Sleep(10 * time.Second)
		NothingLeft(t, cluster)
	})
}
