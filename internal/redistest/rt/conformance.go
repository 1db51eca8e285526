package rt

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// Start makes one server for one case; its end is the case's.
type Start func(t *testing.T) redistest.Server

// Conformance runs the suite: everything that a lock client asks of a server, and every fault.
func Conformance(t *testing.T, start Start) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(newSuite(t, start)) })
	}
}

// ConformanceInBubble runs the suite in fake time, each case in a bubble of its own.
func ConformanceInBubble(t *testing.T, start Start) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(newSuite(t, start)) })
		})
	}
}

var cases = []struct {
	name string
	run  func(s *suite)
}{
	{"a connection learns its id, its server's run id and uptime", handshake},
	{"CLIENT KILL ends the connection with that id and no other", clientKill},
	{"RESP3 gives pushes, and allows commands beside subscriptions", resp3},
	{"scripts draw tokens and keep leases", scriptAcquire},
	{"scripts keep queues and publish", scriptQueue},
	{"errors keep their first word", scriptErrors},
	{"scripts are found by their SHA1 until they are flushed", scriptCache},
	{"keys expire on the server's clock", expiry},
	{"subscriptions are confirmed, then messages come, and PING is answered", pubSub},
	{"sharded channels are apart from the others", shardedPubSub},
	{"commands sent together are answered in order", pipeline},
	{"Kill ends connections and refuses new ones", kill},
	{"Restart keeps the data, and forgets scripts, run id and client ids", restartKeep},
	{"Restart without memory is empty", restartEmpty},
	{"Rollback brings back what Snapshot saw", rollback},
	{"a paused server accepts connections and executes later", pauseServer},
	{"Flush deletes keys and leaves scripts", flush},
	{"SetDelay takes its time each way and keeps the order", delay},
	{"Link.Pause holds bytes and dials", pauseLink},
	{"LoseReply executes, and the connection stays mute", loseReply},
	{"DropReplies executes, and Heal does not repair the connection", dropReplies},
	{"BlackHole lets nothing through and shows no error", blackHole},
	{"Cut breaks what is open", cut},
	{"Refuse refuses what is new", refuse},
	{"Fail answers in order within a pipeline", failInOrder},
	{"CutBefore does not execute, CutAfter does", cutAround},
	{"DelayCommand and DelayReply let the others wait behind", delayOne},
	{"Call sees a command before the server does", callBefore},
	{"a zombie's bytes arrive after the client saw its end", zombieArrives},
	{"a zombie that the server killed never arrives", zombieKilled},
	{"a zombie takes along what was under way", zombieUnderWay},
	{"pushes can be lost and delayed", pushFaults},
	{"a full window makes writes wait", window},
	{"deadlines end reads and leave the connection usable", deadlines},
	{"paths have faults of their own", paths},
}

type suite struct {
	*testing.T
	redistest.Server
}

func newSuite(t *testing.T, start Start) *suite { return &suite{T: t, Server: start(t)} }

// has: an embedded server has everything.
func (s *suite) has(f redistest.Feature) bool {
	_, real := s.Server.(*redistest.Real)
	return !real || Installed(s).Has(f)
}

func (s *suite) needs(f redistest.Feature) {
	if !s.has(f) {
		Needs(s, f)
	}
}

const (
	soon  = 10 * time.Second      // what must come comes within
	quiet = 30 * time.Millisecond // what must not come is waited for
)

func (s *suite) dial() *redistest.Client { s.Helper(); return s.dialBy(s.Dialer()) }

func (s *suite) dialBy(d redistest.Dialer) *redistest.Client {
	s.Helper()
	c, err := redistest.DialClient(s.Context(), d, s.Addr())
	require.NoError(s, err)
	s.Cleanup(func() { _ = c.Close() })
	return c
}

// ask returns the reply of a command, which must not be an error.
func (s *suite) ask(c *redistest.Client, args ...string) any {
	s.Helper()
	v, err := s.try(c, args...)
	require.NoError(s, err, "%q", args)
	return v
}

func (s *suite) try(c *redistest.Client, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(s.Context(), soon)
	defer cancel()
	return c.Do(ctx, args...)
}

func (s *suite) refused(c *redistest.Client, args ...string) redistest.Error {
	s.Helper()
	_, err := s.try(c, args...)
	var e redistest.Error
	require.ErrorAs(s, err, &e, "%q", args)
	return e
}

// admin asks beside all faults.
func (s *suite) admin(args ...string) any {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), soon)
	defer cancel()
	v, err := s.Do(ctx, args...)
	require.NoError(s, err, "%q", args)
	return v
}

func (s *suite) send(c *redistest.Client, cmds ...[]string) {
	s.Helper()
	require.NoError(s, c.Send(cmds...))
}

func (s *suite) receive(c *redistest.Client) any {
	s.Helper()
	v, err := c.ReceiveFor(soon)
	require.NoError(s, err)
	return v
}

// mute: nothing comes, and no error either.
func (s *suite) mute(c *redistest.Client) {
	s.Helper()
	v, err := c.ReceiveFor(quiet)
	require.ErrorIs(s, err, os.ErrDeadlineExceeded, "received %v", v)
}

// ended: the connection is at its end, not merely silent.
func (s *suite) ended(c *redistest.Client) {
	s.Helper()
	v, err := c.ReceiveFor(soon)
	require.Error(s, err, "received %v", v)
	require.NotErrorIs(s, err, os.ErrDeadlineExceeded)
}

func (s *suite) eventually(what string, f func() bool) {
	s.Helper()
	for end := time.Now().Add(soon); !f(); time.Sleep(time.Millisecond) {
		require.True(s, time.Now().Before(end), "in vain: %s", what)
	}
}

