package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// The reference system's side is played here by its script steps: what Redisson does at a server, in
// words of our own. integration/interop runs its Java client.
const (
	theirAcquire = `
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return {-1, KEYS[2] and redis.call('INCR', KEYS[2]) or 0}
end
return {redis.call('PTTL', KEYS[1]), -1}`
	theirRenew = `
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1`
	theirRelease = `
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return false end
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 1`
	theirForce = `
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call('PUBLISH', KEYS[2], '0')
return 1`
)

// theirs is the reference system's rule for companions.
func theirs(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// reference is one of its clients at one server, in one thread.
type reference struct {
	testing.TB
	server redistest.Server
	name   string
	owner  string
	plain  bool            // its plain lock: draws no token
	link   *redistest.Link // its way to the server; nil: beside all paths
	c      *redistest.Client
}

// at gives it a way to the server that takes its time, as ours have.
func (r *reference) at(rtt time.Duration) *reference {
	r.Helper()
	r.link = r.server.Path()
	r.link.SetDelay(redistest.Delay{Fixed: rtt / 2}, redistest.Delay{Fixed: rtt / 2})
	var err error
	r.c, err = redistest.DialClient(context.Background(), r.link, r.server.Addr())
	require.NoError(r, err)
	r.Cleanup(func() { _ = r.c.Close() })
	return r
}

func javaOf(t testing.TB, s redistest.Server, name string, n int) *reference {
	return &reference{TB: t, server: s, name: name, owner: javaOwner(n)}
}

func javaOwner(n int) string { return fmt.Sprintf("0b1c2d3e-0000-4000-8000-%012d:%d", n, 40+n) }

func (r *reference) channel() string { return theirs("redisson_lock__channel", r.name) }
func (r *reference) counter() string { return theirs("redisson_lock_token", r.name) }

func (r *reference) eval(script string, args ...string) any {
	r.Helper()
	do := r.server.Do
	if r.c != nil {
		do = r.c.Do
	}
	v, err := do(context.Background(), append([]string{"EVAL", script}, args...)...)
	require.NoError(r, err)
	return v
}

// try returns its token, or the PTTL that it is refused with.
func (r *reference) try(ttl time.Duration) (token, left int64, ok bool) {
	r.Helper()
	args := []string{"2", r.name, r.counter(), text(script.Millis(ttl)), r.owner}
	if r.plain {
		args = []string{"1", r.name, text(script.Millis(ttl)), r.owner}
	}
	v := r.eval(theirAcquire, args...).([]any)
	return v[1].(int64), v[0].(int64), v[0] == int64(-1)
}

// take is try where it must succeed.
func (r *reference) take(ttl time.Duration) int64 {
	r.Helper()
	token, left, ok := r.try(ttl)
	require.True(r, ok, "refused for %d ms", left)
	return token
}

func (r *reference) renew(ttl time.Duration) any {
	r.Helper()
	return r.eval(theirRenew, "1", r.name, text(script.Millis(ttl)), r.owner)
}

// release returns 1 free, 0 still held, nil not its own.
func (r *reference) release() any {
	r.Helper()
	return r.eval(theirRelease, "2", r.name, r.channel(), "30000", r.owner)
}

// listen subscribes as its waiters do.
func (r *reference) listen() *redistest.Client {
	r.Helper()
	link := r.link
	if link == nil {
		link = r.server.Path()
	}
	c, err := redistest.DialClient(context.Background(), link, r.server.Addr())
	require.NoError(r, err)
	_, err = c.Do(context.Background(), "SUBSCRIBE", r.channel())
	require.NoError(r, err)
	return c
}

// lock waits as it does: it tries, subscribes, tries again, and then after each message or when the
// obstacle should be gone. wait bounds it.
func (r *reference) lock(ttl, wait time.Duration) (token int64, ok bool) {
	r.Helper()
	if token, _, ok = r.try(ttl); ok {
		return token, true
	}
	c := r.listen()
	defer func() { _ = c.Close() }()
	for end := time.Now().Add(wait); ; {
		token, left, ok := r.try(ttl)
		if ok {
			return token, true
		}
		rest := time.Until(end)
		if rest <= 0 {
			return 0, false
		}
		if left >= 0 {
			rest = min(rest, time.Duration(max(1, left))*time.Millisecond)
		}
		if _, err := c.ReceiveFor(rest); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			require.NoError(r, err)
		}
	}
}

