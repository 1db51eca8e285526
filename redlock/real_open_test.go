package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// Starting up: members that are missing, wrong or not permitted, and how a client reaches them.

const canary = "hunter2canary" // a secret that nothing may print

type transcript struct{ rt.Text }

func (l *transcript) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func works(t testing.TB, c *redlock.Client) {
	t.Helper()
	lease := locked(t, c, "k")
	require.ErrorIs(t, rt.Err(c.Mutex("k").TryLock(t.Context())), redlock.ErrHeld)
	require.NoError(t, lease.Extend(t.Context(), 20*time.Second))
	waiting := (&redlock.Peer{Client: c}).LockLater(ending(t), "k")
	waits(t, c)
	require.NoError(t, lease.Unlock(t.Context()))
	next := waiting.Get(t)
	require.Greater(t, next.Token(), lease.Token())
	require.NoError(t, next.Unlock(t.Context()))
}

func waits(t testing.TB, c *redlock.Client) {
	t.Helper()
	for start := time.Now(); c.Stats()[redlock.KindMutex].Waiting == 0; time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(start), time.Minute)
	}
}

func TestAllMistakesInURLsAreToldAtOnceAndNoSecret(t *testing.T) {
	bad := []string{
		"redis://:" + canary + "@127.0.0.1:0",
		"redis://127.0.0.1:6379",
		"mysql://user:" + canary + "@127.0.0.1",
		"redis://u:" + canary + "%zz@host",
		"redis://:" + canary + "#1@host",
		"redis://host/" + canary,
		canary,
	}
	_, err := redlock.Open(t.Context(), bad)
	require.ErrorIs(t, err, redlock.ErrInput)
	for i := range bad {
		require.Equal(t, i != 1, strings.Contains(err.Error(), fmt.Sprintf("member %d:", i+1)), "%d: %v", i, err)
	}
	require.NotContains(t, err.Error(), canary)

	require.ErrorIs(t, rt.Err(redlock.Open(t.Context(), nil)), redlock.ErrInput)
	_, err = redlock.Open(t.Context(), slices.Repeat([]string{"redis://h"}, quorum.MaxMembers+1))
	require.ErrorIs(t, err, redlock.ErrInput)
	_, err = redlock.OpenWith(t.Context(), []string{"redis://h"}, func(c *redlock.Config) { c.TTL, c.Drift = -1, 7 })
	rt.Says(t, err, redlock.ErrInput, "TTL")
	require.ErrorContains(t, err, "Drift")
}

func TestWrongPasswordIsSaidToBeThatAndIsNotTold(t *testing.T) {
	t.Parallel()
	cluster := rt.RealWith(t, 1, redistest.RealConfig{Args: []string{"--requirepass", "right"}})
	addr := cluster.Servers[0].Addr()
	for url, said := range map[string]string{
		"redis://:" + canary + "@" + addr:        "WRONGPASS",
		"redis://nobody:" + canary + "@" + addr:  "WRONGPASS",
		"redis://default:" + canary + "@" + addr: "WRONGPASS",
		"redis://" + addr:                        "NOAUTH",
	} {
		var log transcript
		_, err := redlock.OpenWith(t.Context(), []string{url}, redlock.WithLogger(log.logger()))
		rt.Says(t, err, redlock.ErrNoQuorum, said)
		require.Equal(t, member.KindAuth, rt.As[*member.ReplyError](t, err).Kind)
		require.NotContains(t, err.Error()+log.String(), canary)
		require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), canary)
	}
	for _, url := range []string{"redis://:right@" + addr, "redis://default:right@" + addr} {
		c := rt.Must(redlock.OpenWith(t.Context(), []string{url}, patient))(t)
		works(t, c)
		require.NoError(t, c.Close())
	}
}

func TestOneServerUnderTwoNamesIsNotTwoMembers(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 2)
	one, other := urls(cluster)[0], urls(cluster)[1]
	named := strings.Replace(one, "127.0.0.1", "localhost", 1)
	for _, again := range []string{named, named + "/1", one} {
		_, err := redlock.OpenWith(t.Context(), []string{one, other, again}, patient)
		rt.Says(t, err, redlock.ErrDuplicateMember, map[bool]string{true: "members 1 and 3 are one server", false: "it is that of " + one[8:] + ", so list one"}[again == one])
	}
}