func (s *suite) fired(r *redistest.Rule) {
	s.Helper()
	select {
	case <-r.Fired():
	case <-time.After(soon):
		require.Fail(s, "the rule was not applied")
	}
}

func (s *suite) id(c *redistest.Client) string {
	s.Helper()
	n, ok := s.ask(c, "CLIENT", "ID").(int64)
	require.True(s, ok)
	return strconv.FormatInt(n, 10)
}

func (s *suite) infoField(name string) string {
	s.Helper()
	info, _ := s.admin("INFO", "server").(string)
	for _, line := range strings.Split(info, "\r\n") {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return v
		}
	}
	require.Fail(s, "no "+name+" in INFO server", info)
	return ""
}

func cmd(args ...string) []string { return args }

func list(v ...any) []any { return v }

func handshake(s *suite) {
	a, b := s.dial(), s.dial()
	s.send(a, cmd("CLIENT", "SETNAME", "redquorum-test"), cmd("CLIENT", "ID"), cmd("INFO", "server"), cmd("PING"))
	require.Equal(s, "OK", s.receive(a))
	idA, _ := s.receive(a).(int64)
	info, _ := s.receive(a).(string)
	require.Equal(s, "PONG", s.receive(a))

	require.Regexp(s, regexp.MustCompile(`(?m)^run_id:[0-9a-f]{40}\r$`), info)
	require.Regexp(s, regexp.MustCompile(`(?m)^redis_version:\d+\.\d+\.\d+\r$`), info)
	require.Regexp(s, regexp.MustCompile(`(?m)^uptime_in_seconds:\d+\r$`), info)
	require.Equal(s, s.infoField("run_id"), s.infoField("run_id"), "one process, one id")

	require.Equal(s, "redquorum-test", s.ask(a, "CLIENT", "GETNAME"))
	idB, _ := s.ask(b, "CLIENT", "ID").(int64)
	require.Positive(s, idA)
	require.Greater(s, idB, idA, "b connected later")
	require.Contains(s, s.ask(b, "CLIENT", "LIST"), "name=redquorum-test")

	if s.has(redistest.NoEvict) {
		require.Equal(s, "OK", s.ask(a, "CLIENT", "NO-EVICT", "on"))
	}
	require.Equal(s, list("maxmemory-policy", "noeviction"), s.ask(a, "CONFIG", "GET", "maxmemory-policy"))
	require.Equal(s, "master", s.ask(a, "ROLE").([]any)[0])
	require.Equal(s, "default", s.ask(a, "ACL", "WHOAMI"))
	require.Contains(s, s.ask(a, "INFO", "replication"), "role:master")
	require.NotContains(s, s.ask(a, "INFO", "replication"), "run_id")
}

func clientKill(s *suite) {
	a, b, c := s.dial(), s.dial(), s.dial()
	idA, idB := s.id(a), s.id(b)
	require.Regexp(s, "^id="+idB+" .*\n$", s.ask(a, "CLIENT", "LIST", "ID", idB), "one line")
	require.EqualValues(s, 1, s.ask(a, "CLIENT", "KILL", "ID", idB))
	s.ended(b)
	require.Equal(s, "", s.ask(a, "CLIENT", "LIST", "ID", idB))
	require.EqualValues(s, 0, s.ask(a, "CLIENT", "KILL", "ID", idB), "it is gone")
	require.EqualValues(s, 0, s.ask(a, "CLIENT", "KILL", "ID", idA), "nobody kills itself unless SKIPME no")
	require.Equal(s, "PONG", s.ask(a, "PING"))
	require.Equal(s, "PONG", s.ask(c, "PING"))

	// A subscriber too, and its subscription with it.
	sub := s.dial()
	idSub := s.id(sub)
	s.ask(sub, "SUBSCRIBE", "ch")
	require.EqualValues(s, 1, s.ask(a, "PUBLISH", "ch", "x"))
	require.EqualValues(s, 1, s.ask(a, "CLIENT", "KILL", "ID", idSub))
	require.Equal(s, list("message", "ch", "x"), s.receive(sub), "what was sent before arrives before the end")
	s.ended(sub)
	s.eventually("the subscription ends", func() bool { return s.ask(a, "PUBLISH", "ch", "x") == int64(0) })

	require.EqualValues(s, 1, s.ask(a, "CLIENT", "KILL", "ID", idA, "SKIPME", "no"), "answered, then closed")
	s.ended(a)
	require.Contains(s, s.refused(c, "CLIENT", "KILL", "ID", "zero"), "ERR")
}

func resp3(s *suite) {
	c, other := s.dial(), s.dial()
	hello, _ := s.ask(c, "HELLO", "3", "SETNAME", "three").(map[string]any)
	require.EqualValues(s, 3, hello["proto"])
	require.Equal(s, s.ask(c, "CLIENT", "ID"), hello["id"])
	require.Equal(s, "three", s.ask(c, "CLIENT", "GETNAME"))

	require.Equal(s, list("subscribe", "ch", int64(1)), s.ask(c, "SUBSCRIBE", "ch"))
	require.Equal(s, "PONG", s.ask(c, "PING"), "a plain reply, also while subscribed")
	require.EqualValues(s, 1, s.ask(c, "HSET", "h", "f", "v"))
	require.EqualValues(s, 1, s.ask(other, "PUBLISH", "ch", "m"))
	require.Equal(s, list("message", "ch", "m"), s.receive(c))
	require.Equal(s, map[string]any{"f": "v"}, s.ask(c, "HGETALL", "h"))
	require.Equal(s, list("unsubscribe", "ch", int64(0)), s.ask(c, "UNSUBSCRIBE"))
}

