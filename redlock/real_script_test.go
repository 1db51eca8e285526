//go:build !race

package redlock

import (
	"bytes"
	"context"
	"crypto/sha1"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

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
	t.Parallel()
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
			s.ask("HSET", WaitersOf(s.Name), bob, "1 60000") // it has run out
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
	t.Parallel()
	server := rt.Real(t, 1).Servers[0]
	for _, interop := range []bool{false, true} {
		s := newScripted(t, server)
		s.Lock = (&Config{Interop: interop}).lockOf(s.Name)
		for _, source := range (Config{Interop: interop}).scripts() {
			s.ask("SCRIPT", "LOAD", source)
		}
		token := s.take(alice, 2*minute)
		extend := s.Extend(nil, alice, minute)
		calls := map[string]member.Command{
			"acquire": s.Acquire(nil, alice, minute),
			"wait":    s.Wait(nil, alice, minute, minute, 0),
			"extend":  extend,
			"rejoin":  s.Rejoin(nil, alice, minute, token, token),
			"raise":   s.Raise(nil, alice, token),
		}
		if !interop {
			calls["reserve"] = s.Reserve(nil, alice, token, token-1)
		}
		for name, cmd := range calls {
			before := s.changes()
			require.NoError(t, rt.Err(s.run(cmd)), name)
			require.Greater(t, s.changes(), before, "%s, interop %v", name, interop)
			s.lives(s.Name, 2*minute)
		}
		before := s.changes()
		require.Positive(t, s.list(s.Yield(nil, alice, token, minute, minute, 0))[0])
		require.Greater(t, s.changes(), before)
		require.NoError(t, server.Flush())
	}
}

// changes is how much the server has written since it saved its data.
func (s *scripted) changes() int {
	s.Helper()
	_, found, ok := strings.Cut(s.ask("INFO", "persistence").(string), "rdb_changes_since_last_save:")
	require.True(s, ok)
	return rt.Must(strconv.Atoi(strings.Fields(found)[0]))(s)
}

const (
	alice = "AAAAAAAAAAAAAAAAAAAAAAAAAA:1" // owners: what is no owner is no lock's
	bob   = "BBBBBBBBBBBBBBBBBBBBBBBBBB:2"
	carol = "CCCCCCCCCCCCCCCCCCCCCCCCCC:3"

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
	tag    string   // marker id in every call
	joined bool     // acquire and release travel in a batch
	behind []string // a command in one write with the next script, whose result is 1

	sharded bool // as at a master of a cluster
}

func newScripted(t *testing.T, server redistest.Server) *scripted {
	s := &scripted{T: t, server: server, Lock: script.Exclusive("invoice:42")}
	s.c, s.inbox = s.dial(), s.dial()
	for _, source := range Scripts() {
		s.ask("SCRIPT", "LOAD", source)
	}
	require.NoError(t, rt.Err(s.inbox.Do(t.Context(), "PSUBSCRIBE", script.Inbox("*"))))
	return s
}

func (s *scripted) dial() *redistest.Client {
	s.Helper()
	c := rt.Must(redistest.DialClient(s.Context(), s.server.Dialer(), s.server.Addr()))(s)
	s.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *scripted) ask(args ...string) any {
	s.Helper()
	return rt.Must(s.c.Do(s.Context(), args...))(s)
}

// run executes a script as the node does: it adds the marker id.
func (s *scripted) run(cmd member.Command) (any, error) {
	s.Helper()
	whole, reply := s.tagged(cmd, s.tag)
	if s.behind != nil {
		whole = append(whole, resp.Command(s.behind...)...)
	}
	start := time.Now()
	require.NoError(s, rt.Err(s.c.Conn().Write(whole)))
	v := rt.Must(s.c.ReceiveFor(time.Minute))(s)
	if s.behind != nil {
		done := rt.Must(s.c.ReceiveFor(time.Minute))(s)
		if took := time.Since(start); done == int64(0) && took > 40*time.Millisecond {
			s.Skipf("the turn of 50 ms had ended: two commands in one write took %v on this machine", took)
		}
		require.Equal(s, int64(1), done, "%v", s.behind)
		s.behind = nil
	}
	v = reply(v)
	if e, ok := v.(redistest.Error); ok {
		return nil, e
	}
	return v, nil
}

