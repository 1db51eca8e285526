package guard

import (
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
					c.test(&memory{T: t, do: do, flush: flush})
				})
			}
		})
	}
}

func served(t *testing.T, server redistest.Server) (do func(args ...string) member.Reply, flush func()) {
	do = func(args ...string) member.Reply {
		v, err := server.Do(t.Context(), args...)
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
	do    func(args ...string) member.Reply
	flush func()
}

func (s *memory) send(cmd []byte) member.Reply { s.Helper(); return s.do(words(cmd)...) }

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
	switch r := s.do(args...); r.Kind {
	case ':':
		return r.Int
	case '$':
		return string(r.Str)
	}
	return nil
}

func markCommand(runID string, q, quarantine time.Duration, state string) []byte {
	return plainHome.markCommand(runID, "", q, quarantine, state)
}

var tableCommand = plainHome.command(tableLua)

// unchanged runs a script that must do nothing but tell how things are.
func (s *memory) unchanged(cmd []byte) {
	s.Helper()
	picture := func() string {
		m := s.look()
		return strings.Join([]string{m.id, m.state, m.q.String(), strconv.FormatBool(m.left > 0), strconv.FormatBool(m.clk),
			strconv.FormatBool(m.raised >= 0), show(s.send(tableCommand).Elems[7])}, " ")
	}
	before := picture()
	m := s.run(cmd)
	require.Equal(s, before, picture())
	require.Equal(s, s.look().id, m.id, "it tells what is there")
}