func TestLocksOverASocketInADatabaseUnderAName(t *testing.T) {
	t.Parallel()
	dir := rt.Must(os.MkdirTemp("", "rq"))(t) // short enough for a socket
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	cluster := rt.RealWith(t, 1, redistest.RealConfig{Args: []string{"--unixsocket", path}})
	s := cluster.Servers[0]
	for url, name := range map[string]string{
		"redis://" + s.Addr() + "/3":                                      "redquorum",
		"redis://" + s.Addr() + "?db=3&client_name=mine":                  "mine",
		"redis+unix://" + path + "?db=3&client_name=by-socket":            "by-socket",
		"redis+unix://" + path + "?db=3&dial_timeout=3s&stall_timeout=9s": "redquorum",
	} {
		c := rt.Must(redlock.OpenWith(t.Context(), []string{url}, patient))(t)
		(&redlock.Peer{Client: c}).Settle(t, 1)
		lease := locked(t, c, "k")
		require.Regexp(t, `^# Keyspace\r\ndb3:keys=3,`, redlock.Admin(t, s, "INFO", "keyspace"))
		list := redlock.Admin(t, s, "CLIENT", "LIST")
		require.Equal(t, 1, strings.Count(list.(string), " name="+name+" "), "commands and inbox: %s", list)
		require.NoError(t, lease.Unlock(t.Context()))
		works(t, c)
		require.NoError(t, c.Close())
	}
}

// permissions are all that a user needs to lock names that begin with "app:", as ACL SETUSER takes it.
// Each command is either sent by a connection or called by a script.
var (
	permittedKeys     = []string{"resetkeys", "~app:*", "~redquorum:*", "resetchannels", "&redquorum:inbox:*"}
	permittedCommands = []string{
		"+evalsha", "+eval", "+script|load", "+script|exists", "+subscribe", "+ping", "+info", "+client|id", "+client|list", "+client|kill", "+client|setname",
		"+time", "+pttl", "+pexpire", "+exists", "+hincrby", "+hget", "+hset", "+hdel", "+hexists", "+hkeys",
		"+hscan", "+zadd", "+zrem", "+zrange", "+zscore", "+publish",
		"+hmget", "+hgetall", "+set", "+del", // the restart guard, Inspect and ForceUnlock
		"+hlen",
	}
)

func permittedBut(beginnings ...string) []string {
	return slices.DeleteFunc(slices.Clone(permittedCommands), func(c string) bool {
		return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(c, b) })
	})
}

func restricted(t testing.TB, cluster *redistest.Cluster, user string, commands ...string) (out []string) {
	t.Helper()
	for _, s := range cluster.Servers {
		args := slices.Concat([]string{"ACL", "SETUSER", user, "reset", "on", ">" + canary}, permittedKeys, commands)
		redlock.Admin(t, s, args...)
		out = append(out, fmt.Sprintf("redis://%s:%s@%s", user, canary, s.Addr()))
	}
	return out
}