// numsub is how many connections listen to a channel at a server.
func numsub(t testing.TB, s redistest.Server, channel string) int64 {
	t.Helper()
	return admin(t, s, "PUBSUB", "NUMSUB", channel).([]any)[1].(int64)
}

// shareable are names of every shape that the prefix rule knows.
var shareable = []string{"orders", "{orders}", "{orders}:1", "x{orders}y", "a{b", "a}b", "a{}b", "{}", "{{a}}", "with space", "ключ", "\x00\xff"}

// shares is a lock with Config.Interop at one server, asked as a member would ask; the reference's
// clients are beside it.
type shares struct {
	*scripted
	java, other *reference
	theirs      *redistest.Client // hears both channels
}

func newShares(t *testing.T, server redistest.Server, name string) *shares {
	cfg := Config{Interop: true}
	s := &shares{scripted: &scripted{T: t, server: server, Lock: cfg.lockOf(name)}}
	s.c, s.inbox = s.dial(), s.dial()
	for _, source := range Scripts(WithInterop()) {
		s.ask("SCRIPT", "LOAD", source)
	}
	_, err := s.inbox.Do(t.Context(), "PSUBSCRIBE", script.Inbox("*"))
	require.NoError(t, err)
	s.java, s.other = javaOf(t, server, name, 1), javaOf(t, server, name, 2)
	s.theirs = s.dial()
	// By pattern: no subscriber of the channel, as far as NUMSUB knows.
	_, err = s.theirs.Do(t.Context(), "PSUBSCRIBE", "redisson_lock__channel:*", "redquorum:ours:*", "end")
	require.NoError(t, err)
	for range 2 { // confirmations
		_, err = s.theirs.ReceiveFor(10 * time.Second)
		require.NoError(t, err)
	}
	return s
}

// told returns what was heard in the two channels, "t" in ours and "0" in theirs.
func (s *shares) told() (out []string) {
	s.Helper()
	s.ask("PUBLISH", "end", "end")
	for {
		v, err := s.theirs.ReceiveFor(10 * time.Second)
		require.NoError(s, err)
		got := v.([]any)
		if got[3] == "end" {
			return out
		}
		require.Equal(s, map[any]string{"t": theirs("redquorum:ours", s.Name), "0": s.java.channel()}[got[3]], got[2])
		out = append(out, got[3].(string))
	}
}

func (s *shares) count() string {
	s.Helper()
	v, _ := s.ask("GET", s.java.counter()).(string)
	return v
}

// waiter subscribes as one of theirs, and ours as one of our clients.
func (s *shares) waiter() *redistest.Client { s.Helper(); return s.java.listen() }

// turn is there while the lock is left to their waiters.
func (s *scripted) turn() string { return slot.Sibling("redquorum:turn", s.Name) }

func (s *shares) ours() *redistest.Client {
	s.Helper()
	c := s.dial()
	theirs, ours, _ := s.Channels()
	_, err := c.Do(s.Context(), "SUBSCRIBE", theirs, ours)
	require.NoError(s, err)
	return c
}

func TestScriptsBesideTheReferenceSystem(t *testing.T) {
	onServers(t, func(t *testing.T, server redistest.Server, _ bool) {
		for _, c := range cases.Read(t, "internal/script/testdata/redisson/*.txt") {
			t.Run(c.Name, func(t *testing.T) {
				require.NoError(t, server.Flush())
				s := newShares(t, server, "invoice:42")
				s.until(func() bool { return numsub(t, server, s.java.channel()) == 0 }) // of the case before
				(&scriptPlay{T: t, site: &sharedSite{serverSite{s.scripted}, s, map[string]*redistest.Client{}}}).play(c.Lines)
			})
		}
		for _, name := range shareable {
			t.Run(fmt.Sprintf("names %q", name), func(t *testing.T) {
				require.NoError(t, server.Flush())
				sharedName(newShares(t, server, name))
			})
		}
	})
}

