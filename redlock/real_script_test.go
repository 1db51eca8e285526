package redlock

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The scripts' own text, against what the protocol says that they reply and leave behind: one table,
// run on a real server and on the embedded one that the tests in fake time stand on.
func TestScriptsDoWhatTheProtocolSays(t *testing.T) {
	everyCase(t, false)
}

// everyCase runs the table. joined: acquires and releases travel in a batch.
func everyCase(t *testing.T, joined bool) {
	onServers(t, func(t *testing.T, server redistest.Server, acl bool) {
		for _, c := range scriptCases {
			if c.acl && !acl {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				require.NoError(t, server.Flush())
				s := newScripted(t, server)
				s.joined = joined
				c.test(s)
			})
		}
	})
}

// onServers runs a test on the embedded server, which has no ACL, and on a real one.
func onServers(t *testing.T, test func(t *testing.T, server redistest.Server, acl bool)) {
	t.Run("embedded", func(t *testing.T) { test(t, rt.Embedded(t, 1).Servers[0], false) })
	t.Run("real", func(t *testing.T) { test(t, rt.Real(t, 1).Servers[0], true) })
}

// denied is what an ACL says in a script; the second is that of 7.2 and later.
const denied = "can't run this command|has no permissions to run the '[a-z]+' command"

// A server that refuses to write ends the script. One that went on would meet an entry that it cannot remove for
// ever, and nobody could use that server any more.
func TestScriptEndsWhereTheServerRefusesToWrite(t *testing.T) {
	for _, refusal := range []struct {
		name, says string
		begin, end []string
	}{
		{"too few replicas", "NOREPLICAS", []string{"CONFIG", "SET", "min-replicas-to-write", "1"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		{"no permission for ZREM", denied, []string{"ACL", "SETUSER", "default", "-zrem"}, []string{"ACL", "SETUSER", "default", "+zrem"}},
		{"no permission for ZRANGE", denied, []string{"ACL", "SETUSER", "default", "-zrange"}, []string{"ACL", "SETUSER", "default", "+zrange"}},
	} {
		ends := func(t *testing.T, sharded bool) {
			s := newScripted(t, rt.Real(t, 1).Servers[0])
			s.take(alice, minute)
			s.line(bob, minute, minute)
			s.line(carol, minute, minute)
			s.ask("HSET", waitersOf(s.Name), bob, "1 60000") // it has run out
			s.ask(refusal.begin...)
			release := s.Release(nil, alice, "")
			if sharded { // the slot's counters are the marker's key
				release.Cmd = bytes.Replace(release.Cmd, []byte("$14\r\n"+member.MarkerKey), []byte("$16\r\n"+member.TokensKey), 1)
			}
			_, err := s.run(release)
			require.Regexp(t, refusal.says, err)
			s.ask(refusal.end...)
			require.Equal(t, int64(1), s.number(s.Release(nil, alice, "")))
			require.Equal(t, []string{carol}, slices.Collect(maps.Keys(s.hash(s.Name))))
		}
		t.Run(refusal.name, func(t *testing.T) { ends(t, false) })
		t.Run(refusal.name+", at a master", func(t *testing.T) { ends(t, true) })
	}
}

// Where replicas must have a vote before it counts, WAIT follows the call. From Redis 7.2 on it waits for what the
// connection itself has written: what it is only told may be known to no replica. So whatever says "yours" writes, also
// where the lock lives longer than was asked for.
func TestWhoIsToldThatALockIsItsHasWritten(t *testing.T) {
	server := rt.Real(t, 1).Servers[0]
	for _, interop := range []bool{false, true} {
		s := newScripted(t, server)
		s.Lock = (&Config{Interop: interop}).lockOf(s.Name)
		for _, source := range (Config{Interop: interop}).scripts() {
			s.ask("SCRIPT", "LOAD", source)
		}
		token := s.take(alice, 2*minute)
		extend := s.Extend(nil, alice, minute)
		for name, cmd := range map[string]member.Command{
			"acquire": s.Acquire(nil, alice, minute),
			"wait":    s.Wait(nil, alice, minute, minute),
			"extend":  extend,
			"rejoin":  s.Rejoin(nil, alice, minute, token),
			"raise":   s.Raise(nil, alice, token),
		} {
			before := s.changes()
			_, err := s.run(cmd)
			require.NoError(t, err, name)
			require.Greater(t, s.changes(), before, "%s, interop %v", name, interop)
			s.lives(s.Name, 2*minute)
		}
		before := s.changes()
		require.Positive(t, s.list(s.Yield(nil, alice, token, minute, minute))[0])
		require.Greater(t, s.changes(), before)
		require.NoError(t, server.Flush())
	}
}

// changes is how much the server has written since it saved its data.
func (s *scripted) changes() int {
	s.Helper()
	_, found, ok := strings.Cut(s.ask("INFO", "persistence").(string), "rdb_changes_since_last_save:")
	require.True(s, ok)
	n, err := strconv.Atoi(strings.Fields(found)[0])
	require.NoError(s, err)
	return n
}

const (
	alice = "AAAA:1" // owners, and the inboxes AAAA, BBBB, CCCC
	bob   = "BBBB:2"
	carol = "CCCC:3"

	second = time.Second
	minute = time.Minute // lives longer than any test
)

// scripted is one lock at one server, asked as a member would ask.
type scripted struct {
	*testing.T
	server redistest.Server
	c      *redistest.Client
	inbox  *redistest.Client // hears every client's
	script.Lock
	tag    string // marker id in every call
	joined bool   // acquire and release travel in a batch

	sharded bool // as at a master of a cluster
}

func newScripted(t *testing.T, server redistest.Server) *scripted {
	s := &scripted{T: t, server: server, Lock: script.Exclusive("invoice:42")}
	s.c, s.inbox = s.dial(), s.dial()
	for _, source := range Scripts() {
		s.ask("SCRIPT", "LOAD", source)
	}
	_, err := s.inbox.Do(t.Context(), "PSUBSCRIBE", script.Inbox("*"))
	require.NoError(t, err)
	return s
}

func (s *scripted) dial() *redistest.Client {
	s.Helper()
	c, err := redistest.DialClient(s.Context(), s.server.Dialer(), s.server.Addr())
	require.NoError(s, err)
	s.Cleanup(func() { _ = c.Close() })
	return c
}

// ask executes a plain command.
func (s *scripted) ask(args ...string) any {
	s.Helper()
	v, err := s.c.Do(s.Context(), args...)
	require.NoError(s, err)
	return v
}

// run executes a script as the node does: it adds the marker id.
func (s *scripted) run(cmd member.Command) (any, error) {
	s.Helper()
	whole, reply := s.tagged(cmd, s.tag)
	_, err := s.c.Conn().Write(whole)
	require.NoError(s, err)
	v, err := s.c.ReceiveFor(10 * time.Second)
	require.NoError(s, err)
	v = reply(v)
	if e, ok := v.(redistest.Error); ok {
		return nil, e
	}
	return v, nil
}

func (s *scripted) number(cmd member.Command) int64 {
	s.Helper()
	v, err := s.run(cmd)
	require.NoError(s, err)
	require.IsType(s, int64(0), v)
	return v.(int64)
}

func (s *scripted) list(cmd member.Command) []any {
	s.Helper()
	v, err := s.run(cmd)
	require.NoError(s, err)
	require.IsType(s, []any{}, v)
	return v.([]any)
}

// fails runs a script that must reply with an error beginning so, and leave everything as it was.
func (s *scripted) fails(code string, cmd member.Command) {
	s.Helper()
	before := s.state()
	_, err := s.run(cmd)
	require.Error(s, err)
	require.Regexp(s, "^(ERR .*)?"+code, err.Error())
	require.Equal(s, before, s.state(), "an error must leave nothing")
}

// get, try and the like are the calls that most cases need.
func (s *scripted) take(owner string, ttl time.Duration) int64 {
	s.Helper()
	return s.number(s.Acquire(nil, owner, ttl))
}

func (s *scripted) line(owner string, ttl, entry time.Duration) []any {
	s.Helper()
	return s.list(s.Wait(nil, owner, ttl, entry))
}

// now is the server's clock, µs.
func (s *scripted) now() int64 {
	s.Helper()
	v := s.ask("TIME").([]any)
	sec, err := strconv.ParseInt(v[0].(string), 10, 64)
	require.NoError(s, err)
	usec, err := strconv.ParseInt(v[1].(string), 10, 64)
	require.NoError(s, err)
	return sec*1_000_000 + usec
}

// past waits on the server's clock.
func (s *scripted) past(t int64) {
	s.Helper()
	s.until(func() bool { return s.now() > t })
}

// until asks again and again, in the goroutine of the test.
func (s *scripted) until(done func() bool) {
	s.Helper()
	for start := time.Now(); !done(); time.Sleep(time.Millisecond) {
		require.Less(s, time.Since(start), 10*time.Second)
	}
}

func (s *scripted) counter() string {
	s.Helper()
	v, _ := s.ask("HGET", member.TokensKey, strconv.FormatInt(s.Bucket, 10)).(string)
	return v
}

func (s *scripted) left(key string) time.Duration {
	s.Helper()
	return time.Duration(s.ask("PTTL", key).(int64)) * time.Millisecond
}

// lives checks a TTL: not more than d, and less only by what a busy machine takes.
func (s *scripted) lives(key string, d time.Duration) {
	s.Helper()
	left := s.left(key)
	require.LessOrEqual(s, left, d, key)
	require.Greater(s, left, d-20*second, key)
}

func (s *scripted) hash(key string) map[string]string {
	s.Helper()
	list, _ := s.ask("HGETALL", key).([]any)
	out := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		out[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return out
}

func (s *scripted) waitersInOrder() []string {
	s.Helper()
	out := []string{}
	for _, v := range s.ask("ZRANGE", queueOf(s.Name), "0", "-1").([]any) {
		out = append(out, v.(string))
	}
	registered := make([]string, 0)
	for owner := range s.hash(waitersOf(s.Name)) {
		if owner[0] != '!' { // of a lock taken by force
			registered = append(registered, owner)
		}
	}
	sorted := slices.Clone(out)
	sort.Strings(sorted)
	sort.Strings(registered)
	require.Equal(s, sorted, registered, "queue and waiters name the same owners")
	if queue := s.left(queueOf(s.Name)); len(out) > 0 { // looked at first
		require.LessOrEqual(s, s.left(waitersOf(s.Name)), queue+time.Millisecond, "waiters outlives the queue")
	}
	return out
}

// state is everything that the server has.
func (s *scripted) state() map[string]string {
	s.Helper()
	out := map[string]string{}
	for _, k := range s.ask("KEYS", "*").([]any) {
		key := k.(string)
		switch kind := s.ask("TYPE", key).(string); kind {
		case "hash":
			out[key] = fmt.Sprint(s.hash(key))
		case "zset":
			out[key] = fmt.Sprint(s.ask("ZRANGE", key, "0", "-1", "WITHSCORES"))
		case "string":
			out[key] = s.ask("GET", key).(string)
		case "none": // it has run out since
			continue
		default:
			s.Fatalf("%s is a %s", key, kind)
		}
		if s.ask("PTTL", key).(int64) < 0 {
			out[key] += " for ever"
		}
	}
	return out
}

// hears expects exactly these messages next, each in its client's inbox.
func (s *scripted) hears(messages ...string) {
	s.Helper()
	for _, want := range append(messages, "end of test") {
		if want == "end of test" { // no message of a script stands before one that is sent now
			s.ask("PUBLISH", script.Inbox("end"), want)
		}
		v, err := s.inbox.ReceiveFor(10 * time.Second)
		require.NoError(s, err)
		got := v.([]any)
		require.Equal(s, want, got[3])
		client := "end"
		if want != "end of test" {
			client = want[2:6] // "g AAAA:1 …", "w AAAA:1 …"
		}
		require.Equal(s, script.Inbox(client), got[2])
	}
}

func (s *scripted) token(owner string) int64 {
	s.Helper()
	n, err := strconv.ParseInt(s.hash(s.Name)[owner], 10, 64)
	require.NoError(s, err, "%s holds nothing", owner)
	return n
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

// byHash puts owners in the order in which a yield prefers them.
func byHash(owners ...string) []string {
	slices.SortFunc(owners, func(x, y string) int {
		a, b := sha1.Sum([]byte(x)), sha1.Sum([]byte(y))
		return slices.Compare(a[:], b[:])
	})
	return owners
}

type scriptCase struct {
	name string
	test func(s *scripted)
	acl  bool // needs a server with an ACL
}

var scriptCases = slices.Concat(acquireCases, waitCases, releaseCases, yieldCases, renewCases, adminCases)

var acquireCases = []scriptCase{
	{name: "acquire of a free lock grants with the TTL, and the first token of a bucket is the server's time", test: func(s *scripted) {
		before := s.now()
		token := s.take(alice, minute)
		require.GreaterOrEqual(s, token, before)
		require.LessOrEqual(s, token, s.now())
		require.Equal(s, map[string]string{alice: text(token)}, s.hash(s.Name))
		require.Equal(s, text(token), s.counter())
		s.lives(s.Name, minute)
		require.Len(s, s.state(), 2, "the lock and the counters, nothing else")
	}},
	{name: "acquire counts on by one in a bucket that is known", test: func(s *scripted) {
		first := s.take(alice, minute)
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
		require.Equal(s, first+1, s.take(bob, minute))
	}},
	{name: "acquire by the holder repeats its token and lengthens the TTL", test: func(s *scripted) {
		token := s.take(alice, minute)
		require.Equal(s, token, s.take(alice, 2*minute))
		s.lives(s.Name, 2*minute)
		require.Equal(s, text(token), s.counter(), "no double count")
	}},
	{name: "acquire by the holder never shortens the TTL", test: func(s *scripted) {
		token := s.take(alice, 2*minute)
		require.Equal(s, token, s.take(alice, second))
		s.lives(s.Name, 2*minute)
	}},
	{name: "acquire of another's lock replies minus its PTTL and writes nothing", test: func(s *scripted) {
		s.take(alice, minute)
		before := s.state()
		left := s.take(bob, 2*minute)
		require.Less(s, left, int64(0))
		require.GreaterOrEqual(s, left, -minute.Milliseconds())
		require.Less(s, left, -(minute - 20*second).Milliseconds())
		require.Equal(s, before, s.state())
		s.lives(s.Name, minute)
	}},
	{name: "acquire of a key without TTL is FOREIGN", test: func(s *scripted) {
		s.ask("HSET", s.Name, "somebody", "1")
		s.fails("FOREIGN no ttl", s.Acquire(nil, alice, minute))
		s.ask("DEL", s.Name)
		s.ask("SET", s.Name, "data")
		s.fails("FOREIGN no ttl", s.Acquire(nil, alice, minute))
	}},
	{name: "acquire of a key of another type is WRONGTYPE", test: func(s *scripted) {
		s.ask("SET", s.Name, "data", "PX", "60000")
		s.fails("WRONGTYPE", s.Acquire(nil, alice, minute))
	}},
	{name: "acquire in a new bucket with another marker id is FORGOT", test: func(s *scripted) {
		s.tag = "run 1"
		s.fails("FORGOT marker", s.Acquire(nil, alice, minute))
		s.ask("HSET", member.MarkerKey, "id", "run 2")
		s.fails("FORGOT marker", s.Acquire(nil, alice, minute))
		s.ask("HSET", member.TokensKey, "other", "7") // other buckets stay
		s.fails("FORGOT marker", s.Acquire(nil, alice, minute))
		s.tag = "run 2"
		require.Positive(s, s.take(alice, minute))
	}},
	{name: "a token that ends in zeros is written in full, by acquire, wait, release and yield", test: func(s *scripted) {
		const hundred = 100_000_000_000_000
		next := func(n int64) int64 {
			s.ask("HSET", member.TokensKey, text(s.Bucket), text(n*hundred-1))
			return n * hundred
		}
		order := byHash(alice, bob)
		n := next(17)
		require.Equal(s, n, s.take(order[0], minute))
		require.Equal(s, n, s.token(order[0]))
		s.line(order[1], minute, minute)
		n = next(18)
		require.EqualValues(s, 1, s.number(s.Release(nil, order[0], "")))
		require.Equal(s, n, s.token(order[1]))
		require.EqualValues(s, 1, s.number(s.Release(nil, order[1], "")))
		n = next(19)
		require.Equal(s, n, s.line(order[0], minute, minute)[0])
		require.Equal(s, n, s.token(order[0]))
		yielded := n
		n = next(20)
		require.Equal(s, n, s.list(s.Yield(nil, order[0], yielded, minute, minute))[0])
		require.Equal(s, n, s.token(order[0]))
	}},
	{name: "acquire in a known bucket does not look at the marker", test: func(s *scripted) {
		s.tag = "run 1"
		s.ask("HSET", member.TokensKey, text(s.Bucket), "41")
		require.EqualValues(s, 42, s.take(alice, minute))
	}},
	{name: "acquire without a marker id checks none", test: func(s *scripted) {
		s.ask("HSET", member.MarkerKey, "id", "run 2")
		require.Positive(s, s.take(alice, minute))
	}},
	{name: "a token of sixteen digits stays exact", test: func(s *scripted) {
		s.ask("HSET", member.TokensKey, text(s.Bucket), "9007199254740990") // 2^53 - 2
		require.EqualValues(s, 9007199254740991, s.take(alice, minute))
		require.Equal(s, map[string]string{alice: "9007199254740991"}, s.hash(s.Name))
	}},
	{name: "no token is 2^53 or above: where numbers are not exact any more, acquire, wait and yield say so and grant nothing", test: func(s *scripted) {
		order := byHash(alice, bob)
		set := func(n string) { s.ask("HSET", member.TokensKey, text(s.Bucket), n) }
		for _, n := range []string{"9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775000"} {
			set(n)
			s.fails("EXHAUSTED tokens", s.Acquire(nil, alice, minute))
			s.fails("EXHAUSTED tokens", s.Wait(nil, alice, minute, minute))
			require.EqualValues(s, 1, s.number(s.Rejoin(nil, order[0], minute, 5)))
			s.fails("EXHAUSTED tokens", s.Yield(nil, order[0], 5, minute, minute))
			s.line(order[1], minute, minute)
			s.hears("w " + order[0] + " " + order[1])
			require.EqualValues(s, 1, s.number(s.Release(nil, order[0], "")), "freed, and handed over to nobody")
			require.Empty(s, s.hash(s.Name))
			require.Equal(s, []string{order[1]}, s.waitersInOrder(), "who waits is told when it asks")
			require.Equal(s, n, s.counter())
			require.EqualValues(s, 1, s.number(s.Rejoin(nil, order[1], minute, 5)))
			s.line(order[0], minute, minute)
			_, err := s.run(s.Yield(nil, order[1], 5, minute, minute))
			require.ErrorContains(s, err, "EXHAUSTED tokens")
			require.Empty(s, s.hash(s.Name))
			require.Equal(s, n, s.counter())
			s.hears("w " + order[1] + " " + order[0])
			s.ask("DEL", queueOf(s.Name), waitersOf(s.Name))
		}
		set("9007199254740990")
		require.EqualValues(s, 1<<53-1, s.take(alice, minute))
	}},
}

var waitCases = []scriptCase{
	{name: "wait for a free lock grants and tells time and head", test: func(s *scripted) {
		before := s.now()
		got := s.line(alice, minute, 3*second)
		token := s.token(alice)
		require.Equal(s, token, got[0])
		require.GreaterOrEqual(s, got[1], before)
		require.LessOrEqual(s, got[1], s.now())
		require.Equal(s, "-", got[2])
		s.lives(s.Name, minute)
		require.Empty(s, s.waitersInOrder())
		s.hears()
	}},
	{name: "wait for another's lock registers, and announces the waiter once", test: func(s *scripted) {
		s.take(alice, minute)
		before := s.now()
		got := s.line(bob, 20*second, 30*second)
		require.Less(s, got[0], int64(0))
		require.GreaterOrEqual(s, got[0], -minute.Milliseconds())
		require.Equal(s, "-", got[2])
		now := got[1].(int64)
		require.GreaterOrEqual(s, now, before)
		require.Equal(s, []string{bob}, s.waitersInOrder())
		require.Equal(s, text(now), s.ask("ZSCORE", queueOf(s.Name), bob))
		require.Equal(s, map[string]string{bob: text(now/1000+30_000) + " 20000"}, s.hash(waitersOf(s.Name)))
		s.lives(queueOf(s.Name), minute+time.Millisecond) // twice the entry
		s.lives(waitersOf(s.Name), minute+time.Millisecond)
		s.hears("w " + alice + " " + bob)

		s.past(now + 1000)
		again := s.line(bob, 10*second, 20*second)[1].(int64) // the heartbeat
		require.Greater(s, again, now)
		require.Equal(s, text(now), s.ask("ZSCORE", queueOf(s.Name), bob), "its place is that of the first registration")
		require.Equal(s, map[string]string{bob: text(again/1000+20_000) + " 10000"}, s.hash(waitersOf(s.Name)))
		require.Greater(s, s.left(queueOf(s.Name)), 40*second, "never shortened")
		require.Greater(s, s.left(waitersOf(s.Name)), 40*second)
		s.line(bob, 10*second, minute)
		s.lives(queueOf(s.Name), 2*minute+time.Millisecond)
		s.lives(waitersOf(s.Name), 2*minute+time.Millisecond)
		s.hears()
	}},
	{name: "the queue lives as long as waiters, whoever lengthened that: no entry is left without a place", test: func(s *scripted) {
		s.take(alice, minute)
		s.number(s.Force(nil, "", 10*minute))
		s.take(alice, minute)
		s.line(bob, second, second) // after a force
		s.waitersInOrder()
		s.lives(queueOf(s.Name), 10*minute+time.Millisecond)
		s.number(s.Force(nil, script.Hash([]byte(carol)), 20*minute)) // before one
		s.waitersInOrder()
		s.line(carol, minute, 20*minute)
		s.line(bob, second, second) // by the entry of another
		s.waitersInOrder()
		s.number(s.Force(nil, script.Hash([]byte(carol)), second)) // never shortened
		s.waitersInOrder()
		s.lives(queueOf(s.Name), 40*minute+time.Millisecond)
	}},
	{name: "wait takes no token while the lock is another's", test: func(s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		require.Equal(s, text(token), s.counter())
		require.Equal(s, []string{bob, carol}, s.waitersInOrder())
		s.hears("w "+alice+" "+bob, "w "+alice+" "+carol)
	}},
	{name: "wait removes entries that have run out from a long queue, and leaves a short one alone", test: func(s *scripted) {
		s.take(alice, minute)
		for n := range 8 {
			s.line(script.OwnerOf("DEAD", uint64(n)), minute, minute)
			s.ask("HSET", waitersOf(s.Name), script.OwnerOf("DEAD", uint64(n)), "1 60000")
		}
		s.ask("HSET", waitersOf(s.Name), script.OwnerOf("DEAD", 5), text(s.now()/1000+60_000)+" 60000") // but for this one
		s.ask("ZREM", queueOf(s.Name), script.OwnerOf("DEAD", 7))
		s.ask("HDEL", waitersOf(s.Name), script.OwnerOf("DEAD", 7))
		for range 50 {
			s.line(bob, minute, minute)
		}
		require.Len(s, s.waitersInOrder(), 8)
		for range 5000 {
			if s.line(carol, minute, minute); len(s.waitersInOrder()) <= 8 {
				break
			}
		}
		require.LessOrEqual(s, len(s.waitersInOrder()), 8)
		require.Contains(s, s.waitersInOrder(), script.OwnerOf("DEAD", 5))
		require.Contains(s, s.waitersInOrder(), bob)
		require.Contains(s, s.waitersInOrder(), carol)
	}},
	{name: "wait removes what is over of a force and of a queue that has ended, and nothing else", test: func(s *scripted) {
		s.take(alice, minute)
		s.number(s.Force(nil, script.Hash([]byte(carol)), minute))
		for n := range 9 {
			s.ask("HSET", waitersOf(s.Name), script.OwnerOf("DEAD", uint64(n)), "1 60000")
			s.ask("HSET", waitersOf(s.Name), "!"+script.Hash([]byte(script.OwnerOf("DEAD", uint64(n)))), "1")
		}
		for range 20000 {
			if s.line(bob, minute, minute); len(s.hash(waitersOf(s.Name))) <= 8 {
				break
			}
		}
		left := s.hash(waitersOf(s.Name))
		require.Len(s, left, 2)
		require.Contains(s, left, bob)
		require.Contains(s, left, "!"+script.Hash([]byte(carol)))
		require.Equal(s, []string{bob}, s.waitersInOrder())
	}},
	{name: "wait announces nobody to a holder without an inbox", test: func(s *scripted) {
		s.take("somebody else", minute)
		s.line(bob, minute, minute)
		s.hears()
	}},
	{name: "wait by the holder repeats its token, lengthens the TTL and leaves the queue", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
		s.ask("ZADD", queueOf(s.Name), "1", bob) // as if it had registered again
		s.ask("HSET", waitersOf(s.Name), bob, "1 1")
		got := s.line(bob, 2*minute, minute)
		require.Equal(s, []any{s.token(bob), got[1], carol}, got)
		s.lives(s.Name, 2*minute)
		require.Equal(s, []string{carol}, s.waitersInOrder())
		s.line(bob, second, minute)
		require.Greater(s, s.left(s.Name), minute, "never shortened")
	}},
	{name: "wait after the lease has ended grants to whoever asks first, and names the head", test: func(s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		require.EqualValues(s, 1, s.ask("PEXPIRE", s.Name, "5"))
		s.until(func() bool { return s.left(s.Name) < 0 })
		got := s.line(carol, minute, minute)
		require.Equal(s, []any{token + 1, got[1], bob}, got)
		require.Equal(s, []string{bob}, s.waitersInOrder())
	}},
	{name: "wait at a key that is no lock registers nobody", test: func(s *scripted) {
		s.ask("HSET", s.Name, "somebody", "1")
		s.fails("FOREIGN no ttl", s.Wait(nil, alice, minute, minute))
		s.ask("DEL", s.Name)
		s.ask("SET", s.Name, "data", "PX", "60000")
		s.fails("WRONGTYPE", s.Wait(nil, alice, minute, minute))
		s.hears()
	}},
	{name: "wait in a new bucket with another marker id is FORGOT", test: func(s *scripted) {
		s.tag = "run 1"
		s.fails("FORGOT marker", s.Wait(nil, alice, minute, minute))
		s.ask("HSET", member.MarkerKey, "id", "run 1")
		require.Positive(s, s.line(alice, minute, minute)[0])
	}},
}

var releaseCases = []scriptCase{
	{name: "release by the holder frees the lock", test: func(s *scripted) {
		token := s.take(alice, minute)
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
		require.Equal(s, map[string]string{member.TokensKey: fmt.Sprint(map[string]string{text(s.Bucket): text(token)}) + " for ever"}, s.state())
		require.EqualValues(s, 0, s.number(s.Release(nil, alice, "")))
	}},
	{name: "release by another frees nothing", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		before := s.state()
		require.EqualValues(s, 0, s.number(s.Release(nil, carol, bob)))
		require.Equal(s, before, s.state())
		s.hears("w " + alice + " " + bob)
	}},
	{name: "release by a waiter gives up its place", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		require.EqualValues(s, 0, s.number(s.Release(nil, bob, "")))
		require.Equal(s, []string{carol}, s.waitersInOrder())
		require.EqualValues(s, 0, s.number(s.Release(nil, carol, "")))
		require.Len(s, s.state(), 2, "empty queues are gone")
		require.Equal(s, s.token(alice), s.take(alice, second))
		s.hears("w "+alice+" "+bob, "w "+alice+" "+carol, "x "+alice+" "+bob, "x "+alice+" "+carol)
	}},
	{name: "release by a waiter tells the holder, by no other and where nobody holds tells nobody", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		require.EqualValues(s, 0, s.number(s.Release(nil, "DDDD:4", "")), "it did not wait")
		require.EqualValues(s, 0, s.number(s.Release(nil, bob, "")))
		require.EqualValues(s, 0, s.number(s.Release(nil, bob, "")), "sent again")
		s.ask("DEL", s.Name)
		require.EqualValues(s, 0, s.number(s.Release(nil, carol, "")))
		s.hears("w "+alice+" "+bob, "w "+alice+" "+carol, "x "+alice+" "+bob)
	}},
	{name: "release hands over to the first of the queue for the TTL it asked, and tells it", test: func(s *scripted) {
		token := s.take(alice, 25*second)
		s.line(bob, 50*second, minute)
		s.line(carol, minute, minute)
		before := s.now()
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
		require.Equal(s, map[string]string{bob: text(token + 1)}, s.hash(s.Name))
		s.lives(s.Name, 50*second)
		require.Equal(s, []string{carol}, s.waitersInOrder())
		s.grantHeard(before, bob, token+1, carol, "w "+alice+" "+bob, "w "+alice+" "+carol)
		before = s.now()
		require.EqualValues(s, 1, s.number(s.Release(nil, bob, "")))
		require.Empty(s, s.waitersInOrder())
		s.grantHeard(before, carol, token+2, "-")
		require.EqualValues(s, 1, s.number(s.Release(nil, carol, "")))
		require.Len(s, s.state(), 1, "only the counters are left")
	}},
	{name: "release honours the hint", test: func(s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		before := s.now()
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, carol)))
		require.Equal(s, map[string]string{carol: text(token + 1)}, s.hash(s.Name))
		require.Equal(s, []string{bob}, s.waitersInOrder())
		s.grantHeard(before, carol, token+1, bob, "w "+alice+" "+bob, "w "+alice+" "+carol)
	}},
	{name: "release ignores a hint that does not wait here", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.number(s.Release(nil, alice, carol))
		require.Positive(s, s.token(bob))
	}},
	{name: "release skips and removes waiters whose entry has run out, the hint too", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(carol, minute, 20*time.Millisecond)
		s.line(bob, minute, minute)
		now := s.line("DDDD:4", minute, 20*time.Millisecond)[1].(int64)
		s.past(now + 50_000)
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "DDDD:4")))
		require.Positive(s, s.token(bob))
		require.Empty(s, s.waitersInOrder())
	}},
	{name: "release hands over for what remains of the waiter's entry, and tells how much that is", test: func(s *scripted) {
		token := s.take(alice, minute)
		at := s.line(bob, 50*second, 30*second)[1].(int64)
		before := s.now()
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
		require.Less(s, s.left(s.Name), 30*second+time.Millisecond)
		from := s.now() / 1000 // the end is read between two readings of the clock
		left := s.left(s.Name).Milliseconds()
		to := s.now() / 1000
		require.LessOrEqual(s, from+left, at/1000+30_000+2, "the grant ends where the entry would have")
		require.GreaterOrEqual(s, to+left, at/1000+30_000-2)
		require.Less(s, s.grantHeard(before, bob, token+1, "-", "w "+alice+" "+bob), 30*second+time.Millisecond)
	}},
	{name: "release passes over a waiter that has missed a heartbeat, be it the hint, for the first that has not", test: func(s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, 20*second) // less than half of its TTL remains of its entry
		s.line("DDDD:4", minute, 20*second)
		s.line(carol, minute, minute)
		before := s.now()
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "DDDD:4")))
		require.Equal(s, token+1, s.token(carol))
		require.Equal(s, []string{bob, "DDDD:4"}, s.waitersInOrder(), "who was passed over keeps its place")
		s.grantHeard(before, carol, token+1, bob, "w "+alice+" "+bob, "w "+alice+" DDDD:4", "w "+alice+" "+carol)
		require.EqualValues(s, 1, s.number(s.Release(nil, carol, "DDDD:4")))
		require.Equal(s, token+2, s.token(bob), "nobody else is there: the first in line, and not the hint")
		require.Equal(s, []string{"DDDD:4"}, s.waitersInOrder())
		s.lives(s.Name, 20*second)
	}},
	{name: "yield does not give to a waiter that has missed a heartbeat", test: func(s *scripted) {
		order := byHash(alice, bob, carol)
		token := s.take(order[2], minute)
		s.line(order[0], minute, 20*second)
		require.Equal(s, token+1, s.list(s.Yield(nil, order[2], token, minute, minute))[0])
		s.line(order[1], minute, 40*second)
		require.EqualValues(s, 0, s.list(s.Yield(nil, order[2], token+1, minute, minute))[0])
		require.Equal(s, token+2, s.token(order[1]))
		require.LessOrEqual(s, s.left(s.Name), 40*second)
		require.Equal(s, []string{order[0], order[2]}, s.waitersInOrder())
	}},
	{name: "release frees the lock when only waiters are left whose entry has run out", test: func(s *scripted) {
		s.take(alice, minute)
		now := s.line(bob, minute, 20*time.Millisecond)[1].(int64)
		s.ask("PEXPIRE", queueOf(s.Name), "60000") // another's registration has lengthened them
		s.ask("PEXPIRE", waitersOf(s.Name), "60000")
		s.past(now + 50_000)
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, bob)))
		require.Len(s, s.state(), 1, "only the counters are left")
	}},
	{name: "release ignores a hint that has left the queue, but not its entry", test: func(s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		s.ask("HSET", waitersOf(s.Name), carol, text(s.now()/1000+60_000)+" 60000")
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, carol)))
		require.Equal(s, token+1, s.token(bob))
		s.ask("HSET", waitersOf(s.Name), carol, text(s.now()/1000+60_000)+" 60000")
		s.line(alice, minute, minute)
		s.ask("ZREM", queueOf(s.Name), alice)
		s.ask("ZADD", queueOf(s.Name), "1", alice, "2", carol)
		s.ask("HDEL", waitersOf(s.Name), alice, carol)
		require.EqualValues(s, 1, s.number(s.Release(nil, bob, carol)))
		require.Empty(s, s.hash(s.Name), "nobody has an entry")
	}},
	{name: "release skips a waiter that is queued without an entry", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.ask("ZADD", queueOf(s.Name), "1", carol)
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, carol)))
		require.Positive(s, s.token(bob))
	}},
	{name: "release ignores a hint that has an entry and no place in the queue", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.ask("HSET", waitersOf(s.Name), carol, "9999999999999 60000")
		s.number(s.Release(nil, alice, carol))
		require.Positive(s, s.token(bob))
	}},
	{name: "release with ! frees and hands over to nobody", test: func(s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		s.tag = "!"
		require.EqualValues(s, 0, s.number(s.Release(nil, carol, "")), "a place is still given up")
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, bob)))
		require.Empty(s, s.hash(s.Name))
		require.Equal(s, []string{bob}, s.waitersInOrder())
		require.Equal(s, text(token), s.counter())
		s.hears("w "+alice+" "+bob, "w "+alice+" "+carol)
	}},
	{name: "release in a bucket that was forgotten frees, hands over to nobody and says so", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.ask("DEL", member.TokensKey)
		s.tag = "run 1"
		_, err := s.run(s.Release(nil, alice, bob))
		require.ErrorContains(s, err, "FORGOT marker")
		require.Empty(s, s.hash(s.Name))
		require.Equal(s, []string{bob}, s.waitersInOrder())
		require.Empty(s, s.counter())
		s.hears("w " + alice + " " + bob)
	}},
	{name: "release hands over to a waiter without an inbox and tells nobody", test: func(s *scripted) {
		token := s.take(alice, minute)
		for _, owner := range []string{"nobody", "no:body", ":1", "a:b:1"} {
			s.line(owner, minute, minute)
		}
		for i, owner := range []string{"nobody", "no:body", ":1", "a:b:1"} {
			holder := alice
			if i > 0 {
				holder = []string{"nobody", "no:body", ":1"}[i-1]
			}
			require.EqualValues(s, 1, s.number(s.Release(nil, holder, "")))
			require.Equal(s, token+int64(i)+1, s.token(owner))
		}
		s.hears("w "+alice+" nobody", "w "+alice+" no:body", "w "+alice+" :1", "w "+alice+" a:b:1")
	}},
	{name: "release whose PUBLISH the ACL denies hands over all the same", test: func(s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		s.hears("w "+alice+" "+bob, "w "+alice+" "+carol)
		s.ask("ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "-publish", "resetchannels")
		s.ask("ACL", "SETUSER", "quiet", "on", "nopass", "~*", "+@all", "resetchannels")
		s.ask("AUTH", "mute", "")
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
		require.Equal(s, token+1, s.token(bob))
		s.ask("AUTH", "quiet", "")
		require.EqualValues(s, 1, s.number(s.Release(nil, bob, "")))
		require.Equal(s, token+2, s.token(carol))
		s.line(alice, minute, minute) // the announcement is denied, too
		s.ask("AUTH", "default", "")
		require.Equal(s, []string{alice}, s.waitersInOrder())
		s.hears()
	}, acl: true},
	{name: "release of a key of another type is WRONGTYPE", test: func(s *scripted) {
		s.ask("SET", s.Name, "data", "PX", "60000")
		s.fails("WRONGTYPE", s.Release(nil, alice, ""))
	}},
}