// denials are what the servers refused, as "command object".
func denials(t testing.TB, cluster *redistest.Cluster) (out []string) {
	t.Helper()
	for _, s := range cluster.Servers {
		entries := redlock.Admin(t, s, "ACL", "LOG")
		for _, e := range entries.([]any) {
			e := e.([]any)
			out = append(out, fmt.Sprint(e[3], " ", e[7]))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// quickQuarantine has a member that was emptied back after a second.
func quickQuarantine(c *redlock.Config) { c.MaxTTL, c.PingInterval = time.Second, 100*time.Millisecond }

// It would not see that a member restarted. It makes no marker, so nobody else is disturbed.
func TestUserWithoutInfoIsToldThatItIsNeeded(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 1)
	ping := func(c *redlock.Config) { c.PingInterval = 10 * time.Millisecond }
	marker := func() any { return redlock.Admin(t, cluster.Servers[0], "HGET", "redquorum:boot", "id") }
	works(t, opened(t, restricted(t, cluster, "with", append(permittedBut("no permission"), "~*")...), patient, ping))
	before := marker()
	_, err := redlock.OpenWith(t.Context(), restricted(t, cluster, "less", append(permittedBut("+info"), "~*")...), patient, ping)
	rt.Says(t, err, redlock.ErrNoQuorum, "INFO")
	require.Equal(t, before, marker())
}

func TestUserWithTheListedPermissionsCanDoEverything(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	list := restricted(t, cluster, "locker", permittedCommands...)
	var log transcript
	var clients []*redlock.Client
	for range 3 {
		clients = append(clients, opened(t, list, patient, redlock.WithLogger(log.logger()), quickQuarantine))
	}
	settle(t, 3, clients...)
	ours := func(err error) { // leases of a second may be lost on a busy machine
		t.Helper()
		if !errors.Is(err, redlock.ErrLost) {
			require.NoError(t, err)
		}
	}
	contend := func(n int) {
		t.Helper()
		var last atomic.Pointer[redlock.Lease]
		together(t, len(clients), func(i int) error {
			for range n {
				lease, err := clients[i].Mutex("app:k").Lock(ending(t))
				if err != nil {
					return err
				}
				if was := last.Swap(lease); was != nil && lease.Err() == nil && (was.Err() == nil || lease.Token() <= was.Token()) {
					t.Errorf("token %d beside %d, or behind it", lease.Token(), was.Token())
				}
				_ = lease.Unlock(t.Context())
			}
			return nil
		})
	}
	contend(20)
	for _, s := range cluster.Servers { // scripts are repaired with EVAL
		redlock.Admin(t, s, "SCRIPT", "FLUSH")
	}
	contend(5)
	// Succession: a broken connection is killed before the next one is used.
	lease := locked(t, clients[0], "app:held")
	redlock.Admin(t, cluster.Servers[0], "CLIENT", "KILL", "TYPE", "normal")
	settle(t, 3, clients...)
	// What a running client seldom needs.
	c, k := clients[0], script.Exclusive("app:held")
	for _, cmd := range []member.Command{
		k.Raise(nil, redlock.OwnerOf(lease), int64(lease.Token())),
		k.Rejoin(nil, redlock.OwnerOf(lease), time.Second, int64(lease.Token()), 0),
		k.Yield(nil, "x:1", 1, time.Second, time.Second, 0),
	} {
		require.NoError(t, rt.Err(doTagged(t.Context(), redlock.MemberAt(c, 1), cmd)))
	}
	ours(lease.Extend(t.Context(), time.Second))
	ours(lease.Unlock(t.Context()))
	// Admin, and the restart guard at a member that was emptied.
	lease = locked(t, c, "app:held")
	require.NoError(t, rt.Err(c.Inspect(t.Context(), "app:held")))
	require.NoError(t, rt.Err(c.ForceUnlock(t.Context(), "app:held")))
	_ = lease.Unlock(t.Context()) // it was taken away
	require.NoError(t, cluster.Flush(2))
	full(t, c, "app:full")
	require.Empty(t, denials(t, cluster))
	require.NotContains(t, log.String(), "does not permit")
	require.NotContains(t, log.String(), canary)
	clean(t, cluster)

	_, err := clients[0].Mutex("other").TryLock(t.Context()) // not a name of its
	rt.Says(t, err, redlock.ErrNoQuorum, "NOPERM")
}

// A user without them is told of the risk, and its waiters have a lock at their next heartbeat.
func TestWithoutCLIENTAndPUBLISHLocksWorkAndTheRiskIsSaid(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 1)
	list := restricted(t, cluster, "locker", permittedBut("+client|", "+publish")...)
	var log transcript
	c := opened(t, list, patient, redlock.WithLogger(log.logger()), func(c *redlock.Config) { c.Entry = time.Second })
	lease := locked(t, c, "app:k")
	other := opened(t, list, patient, func(c *redlock.Config) { c.Entry = time.Second })
	settle(t, 1, c, other)
	next := (&redlock.Peer{Client: other}).LockLater(ending(t), "app:k")
	require.NoError(t, inLine(t.Context(), cluster.Servers, "app:k", 1))
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, next.Get(t).Unlock(t.Context()))
	at := regexp.QuoteMeta(cluster.Servers[0].Addr())
	warning := regexp.MustCompile(`level=WARN msg="redlock: member does not permit CLIENT ID[^"]*" member=` + at)
	require.Len(t, warning.FindAllString(log.String(), -1), 1, "%s", log.String())
	clean(t, cluster)
}

// The rules that are shipped are those that are tested here, and what a database, acknowledgements and a
// Redis Cluster need besides.
func TestShippedRulesAreThoseThatAreTested(t *testing.T) {
	b := rt.Must(os.ReadFile(filepath.Join("..", "acl", "members.acl")))(t)
	more := []string{"user", "locker", "on", ">CHANGE-ME", "-@all", "+select", "+wait", "+asking", "+ssubscribe", "+spublish", "+cluster|shards", "+cluster|slots", "+cluster|myid"}
	require.ElementsMatch(t, slices.Concat(more, permittedKeys, permittedCommands), strings.Fields(string(b)))

	old := rt.Must(os.ReadFile(filepath.Join("..", "acl", "members-6.2.acl")))(t)
	require.Equal(t, strings.Replace(string(b), " +ssubscribe +spublish", "", 1), string(old), "what Redis 6.2 does not know, and nothing else")
}

