package guard

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// The text of the guard's scripts, on a real server and on the embedded one that tests in fake time
// use. The server in memory that stands for them here does the same.
func TestGuardScriptsDoWhatTheProtocolSays(t *testing.T) {
	for _, kind := range []struct {
		name  string
		start func(t *testing.T) (do func(args ...string) member.Reply, flush func())
	}{
		{"in memory", func(*testing.T) (func(args ...string) member.Reply, func()) {
			s := newServer("run")
			return s.do, s.flush
		}},
		{"embedded", func(t *testing.T) (func(args ...string) member.Reply, func()) {
			return served(t, rt.Embedded(t, 1).Servers[0])
		}},
		{"real", func(t *testing.T) (func(args ...string) member.Reply, func()) {
			return served(t, rt.Real(t, 1).Servers[0])
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			do, flush := kind.start(t)
			for _, c := range guardCases {
				t.Run(c.name, func(t *testing.T) {
					flush()
					c.test(&memory{T: t, do: do, flush: flush, embedded: kind.name == "embedded"})
				})
			}
		})
	}
}

func served(t *testing.T, server redistest.Server) (do func(args ...string) member.Reply, flush func()) {
	do = func(args ...string) member.Reply {
		v, err := server.Do(t.Context(), args...)
		var refused redistest.Error
		if errors.As(err, &refused) {
			return replyOf(refused)
		}
		require.NoError(t, err, args)
		return replyOf(v)
	}
	return do, func() { require.NoError(t, server.Flush()) }
}

// replyOf makes a reply of what a test server answers.
func replyOf(v any) member.Reply {
	switch v := v.(type) {
	case nil:
		return null
	case int64:
		return num(v)
	case string:
		return str(v)
	case redistest.Error:
		return member.Reply{Kind: '-', Str: []byte(v)}
	case []any:
		r := list()
		for _, e := range v {
			r.Elems = append(r.Elems, replyOf(e))
		}
		return r
	}
	panic(v)
}