// sharedName: what both sides mean by a name is the same lock, counter and channel.
func sharedName(s *shares) {
	first := s.take(alice, minute)
	_, left, ok := s.java.try(minute)
	require.False(s, ok)
	require.Positive(s, left)
	require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
	require.Equal(s, []string{"0"}, s.told())
	second := s.java.take(minute)
	require.Equal(s, first+1, second)
	require.Negative(s, s.take(alice, minute))
	require.EqualValues(s, 1, s.java.release())
	require.Equal(s, []string{"0"}, s.told())
	require.Equal(s, second+1, s.take(alice, minute))
	s.number(s.Release(nil, alice, ""))
	require.Equal(s, []string{"0"}, s.told())
	require.ElementsMatch(s, []any{member.TokensKey, s.java.counter()}, s.ask("KEYS", "*"), "the counters stay, nothing else")
}

func TestTheirReleaseWakesAWaiterOfOursAtOnce(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " members"), func(t *testing.T) {
			bubble(t, n, func(t *testing.T, cluster *redistest.Cluster) {
				p := join(t, cluster, WithInterop(), quiet)
				var java []*reference
				for _, s := range cluster.Servers {
					java = append(java, javaOf(t, s, "k", 1))
					java[len(java)-1].take(time.Minute)
				}
				free := func(w *locking) {
					time.Sleep(500 * time.Millisecond) // between two heartbeats
					require.True(t, w.pending())
					began := time.Now()
					for _, j := range java {
						require.EqualValues(t, 1, j.release())
					}
					l := w.get(t)
					require.Less(t, w.at.Sub(began), 20*time.Millisecond, "not by its heartbeat")
					require.NoError(t, l.Unlock(t.Context()))
					synctest.Wait()
				}
				free(p.lockLater(t.Context(), "k"))
				for _, s := range cluster.Servers {
					require.Equal(t, []any{}, admin(t, s, "PUBSUB", "CHANNELS", "redisson*"), "unsubscribed")
					require.Equal(t, []any{}, admin(t, s, "PUBSUB", "CHANNELS", "redquorum:ours*"), "unsubscribed")
				}

				// And once more, on connections that broke meanwhile.
				for _, j := range java {
					j.take(time.Minute)
				}
				w := p.lockLater(t.Context(), "k")
				time.Sleep(100 * time.Millisecond)
				p.everyLink(func(l *redistest.Link) { l.Cut() })
				time.Sleep(100 * time.Millisecond)
				p.settle(t, n)
				time.Sleep(1100 * time.Millisecond)
				free(w)
				require.ElementsMatch(t, []any{"redquorum:tokens", "redisson_lock_token:{k}"}, admin(t, cluster.Servers[0], "KEYS", "*"))
			})
		})
	}
}

// A release between the refusal and the subscription is not lost: the attempt asks again once it hears.
func TestAReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, WithInterop(), quiet)
		java := javaOf(t, cluster.Servers[0], "k", 1)
		java.take(time.Minute)
		freed := false
		p.everyLink(func(l *redistest.Link) {
			l.Call(redistest.Named("SUBSCRIBE"), -1, func([]string) { // before the server does it
				if !freed {
					freed = true
					java.release()
				}
			})
		})
		began := time.Now()
		l := p.lock(t, "k")
		require.True(t, freed)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// "a" and "{a}" share counter and channel, and are two locks.
func TestTwoNamesWithOneChannel(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p, s := join(t, cluster, WithInterop(), quiet), cluster.Servers[0]
		plain, braced := javaOf(t, s, "a", 1), javaOf(t, s, "{a}", 2)
		plain.take(time.Minute)
		braced.take(time.Minute)
		one, two := p.lockLater(t.Context(), "a"), p.lockLater(t.Context(), "{a}")
		time.Sleep(100 * time.Millisecond)
		require.EqualValues(t, 1, numsub(t, s, plain.channel()))
		plain.release()
		first := one.get(t)
		synctest.Wait()
		require.True(t, two.pending())
		require.EqualValues(t, 1, numsub(t, s, plain.channel()), "still wanted for the other")
		braced.release()
		second := two.get(t)
		require.Greater(t, second.Token(), first.Token())
		synctest.Wait()
		require.EqualValues(t, 0, numsub(t, s, plain.channel()))
	})
}