// acquireLua is shaped like the scripts of the lock: time, a counter per bucket that starts at the
// time, a hash with a lease, a refusal that says how long, and an error of two words.
const acquireLua = `
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local px = tonumber(ARGV[2])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  if redis.call('PTTL', KEYS[1]) < px then redis.call('PEXPIRE', KEYS[1], px) end
  return tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
end
local left = redis.call('PTTL', KEYS[1])
if left == -1 then return redis.error_reply('FOREIGN no ttl') end
if left ~= -2 then return -math.max(left, 1) end
local n = redis.call('HINCRBY', KEYS[2], ARGV[3], 1)
if n == 1 then
  n = now
  redis.call('HSET', KEYS[2], ARGV[3], string.format('%.0f', n))
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', n))
redis.call('PEXPIRE', KEYS[1], px)
redis.pcall('PUBLISH', 'inbox:' .. ARGV[1], 'g ' .. string.format('%.0f', n))
return n`

const releaseLua = `
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then return {1, redis.call('EXISTS', KEYS[1])} end
return {0, false}`

func sha(script string) string {
	h := sha1.Sum([]byte(script))
	return hex.EncodeToString(h[:])
}

func scriptAcquire(s *suite) {
	c := s.dial()
	require.Equal(s, sha(acquireLua), s.ask(c, "SCRIPT", "LOAD", acquireLua))
	acquire := func(key, owner string) (any, error) {
		return s.try(c, "EVALSHA", sha(acquireLua), "2", key, "tokens", owner, "60000", "7")
	}
	before := s.serverMicros(c)
	v, err := acquire("N", "a:1")
	require.NoError(s, err)
	first, _ := v.(int64)
	require.GreaterOrEqual(s, first, before, "a new bucket starts at the server's time, to the microsecond")
	require.LessOrEqual(s, first, s.serverMicros(c))

	v, err = acquire("N", "b:1")
	require.NoError(s, err)
	left, _ := v.(int64)
	require.True(s, left <= -1 && left >= -60000, "a refusal is minus what is left: %d", left)

	v, err = acquire("N", "a:1")
	require.NoError(s, err)
	require.Equal(s, first, v, "ours already")

	v, err = acquire("M", "b:2")
	require.NoError(s, err)
	require.Equal(s, first+1, v, "the bucket counts on")

	s.ask(c, "EVAL", releaseLua, "1", "N", "x:9")
	require.Equal(s, list(int64(0), nil), s.ask(c, "EVAL", releaseLua, "1", "N", "x:9"))
	require.Equal(s, list(int64(1), int64(0)), s.ask(c, "EVAL", releaseLua, "1", "N", "a:1"), "an empty hash is gone")
	require.Equal(s, []any{"7"}, s.ask(c, "HKEYS", "tokens"))
	require.Equal(s, strconv.FormatInt(first+1, 10), s.ask(c, "HGET", "tokens", "7"))

	s.ask(c, "HSET", "foreign", "f", "v")
	_, err = acquire("foreign", "a:2")
	require.Equal(s, redistest.Error("FOREIGN no ttl"), err)
}

func (s *suite) serverMicros(c *redistest.Client) int64 {
	t, _ := s.ask(c, "TIME").([]any)
	require.Len(s, t, 2)
	sec, err1 := strconv.ParseInt(fmt.Sprint(t[0]), 10, 64)
	us, err2 := strconv.ParseInt(fmt.Sprint(t[1]), 10, 64)
	require.NoError(s, errors.Join(err1, err2))
	return sec*1_000_000 + us
}

const queueLua = `
local new = redis.call('ZADD', KEYS[1], 'NX', ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' 30000')
if redis.call('PTTL', KEYS[1]) < 60000 then
  redis.call('PEXPIRE', KEYS[1], 60000)
  redis.call('PEXPIRE', KEYS[2], 60000)
end
local heard = 0
if new == 1 then heard = redis.pcall('PUBLISH', KEYS[3], 'w ' .. ARGV[1]) end
local q = redis.call('ZRANGE', KEYS[1], 0, -1)
local small, owner = nil, nil
for _, o in ipairs(q) do
  local h = redis.sha1hex(o)
  if small == nil or h < small then small, owner = h, o end
end
return {new, heard, q, owner, redis.call('ZRANGE', KEYS[1], 0, 0)[1], #redis.call('HKEYS', KEYS[2])}`

func scriptQueue(s *suite) {
	c, sub := s.dial(), s.dial()
	s.ask(sub, "SUBSCRIBE", "inbox")
	ask := func(owner, score string) any {
		return s.ask(c, "EVAL", queueLua, "3", "q", "w", "inbox", owner, score)
	}
	smallest := func(owners ...string) string {
		best := owners[0]
		for _, o := range owners {
			if sha(o) < sha(best) {
				best = o
			}
		}
		return best
	}
	const late, early = "1795252859581217", "1795252859581216" // scores are exact to the microsecond
	require.Equal(s, list(int64(1), int64(1), list("a:1"), "a:1", "a:1", int64(1)), ask("a:1", late))
	require.Equal(s, list("message", "inbox", "w a:1"), s.receive(sub))
	require.Equal(s, list(int64(1), int64(1), list("b:1", "a:1"), smallest("a:1", "b:1"), "b:1", int64(2)), ask("b:1", early))
	require.Equal(s, list("message", "inbox", "w b:1"), s.receive(sub))
	require.Equal(s, int64(0), ask("a:1", "1").([]any)[0], "NX: the first registration counts")

	score, err := strconv.ParseFloat(fmt.Sprint(s.ask(c, "ZSCORE", "q", "a:1")), 64)
	require.NoError(s, err)
	require.Equal(s, 1795252859581217.0, score)
	require.Nil(s, s.ask(c, "ZSCORE", "q", "nobody"))
	require.EqualValues(s, 1, s.ask(c, "ZREM", "q", "b:1"))
	require.EqualValues(s, 1, s.ask(c, "HDEL", "w", "b:1"))
	require.Equal(s, list("a:1"), s.ask(c, "ZRANGE", "q", "0", "-1"))
	require.EqualValues(s, 1, s.ask(c, "EXISTS", "q"))
	require.EqualValues(s, 1, s.ask(c, "ZREM", "q", "a:1"))
	require.EqualValues(s, 0, s.ask(c, "EXISTS", "q"), "an empty queue is gone")
}