func (s *scripted) number(cmd member.Command) int64 {
	s.Helper()
	v := rt.Must(s.run(cmd))(s)
	require.IsType(s, int64(0), v)
	return v.(int64)
}

func (s *scripted) list(cmd member.Command) []any {
	s.Helper()
	v := rt.Must(s.run(cmd))(s)
	require.IsType(s, []any{}, v)
	return v.([]any)
}

// get, try and the like are the calls that most cases need.
func (s *scripted) take(owner string, ttl time.Duration) int64 {
	s.Helper()
	return s.number(s.Acquire(nil, owner, ttl))
}

func (s *scripted) line(owner string, ttl, entry time.Duration) []any {
	s.Helper()
	return s.list(s.Wait(nil, owner, ttl, entry, 0))
}

func (s *scripted) now() int64 {
	s.Helper()
	v := s.ask("TIME").([]any)
	sec := rt.Must(strconv.ParseInt(v[0].(string), 10, 64))(s)
	return sec*1_000_000 + rt.Must(strconv.ParseInt(v[1].(string), 10, 64))(s)
}

func (s *scripted) past(t int64) {
	s.Helper()
	rt.Until(s, "its clock goes on", func() bool { return s.now() > t })
}

// until asks again and again, in the goroutine of the test.
func (s *scripted) counter() string { s.Helper(); return s.counterOf(s.Lock) }

func (s *scripted) counterOf(l script.Lock) string {
	s.Helper()
	v, _ := s.ask("HGET", member.TokensKey, text(l.Bucket)).(string)
	return v
}

func (s *scripted) countersOf(locks ...script.Lock) (out []string) {
	s.Helper()
	for _, l := range locks {
		out = append(out, s.counterOf(l))
	}
	return out
}

func (s *scripted) counts(l script.Lock, n string) {
	s.Helper()
	s.ask("HSET", member.TokensKey, text(l.Bucket), n)
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
			out[key] = fmt.Sprint(s.ask("GET", key))
		case "none": // it has run out since
			continue
		default:
			s.Fatalf("%s is a %s", key, kind)
		}
		switch s.ask("PTTL", key) {
		case int64(-1):
			out[key] += " for ever"
		case int64(-2): // it ran out meanwhile
			delete(out, key)
		}
	}
	return out
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

// A member's scripts must be the same everywhere, and known before it votes.
func TestEveryScriptIsLoadedOnceConnected(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 1)
	JoinAll(t, cluster)
	args := []string{"SCRIPT", "EXISTS"}
	for _, s := range []script.Script{script.Acquire, script.Wait, script.Release, script.Yield, script.Raise, script.Reserve, script.Extend, script.Rejoin, script.Peek, script.Force} {
		args = append(args, s.SHA)
	}
	got := rt.Must(cluster.Servers[0].Do(context.Background(), args...))(t)
	require.Equal(t, slices.Repeat([]any{int64(1)}, len(args)-2), got)
}