func TestOurReleaseWakesTheirs(t *testing.T) {
	for _, how := range []string{"unlock", "expiry", "force"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
				p := join(t, cluster, WithInterop(), quiet)
				l := p.hold(t, "k", TTL(20*time.Second))
				java := javaOf(t, cluster.Servers[0], "k", 1)
				got := make(chan time.Time)
				go func() {
					_, ok := java.lock(time.Minute, time.Minute)
					assert.True(t, ok)
					got <- time.Now()
				}()
				time.Sleep(time.Second)
				began := time.Now()
				switch how {
				case "unlock":
					require.NoError(t, l.Unlock(t.Context()))
				case "force":
					_, err := p.ForceUnlock(t.Context(), "k")
					require.NoError(t, err)
				case "expiry":
					began = l.ValidUntil()
				}
				require.WithinDuration(t, began, <-got, 10*time.Millisecond)
			})
		})
	}
}

// A TryLock that comes between our release and their turn must not take it from them, and has it again
// where nobody came.
func TestTryLockIsRefusedWhileTheLockIsLeftToThem(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, WithInterop(), quiet)
		l := p.hold(t, "k")
		c := javaOf(t, cluster.Servers[0], "k", 1).listen()
		defer func() { _ = c.Close() }()
		require.NoError(t, l.Unlock(t.Context()))
		_, err := p.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrHeld)
		began := time.Now()
		l = p.hold(t, "k") // waits it out
		require.InDelta(t, 50, time.Since(began).Milliseconds(), 10)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// judge sees that nobody holds beside another, and that tokens rise.
type sharedJudge struct {
	mu     sync.Mutex
	holder string
	last   uint64
	grants map[string]int
	wrong  []string
}

func (j *sharedJudge) enter(who string, token uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder != "" {
		j.wrong = append(j.wrong, fmt.Sprintf("%s holds beside %s", who, j.holder))
	}
	if token > 0 && token <= j.last {
		j.wrong = append(j.wrong, fmt.Sprintf("%s got %d after %d", who, token, j.last))
	}
	j.holder, j.last = who, max(j.last, token)
	if j.grants == nil {
		j.grants = make(map[string]int)
	}
	j.grants[who]++
}

func (j *sharedJudge) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.holder = ""
}

// pauses between a release and the next attempt, up to a millisecond.
type pauses struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newPauses(seed uint64) *pauses { return &pauses{rng: rand.New(rand.NewPCG(seed, 1))} }

func (p *pauses) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.rng.Int64N(int64(time.Millisecond)))
}