func scriptErrors(s *suite) {
	c := s.dial()
	require.Equal(s, redistest.Error("FORGOT marker"), s.refused(c, "EVAL", "return redis.error_reply('FORGOT marker')", "0"))
	require.Equal(s, redistest.Error("FORGOT marker"), s.refused(c, "EVAL", "return {err='FORGOT marker'}", "0"))

	s.ask(c, "SET", "text", "x")
	require.Contains(s, s.refused(c, "EVAL", "return redis.call('HGET', KEYS[1], 'f')", "1", "text"), "WRONGTYPE")
	require.True(s, strings.HasPrefix(string(s.refused(c, "HGET", "text", "f")), "WRONGTYPE "))
	require.Equal(s, "caught", s.ask(c, "EVAL",
		"local r = redis.pcall('HGET', KEYS[1], 'f') if type(r) == 'table' and r.err then return 'caught' end return 'no'", "1", "text"))
	require.Nil(s, s.ask(c, "EVAL", "return redis.call('HGET', KEYS[1], 'f')", "1", "absent"), "nothing is false in Lua and nil here")
	require.Equal(s, "boolean", s.ask(c, "EVAL", "return type(redis.call('HGET', KEYS[1], 'f'))", "1", "absent"))

	// An error in the middle leaves what was written before.
	_, err := s.try(c, "EVAL", "redis.call('SET', 'w', '1') redis.call('HGET', KEYS[1], 'f')", "1", "text")
	require.Error(s, err)
	require.Equal(s, "1", s.ask(c, "GET", "w"))

	require.Contains(s, s.refused(c, "NOSUCHCOMMAND"), "ERR unknown command")
	require.Contains(s, s.refused(c, "SCRIPT", "LOAD", "return ("), "ERR")
	require.Equal(s, "PONG", s.ask(c, "PING"), "the connection is as good as before")
}

func scriptCache(s *suite) {
	c := s.dial()
	const script = "return ARGV[1]"
	require.True(s, strings.HasPrefix(string(s.refused(c, "EVALSHA", sha(script), "0", "x")), "NOSCRIPT "))
	require.Equal(s, sha(script), s.ask(c, "SCRIPT", "LOAD", script))
	require.Equal(s, "x", s.ask(c, "EVALSHA", sha(script), "0", "x"))
	require.Equal(s, list(int64(1), int64(0)), s.ask(c, "SCRIPT", "EXISTS", sha(script), sha("other")))
	require.Equal(s, "OK", s.ask(c, "SCRIPT", "FLUSH"))
	require.True(s, strings.HasPrefix(string(s.refused(c, "EVALSHA", sha(script), "0", "x")), "NOSCRIPT "))
	require.Equal(s, "x", s.ask(c, "EVAL", script, "0", "x"))
	require.Equal(s, "x", s.ask(c, "EVALSHA", sha(script), "0", "x"), "EVAL loads as well")
}

func expiry(s *suite) {
	c := s.dial()
	s.ask(c, "HSET", "long", "f", "v")
	require.EqualValues(s, -1, s.ask(c, "PTTL", "long"))
	require.EqualValues(s, -2, s.ask(c, "PTTL", "absent"))
	require.EqualValues(s, 1, s.ask(c, "PEXPIRE", "long", "60000"))
	left, _ := s.ask(c, "PTTL", "long").(int64)
	require.True(s, left > 50000 && left <= 60000, "%d", left)

	const ttl = 40 * time.Millisecond
	s.ask(c, "HSET", "short", "f", "v")
	began := time.Now()
	s.ask(c, "PEXPIRE", "short", strconv.FormatInt(ttl.Milliseconds(), 10))
	s.eventually("the key expires", func() bool { return s.ask(c, "EXISTS", "short") == int64(0) })
	require.GreaterOrEqual(s, time.Since(began), ttl-2*time.Millisecond)
	require.EqualValues(s, 1, s.ask(c, "EXISTS", "long"))
}

func pubSub(s *suite) {
	sub, c := s.dial(), s.dial()
	s.send(sub, cmd("SUBSCRIBE", "one", "two"), cmd("PING"), cmd("PING", "hi"))
	require.Equal(s, list("subscribe", "one", int64(1)), s.receive(sub))
	require.Equal(s, list("subscribe", "two", int64(2)), s.receive(sub))
	require.Equal(s, list("pong", ""), s.receive(sub))
	require.Equal(s, list("pong", "hi"), s.receive(sub))

	require.EqualValues(s, 1, s.ask(c, "PUBLISH", "two", "m1"))
	require.EqualValues(s, 0, s.ask(c, "PUBLISH", "three", "m2"))
	require.EqualValues(s, 1, s.ask(c, "EVAL", "return redis.call('PUBLISH', KEYS[1], ARGV[1])", "1", "one", "m3"))
	require.Equal(s, list("message", "two", "m1"), s.receive(sub))
	require.Equal(s, list("message", "one", "m3"), s.receive(sub))

	big := strings.Repeat("x", 100_000)
	s.ask(c, "PUBLISH", "one", big)
	require.Equal(s, list("message", "one", big), s.receive(sub))

	require.Contains(s, s.refused(sub, "GET", "k"), "ERR Can't execute")
	require.Contains(s, s.refused(sub, "CLIENT", "ID"), "ERR Can't execute")
	require.Equal(s, list("unsubscribe", "one", int64(1)), s.ask(sub, "UNSUBSCRIBE", "one"))
	require.Equal(s, list("unsubscribe", "two", int64(0)), s.ask(sub, "UNSUBSCRIBE"))
	require.Equal(s, "PONG", s.ask(sub, "PING"), "an ordinary connection again")

	s.send(sub, cmd("PSUBSCRIBE", "o*"), cmd("SUBSCRIBE", "one"))
	require.Equal(s, list("psubscribe", "o*", int64(1)), s.receive(sub))
	require.Equal(s, list("subscribe", "one", int64(2)), s.receive(sub))
	require.EqualValues(s, 2, s.ask(c, "PUBLISH", "one", "m"))
	require.Equal(s, list("message", "one", "m"), s.receive(sub))
	require.Equal(s, list("pmessage", "o*", "one", "m"), s.receive(sub))
	require.Equal(s, list("one", int64(1), "two", int64(0)), s.ask(c, "PUBSUB", "NUMSUB", "one", "two"))
}