type guardCase struct {
	name string
	test func(s *memory)
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
		m := s.run(markCommand("run", leases, rest, forgot))
		require.True(s, m.of("run"))
		require.Equal(s, forgot, m.state)
		require.Equal(s, leases, m.q)
		require.Greater(s, m.left, rest-20*time.Second)
		require.LessOrEqual(s, m.left, rest)
		require.GreaterOrEqual(s, m.age, time.Duration(0))
		again := s.look()
		require.Equal(s, m.id, again.id)
		require.Equal(s, m.state, again.state)
	}},
	{"mark of a member that forgot deletes its counters", func(s *memory) {
		s.ask("HSET", member.TokensKey, "7", "41") // of a snapshot
		s.run(markCommand("run", leases, rest, forgot))
		require.EqualValues(s, 0, s.ask("EXISTS", member.TokensKey))
	}},
	{"mark after another client has meanwhile changes nothing", func(s *memory) {
		s.run(markCommand("run", leases, rest, forgot))
		s.ask("HSET", member.TokensKey, "7", "41") // restored by that client
		s.unchanged(markCommand("run", 2*leases, 0, neverForgot))
		s.unchanged(markCommand("run", 2*leases, 2*rest, forgot))
	}},
	{"mark of another process replaces all of the marker", func(s *memory) {
		first := s.run(markCommand("run", leases, rest, neverForgot))
		s.ask("HSET", member.MarkerKey, "clk", "1", "lifted", "5")
		m := s.run(markCommand("ru", leases, 0, forgot)) // its name begins alike
		require.True(s, m.of("ru"))
		require.NotEqual(s, first.id, m.id)
		require.False(s, m.clk)
		require.Negative(s, m.raised)
		require.Zero(s, m.left, "no quarantine was asked for")
		require.EqualValues(s, 0, s.ask("EXISTS", quarantineKey))
	}},
	{"restore raises the counters and makes the member whole", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, forgot))
		s.ask("HSET", member.TokensKey, "7", "50", "8", "60") // granted since
		m = s.run(plainHome.command(restoreLua, m.id, "0", millis(leases), "7", "100", "8", "55", "9", "1"))
		require.Equal(s, whole, m.state)
		require.False(s, m.clk)
		for bucket, want := range map[string]string{"7": "100", "8": "60", "9": "1"} {
			require.Equal(s, want, s.ask("HGET", member.TokensKey, bucket), "bucket %s: the greater of the two", bucket)
		}
	}},
	{"restore tells where order goes on from the clocks", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, forgot))
		require.True(s, s.run(plainHome.command(restoreLua, m.id, "1", millis(leases))).clk)
	}},
	{"restore for another marking does nothing", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, forgot))
		s.unchanged(plainHome.command(restoreLua, m.id+"0", "0", millis(leases), "7", "100"))
		s.unchanged(plainHome.command(restoreLua, "run 1", "0", millis(leases), "7", "100"))
	}},
	{"restore of a member in quarantine does nothing", func(s *memory) {
		m := s.run(markCommand("run", leases, rest, forgot))
		s.unchanged(plainHome.command(restoreLua, m.id, "0", millis(leases), "7", "100"))
	}},
	{"restore of a member that is whole, or never forgot, does nothing", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, forgot))
		s.run(plainHome.command(restoreLua, m.id, "0", millis(leases), "7", "100"))
		s.unchanged(plainHome.command(restoreLua, m.id, "1", millis(leases), "7", "200")) // a second client's, late
		m = s.run(markCommand("other", leases, 0, neverForgot))
		s.unchanged(plainHome.command(restoreLua, m.id, "1", millis(leases), "7", "200"))
	}},
	{"lift raises q and says when", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, neverForgot))
		require.Negative(s, m.raised)
		m = s.run(plainHome.command(liftLua, m.id, millis(2*leases)))
		require.Equal(s, 2*leases, m.q)
		require.GreaterOrEqual(s, m.raised, time.Duration(0))
		require.Less(s, m.raised, 20*time.Second)
	}},
	{"lift prolongs a quarantine by the difference, once", func(s *memory) {
		for _, state := range []string{forgot, neverForgot} {
			s.flush()
			m := s.run(markCommand("run", leases, rest, state))
			for _, q := range []time.Duration{2 * leases, 2 * leases, 3 * leases} { // of three clients
				m = s.run(plainHome.command(liftLua, m.id, millis(q)))
			}
			require.Equal(s, 3*leases, m.q)
			require.Greater(s, m.left, rest+2*leases-20*time.Second)
			require.LessOrEqual(s, m.left, rest+2*leases)
		}
	}},
	{"lift of a member that waits to be restored begins another quarantine", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, forgot))
		m = s.run(plainHome.command(liftLua, m.id, millis(2*leases)))
		require.Equal(s, forgot, m.state)
		require.Greater(s, m.left, leases-20*time.Second)
		require.LessOrEqual(s, m.left, leases)
	}},
	{"lift of a member that votes silences nobody", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, neverForgot))
		require.Zero(s, s.run(plainHome.command(liftLua, m.id, millis(2*leases))).left)
		m = s.run(markCommand("other", leases, 0, forgot))
		s.run(plainHome.command(restoreLua, m.id, "0", millis(leases)))
		require.Zero(s, s.run(plainHome.command(liftLua, m.id, millis(2*leases))).left)
	}},
	{"restore with a greater q prolongs the quarantine and restores nothing", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, forgot))
		m = s.run(plainHome.command(restoreLua, m.id, "0", millis(2*leases), "7", "100"))
		require.Equal(s, forgot, m.state)
		require.Equal(s, 2*leases, m.q)
		require.Greater(s, m.left, leases-20*time.Second)
		require.LessOrEqual(s, m.left, leases)
		require.GreaterOrEqual(s, m.raised, time.Duration(0), "clients that ask for so much must wait until all know")
		require.EqualValues(s, 0, s.ask("EXISTS", member.TokensKey))
		s.ask("DEL", quarantineKey) // it is over
		m = s.run(plainHome.command(restoreLua, m.id, "0", millis(leases), "7", "100"))
		require.Equal(s, whole, m.state, "a client that knows less does not prolong it")
		require.Equal(s, 2*leases, m.q)
	}},
	{"lift never lowers, and leaves another marking alone", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, neverForgot))
		s.unchanged(plainHome.command(liftLua, m.id, millis(leases-time.Second)))
		s.unchanged(plainHome.command(liftLua, m.id, millis(leases)))
		s.unchanged(plainHome.command(liftLua, "run 1", millis(2*leases)))
	}},
	{"stamp of a slot whose master forgot waits until others were asked for how long", func(s *memory) {
		key := tokensOf(7)
		stamp := func(told bool) int64 {
			return s.send(stampCommand(7, "new 9", leases, told)).Int
		}
		s.ask("HSET", key, "id", "old 5", "forgot", "1")
		require.EqualValues(s, -1, stamp(false))
		require.Equal(s, "old 5", s.ask("HGET", key, "id"))
		require.EqualValues(s, 1, stamp(true))
		require.Equal(s, "new 9", s.ask("HGET", key, "id"))
		s.ask("HSET", key, "id", "old "+strconv.FormatInt(time.Now().UnixMicro(), 10), "forgot", "1")
		require.EqualValues(s, 0, stamp(true), "marked a moment ago")
		s.ask("HDEL", key, "forgot")
		require.EqualValues(s, 1, stamp(false), "its master remembers")
	}},
	{"carry of a marker that another client has carried raises its q", func(s *memory) {
		info, _ := s.ask("INFO", "replication").(string)
		repl := resp.Field([]byte(info), "master_replid:")
		if repl == "" {
			return // the embedded server has no replication id
		}
		s.ask("HSET", member.MarkerKey, "id", "run 5", "state", forgot, "q", millis(leases), "repl", repl)
		s.ask("SET", quarantineKey, "1", "PX", millis(rest))
		m := s.run(groupHome.command(carryLua, "run 5", forgot, millis(2*leases), "0", repl, "0"))
		require.Equal(s, 2*leases, m.q)
		require.Greater(s, m.left, rest+leases-20*time.Second)
		s.unchanged(groupHome.command(carryLua, "run 5", forgot, millis(3*leases), "0", "other", "0"))
	}},
	{"table tells marker and counters", func(s *memory) {
		m := s.run(markCommand("run", leases, 0, neverForgot))
		s.ask("HSET", member.TokensKey, "7", "41")
		r := s.send(tableCommand)
		require.Len(s, r.Elems, 8)
		require.Equal(s, m.id, string(r.Elems[0].Str))
		require.Equal(s, "[7 41]", show(r.Elems[7]))
	}},
}