func TestNoPermissionIsListedThatIsNotNeeded(t *testing.T) {
	t.Parallel()
	called := map[string]bool{}
	for _, source := range append(redlock.Scripts(), node.GuardScripts()...) {
		for _, m := range regexp.MustCompile(`(?:redis\.p?call|ask)\('(\w+)'`).FindAllStringSubmatch(source, -1) {
			called["+"+strings.ToLower(m[1])] = true
		}
	}
	for _, name := range permittedCommands[:11] { // sent by a connection
		if name != "+info" { // which a look calls as well
			require.NotContains(t, called, name)
		}
		called[name] = true
	}
	for _, name := range permittedCommands {
		require.Contains(t, called, name)
		delete(called, name)
	}
	delete(called, "+spublish") // in a cluster only, where the shipped rules have it
	require.Empty(t, called, "used by a script and not listed")
}

// doTagged executes a script at one member, as a round would.
func doTagged(ctx context.Context, m member.Member, cmd member.Command) (member.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	done := make(chan *member.Call, 1)
	m.Submit(&member.Call{Command: cmd, Sink: sinkFunc(func(c *member.Call) { done <- c })})
	select {
	case c := <-done:
		return c.Reply, c.Err
	case <-ctx.Done():
		return member.Reply{}, errors.New("no answer")
	}
}

type sinkFunc func(*member.Call)

func (f sinkFunc) Done(c *member.Call) { f(c) }

// What "redlock doctor" calls critical is said by Open, too: nobody else looks before the first lock is evicted, or refused.
func TestOpenWarnsOfAMemberThatMayEvictLocksOrIsFull(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"level=ERROR.* maxmemory_policy=allkeys-lru": {"--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"},
		"level=WARN.*member is full":                 {"--maxmemory", "1", "--maxmemory-policy", "noeviction"},
	} {
		cluster := rt.RealWith(t, 1, redistest.RealConfig{Args: args})
		var log transcript
		c := rt.Must(redlock.OpenWith(t.Context(), urls(cluster), redlock.WithLogger(log.logger()), patient))(t)
		require.Eventually(t, func() bool { return regexp.MustCompile(says).MatchString(log.String()) }, time.Minute, time.Millisecond, says)
		require.NoError(t, c.Close())
	}
}