func shardedPubSub(s *suite) {
	s.needs(redistest.ShardedChannels)
	sub, c := s.dial(), s.dial()
	require.Equal(s, list("ssubscribe", "ch", int64(1)), s.ask(sub, "SSUBSCRIBE", "ch"))
	require.EqualValues(s, 0, s.ask(c, "PUBLISH", "ch", "x"))
	require.EqualValues(s, 1, s.ask(c, "EVAL", "return redis.pcall('SPUBLISH', KEYS[1], 'm')", "1", "ch"))
	require.Equal(s, list("smessage", "ch", "m"), s.receive(sub))
	require.Equal(s, list("pong", ""), s.ask(sub, "PING"))
	require.Equal(s, list("sunsubscribe", "ch", int64(0)), s.ask(sub, "SUNSUBSCRIBE", "ch"))
	require.EqualValues(s, 0, s.ask(c, "SPUBLISH", "ch", "x"))
}

func pipeline(s *suite) {
	c := s.dial()
	var cmds [][]string
	for i := range 500 {
		cmds = append(cmds, cmd("HINCRBY", "h", "f", "1"), cmd("ECHO", strings.Repeat("e", i)))
	}
	s.send(c, cmds...)
	for i := range 500 {
		require.EqualValues(s, i+1, s.receive(c))
		require.Equal(s, strings.Repeat("e", i), s.receive(c))
	}
}

func kill(s *suite) {
	c, sub := s.dial(), s.dial()
	s.ask(sub, "SUBSCRIBE", "ch")
	require.Equal(s, "PONG", s.ask(c, "PING"))
	s.Kill()
	s.ended(c)
	s.ended(sub)
	_, err := redistest.DialClient(s.Context(), s.Dialer(), s.Addr())
	require.ErrorContains(s, err, "refused")
	_, err = s.Do(s.Context(), "PING")
	require.Error(s, err)
	s.Kill() // twice is once
	require.NoError(s, s.Restart(true))
	require.Equal(s, "PONG", s.ask(s.dial(), "PING"))
	require.Equal(s, int64(0), s.admin("PUBLISH", "ch", "x"), "the subscription died with its connection")
}

func restartKeep(s *suite) {
	c := s.dial()
	s.ask(c, "HSET", "h", "f", "v")
	s.ask(c, "HSET", "leased", "f", "v")
	s.ask(c, "PEXPIRE", "leased", "3600000")
	s.ask(c, "HSET", "brief", "f", "v")
	s.ask(c, "PEXPIRE", "brief", "20")
	s.ask(c, "SCRIPT", "LOAD", releaseLua)
	for range 20 {
		s.dial()
	}
	old, _ := s.ask(s.dial(), "CLIENT", "ID").(int64)
	runID := s.infoField("run_id")
	s.Kill()
	time.Sleep(quiet) // the lease of brief passes while the server is down
	require.NoError(s, s.Restart(true))

	c = s.dial()
	require.NotEqual(s, runID, s.infoField("run_id"))
	uptime, err := strconv.Atoi(s.infoField("uptime_in_seconds"))
	require.NoError(s, err)
	require.Less(s, uptime, 5)
	id, _ := s.ask(c, "CLIENT", "ID").(int64)
	require.Less(s, id, old, "ids begin again")
	require.Equal(s, "v", s.ask(c, "HGET", "h", "f"))
	left, _ := s.ask(c, "PTTL", "leased").(int64)
	require.Positive(s, left)
	require.EqualValues(s, 0, s.ask(c, "EXISTS", "brief"))
	if s.has(redistest.ForgetsScripts) {
		require.True(s, strings.HasPrefix(string(s.refused(c, "EVALSHA", sha(releaseLua), "1", "N", "o")), "NOSCRIPT "))
	}

	require.NoError(s, s.Restart(true), "also without Kill before")
	s.ended(c)
	require.Equal(s, "v", s.admin("HGET", "h", "f"))
}

func restartEmpty(s *suite) {
	c := s.dial()
	s.ask(c, "HSET", "h", "f", "v")
	runID := s.infoField("run_id")
	require.NoError(s, s.Restart(false))
	s.ended(c)
	c = s.dial()
	require.NotEqual(s, runID, s.infoField("run_id"))
	require.EqualValues(s, 0, s.ask(c, "DBSIZE"))
	s.ask(c, "SET", "k", "v")
	require.NoError(s, s.Restart(true))
	require.Equal(s, "v", s.admin("GET", "k"), "what came after is kept again")
}