// grantHeard expects the messages, and then the grant, whose time is not before the release was asked. It returns the TTL.
func (s *scripted) grantHeard(before int64, owner string, token int64, next string, messages ...string) time.Duration {
	s.Helper()
	for _, want := range messages {
		v, err := s.inbox.ReceiveFor(10 * time.Second)
		require.NoError(s, err)
		require.Equal(s, want, v.([]any)[3])
	}
	v, err := s.inbox.ReceiveFor(10 * time.Second)
	require.NoError(s, err)
	got := v.([]any)
	p, ok := script.ParsePush(got[3].(string))
	require.True(s, ok, got[3])
	require.GreaterOrEqual(s, p.Server, before)
	require.LessOrEqual(s, p.Server, s.now())
	require.Equal(s, "g "+owner+" "+text(token)+" "+text(p.Server)+" "+next+" "+text(p.TTL.Milliseconds()), got[3])
	require.LessOrEqual(s, s.left(s.Name), p.TTL, "the key has the TTL that the waiter was told")
	require.Greater(s, s.left(s.Name), p.TTL-20*second)
	require.Equal(s, script.Inbox(owner[:4]), got[2])
	s.hears()
	return p.TTL
}

var yieldCases = []scriptCase{
	{name: "yield of a vote that is not held any more changes nothing", test: func(s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		before := s.state()
		at := s.now()
		for _, cmd := range []member.Command{
			s.Yield(nil, alice, token-1, minute, minute),
			s.Yield(nil, bob, token, minute, minute),
			s.Yield(nil, carol, token, minute, minute),
		} {
			got := s.list(cmd)
			require.EqualValues(s, 0, got[0])
			require.GreaterOrEqual(s, got[1], at)
		}
		require.Equal(s, before, s.state())
		s.hears("w " + alice + " " + bob)
	}},
	{name: "yield keeps the vote where no waiter hashes lower, under a new token", test: func(s *scripted) {
		order := byHash(alice, bob, carol)
		token := s.take(order[0], 2*minute)
		s.line(order[1], minute, minute)
		s.line(order[2], minute, minute)
		got := s.list(s.Yield(nil, order[0], token, minute, minute))
		require.Equal(s, token+1, got[0])
		require.Equal(s, map[string]string{order[0]: text(token + 1)}, s.hash(s.Name))
		require.Greater(s, s.left(s.Name), minute, "never shortened")
		got = s.list(s.Yield(nil, order[0], token+1, 4*minute, minute))
		require.Equal(s, token+2, got[0])
		s.lives(s.Name, 4*minute)
		require.Equal(s, []string{order[1], order[2]}, s.waitersInOrder())
		s.hears("w "+order[0]+" "+order[1], "w "+order[0]+" "+order[2])
	}},
	{name: "yield gives to the waiter that hashes lowest and registers the giver without announcing it", test: func(s *scripted) {
		order := byHash(alice, bob, carol)
		token := s.take(order[2], 2*minute)
		s.line(order[1], minute, minute)
		s.line(order[0], 50*second, minute)
		before := s.now()
		got := s.list(s.Yield(nil, order[2], token, 40*second, 45*second))
		require.EqualValues(s, 0, got[0])
		require.Equal(s, map[string]string{order[0]: text(token + 1)}, s.hash(s.Name))
		s.lives(s.Name, 50*second)
		require.Equal(s, []string{order[1], order[2]}, s.waitersInOrder())
		at := got[1].(int64)
		require.Equal(s, text(at/1000+45_000)+" 40000", s.hash(waitersOf(s.Name))[order[2]])
		s.grantHeard(before, order[0], token+1, order[1],
			"w "+order[2]+" "+order[1], "w "+order[2]+" "+order[0])
	}},
	{name: "yield takes the order of SHA-1 in hex", test: func(s *scripted) {
		order := byHash(alice, bob)
		hash := func(o string) string { h := sha1.Sum([]byte(o)); return hex.EncodeToString(h[:]) }
		require.Less(s, hash(order[0]), hash(order[1]))
		token := s.take(order[1], minute)
		s.line(order[0], minute, minute)
		require.EqualValues(s, 0, s.list(s.Yield(nil, order[1], token, minute, minute))[0])
		require.Equal(s, token+1, s.token(order[0]))
	}},
	{name: "yield skips and removes a lower waiter whose entry has run out", test: func(s *scripted) {
		order := byHash(alice, bob, carol)
		token := s.take(order[2], minute)
		s.line(order[1], minute, minute)
		now := s.line(order[0], minute, 20*time.Millisecond)[1].(int64)
		s.past(now + 50_000)
		require.EqualValues(s, 0, s.list(s.Yield(nil, order[2], token, minute, minute))[0])
		require.Equal(s, token+1, s.token(order[1]))
		require.Equal(s, []string{order[2]}, s.waitersInOrder())
	}},
	{name: "yield in a bucket that was forgotten grants nothing", test: func(s *scripted) {
		order := byHash(alice, bob)
		token := s.take(order[0], minute)
		s.line(order[1], minute, minute)
		s.ask("DEL", member.TokensKey)
		s.tag = "run 1"
		_, err := s.run(s.Yield(nil, order[0], token, minute, minute))
		require.ErrorContains(s, err, "FORGOT marker")
		require.Empty(s, s.counter())
		s.hears("w " + order[0] + " " + order[1])
	}},
}