func TestBothSidesAreServedAtOneServer(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		var judge sharedJudge
		rng := newPauses(1)
		var wg sync.WaitGroup
		end := time.Now().Add(300 * time.Millisecond)
		for i := range 2 {
			p := join(t, cluster, WithInterop(), quiet)
			p.slow(200 * time.Microsecond)
			wg.Go(func() {
				for time.Now().Before(end) {
					l, err := p.Mutex("k").Lock(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					judge.enter(fmt.Sprint("ours ", i), l.Token())
					time.Sleep(2 * time.Millisecond)
					judge.leave()
					assert.NoError(t, l.Unlock(t.Context()))
					time.Sleep(rng.pause())
				}
			})
			java := javaOf(t, cluster.Servers[0], "k", i).at(200 * time.Microsecond)
			wg.Go(func() {
				for time.Now().Before(end) {
					token, ok := java.lock(time.Minute, time.Minute)
					if !assert.True(t, ok) {
						return
					}
					judge.enter(fmt.Sprint("theirs ", i), uint64(token))
					time.Sleep(2 * time.Millisecond)
					judge.leave()
					assert.EqualValues(t, 1, java.release())
					time.Sleep(rng.pause())
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Empty(t, judge.wrong)
		t.Log(judge.grants)
		require.Len(t, judge.grants, 4)
		for who, n := range judge.grants {
			require.Greater(t, n, 5, who)
		}
		time.Sleep(50 * time.Millisecond) // the last turn
		require.ElementsMatch(t, []any{"redquorum:tokens", "redisson_lock_token:{k}"}, admin(t, cluster.Servers[0], "KEYS", "*"))
	})
}

// redLock is the reference's lock over several servers: one after the other, with a wait at each, for a
// majority; given back where there is none.
type redLock []*reference

func (r redLock) lock(ttl time.Duration) {
	for {
		var got []*reference
		for _, m := range r {
			if _, ok := m.lock(ttl, 1500*time.Millisecond); ok {
				got = append(got, m)
			}
			if len(got)+len(r)-1-slices.Index(r, m) < len(r)/2+1 {
				break
			}
		}
		if len(got) > len(r)/2 {
			return
		}
		for _, m := range got {
			m.release()
		}
	}
}

func (r redLock) unlock() {
	for _, m := range r {
		m.release()
	}
}

func TestBothSidesAreServedOverThree(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		var judge sharedJudge
		rng := newPauses(1)
		var wg sync.WaitGroup
		end := time.Now().Add(600 * time.Millisecond)
		for i := range 2 {
			p := join(t, cluster, WithInterop(), quiet)
			p.slow(200*time.Microsecond, 300*time.Microsecond, 400*time.Microsecond)
			wg.Go(func() {
				for time.Now().Before(end) {
					l, err := p.Mutex("k").Lock(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					judge.enter(fmt.Sprint("ours ", i), l.Token())
					time.Sleep(2 * time.Millisecond)
					judge.leave()
					assert.NoError(t, l.Unlock(t.Context()))
					time.Sleep(rng.pause())
				}
			})
			var java redLock
			for k, s := range cluster.Servers {
				java = append(java, javaOf(t, s, "k", 10*i+k))
				java[k].at(300 * time.Microsecond).plain = true
			}
			wg.Go(func() {
				for time.Now().Before(end) {
					java.lock(time.Minute)
					judge.enter(fmt.Sprint("theirs ", i), 0)
					time.Sleep(2 * time.Millisecond)
					judge.leave()
					java.unlock()
					time.Sleep(rng.pause())
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Empty(t, judge.wrong)
		t.Log(judge.grants)
		require.Len(t, judge.grants, 4)
		for who, n := range judge.grants {
			require.Greater(t, n, 5, who)
		}
	})
}

// Members that forgot: the counters of names come back with what a snapshot had, or not at all, and are
// not believed. Where nobody knows, order goes on from the clock.
func TestTokensRiseOverMembersThatForgotWithInterop(t *testing.T) {
	for _, how := range []string{"empty", "snapshot"} {
		t.Run(how+", one member", func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
				s := cluster.Servers[0]
				p := guarded(t, cluster, short, WithFreshMembers(), WithInterop())
				p.voting(t, 1)
				java := javaOf(t, s, "k", 1)
				cycle(t, p, "k")
				require.NoError(t, s.Snapshot())
				last := cycle(t, p, "k")
				for range 5 {
					last = uint64(java.take(time.Minute))
					java.release()
				}
				if how == "empty" {
					require.NoError(t, s.Restart(false))
				} else {
					require.NoError(t, s.Rollback())
				}
				p.until(t, 0, MemberQuarantined)
				// What they do meanwhile nobody can help: their tokens begin anew.
				theirs := uint64(java.take(time.Minute))
				java.release()
				require.LessOrEqual(t, theirs, last)
				p.voting(t, 1)
				token := cycle(t, p, "k")
				require.Greater(t, token, last)
				require.Greater(t, uint64(java.take(time.Minute)), token, "from here on they are in order again")
			})
		})
		t.Run(how+", three members", func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
				p := guarded(t, cluster, short, WithFreshMembers(), WithInterop())
				p.voting(t, 3)
				cycle(t, p, "k")
				synctest.Wait()
				require.NoError(t, cluster.Servers[0].Snapshot())
				p.links[2].Refuse(true) // misses what comes
				p.links[2].Cut()
				p.until(t, 2, MemberDown)
				var last uint64
				for range 10 {
					last = cycle(t, p, "k")
				}
				synctest.Wait()
				if how == "empty" {
					require.NoError(t, cluster.Servers[0].Restart(false))
				} else {
					require.NoError(t, cluster.Servers[0].Rollback())
				}
				p.links[2].Heal()
				p.voting(t, 3)
				p.links[1].Refuse(true) // the one that knows
				p.links[1].Cut()
				p.until(t, 1, MemberDown)
				require.Greater(t, cycle(t, p, "k"), last)
			})
		})
	}
}