func rollback(s *suite) {
	c := s.dial()
	require.Error(s, s.Rollback(), "nothing to go back to")
	s.ask(c, "HSET", "h", "f", "old")
	s.ask(c, "ZADD", "z", "1795252859581217", "m")
	s.ask(c, "HSET", "leased", "f", "v")
	s.ask(c, "PEXPIRE", "leased", "3600000")
	s.ask(c, "HSET", "brief", "f", "v")
	s.ask(c, "PEXPIRE", "brief", "20")
	s.ask(c, "RPUSH", "l", "a", "b")
	s.ask(c, "SADD", "s", "a")
	s.ask(c, "SET", "t", "")
	require.NoError(s, s.Snapshot())
	s.ask(c, "HSET", "h", "f", "new", "g", "new")
	s.ask(c, "SET", "later", "v")
	s.ask(c, "DEL", "leased")
	runID := s.infoField("run_id")
	time.Sleep(quiet)
	require.NoError(s, s.Rollback())
	s.ended(c)

	c = s.dial()
	require.NotEqual(s, runID, s.infoField("run_id"))
	require.Equal(s, list("f", "old"), s.ask(c, "HGETALL", "h"))
	require.EqualValues(s, 1, s.ask(c, "ZCARD", "z"))
	require.Equal(s, list("a", "b"), s.ask(c, "LRANGE", "l", "0", "-1"))
	require.Equal(s, list("a"), s.ask(c, "SMEMBERS", "s"))
	require.Equal(s, "", s.ask(c, "GET", "t"))
	require.EqualValues(s, 0, s.ask(c, "EXISTS", "later", "brief"))
	left, _ := s.ask(c, "PTTL", "leased").(int64)
	require.Positive(s, left)
	require.Less(s, left, int64(3600000))
}

func pauseServer(s *suite) {
	c := s.dial()
	s.ask(c, "PING")
	s.Pause()
	s.send(c, cmd("HSET", "h", "f", "v"))
	late := s.dial()
	s.send(late, cmd("PING"))
	s.mute(c)
	s.mute(late)
	ctx, cancel := context.WithTimeout(s.Context(), quiet)
	defer cancel()
	_, err := s.Do(ctx, "PING")
	require.ErrorIs(s, err, context.DeadlineExceeded)
	s.Resume()
	require.EqualValues(s, 1, s.receive(c))
	require.Equal(s, "PONG", s.receive(late))

	s.Pause()
	s.Kill()
	s.ended(c)
	require.NoError(s, s.Restart(true))
	require.Equal(s, "v", s.admin("HGET", "h", "f"), "not paused any more")
}

func flush(s *suite) {
	c := s.dial()
	s.ask(c, "SET", "k", "v")
	s.ask(c, "SCRIPT", "LOAD", releaseLua)
	runID := s.infoField("run_id")
	require.NoError(s, s.Flush())
	require.EqualValues(s, 0, s.ask(c, "DBSIZE"))
	require.Equal(s, list(int64(1)), s.ask(c, "SCRIPT", "EXISTS", sha(releaseLua)))
	require.Equal(s, runID, s.infoField("run_id"))
}

func delay(s *suite) {
	c := s.dial()
	const there, back = 20 * time.Millisecond, 10 * time.Millisecond
	s.Faults().SetDelay(redistest.Delay{Fixed: there, Jitter: time.Millisecond}, redistest.Delay{Fixed: back})
	began := time.Now()
	require.Equal(s, "PONG", s.ask(c, "PING"))
	require.GreaterOrEqual(s, time.Since(began), there+back)

	began = time.Now()
	s.dial()
	require.GreaterOrEqual(s, time.Since(began), there+back, "connecting takes a round trip")

	s.Faults().SetDelay(redistest.Delay{}, redistest.Delay{Jitter: 5 * time.Millisecond})
	for i := range 20 {
		s.send(c, cmd("ECHO", strconv.Itoa(i)))
	}
	for i := range 20 {
		require.Equal(s, strconv.Itoa(i), s.receive(c))
	}
}

func pauseLink(s *suite) {
	c := s.dial()
	s.Faults().Pause()
	s.send(c, cmd("HSET", "h", "f", "v"))
	s.mute(c)
	require.EqualValues(s, 0, s.admin("EXISTS", "h"))
	ctx, cancel := context.WithTimeout(s.Context(), quiet)
	defer cancel()
	_, err := redistest.DialClient(ctx, s.Dialer(), s.Addr())
	require.ErrorIs(s, err, context.DeadlineExceeded)
	s.Faults().Resume()
	require.EqualValues(s, 1, s.receive(c))

	s.Faults().PauseReplies()
	s.send(c, cmd("HSET", "h", "g", "v"))
	s.eventually("the request arrives", func() bool { return s.admin("HLEN", "h") == int64(2) })
	s.mute(c)
	s.Faults().Resume()
	require.EqualValues(s, 1, s.receive(c))
}

func loseReply(s *suite) {
	c, other := s.dial(), s.dial()
	rule := s.Faults().LoseReply(redistest.Both(redistest.Named("HSET"), redistest.WithArg("lost")), 1)
	s.send(c, cmd("PING"), cmd("HSET", "h", "lost", "1"), cmd("HSET", "h", "behind", "1"))
	require.Equal(s, "PONG", s.receive(c), "earlier replies arrive")
	s.fired(rule)
	s.eventually("both are executed", func() bool { return s.admin("HLEN", "h") == int64(2) })
	s.mute(c)
	require.Equal(s, "PONG", s.ask(other, "PING"), "only that connection is concerned")
	require.EqualValues(s, 0, s.ask(other, "HSET", "h", "lost", "2"), "and only that one command")
	require.Equal(s, 1, rule.Hits())
	s.Faults().Cut()
	s.ended(c)
}