var renewCases = []scriptCase{
	{name: "extend lengthens for the holder, never shortens, and answers per lease", test: func(s *scripted) {
		other, foreign, gone := script.Exclusive("other"), script.Exclusive("foreign"), script.Exclusive("gone")
		token := s.take(alice, minute)
		s.number(other.Acquire(nil, bob, minute))
		s.ask("SET", foreign.Name, "data", "PX", "60000")
		before := s.state()
		extend := func(ttl time.Duration) []any {
			all := []script.Lock{s.Lock, other, foreign, gone}
			renewal := script.Renew(nil, &script.Extend, len(all))
			for _, k := range all {
				renewal.Lock(k.Name)
			}
			for range all {
				renewal.Lease(alice, ttl)
			}
			return s.list(renewal.Command(s.Slot()))
		}
		require.Equal(s, []any{int64(1), int64(0), int64(-1), int64(0)}, extend(2*minute))
		s.lives(s.Name, 2*minute)
		s.lives(other.Name, minute)
		s.lives(foreign.Name, minute)
		require.Equal(s, []any{int64(1), int64(0), int64(-1), int64(0)}, extend(second))
		s.lives(s.Name, 2*minute)
		require.Equal(s, before, s.state())
		require.Equal(s, text(token), s.counter())
	}},
	{name: "extend that may not ask whose a lock is says so, and not that it is another's", test: func(s *scripted) {
		s.take(alice, minute)
		extend := s.Extend(nil, alice, 2*minute)
		s.ask("ACL", "SETUSER", "few", "on", "nopass", "~*", "+@all", "-hexists")
		s.ask("AUTH", "few", "")
		_, err := s.run(extend)
		require.Regexp(s, denied, err)
		s.ask("AUTH", "default", "")
		require.Equal(s, []any{int64(1)}, s.list(extend))
	}, acl: true},
	{name: "a vote that may not be given an end is not given", test: func(s *scripted) {
		s.ask("ACL", "SETUSER", "few", "on", "nopass", "~*", "&*", "+@all", "-pexpire")
		for who, cmd := range map[string]func() member.Command{
			"acquire": func() member.Command { return s.Acquire(nil, alice, minute) },
			"wait":    func() member.Command { return s.Wait(nil, alice, minute, minute) },
			"rejoin":  func() member.Command { return s.Rejoin(nil, alice, minute, 7) },
		} {
			s.ask("AUTH", "few", "")
			_, err := s.run(cmd())
			s.ask("AUTH", "default", "")
			require.Regexp(s, denied, err, who)
			if !s.joined || cmd().Item == nil { // a batch does not know: its calls travel alone from then on
				require.Regexp(s, "on @user_script:[0-9]+|@user_script: [0-9]+", err.Error(), "the line that names the command")
			}
			require.Empty(s, s.hash(s.Name), "%s: it would be there for ever", who)
		}
		require.Positive(s, s.take(bob, minute))
	}, acl: true},
	{name: "raise lifts the counter for the holder and never lowers it", test: func(s *scripted) {
		token := s.take(alice, minute)
		require.EqualValues(s, 1, s.number(s.Raise(nil, alice, token+10)))
		require.Equal(s, text(token+10), s.counter())
		require.EqualValues(s, 1, s.number(s.Raise(nil, alice, token+5)))
		require.Equal(s, text(token+10), s.counter())
		require.Equal(s, token, s.token(alice), "the vote stays what it was")
		require.EqualValues(s, 0, s.number(s.Raise(nil, bob, token+20)))
		require.Equal(s, text(token+10), s.counter(), "only while it holds")
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
		require.Equal(s, token+11, s.take(bob, minute))
	}},
	{name: "raise refuses a vote above the token: it is another than the one that was counted", test: func(s *scripted) {
		counted := s.take(alice, minute)
		s.ask("DEL", s.Name) // its TTL ends
		token := s.take(bob, minute)
		require.EqualValues(s, 1, s.number(s.Raise(nil, bob, token+1)))
		require.EqualValues(s, 1, s.number(s.Release(nil, bob, "")))
		later := s.take(alice, minute)
		require.Equal(s, token+2, later)
		require.EqualValues(s, 0, s.number(s.Raise(nil, alice, counted)))
		require.EqualValues(s, 0, s.number(s.Raise(nil, alice, token+1)), "bob has been given this token")
		require.Equal(s, text(later), s.counter())
		require.EqualValues(s, 1, s.number(s.Raise(nil, alice, later)))
	}},
	{name: "raise where nobody holds does nothing", test: func(s *scripted) {
		require.EqualValues(s, 0, s.number(s.Raise(nil, alice, 7)))
		require.Empty(s, s.state())
	}},
	{name: "rejoin of a free lock lifts the counter, holds under the lease's token and leaves the queue", test: func(s *scripted) {
		s.take(bob, minute)
		s.line(alice, minute, minute)
		s.ask("DEL", s.Name)
		before, err := strconv.ParseInt(s.counter(), 10, 64)
		require.NoError(s, err)
		require.EqualValues(s, 1, s.number(s.Rejoin(nil, alice, minute, before+100)))
		require.Equal(s, map[string]string{alice: text(before + 100)}, s.hash(s.Name))
		require.Equal(s, text(before+100), s.counter())
		s.lives(s.Name, minute)
		require.Empty(s, s.waitersInOrder())
		s.hears("w " + bob + " " + alice)
	}},
	{name: "rejoin never lowers the counter", test: func(s *scripted) {
		s.ask("HSET", member.TokensKey, text(s.Bucket), "500")
		require.EqualValues(s, 1, s.number(s.Rejoin(nil, alice, minute, 100)))
		require.Equal(s, "500", s.counter())
		require.EqualValues(s, 100, s.token(alice))
	}},
	{name: "rejoin by the holder lengthens and never shortens", test: func(s *scripted) {
		token := s.take(alice, minute)
		require.EqualValues(s, 1, s.number(s.Rejoin(nil, alice, 2*minute, token)))
		s.lives(s.Name, 2*minute)
		require.EqualValues(s, 1, s.number(s.Rejoin(nil, alice, second, token)))
		s.lives(s.Name, 2*minute)
	}},
	{name: "rejoin of another's lock takes nothing away", test: func(s *scripted) {
		token := s.take(bob, minute)
		require.EqualValues(s, 0, s.number(s.Rejoin(nil, alice, 2*minute, token-1)))
		require.Equal(s, map[string]string{bob: text(token)}, s.hash(s.Name))
		require.Equal(s, text(token), s.counter())
		s.lives(s.Name, minute)
	}},
	{name: "rejoin in a new bucket with another marker id is FORGOT", test: func(s *scripted) {
		s.tag = "run 1"
		s.fails("FORGOT marker", s.Rejoin(nil, alice, minute, 7))
		s.ask("HSET", member.MarkerKey, "id", "run 1")
		require.EqualValues(s, 1, s.number(s.Rejoin(nil, alice, minute, 7)))
		require.Equal(s, "7", s.counter())
	}},
	{name: "rejoin of a key of another type is an error that leaves the key alone", test: func(s *scripted) {
		s.ask("SET", s.Name, "data", "PX", "60000")
		_, err := s.run(s.Rejoin(nil, alice, minute, 7))
		require.ErrorContains(s, err, "WRONGTYPE")
		require.Equal(s, "data", s.ask("GET", s.Name))
	}},
}