func show(r member.Reply) string {
	switch r.Kind {
	case ':':
		return strconv.FormatInt(r.Int, 10)
	case '*':
		var parts []string
		for _, e := range r.Elems {
			parts = append(parts, show(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return string(r.Str)
}

// memory is what one member knows of itself.
type memory struct {
	*testing.T
	do       func(args ...string) member.Reply
	flush    func()
	embedded bool
}

// call executes a command that no server may refuse.
func (s *memory) call(args ...string) member.Reply {
	s.Helper()
	r := s.do(args...)
	require.NotEqual(s, byte('-'), r.Kind, "%s: %q", r.Str, args)
	return r
}

func (s *memory) send(cmd []byte) member.Reply { s.Helper(); return s.call(words(cmd)...) }

// readOnly sends what writes to a replica.
func (s *memory) readOnly(cmd []byte) {
	s.Helper()
	r := s.do(words(cmd)...)
	require.Equal(s, byte('-'), r.Kind, show(r))
	require.Contains(s, string(r.Str), "READONLY")
}

// run executes one of the guard's scripts.
func (s *memory) run(cmd []byte) marker {
	s.Helper()
	r := s.send(cmd)
	m, err := readMarker(&r, time.Now())
	require.NoError(s, err, show(r))
	return m
}

func (s *memory) look() marker { s.Helper(); return s.run(plainHome.look) }

func (s *memory) ask(args ...string) any {
	s.Helper()
	switch r := s.call(args...); r.Kind {
	case ':':
		return r.Int
	case '$':
		return string(r.Str)
	}
	return nil
}

func (s *memory) markCommand(runID string, q, quarantine time.Duration, state string) []byte {
	s.Helper()
	return plainHome.markCommand(runID, s.look().now, q, quarantine, state)
}

// fillCommand writes some counters, and others are to come.
func fillCommand(h *home, id string, p plan, fields ...string) []byte {
	return h.command(restoreLua, append([]string{id, flag(p.byClock), millis(leases), "0"}, fields...)...)
}

// wholly is a plan that brings what sources have.
var wholly = plan{known: true}

// restored makes a member whole in two steps.
func (s *memory) restored(m marker, p plan, fields ...string) marker {
	s.Helper()
	s.send(fillCommand(plainHome, m.id, p, fields...))
	return s.run(plainHome.command(restoreLua, m.id, flag(p.byClock), millis(leases), "1"))
}

// unchanged runs a script that must do nothing but tell how things are.
func (s *memory) unchanged(cmd []byte) { s.Helper(); s.unchangedAt(plainHome, cmd) }

func (s *memory) unchangedAt(h *home, cmd []byte) {
	s.Helper()
	picture := func() string {
		m := s.run(h.look)
		counters, flat := make(map[string]string), s.call("HGETALL", h.tokens).Elems
		for i := 0; i < len(flat); i += 2 {
			counters[show(flat[i])] = show(flat[i+1])
		}
		return fmt.Sprint(m.id, " ", m.state, " ", m.q, m.left > 0, m.clk, m.raised >= 0, " ", m.repl, " ", counters)
	}
	before := picture()
	m := s.run(cmd)
	require.Equal(s, before, picture())
	require.Equal(s, s.run(h.look).id, m.id, "it tells what is there")
}

// replicationID is what the server calls its memory. The embedded server is never a replica.
func (s *memory) replicationID() (id string, ok bool) {
	s.Helper()
	if s.embedded {
		return "", false
	}
	info, _ := s.ask("INFO", "replication").(string)
	id = resp.Field([]byte(info), "master_replid:")
	require.NotEmpty(s, id, info)
	return id, true
}

// about requires that d is left of a time that began a moment ago.
func (s *memory) about(d, left time.Duration) {
	s.Helper()
	require.Greater(s, left, d-20*time.Second)
	require.LessOrEqual(s, left, d)
}

// follow makes the server the replica of a master that nobody can reach, until the end of the case.
func (s *memory) follow() {
	s.Helper()
	s.ask("REPLICAOF", "127.0.0.1", "1")
	s.Cleanup(s.takeOver)
}

// takeOver makes the server a master, also where it is one.
func (s *memory) takeOver() { s.Helper(); s.ask("REPLICAOF", "NO", "ONE") }

type guardCase struct {
	name string
	test func(s *memory)
}

// onMaster is a case that a server which is never a replica has no part in.
func onMaster(name string, test func(s *memory, repl string)) guardCase {
	return guardCase{name, func(s *memory) {
		if repl, ok := s.replicationID(); ok {
			test(s, repl)
		}
	}}
}

const (
	leases = 30 * time.Second // q
	rest   = time.Minute      // a quarantine that lasts longer than any test
)

var guardCases = []guardCase{
	{"look finds nothing at an empty member", func(s *memory) {
		m := s.look()
		require.Empty(s, m.id)
		require.Zero(s, m.left)
		require.Negative(s, m.raised)
	}},
	{"mark writes who, for how long, and how", func(s *memory) {
		m := s.run(s.markCommand("run", leases, rest, forgot))
		require.True(s, m.of("run"))
		require.Equal(s, forgot, m.state)
		require.Equal(s, leases, m.q)
		s.about(rest, m.left)
		require.GreaterOrEqual(s, m.age(), time.Duration(0))
		again := s.look()
		require.Equal(s, m.id, again.id)
		require.Equal(s, m.state, again.state)
	}},
	{"mark of a member that forgot deletes its counters", func(s *memory) {
		s.ask("HSET", member.TokensKey, "7", "41") // of a snapshot
		s.run(s.markCommand("run", leases, rest, forgot))
		require.EqualValues(s, 0, s.ask("EXISTS", member.TokensKey))
	}},
	{"mark after another client has meanwhile changes nothing", func(s *memory) {
		s.run(s.markCommand("run", leases, rest, forgot))
		s.ask("HSET", member.TokensKey, "7", "41") // restored by that client
		s.unchanged(s.markCommand("run", 2*leases, 0, neverForgot))
		s.unchanged(s.markCommand("run", 2*leases, 2*rest, forgot))
	}},
	{"mark of another process replaces all of the marker", func(s *memory) {
		first := s.run(s.markCommand("run", leases, rest, neverForgot))
		s.ask("HSET", member.MarkerKey, "clk", "1", "lifted", "5")
		m := s.run(s.markCommand("ru", leases, 0, forgot)) // its name begins alike
		require.True(s, m.of("ru"))
		require.NotEqual(s, first.id, m.id)
		require.False(s, m.clk)
		require.Negative(s, m.raised)
		require.Zero(s, m.left, "no quarantine was asked for")
		require.EqualValues(s, 0, s.ask("EXISTS", quarantineKey))
	}},
	{"restore raises the counters and makes the member whole", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, forgot))
		s.ask("HSET", member.TokensKey, "7", "50", "8", "60") // granted since
		m = s.restored(m, wholly, "7", "100", "8", "55", "9", "1")
		require.Equal(s, whole, m.state)
		require.False(s, m.clk)
		for bucket, want := range map[string]string{"7": "100", "8": "60", "9": "1"} {
			require.Equal(s, want, s.ask("HGET", member.TokensKey, bucket), "bucket %s: the greater of the two", bucket)
		}
	}},
	{"restore tells where order goes on from the clocks", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, forgot))
		require.True(s, s.run(plainHome.command(restoreLua, m.id, "1", millis(leases), "1")).clk)
	}},
	{"restore for another marking does nothing", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, forgot))
		s.unchanged(plainHome.command(restoreLua, m.id+"0", "0", millis(leases), "1"))
		s.unchanged(plainHome.command(restoreLua, "run 1", "0", millis(leases), "1"))
	}},
	{"restore of a member in quarantine does nothing", func(s *memory) {
		m := s.run(s.markCommand("run", leases, rest, forgot))
		s.unchanged(plainHome.command(restoreLua, m.id, "0", millis(leases), "1"))
	}},
	{"restore of a member that is whole, or never forgot, does nothing", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, forgot))
		s.run(plainHome.command(restoreLua, m.id, "0", millis(leases), "1"))
		s.unchanged(plainHome.command(restoreLua, m.id, "1", millis(leases), "1")) // a second client's, late
		m = s.run(s.markCommand("other", leases, 0, neverForgot))
		s.unchanged(plainHome.command(restoreLua, m.id, "1", millis(leases), "1"))
	}},
	{"lift raises q and says when", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, neverForgot))
		require.Negative(s, m.raised)
		m = s.run(plainHome.command(liftLua, m.id, millis(2*leases)))
		require.Equal(s, 2*leases, m.q)
		require.GreaterOrEqual(s, m.raised, time.Duration(0))
		require.Less(s, m.raised, 20*time.Second)
	}},
	{"lift prolongs a quarantine by the difference, once", func(s *memory) {
		for _, state := range []string{forgot, neverForgot} {
			s.flush()
			m := s.run(s.markCommand("run", leases, rest, state))
			for _, q := range []time.Duration{2 * leases, 2 * leases, 3 * leases} { // of three clients
				m = s.run(plainHome.command(liftLua, m.id, millis(q)))
			}
			require.Equal(s, 3*leases, m.q)
			s.about(rest+2*leases, m.left)
		}
	}},
	{"lift of a member that waits to be restored begins another quarantine", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, forgot))
		m = s.run(plainHome.command(liftLua, m.id, millis(2*leases)))
		require.Equal(s, forgot, m.state)
		s.about(leases, m.left)
	}},
	{"lift of a member that votes silences nobody", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, neverForgot))
		require.Zero(s, s.run(plainHome.command(liftLua, m.id, millis(2*leases))).left)
		m = s.run(s.markCommand("other", leases, 0, forgot))
		s.run(plainHome.command(restoreLua, m.id, "0", millis(leases), "1"))
		require.Zero(s, s.run(plainHome.command(liftLua, m.id, millis(2*leases))).left)
	}},
	{"restore with a greater q prolongs the quarantine and restores nothing", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, forgot))
		m = s.run(plainHome.command(restoreLua, m.id, "0", millis(2*leases), "1"))
		require.Equal(s, forgot, m.state)
		require.Equal(s, 2*leases, m.q)
		s.about(leases, m.left)
		require.GreaterOrEqual(s, m.raised, time.Duration(0), "clients that ask for so much must wait until all know")
		require.EqualValues(s, 0, s.ask("EXISTS", member.TokensKey))
		s.ask("DEL", quarantineKey) // it is over
		m = s.run(plainHome.command(restoreLua, m.id, "0", millis(leases), "1"))
		require.Equal(s, forgot, m.state, "a client that knows less may have read the counters before q was raised")
		m = s.run(plainHome.command(restoreLua, m.id, "0", millis(2*leases), "1"))
		require.Equal(s, whole, m.state)
		require.Equal(s, 2*leases, m.q)
	}},
	{"lift never lowers, and leaves another marking alone", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, neverForgot))
		s.unchanged(plainHome.command(liftLua, m.id, millis(leases-time.Second)))
		s.unchanged(plainHome.command(liftLua, m.id, millis(leases)))
		s.unchanged(plainHome.command(liftLua, "run 1", millis(2*leases)))
	}},
	{"stamp of a slot whose master forgot waits until others were asked for how long", func(s *memory) {
		key := tokensOf(7)
		stamp := func(told bool) int64 {
			s.ask("HSET", key, "pending", "word")
			return s.send(stampCommand(7, "new 9", leases, told, "word")).Int
		}
		s.ask("HSET", key, "id", "old 5", "forgot", "1")
		require.EqualValues(s, -1, stamp(false))
		require.Equal(s, "old 5", s.ask("HGET", key, "id"))
		require.EqualValues(s, 1, stamp(true))
		require.Equal(s, "new 9", s.ask("HGET", key, "id"))
		s.ask("HSET", key, "id", "old "+strconv.FormatInt(time.Now().UnixMicro(), 10), "forgot", "1")
		require.EqualValues(s, 0, stamp(true), "marked a moment ago")
		s.ask("HSET", key, "id", "old 5")
		s.ask("HDEL", key, "forgot")
		require.EqualValues(s, 1, stamp(false), "its master remembers")
	}},
	{"stamp leaves one field, and no hash without one", func(s *memory) {
		key := tokensOf(7)
		require.EqualValues(s, 1, s.ask("HSET", key, "forgot", "1"))
		require.EqualValues(s, 0, s.ask("HSET", key, "forgot", "2"), "no new field")
		require.EqualValues(s, 2, s.ask("HSET", key, "pending", "word", "base", "500")) // of a version that gave slots one
		require.EqualValues(s, 1, s.send(stampCommand(7, "new 9", leases, false, "word")).Int, "nobody stamped it")
		require.EqualValues(s, 0, s.ask("HDEL", key, "forgot"))
		require.EqualValues(s, 1, s.ask("HDEL", key, "id"))
		require.EqualValues(s, 0, s.ask("EXISTS", key))
		require.EqualValues(s, 0, s.ask("DEL", key))
	}},
	{"stamp needs the announcement that the marker was looked at after", func(s *memory) {
		key := tokensOf(7)
		require.Equal(s, "mine", string(s.send(announceCommand(7, "mine")).Str))
		require.Equal(s, "mine", string(s.send(announceCommand(7, "other")).Str), "both go on with it")
		require.EqualValues(s, -2, s.send(stampCommand(7, "new 9", leases, true, "other")).Int)
		require.Nil(s, s.ask("HGET", key, "id"))
		require.EqualValues(s, 1, s.send(stampCommand(7, "new 9", leases, true, "mine")).Int)
		require.EqualValues(s, 1, s.send(stampCommand(7, "new 9", leases, true, "mine")).Int, "the other one finds it stamped")
		require.EqualValues(s, 0, s.ask("HDEL", key, "pending"))
		require.EqualValues(s, -2, s.send(stampCommand(7, "new 10", leases, true, "mine")).Int)
		require.Equal(s, "new 9", s.ask("HGET", key, "id"))
		s.ask("DEL", key) // the master is emptied
		require.EqualValues(s, -2, s.send(stampCommand(7, "new 9", leases, true, "mine")).Int)
		require.EqualValues(s, 0, s.ask("EXISTS", key))
	}},
	{"seal stamps what was announced, and deletes the counters of a master that forgot", func(s *memory) {
		key := tokensOf(7)
		m := marker{id: "new 9", state: neverForgot}
		s.send(sealCommand(7, m, "mine"))
		require.EqualValues(s, 0, s.ask("EXISTS", key), "it was emptied")
		s.ask("HSET", key, "id", "old 5", "7", "41", "pending", "other", "base", "500") // of a version that gave slots one
		s.send(sealCommand(7, m, "mine"))
		require.Equal(s, "old 5", s.ask("HGET", key, "id"), "another client announced it")
		seal := func() {
			s.ask("HSET", key, "pending", "mine")
			s.send(sealCommand(7, m, "mine"))
			require.Equal(s, m.id, s.ask("HGET", key, "id"))
			require.EqualValues(s, 0, s.ask("HDEL", key, "pending"))
		}
		seal()
		require.Equal(s, "41", s.ask("HGET", key, "7"), "it remembers")
		require.Nil(s, s.ask("HGET", key, "base"))
		require.Nil(s, s.ask("HGET", key, "forgot"))
		m = marker{id: "new 10", state: neverForgot, left: time.Second}
		seal()
		require.Equal(s, "1", s.ask("HGET", key, "forgot"))
		require.Equal(s, "41", s.ask("HGET", key, "7"))
		m = marker{id: "new 11", state: forgot}
		seal()
		require.Nil(s, s.ask("HGET", key, "7"))
		require.Equal(s, "1", s.ask("HGET", key, "forgot"))
		s.ask("HSET", key, "7", "50") // restored meanwhile
		seal()
		require.Equal(s, "50", s.ask("HGET", key, "7"), "it is stamped already")
	}},
	onMaster("carry of a marker that was not announced, or announced before the master was emptied, does nothing", func(s *memory, repl string) {
		h := slotHome(4, "me")
		m := marker{id: "run 10", state: whole, q: leases, recall: recall{repl: repl}}
		require.Empty(s, s.run(h.carryCommand(m, 0, "word")).id)
		s.ask("HSET", h.tokens, "pending", "other")
		require.Empty(s, s.run(h.carryCommand(m, 0, "word")).id)
		require.EqualValues(s, 0, s.ask("EXISTS", h.marker))
		require.Equal(s, "run 10", s.run(h.carryCommand(m, 0, "other")).id)
		require.EqualValues(s, 0, s.ask("EXISTS", h.tokens), "the announcement is gone")
	}),
	{"restore and refill write no counter of 0", func(s *memory) {
		m := s.run(s.markCommand("run", leases, 0, forgot))
		s.restored(m, wholly, "7", "0")
		require.EqualValues(s, 0, s.ask("EXISTS", member.TokensKey))
		s.ask("HSET", tokensOf(7), "id", "run 5")
		require.EqualValues(s, 1, s.send(refillCommand(7, "run 5", &wholly, []string{"7", "0"})).Int)
		require.Nil(s, s.ask("HGET", tokensOf(7), "7"))
	}},
	{"refill raises the counter of a slot", func(s *memory) {
		key := tokensOf(7)
		s.ask("HSET", key, "id", "run 5", "8", "3")
		s.ask("HSET", tokensOf(8), "id", "run 5")
		for _, c := range []struct{ token, want int64 }{{50, 50}, {49, 50}, {50, 50}, {1e15, 1e15}, {9, 1e15}} {
			require.EqualValues(s, 1, s.send(refillCommand(7, "run 5", &wholly, []string{"7", strconv.FormatInt(c.token, 10)})).Int)
			require.Equal(s, strconv.FormatInt(c.want, 10), s.ask("HGET", key, "7"))
		}
		require.Equal(s, "run 5", s.ask("HGET", key, "id"))
		require.Equal(s, "3", s.ask("HGET", key, "8"), "another bucket")
		require.Nil(s, s.ask("HGET", tokensOf(8), "7"), "another slot")
		fields := []string{"7", "9", "7.3", "70", "limit:redquorum:s1:{k}", "1048580"}
		s.ask("HSET", key, "7.3", "80")
		require.EqualValues(s, 1, s.send(refillCommand(7, "run 5", &wholly, fields)).Int)
		for i, want := range []string{"1000000000000000", "80", "1048580"} {
			require.Equal(s, want, s.ask("HGET", key, fields[2*i]))
		}
	}},
	{"refill of a slot with another stamp, or none, does nothing", func(s *memory) {
		key := tokensOf(7)
		require.EqualValues(s, 0, s.send(refillCommand(7, "run 5", &wholly, []string{"7", "50"})).Int)
		require.EqualValues(s, 0, s.ask("EXISTS", key))
		s.ask("HSET", key, "id", "run 50", "7", "3")
		require.EqualValues(s, 0, s.send(refillCommand(7, "run 5", &wholly, []string{"7", "50"})).Int)
		require.Equal(s, "3", s.ask("HGET", key, "7"))
	}},
	onMaster("look at a master tells whose memory it is, and the stamp of its slot", func(s *memory, repl string) {
		for _, h := range []*home{plainHome, slotHome(3, "me")} {
			s.flush()
			r := s.send(h.look)
			require.Len(s, r.Elems, 10)
			require.Empty(s, string(r.Elems[7].Str))
			require.Contains(s, string(r.Elems[8].Str), "role:master\r\n")
			require.Contains(s, string(r.Elems[8].Str), "master_replid:"+repl+"\r\n")
			require.Empty(s, string(r.Elems[9].Str))

			s.ask("HSET", h.marker, "id", "run 5", "state", whole, "q", millis(leases), "repl", "another")
			s.ask("HSET", h.tokens, "id", "run 7", "3", "41")
			m := s.run(h.look)
			require.Equal(s, "run 5", m.id)
			require.Equal(s, "run 7", m.stamp)
			require.Equal(s, "another", m.repl)
			require.Equal(s, repl, m.now)
			require.Equal(s, "master", m.role)
			require.False(s, m.known())
			require.True(s, m.renamed())

			require.Empty(s, s.run(slotHome(3, "other").look).id, "the marker of another master")
			next := s.run(slotHome(4, "me").look)
			require.Empty(s, next.id, "in another slot")
			require.Empty(s, next.stamp)
		}
	}),
	onMaster("look at a master that was a replica tells what its memory was called before", func(s *memory, repl string) {
		first := s.run(plainHome.markCommand("run", repl, leases, 0, neverForgot))
		require.True(s, first.of("run"))
		s.follow()
		m := s.run(plainHome.look)
		require.Equal(s, "slave", m.role)
		require.Equal(s, repl, m.now)
		s.takeOver()
		m = s.run(plainHome.look)
		require.Equal(s, "master", m.role)
		require.Equal(s, first.id, m.id)
		require.Equal(s, repl, m.repl)
		require.Equal(s, repl, m.older)
		require.NotEqual(s, repl, m.now)
		require.True(s, m.promoted())
		require.False(s, m.of("run"), "its memory is that of a replica")
		m = s.run(plainHome.markCommand("run", m.now, leases, rest, forgot))
		require.True(s, m.of("run"))
		require.Equal(s, forgot, m.state)
	}),
	onMaster("mark of a master notes its replication id, in its slot alone", func(s *memory, repl string) {
		for _, h := range []*home{plainHome, slotHome(3, "me")} {
			s.flush()
			s.ask("HSET", h.tokens, "7", "41")
			s.ask("HSET", tokensOf(4), "4", "42")
			m := s.run(h.markCommand("run", repl, leases, rest, forgot))
			require.True(s, m.of("run"))
			require.Equal(s, repl, m.repl)
			require.Equal(s, repl, s.ask("HGET", h.marker, "repl"))
			require.Equal(s, forgot, m.state)
			require.Equal(s, leases, m.q)
			s.about(rest, m.left)
			require.EqualValues(s, 0, s.ask("EXISTS", h.tokens))
			require.EqualValues(s, 1, s.ask("EXISTS", tokensOf(4)))
		}
		require.EqualValues(s, 0, s.ask("EXISTS", member.MarkerKey))
		require.EqualValues(s, 0, s.ask("EXISTS", quarantineKey))
	}),
	onMaster("mark of one process is made anew for another memory", func(s *memory, repl string) {
		h := slotHome(3, "me")
		s.run(h.markCommand("run", "another", leases, rest, neverForgot))
		s.ask("HSET", h.marker, "clk", "1", "lifted", "5")
		m := s.run(h.markCommand("run", repl, 2*leases, 0, forgot))
		require.True(s, m.of("run"))
		require.Equal(s, forgot, m.state)
		require.Equal(s, 2*leases, m.q)
		require.Zero(s, m.left)
		require.False(s, m.clk)
		require.Negative(s, m.raised)
		s.ask("HSET", h.tokens, "7", "41")
		s.unchangedAt(h, h.markCommand("run", repl, leases, rest, forgot))
	}),
	onMaster("mark of a master looks whether a replication id is noted", func(s *memory, repl string) {
		for _, former := range []string{"another", ""} {
			s.flush()
			s.run(plainHome.markCommand("run", former, leases, 0, neverForgot))
			require.Equal(s, forgot, s.run(plainHome.markCommand("run", repl, leases, 0, forgot)).state)
			require.Equal(s, repl, s.ask("HGET", member.MarkerKey, "repl"))
			s.unchanged(plainHome.markCommand("run", repl, leases, rest, neverForgot))
		}
	}),
	onMaster("rename notes another replication id and nothing else", func(s *memory, repl string) {
		for _, h := range []*home{plainHome, slotHome(3, "me")} {
			s.flush()
			m := s.run(h.markCommand("run", "another", leases, rest, forgot))
			require.False(s, m.of("run"))
			s.ask("HSET", h.tokens, "7", "41")
			s.ask("HSET", h.marker, "clk", "1")
			now := s.run(h.command(renameLua, m.id, repl))
			require.True(s, now.of("run"))
			require.Equal(s, m.id, now.id)
			require.Equal(s, repl, now.repl)
			require.Equal(s, forgot, now.state)
			require.Equal(s, leases, now.q)
			require.True(s, now.clk)
			require.Negative(s, now.raised)
			s.about(rest, now.left)
			require.Equal(s, "41", s.ask("HGET", h.tokens, "7"))
			require.Equal(s, repl, s.run(h.look).repl)
		}
	}),
	onMaster("rename for another marking, or none, does nothing", func(s *memory, repl string) {
		h := slotHome(3, "me")
		require.Empty(s, s.run(h.command(renameLua, "run 5", repl)).id)
		require.EqualValues(s, 0, s.ask("EXISTS", h.marker))
		m := s.run(h.markCommand("run", "another", leases, rest, forgot))
		s.unchangedAt(h, h.command(renameLua, "run 5", repl))
		s.unchangedAt(h, h.command(renameLua, m.id+"0", repl))
	}),
	onMaster("carry of a marker that another client has carried raises its q", func(s *memory, repl string) {
		s.ask("HSET", member.MarkerKey, "id", "run 5", "state", forgot, "q", millis(leases), "repl", repl)
		s.ask("SET", quarantineKey, "1", "PX", millis(rest))
		m := s.run(plainHome.command(carryLua, "run 5", forgot, millis(2*leases), "0", repl, "0", ""))
		require.Equal(s, 2*leases, m.q)
		require.Greater(s, m.left, rest+leases-20*time.Second)
		s.unchanged(plainHome.command(carryLua, "run 5", forgot, millis(3*leases), "0", "other", "0", ""))
		s.unchanged(plainHome.command(carryLua, "run 5", whole, millis(leases), "1", repl, "0", ""))
	}),
	onMaster("carry writes the marker in another slot, with what is left of the quarantine", func(s *memory, repl string) {
		from, to := slotHome(3, "me"), slotHome(4, "me")
		s.run(from.markCommand("run", repl, leases, rest, forgot))
		s.ask("HSET", from.marker, "clk", "1")
		s.ask("HSET", from.tokens, "3", "41")
		s.ask("HSET", to.tokens, "4", "42", "id", "run 5")
		m := s.run(from.look)
		got := s.run(s.carry(to, m, m.left-10*time.Second))
		require.Equal(s, m.id, got.id)
		require.True(s, got.of("run"))
		require.Equal(s, forgot, got.state)
		require.Equal(s, leases, got.q)
		require.True(s, got.clk)
		require.Equal(s, repl, got.repl)
		require.Equal(s, "run 5", got.stamp, "the slot's own")
		s.about(rest-10*time.Second, got.left)
		require.Equal(s, "42", s.ask("HGET", to.tokens, "4"))

		require.Equal(s, m.id, s.run(from.look).id, "it stays where it was")
		s.about(rest, s.run(from.look).left)
		require.Equal(s, "41", s.ask("HGET", from.tokens, "3"))
		s.unchangedAt(to, s.carry(to, m, rest-20*time.Second))
		s.about(rest-10*time.Second, s.run(to.look).left) // who knows of less ends nothing early
		s.about(rest, s.run(s.carry(to, m, rest)).left)

		s.flush()
		m = s.run(from.markCommand("run", repl, leases, 0, neverForgot))
		got = s.run(s.carry(to, m, m.left))
		require.Equal(s, neverForgot, got.state)
		require.False(s, got.clk)
		require.Zero(s, got.left)
		require.EqualValues(s, 0, s.ask("EXISTS", to.quarantine))
	}),
	onMaster("carry replaces all of a marker that was made no later", func(s *memory, repl string) {
		h := slotHome(4, "me")
		carried := marker{id: "run 10", state: whole, q: leases, recall: recall{repl: repl}}
		for _, there := range []string{"run 9", "other 10", "other"} {
			s.flush()
			s.ask("HSET", h.marker, "id", there, "state", forgot, "q", millis(2*leases), "clk", "1", "lifted", "5", "repl", repl)
			s.ask("SET", h.quarantine, "1", "PX", millis(rest))
			m := s.run(s.carry(h, carried, 0))
			require.Equal(s, "run 10", m.id, there)
			require.Equal(s, whole, m.state)
			require.Equal(s, leases, m.q)
			require.False(s, m.clk)
			require.Less(s, m.raised, 10*time.Second, "a raise after the caller's last look did not come along")
			require.GreaterOrEqual(s, m.raised, time.Duration(0))
			s.about(rest, m.left) // of the one that is replaced: nothing ends it early
			s.ask("HSET", h.marker, "id", there)
			s.about(2*rest, s.run(s.carry(h, carried, 2*rest)).left)
			s.ask("HSET", h.marker, "id", there)
			s.about(2*rest, s.run(s.carry(h, carried, rest)).left)
			for _, ago := range []time.Duration{-1, time.Minute} { // as the caller has just read it
				s.ask("HSET", h.marker, "id", there)
				again := carried
				again.raised = ago
				require.InDelta(s, ago, s.run(s.carry(h, again, 0)).raised, float64(10*time.Second))
			}
		}
	}),
	onMaster("carry leaves a marker alone that was made later", func(s *memory, repl string) {
		h := slotHome(4, "me")
		s.ask("HSET", h.marker, "id", "run 10", "state", forgot, "q", millis(leases), "repl", repl)
		for _, id := range []string{"run 9", "other 9", "other"} {
			s.unchangedAt(h, s.carry(h, marker{id: id, state: whole, q: 2 * leases, clk: true, recall: recall{repl: repl}}, rest))
		}
	}),
	onMaster("carry of a marker of another memory does nothing", func(s *memory, _ string) {
		h := slotHome(4, "me")
		another := marker{id: "run 10", state: whole, q: 2 * leases, recall: recall{repl: "another"}}
		require.Empty(s, s.run(s.carry(h, another, rest)).id)
		require.EqualValues(s, 0, s.ask("EXISTS", h.marker))
		require.EqualValues(s, 0, s.ask("EXISTS", h.quarantine))
		s.ask("HSET", h.marker, "id", "run 9", "state", forgot, "q", millis(leases), "repl", "another")
		s.unchangedAt(h, s.carry(h, another, rest))
	}),
	onMaster("a replica executes what writes nothing and refuses the rest", func(s *memory, repl string) {
		h := slotHome(3, "me")
		m := s.run(h.markCommand("run", repl, leases, 0, forgot))
		s.ask("HSET", h.tokens, "id", m.id, "3", "41", "pending", "word")
		later := m
		later.id += "0"
		s.follow()

		s.unchangedAt(h, h.markCommand("run", repl, leases, rest, neverForgot))
		s.unchangedAt(h, h.command(liftLua, m.id, millis(leases)))
		s.unchangedAt(h, h.command(restoreLua, m.id, "0", millis(leases), "1"))
		s.unchangedAt(h, h.command(claimLua, m.id, "word", "1000", "0"))
		s.unchangedAt(h, fillCommand(h, m.id, wholly, "3", "50"))
		s.unchangedAt(h, h.command(renameLua, m.id+"0", "another"))
		s.unchangedAt(h, h.carryCommand(m, 0, "word"))
		require.EqualValues(s, 1, s.send(refillCommand(3, m.id, &wholly, []string{"3", "41"})).Int)
		require.EqualValues(s, 0, s.send(refillCommand(3, "run 5", &wholly, []string{"3", "50"})).Int)

		for _, cmd := range [][]byte{
			h.markCommand("other", repl, leases, rest, neverForgot),
			h.command(liftLua, m.id, millis(2*leases)),
			h.command(renameLua, m.id, "another"),
			h.carryCommand(later, rest, "word"),
			h.carryCommand(m, rest, "word"),
			refillCommand(3, m.id, &wholly, []string{"3", "50"}),
			stampCommand(3, later.id, leases, true, "word"),
			sealCommand(3, later, "word"),
			resp.Command("HSET", h.tokens, "3", "50"),
			resp.Command("HDEL", h.tokens, "none"),
			resp.Command("DEL", h.quarantine),
			resp.Command("SET", h.quarantine, "1", "PX", "1000"),
		} {
			s.readOnly(cmd)
		}
		now := s.run(h.look)
		require.Equal(s, m.id, now.id)
		require.Equal(s, forgot, now.state)
		require.Equal(s, leases, now.q)
		require.Equal(s, repl, now.repl)
		require.Zero(s, now.left)
		require.Equal(s, "41", s.ask("HGET", h.tokens, "3"))
	}),
}

// carry announces a carry to h, and is the command that carries m there.
func (s *memory) carry(h *home, m marker, left time.Duration) []byte {
	s.ask("HSET", h.tokens, "pending", "word")
	return h.carryCommand(m, left, "word")
}