func dropReplies(s *suite) {
	c := s.dial()
	s.Faults().DropReplies()
	s.send(c, cmd("SET", "k", "v"))
	s.eventually("it is executed", func() bool { return s.admin("GET", "k") == "v" })
	fresh := s.dial() // connecting works
	s.send(fresh, cmd("PING"))
	s.mute(c)
	s.mute(fresh)
	s.Faults().Heal()
	s.send(c, cmd("SET", "k", "w"))
	s.eventually("requests still arrive", func() bool { return s.admin("GET", "k") == "w" })
	s.mute(c)
	whole := s.dial()
	require.Equal(s, "PONG", s.ask(whole, "PING"))
	require.Equal(s, 2, s.Faults().CutMute(), "those that have lost something")
	s.ended(c)
	s.ended(fresh)
	require.Equal(s, "PONG", s.ask(whole, "PING"))
}

func blackHole(s *suite) {
	c := s.dial()
	s.Faults().BlackHole()
	s.send(c, cmd("SET", "k", "v"))
	s.mute(c)
	ctx, cancel := context.WithTimeout(s.Context(), quiet)
	defer cancel()
	_, err := redistest.DialClient(ctx, s.Dialer(), s.Addr())
	require.ErrorIs(s, err, context.DeadlineExceeded)
	s.Kill() // its end is not seen either
	s.mute(c)
	require.NoError(s, s.Restart(true))
	s.Faults().Heal()
	require.EqualValues(s, 0, s.admin("EXISTS", "k"))
	require.Equal(s, "PONG", s.ask(s.dial(), "PING"))
}

func cut(s *suite) {
	a, b := s.dial(), s.dial()
	s.ask(a, "PING")
	s.ask(b, "SUBSCRIBE", "ch")
	require.Equal(s, 2, s.Faults().Cut())
	s.ended(a)
	s.ended(b)
	require.Error(s, a.Send(cmd("PING")))
	require.Zero(s, s.Faults().Conns())
	require.Equal(s, "PONG", s.ask(s.dial(), "PING"))
	s.eventually("the server notices", func() bool { return s.admin("PUBLISH", "ch", "x") == int64(0) })
}

func refuse(s *suite) {
	c := s.dial()
	s.Faults().Refuse(true)
	_, err := redistest.DialClient(s.Context(), s.Dialer(), s.Addr())
	require.ErrorContains(s, err, "refused")
	require.Equal(s, "PONG", s.ask(c, "PING"))
	s.Faults().Refuse(false)
	require.Equal(s, "PONG", s.ask(s.dial(), "PING"))
}

func failInOrder(s *suite) {
	c := s.dial()
	const loading = "LOADING Redis is loading the dataset in memory"
	rule := s.Faults().Fail(redistest.Named("hset"), 2, loading)
	s.send(c, cmd("PING"), cmd("HSET", "h", "a", "1"), cmd("ECHO", "x"), cmd("HSET", "h", "b", "1"), cmd("HSET", "h", "c", "1"))
	require.Equal(s, list("PONG", redistest.Error(loading), "x", redistest.Error(loading), int64(1)),
		list(s.receive(c), s.receive(c), s.receive(c), s.receive(c), s.receive(c)))
	require.Equal(s, list("c"), s.admin("HKEYS", "h"))
	require.Equal(s, 2, rule.Hits())

	all := s.Faults().Fail(redistest.Any(), -1, "READONLY You can't write against a read only replica.")
	for range 3 {
		require.True(s, strings.HasPrefix(string(s.refused(c, "PING")), "READONLY "))
	}
	all.Remove()
	require.Equal(s, "PONG", s.ask(c, "PING"))

	// Also in the place of confirmations.
	s.Faults().Fail(redistest.Named("SUBSCRIBE"), 1, "NOPERM no")
	s.send(c, cmd("SUBSCRIBE", "x"), cmd("SUBSCRIBE", "y", "z"), cmd("UNSUBSCRIBE"), cmd("PING"))
	require.Equal(s, redistest.Error("NOPERM no"), s.receive(c))
	for range 4 {
		require.IsType(s, list(), s.receive(c))
	}
	require.Equal(s, "PONG", s.receive(c))
	s.Faults().Answer(redistest.Named("CLIENT ID"), 1, ":7\r\n")
	require.EqualValues(s, 7, s.ask(c, "CLIENT", "ID"))
}

func cutAround(s *suite) {
	c := s.dial()
	s.Faults().CutBefore(redistest.WithArg("before"), 1)
	s.send(c, cmd("SET", "before", "1"), cmd("SET", "behind", "1"))
	s.ended(c)
	c = s.dial()
	s.Faults().CutAfter(redistest.WithArg("after"), 1)
	s.send(c, cmd("SET", "after", "1"))
	s.ended(c)
	require.EqualValues(s, 1, s.admin("EXISTS", "after"))
	require.EqualValues(s, 0, s.admin("EXISTS", "before", "behind"))
}

func delayOne(s *suite) {
	c, other := s.dial(), s.dial()
	const d = 40 * time.Millisecond
	for _, rule := range []func() *redistest.Rule{
		func() *redistest.Rule { return s.Faults().DelayCommand(redistest.Named("INCR"), 1, d) },
		func() *redistest.Rule { return s.Faults().DelayReply(redistest.Named("INCR"), 1, d) },
	} {
		r := rule()
		s.ask(c, "SET", "n", "0")
		began := time.Now()
		s.send(c, cmd("INCR", "n"), cmd("ECHO", "behind"))
		s.fired(r)
		require.Equal(s, "PONG", s.ask(other, "PING"), "other connections do not wait")
		require.EqualValues(s, 1, s.receive(c))
		require.Equal(s, "behind", s.receive(c))
		require.GreaterOrEqual(s, time.Since(began), d)
	}
}