var adminCases = []scriptCase{
	{name: "force takes the vote from whoever has it and hands it over", test: func(s *scripted) {
		token := s.take(alice, minute)
		now := s.line(carol, minute, 20*time.Millisecond)[1].(int64)
		s.line(bob, 50*second, minute)
		s.past(now + 50_000)
		before := s.now()
		require.EqualValues(s, 1, s.number(s.Force(nil, "", minute)))
		require.Equal(s, map[string]string{bob: text(token + 1)}, s.hash(s.Name))
		s.lives(s.Name, 50*second)
		require.Empty(s, s.waitersInOrder())
		s.grantHeard(before, bob, token+1, "-", "w "+alice+" "+carol, "w "+alice+" "+bob)
		require.EqualValues(s, 0, s.number(s.Raise(nil, alice, token+9)), "what the former holder asks is refused")
		require.EqualValues(s, 0, s.number(s.Release(nil, alice, "")))
		require.Equal(s, token+1, s.token(bob))
	}},
	{name: "force frees the lock where nobody waits, and nothing where nobody holds", test: func(s *scripted) {
		require.EqualValues(s, 0, s.number(s.Force(nil, "", minute)))
		require.Len(s, s.state(), 1, "who is not to be re-joined")
		s.take(alice, minute)
		require.EqualValues(s, 1, s.number(s.Force(nil, "", minute)))
		require.Len(s, s.state(), 2, "that, and the counters")
		require.EqualValues(s, 1, s.ask("EXISTS", waitersOf(s.Name)))
		s.lives(waitersOf(s.Name), minute+time.Millisecond)
	}},
	{name: "force is final: no re-join gives the lock back, wherever the vote was, until every lease of before is over", test: func(s *scripted) {
		rejoins := func(owner string) int64 { return s.number(s.Rejoin(nil, owner, second, 7)) }
		token := s.take(alice, minute)
		for _, tag := range []string{"", "!"} { // in quarantine as well
			s.tag = tag
			require.EqualValues(s, 1-len(tag), s.number(s.Force(nil, "", 30*second)))
			s.tag = ""
			require.EqualValues(s, 0, rejoins(alice))
			require.EqualValues(s, 0, rejoins(bob), "of whoever held it")
			require.Empty(s, s.hash(s.Name))
			s.lives(waitersOf(s.Name), minute+time.Millisecond) // the vote's TTL was more than the longest lease
		}
		require.Equal(s, token+1, s.take(bob, minute), "the next holder is not concerned")
		require.EqualValues(s, 1, rejoins(bob), "nor what it has")
		s.line(carol, minute, 2*minute)
		require.Equal(s, []string{carol}, s.waitersInOrder())
		s.lives(waitersOf(s.Name), 4*minute+time.Millisecond)
		s.ask("DEL", s.Name)
		s.ask("HSET", member.MarkerKey, "q", "600000") // another client has longer leases
		s.number(s.Force(nil, "", second))
		s.lives(waitersOf(s.Name), 10*minute+time.Millisecond)
		deadline, err := strconv.ParseInt(s.hash(waitersOf(s.Name))["!"], 10, 64)
		require.NoError(s, err)
		require.InDelta(s, s.now()/1000+600_000, deadline, 20_000)
		s.number(s.Force(nil, "", second))
		s.ask("DEL", member.MarkerKey)
		s.number(s.Force(nil, "", second))
		later, err := strconv.ParseInt(s.hash(waitersOf(s.Name))["!"], 10, 64)
		require.NoError(s, err)
		require.GreaterOrEqual(s, later, deadline, "never shortened")
		s.ask("HSET", waitersOf(s.Name), "!", text(s.now()/1000))
		s.past(s.now() + 1000)
		require.EqualValues(s, 1, rejoins(alice), "it is over")
	}},
	{name: "force that names an owner refuses the re-join of that one, and of nobody else", test: func(s *scripted) {
		token := s.take(bob, minute)
		require.EqualValues(s, 0, s.number(s.Force(nil, script.Hash([]byte(alice)), minute)))
		require.Equal(s, map[string]string{bob: text(token)}, s.hash(s.Name))
		s.ask("DEL", s.Name)
		require.EqualValues(s, 0, s.number(s.Rejoin(nil, alice, minute, token)))
		require.EqualValues(s, 1, s.number(s.Rejoin(nil, bob, minute, token)))
		s.ask("DEL", s.Name)
		s.ask("HSET", waitersOf(s.Name), "!"+script.Hash([]byte(alice)), "1")
		require.EqualValues(s, 1, s.number(s.Rejoin(nil, alice, minute, token)))
	}},
	{name: "force that names an owner takes its place in the queue too: it is not served where it still waits", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.line(carol, minute, minute)
		require.EqualValues(s, 0, s.number(s.Force(nil, script.Hash([]byte(bob)), minute)))
		require.Equal(s, []string{carol}, s.waitersInOrder())
		require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
		require.Equal(s, []string{carol}, slices.Collect(maps.Keys(s.hash(s.Name))))
		require.EqualValues(s, 0, s.number(s.Rejoin(nil, bob, minute, 7)))
	}},
	{name: "force takes the vote from the owner that it names, and from nobody else", test: func(s *scripted) {
		require.EqualValues(s, 0, s.number(s.Force(nil, script.Hash([]byte(alice)), minute)))
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		for _, other := range []string{carol, script.OwnerOf("DDDD", 4)} {
			require.EqualValues(s, 0, s.number(s.Force(nil, script.Hash([]byte(other)), minute)))
		}
		require.Equal(s, map[string]string{alice: text(token)}, s.hash(s.Name))
		require.Equal(s, []string{bob}, s.waitersInOrder())
		require.EqualValues(s, 1, s.number(s.Force(nil, script.Hash([]byte(alice)), minute)))
		require.Equal(s, map[string]string{bob: text(token + 1)}, s.hash(s.Name))
		require.EqualValues(s, 0, s.number(s.Force(nil, script.Hash([]byte(alice)), minute)), "executed once more, and late: the next holder keeps it")
		require.Equal(s, map[string]string{bob: text(token + 1)}, s.hash(s.Name))
	}},
	{name: "force with ! hands over to nobody", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.tag = "!"
		require.EqualValues(s, 1, s.number(s.Force(nil, "", minute)))
		require.Empty(s, s.hash(s.Name))
		require.Equal(s, []string{bob}, s.waitersInOrder())
		s.hears("w " + alice + " " + bob)
	}},
	{name: "force does not delete what is no lock", test: func(s *scripted) {
		s.ask("HSET", s.Name, "somebody", "1")
		s.fails("FOREIGN no ttl", s.Force(nil, "", minute))
		s.ask("DEL", s.Name)
		s.ask("SET", s.Name, "data", "PX", "60000")
		s.fails("WRONGTYPE", s.Force(nil, "", minute))
	}},
	{name: "force in a bucket that was forgotten frees, hands over to nobody and says so", test: func(s *scripted) {
		s.take(alice, minute)
		s.line(bob, minute, minute)
		s.ask("DEL", member.TokensKey)
		s.tag = "run 1"
		_, err := s.run(s.Force(nil, "", minute))
		require.ErrorContains(s, err, "FORGOT marker")
		require.Empty(s, s.hash(s.Name))
		require.Empty(s, s.counter())
		s.hears("w " + alice + " " + bob)
	}},
	{name: "peek tells what is there and changes nothing", test: func(s *scripted) {
		got := s.list(s.Peek(nil))
		require.Equal(s, []any{got[0], int64(-2), "0", "", "", "0"}, got)
		s.ask("HSET", member.MarkerKey, "id", "run 1", "state", "w")
		token := s.take(alice, minute)
		first := s.line(bob, 20*second, minute)[1].(int64)
		second := s.line(carol, 10*time.Second, 2*minute)[1].(int64)
		before, at := s.state(), s.now()
		got = s.list(s.Peek(nil))
		require.GreaterOrEqual(s, got[0], at)
		require.LessOrEqual(s, got[0], s.now())
		require.LessOrEqual(s, got[1], minute.Milliseconds())
		require.Greater(s, got[1], (minute - 20*time.Second).Milliseconds())
		require.Equal(s, []any{
			text(token), "w", alice, text(token),
			bob, text(first), text(first/1000 + 60_000), "20000",
			carol, text(second), text(second/1000 + 120_000), "10000",
		}, got[2:])
		require.Equal(s, before, s.state())
	}},
}

// A member's scripts must be the same everywhere, and known before it votes.
func TestEveryScriptIsLoadedOnceConnected(t *testing.T) {
	cluster := rt.Real(t, 1)
	join(t, cluster)
	args := []string{"SCRIPT", "EXISTS"}
	for _, s := range []script.Script{script.Acquire, script.Wait, script.Release, script.Yield, script.Raise, script.Extend, script.Rejoin, script.Peek, script.Force} {
		args = append(args, s.SHA)
	}
	got, err := cluster.Servers[0].Do(context.Background(), args...)
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]any{int64(1)}, len(args)-2), got)
}