// A client without the option still excludes, and is excluded; tokens of ours rise over both.
func TestClientsWithAndWithoutInterop(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		with, without := join(t, cluster, WithInterop()), join(t, cluster)
		var last uint64
		for range 5 {
			for _, p := range []*peer{with, without} {
				l := p.hold(t, "k")
				require.Greater(t, l.Token(), last)
				last = l.Token()
				_, err := with.Mutex("k").TryLock(t.Context())
				require.ErrorIs(t, err, ErrHeld)
				_, err = without.Mutex("k").TryLock(t.Context())
				require.ErrorIs(t, err, ErrHeld)
				require.NoError(t, l.Unlock(t.Context()))
				synctest.Wait()
			}
		}
	})
}

func TestHandoffAndRejoinWithInterop(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		a, b := join(t, cluster, WithInterop()), join(t, cluster, WithInterop())
		l := a.hold(t, "k")
		h, err := l.Handoff()
		require.NoError(t, err)
		taken, err := b.Adopt(t.Context(), h)
		require.NoError(t, err)
		admin(t, cluster.Servers[2], "DEL", "k", "redisson_lock_token:{k}")
		time.Sleep(11 * time.Second) // a renewal
		synctest.Wait()
		require.Equal(t, 3, votesAt(cluster, taken), "given back")
		require.Equal(t, text(int64(taken.Token())), admin(t, cluster.Servers[2], "GET", "redisson_lock_token:{k}"))
		require.NoError(t, taken.Unlock(t.Context()))
	})
}

func TestNothingOfInteropIsThereByDefault(t *testing.T) {
	for _, source := range Scripts() {
		require.NotContains(t, source, "NUMSUB")
	}
	require.Equal(t, script.Exclusive("k"), new(Config).lockOf("k"))
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet)
		l := p.hold(t, "k")
		w := p.lockLater(t.Context(), "k")
		synctest.Wait()
		q := join(t, cluster, quiet).lockLater(t.Context(), "k")
		time.Sleep(time.Second)
		require.Equal(t, []any{}, admin(t, cluster.Servers[0], "PUBSUB", "CHANNELS", "redisson*"))
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, w.get(t).Unlock(t.Context())) // was there first
		require.NoError(t, q.get(t).Unlock(t.Context()))
		synctest.Wait()
		leftovers(t, cluster)
	})
}

// interopPermissions is what docs/servers.md lists beside permittedCommands.
var interopPermissions = []string{"+incr", "+get", "+pubsub|numsub", "+unsubscribe", "~redisson_lock_token:*", "&redisson_lock__channel:*", "&redquorum:ours:*"}

func TestUserWithTheListedPermissionsCanShareLocks(t *testing.T) {
	cluster := rt.Real(t, 3)
	list := restricted(t, cluster, "locker", slices.Concat(permittedCommands, interopPermissions)...)
	var log transcript
	c, err := Open(t.Context(), list, patient, WithLogger(log.logger()), WithInterop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	p := &peer{Client: c}
	p.settle(t, 3)
	var java redLock
	for i, s := range cluster.Servers {
		java = append(java, javaOf(t, s, "app:k", i))
		java[i].take(time.Minute)
	}
	w := p.lockLater(t.Context(), "app:k")
	require.NoError(t, inLine(t.Context(), cluster.Servers, "app:k", 1))
	java.unlock()
	lease := w.get(t)
	for i, s := range cluster.Servers {
		sub := java[i].listen()
		t.Cleanup(func() { _ = sub.Close() })
		require.Positive(t, numsub(t, s, java[i].channel()))
	}
	_, err = doTagged(t.Context(), c.members[0], lease.hold.wire.Raise(nil, lease.hold.owner, int64(lease.Token())))
	require.NoError(t, err)
	_, err = c.ForceUnlock(t.Context(), "app:k")
	require.NoError(t, err)
	for i := range java {
		java[i].take(time.Minute)
	}
	_ = lease.Unlock(t.Context()) // it was taken away
	require.Empty(t, denials(t, cluster))
}