func callBefore(s *suite) {
	c := s.dial()
	var seen []string
	s.Faults().Call(redistest.Named("SET"), -1, func(cmd []string) { seen = append(seen, cmd[1]) })
	s.Faults().Fail(redistest.WithArg("b"), 1, "BUSY no")
	s.ask(c, "SET", "a", "1")
	s.refused(c, "SET", "b", "1")
	s.ask(c, "GET", "a")
	require.Equal(s, []string{"a", "b"}, seen, "also what another rule answers")

	s.Faults().Call(redistest.WithArg("last"), 1, func([]string) { s.Kill() })
	s.send(c, cmd("SET", "last", "1"))
	s.ended(c)
	require.NoError(s, s.Restart(true))
	require.EqualValues(s, 0, s.admin("EXISTS", "last"))
}

const zombieTime = 50 * time.Millisecond

func zombieArrives(s *suite) {
	c := s.dial()
	s.ask(c, "PING")
	s.Faults().Zombie(zombieTime)
	began := time.Now()
	s.send(c, cmd("SET", "late", "1"))
	s.ended(c)
	require.Error(s, c.Send(cmd("SET", "never", "1")))
	fresh := s.dial()
	require.Equal(s, "PONG", s.ask(fresh, "PING"), "new connections live")
	s.eventually("the bytes arrive", func() bool { return s.admin("EXISTS", "late") == int64(1) })
	require.GreaterOrEqual(s, time.Since(began), zombieTime)
	require.EqualValues(s, 0, s.admin("EXISTS", "never"))
}

func zombieKilled(s *suite) {
	c := s.dial()
	id := s.id(c)
	rule := s.Faults().ZombieOn(redistest.WithArg("late"), 1, zombieTime)
	s.send(c, cmd("SET", "late", "1"))
	s.ended(c)
	s.fired(rule)
	require.EqualValues(s, 1, s.ask(s.dial(), "CLIENT", "KILL", "ID", id), "for the server it is still there")
	time.Sleep(zombieTime + quiet)
	require.EqualValues(s, 0, s.admin("EXISTS", "late"))
}

func zombieUnderWay(s *suite) {
	c := s.dial()
	s.ask(c, "PING")
	s.Faults().PauseRequests()
	s.send(c, cmd("SET", "one", "1"))
	s.send(c, cmd("SET", "two", "2"))
	s.Faults().Zombie(zombieTime)
	s.Faults().Resume()
	s.ended(c)
	require.EqualValues(s, 0, s.admin("EXISTS", "one", "two"))
	s.eventually("both arrive", func() bool { return s.admin("EXISTS", "one", "two") == int64(2) })
}

func pushFaults(s *suite) {
	c, sub := s.dial(), s.dial()
	s.ask(sub, "SUBSCRIBE", "ch")
	publish := func(msgs ...string) {
		for _, m := range msgs {
			require.EqualValues(s, 1, s.ask(c, "PUBLISH", "ch", m))
		}
	}
	s.Faults().LosePush(2)
	publish("1", "2", "3")
	require.Equal(s, list("message", "ch", "3"), s.receive(sub))
	require.Equal(s, 2, s.Faults().Counts().PushesLost)

	s.Faults().LosePushRate(1)
	publish("4")
	require.Equal(s, list("pong", ""), s.ask(sub, "PING"), "replies are not pushes")
	s.Faults().LosePushRate(0)

	const d = 40 * time.Millisecond
	s.Faults().DelayPush(redistest.Delay{Fixed: d})
	began := time.Now()
	publish("5")
	require.Equal(s, list("message", "ch", "5"), s.receive(sub))
	require.GreaterOrEqual(s, time.Since(began), d)
	s.Faults().Heal()
	publish("6")
	require.Equal(s, list("message", "ch", "6"), s.receive(sub))
}

func window(s *suite) {
	c := s.dial()
	s.Faults().Window(1000)
	s.Faults().PauseRequests()
	s.send(c, cmd("ECHO", strings.Repeat("x", 2000))) // the write that fills it goes in whole
	require.NoError(s, c.Conn().SetWriteDeadline(time.Now().Add(quiet)))
	require.ErrorIs(s, c.Send(cmd("PING")), os.ErrDeadlineExceeded)
	require.NoError(s, c.Conn().SetWriteDeadline(time.Time{}))
	s.Faults().Resume()
	require.Len(s, s.receive(c), 2000)
	require.Equal(s, "PONG", s.ask(c, "PING"))
}

func deadlines(s *suite) {
	c := s.dial()
	require.NoError(s, c.Conn().SetReadDeadline(time.Unix(0, 0)))
	_, err := c.Receive()
	require.ErrorIs(s, err, os.ErrDeadlineExceeded)
	var timeout interface{ Timeout() bool }
	require.True(s, errors.As(err, &timeout) && timeout.Timeout())
	require.NoError(s, c.Conn().SetDeadline(time.Time{}))
	require.Equal(s, "PONG", s.ask(c, "PING"))

	// A deadline set while a read waits ends it.
	read := make(chan error, 1)
	go func() { _, err := c.Receive(); read <- err }()
	require.NoError(s, c.Conn().SetReadDeadline(time.Now().Add(time.Millisecond)))
	require.ErrorIs(s, <-read, os.ErrDeadlineExceeded)
	require.NoError(s, c.Conn().SetReadDeadline(time.Time{}))

	// And so does Close.
	go func() { _, err := c.Receive(); read <- err }()
	require.NoError(s, c.Close())
	require.Error(s, <-read)
	require.Error(s, c.Close())
}

func paths(s *suite) {
	mine, theirs := s.dial(), s.Path()
	other := s.dialBy(theirs)
	theirs.Pause()
	s.send(other, cmd("PING"))
	s.mute(other)
	require.Equal(s, "PONG", s.ask(mine, "PING"))
	theirs.Heal()
	require.Equal(s, "PONG", s.receive(other))
	require.Equal(s, 1, theirs.Cut())
	s.ended(other)
	require.Equal(s, "PONG", s.ask(mine, "PING"))
}