// A cluster votes while any of its masters does: which part of it does not, and until when, must be told.
// Cost: 2 s, of the servers of a cluster.
func TestPartOfAClusterThatDoesNotVoteIsTold(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	ctx := rt.Within(t, 2*time.Minute)
	s := rt.Must(redistest.StartSharded(ctx, redistest.ShardedConfig{Masters: 2, NodeTimeout: 20 * time.Second}))(t)
	t.Cleanup(func() { _ = s.Close() })
	plain := redistest.NewEmbedded()
	t.Cleanup(func() { _ = plain.Close() })
	require.NoError(t, plain.ServeTCP("127.0.0.1:0"))
	urls := []string{"redis-cluster://" + strings.Join(s.Addrs(), ",") + "?failover_lag=1m", "redis://" + plain.Addr()}
	c, err := redlock.OpenWith(ctx, urls, patient, func(c *redlock.Config) {
		c.PingInterval, c.DialTimeout, c.StallTimeout = 100*time.Millisecond, 30*time.Second, 30*time.Second
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	await := func(what string, ok func(m redlock.MemberInfo) bool) redlock.MemberInfo {
		t.Helper()
		var m redlock.MemberInfo
		for start := time.Now(); !ok(m); time.Sleep(time.Millisecond) {
			require.Less(t, time.Since(start), time.Minute, what)
			m = c.Members()[0]
		}
		require.Zero(t, c.Members()[1].Silent, "one server has no parts")
		return m
	}
	await("all vote", func(m redlock.MemberInfo) bool { return m.State == redlock.MemberVoting && m.Silent == 0 })

	flushed := time.Now()
	require.NoError(t, rt.Err(s.Servers[0].Do(ctx, "FLUSHALL")))
	m := await("one master forgot", func(m redlock.MemberInfo) bool { return m.Silent > 0 && m.Until.After(time.Now()) })
	require.Equal(t, redlock.MemberVoting, m.State, "it votes for the locks of the other master")
	require.Equal(t, slot.Count/2, m.Silent)
	require.Equal(t, rt.As[*member.QuarantineError](t, m.Err).Until, m.Until)
	require.ErrorContains(t, m.Err, s.Servers[0].Addr())
	const long = 30*time.Second + time.Minute // MaxTTL and failover_lag
	ends := func(at time.Time) {
		t.Helper()
		require.WithinRange(t, at, flushed.Add(long-time.Second), time.Now().Add(long+time.Second))
	}
	ends(m.Until)
	names := [2]string{}
	for i := 0; names[0] == "" || names[1] == ""; i++ {
		name := "lock" + string(rune('a'+i))
		names[int(slot.Of(name))*2/slot.Count] = name
	}
	for i, want := range []string{redlock.MemberQuarantined, redlock.MemberVoting} {
		require.Equal(t, want, rt.Must(c.Inspect(ctx, names[i]))(t).Members[0].State, "for a lock of master %d", i)
	}

	s.Servers[1].Kill()
	m = await("the other master is down", func(m redlock.MemberInfo) bool {
		return m.Silent == slot.Count && m.State == redlock.MemberQuarantined // each is told when it is known
	})
	ends(m.Until) // each look at the server tells it anew

	s.Servers[0].Kill()
	m = await("nobody is left", func(m redlock.MemberInfo) bool {
		return m.State == redlock.MemberDown && m.Silent == slot.Count && m.Until.IsZero()
	})
	require.NotErrorIs(t, m.Err, redlock.ErrQuarantined)
}

// Who may not subscribe cannot be told of a lock that is handed over: a Lock that has to wait says so, and at once, and
// what does not wait works.
func TestUserWhoMayNotSubscribeIsTold(t *testing.T) {
	t.Parallel()
	r := rt.Real(t, 1).Servers[0].(*redistest.Real)
	redlock.Admin(t, r, "ACL", "SETUSER", "locker", "on", ">secret", "~*", "&*", "+@all", "-subscribe")
	c := opened(t, []string{"redis://locker:secret@" + r.Addr()}, patient, func(c *redlock.Config) { c.NoQuorumAfter = time.Hour })
	held := rt.Must(c.Mutex("name").TryLock(t.Context()))(t)
	_, err := c.Mutex("name").Lock(ending(t))
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "SUBSCRIBE")
	require.ErrorContains(t, err, "NOPERM")
	require.NotContains(t, err.Error(), "secret")
	m := c.Members()[0]
	require.Equal(t, redlock.MemberVoting, m.State)
	require.ErrorContains(t, m.Err, "NOPERM")
	require.NoError(t, held.Unlock(t.Context()))
}

// vault has the password of each member, and counts who asks.
type vault struct {
	mu        sync.Mutex
	passwords map[string]string
	asked     map[string]int
}

func (v *vault) give(_ context.Context, member string) (user, password string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked[member]++
	return "", v.passwords[member], nil
}

func (v *vault) count(member string) int { v.mu.Lock(); defer v.mu.Unlock(); return v.asked[member] }

// rotation is members whose password changes under callers that go on.
type rotation struct {
	*testing.T
	*vault
	cluster *redistest.Cluster
	admins  []*redistest.Client // connections that stay when the password changes
	client  *redlock.Client
	callers sync.WaitGroup
	stop    chan struct{}
}

func (r *rotation) do(i int, args ...string) any {
	r.Helper()
	return rt.Must(r.admins[i].Do(r.Context(), args...))(r)
}

func (r *rotation) connections(i int) (n int) {
	r.Helper()
	_, rest, _ := strings.Cut(r.do(i, "INFO", "stats").(string), "total_connections_received:")
	require.NoError(r, rt.Err(fmt.Sscan(rest, &n)))
	return n
}

func (r *rotation) gives(i int, password string) {
	rt.Locked(&r.mu, func() { r.passwords[r.cluster.Servers[i].Addr()] = password })
}

// askedAgain waits until the provider was asked so often after a change, and until all members vote.
func (r *rotation) askedAgain(i, times int, change func()) {
	r.Helper()
	name := r.cluster.Servers[i].Addr()
	before := r.count(name)
	change()
	rests := func(m redlock.MemberInfo) bool { return m.State != redlock.MemberVoting }
	require.Eventually(r, func() bool {
		return r.count(name) >= before+times && !slices.ContainsFunc(r.client.Members(), rests)
	}, time.Minute, time.Millisecond, "%v", r.client.Members())
}

// A member's password changes and its connections are ended, one member after the other: no lease is lost. Then the
// password of all changes again and again, and no connection is replaced for that: each is authenticated anew.
func TestPasswordsThatChangeCostNoLease(t *testing.T) {
	t.Parallel()
	r := &rotation{T: t, cluster: rt.Real(t, 3), stop: make(chan struct{})}
	r.vault = &vault{passwords: map[string]string{}, asked: map[string]int{}}
	var urls []string
	for i, s := range r.cluster.Servers {
		admin := rt.Must(redistest.DialClient(t.Context(), s.Dialer(), s.Addr()))(t)
		t.Cleanup(func() { admin.Close() })
		urls, r.admins = append(urls, "redis://:not-this-one@"+s.Addr()), append(r.admins, admin)
		r.do(i, "ACL", "SETUSER", "default", "resetpass", ">first")
		r.gives(i, "first")
	}
	r.client = opened(t, urls, patient, func(c *redlock.Config) {
		c.Credentials, c.CredentialsEvery, c.NoQuorumAfter, c.StallTimeout = r.give, 100*time.Millisecond, -1, 30*time.Second
	})
	settle(t, 3, r.client)
	held := locked(t, r.client, "held")
	for n := range 8 {
		r.callers.Go(func() {
			for {
				select {
				case <-r.stop:
					return
				default:
				}
				l, err := r.client.Mutex(fmt.Sprint("k", n)).Lock(t.Context())
				if !assert.NoError(t, err) {
					return
				}
				// A connection that ends under a release leaves it in doubt, and the client delivers it later.
				if err := l.Unlock(t.Context()); !errors.Is(err, redlock.ErrInDoubt) && !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	for i := range r.admins {
		was, ended := r.connections(i), 0
		r.askedAgain(i, 1, func() {
			r.gives(i, "second")
			r.do(i, "ACL", "SETUSER", "default", "resetpass", ">second")
			for _, kind := range []string{"normal", "pubsub"} {
				ended += int(r.do(i, "CLIENT", "KILL", "TYPE", kind).(int64))
			}
		})
		require.Eventually(t, func() bool { return r.connections(i) >= was+ended }, time.Minute, time.Millisecond, "each is dialled again")
	}

	connections := func() (n int) {
		for i := range r.admins {
			n += r.connections(i)
		}
		return n
	}
	before, old := connections(), "second"
	for _, password := range []string{"third", "fourth", "fifth"} {
		for i := range r.admins { // both are good until nobody asks for the old one any more, as it is done in production
			r.do(i, "ACL", "SETUSER", "default", ">"+password)
			r.gives(i, password)
		}
		for i := range r.admins { // twice: one question may have been answered before the change
			r.askedAgain(i, 2, func() {})
		}
		for i := range r.admins {
			r.do(i, "ACL", "SETUSER", "default", "<"+old)
		}
		old = password
	}
	close(r.stop)
	r.callers.Wait()
	require.Equal(t, before, connections(), "no connection was replaced")
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}

// A client at rest looks at its members seldom. An AUTH that one of them does not answer is noticed all the same.
func TestMemberThatDoesNotAnswerToAuthIsNoticedAtRest(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		var password atomic.Value
		password.Store("pw")
		urls, ways := meshed(cluster)
		for i := range cluster.Len() {
			cluster.Embedded(i).Require("pw")
		}
		c, err := redlock.OpenWith(t.Context(), urls, ways, redlock.WithFreshMembers(), func(c *redlock.Config) {
			c.PingInterval, c.StallTimeout, c.CredentialsEvery = time.Minute, 2*time.Second, 4*time.Minute
			c.Credentials = func(context.Context, string) (string, string, error) { return "", password.Load().(string), nil }
		})
		require.NoError(t, err)
		defer c.Close()
		time.Sleep(3 * time.Minute)
		password.Store("not that of these members, which refuse it")
		cluster.Pause(1)
		time.Sleep(time.Minute + 3*time.Second)
		require.Equal(t, redlock.MemberDown, c.Members()[1].State)
		require.Equal(t, redlock.MemberVoting, c.Members()[0].State)
		cluster.Resume(1)
	})
}