// Redis 7.2.0 to 7.2.4 write a number that a script gives to a command, and that ends in eight zeros or more, as
// 1.7e+15: a token that nobody knows again, a counter that does not count on. No script may give them one.
// (https://github.com/redis/redis/pull/13115)
func TestNumbersThatRedisWritesShort(t *testing.T) {
	const token = 17e14
	for _, tc := range []struct {
		name    string
		script  script.Script
		args    string            // ARGV, separated by blanks
		replies map[string]string // to commands, otherwise 1; with blanks: an array
		asked   string            // a command that is reached
	}{
		{"acquire", script.Acquire, "7 o:1 50000000 -", map[string]string{"PTTL": "-2"}, "PEXPIRE"},
		{"acquire in a new bucket", script.Acquire, "7 o:1 50000000 -", map[string]string{"PTTL": "-2", "HINCRBY": "1", "HGET": "-"}, "TIME"},
		{"batch", script.Batch, "000 7 8 9 o:1 50000000 o:2 50000000 o:3 50000000 _ -", map[string]string{"EXISTS": "0"}, "PEXPIRE"},
		{"batch in new buckets", script.Batch, "000 7 8 9 o:1 50000000 o:2 50000000 o:3 50000000 _ -", map[string]string{"EXISTS": "0", "PTTL": "-2", "HINCRBY": "1", "HGET": "-"}, "TIME"},
		{"wait that is granted", script.Wait, "7 o:1 50000000 50000000 -", map[string]string{"PTTL": "-2", "HGET": "-", "ZRANGE": ""}, "ZREM"},
		{"wait in a new bucket", script.Wait, "7 o:1 50000000 50000000 -", map[string]string{"PTTL": "-2", "HINCRBY": "1", "HGET": "-", "ZRANGE": ""}, "ZREM"},
		{"wait that registers", script.Wait, "7 o:1 50000000 50000000 -", map[string]string{"PTTL": "5000", "HGET": "-", "HGETALL": "PPPPPPPPPPPPPPPPPPPPPPPPPP:1 5"}, "PUBLISH"},
		{"release that hands over", script.Release, "7 o:1 PPPPPPPPPPPPPPPPPPPPPPPPPP:1 -", map[string]string{"HKEYS": "o:1", "HGET": "9999999999999_50000000", "ZRANGE": "PPPPPPPPPPPPPPPPPPPPPPPPPP:1 r:1"}, "PUBLISH"},
		{"yield that keeps the vote", script.Yield, "7 o:1 5 50000000 50000000 -", map[string]string{"HGET": "5", "ZRANGE": ""}, "PTTL"},
		{"with interop, acquire", script.RedissonAcquire, "7 o:1 50000000 theirs ours 5", map[string]string{"PTTL": "-2", "HGET": "5"}, "PEXPIRE"},
		{"with interop, raise", script.RedissonRaise, "7 o:1 1700000000000000 theirs ours -", map[string]string{"HGET": "5", "GET": "5"}, "SET"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := lua.NewState()
			defer l.Close()
			asked := map[string]bool{}
			call := func(l *lua.LState) int {
				asked[l.CheckString(1)] = true
				var words []string
				for i := range l.GetTop() {
					words = append(words, lua.LVAsString(l.Get(i+1)))
					if n, ok := l.Get(i + 1).(lua.LNumber); ok && n != 0 && math.Mod(float64(n), 1e8) == 0 {
						t.Errorf("%s has the number %v", strings.Join(words, " "), float64(n))
					}
				}
				reply, ok := tc.replies[l.CheckString(1)]
				switch {
				case ok && reply == "nil":
					l.Push(lua.LFalse)
				case !ok && l.CheckString(1) == "TIME":
					l.Push(texts("1700000000", "000000"))
				case !ok && (l.CheckString(1) == "HINCRBY" || l.CheckString(1) == "INCR"):
					l.Push(lua.LNumber(token))
				case !ok:
					l.Push(lua.LNumber(1))
				case l.CheckString(1) == "PTTL" || l.CheckString(1) == "HINCRBY" || l.CheckString(1) == "EXISTS":
					l.Push(lua.LNumber(lua.LVAsNumber(lua.LString(reply))))
				case l.CheckString(1) == "ZRANGE" || l.CheckString(1) == "HMGET" || l.CheckString(1) == "HGETALL" || l.CheckString(1) == "HKEYS":
					l.Push(texts(strings.Fields(reply)...))
				default:
					l.Push(lua.LString(strings.ReplaceAll(reply, "_", " ")))
				}
				return 1
			}
			redis := l.NewTable()
			l.SetFuncs(redis, map[string]lua.LGFunction{"call": call, "pcall": call,
				"error_reply": func(l *lua.LState) int { l.RaiseError("%s", l.CheckString(1)); return 0 },
				"sha1hex":     func(l *lua.LState) int { l.Push(lua.LString(l.CheckString(1))); return 1 },
			})
			l.SetGlobal("redis", redis)
			l.SetGlobal("KEYS", texts("lock", "tokens", "boot", "queue", "waiters", "counter", "turn"))
			l.SetGlobal("ARGV", texts(strings.Fields(tc.args)...))
			require.NoError(t, l.DoString(tc.script.Source))
			require.True(t, asked[tc.asked], "%v", asked)
		})
	}
}

func texts(all ...string) *lua.LTable {
	table := &lua.LTable{Metatable: lua.LNil}
	for _, s := range all {
		if s == "nil" {
			table.Append(lua.LFalse)
			continue
		}
		table.Append(lua.LString(s))
	}
	return table
}
