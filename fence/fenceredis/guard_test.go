package fenceredis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/slot"
)

// evalOf keeps connections that are free. A connection whose call fails is not used again.
func evalOf(s redistest.Server) Eval {
	free := make(chan *redistest.Client, 16)
	return func(ctx context.Context, script string, keys []string, args ...string) (reply any, err error) {
		var c *redistest.Client
		select {
		case c = <-free:
		default:
			if c, err = redistest.DialClient(ctx, s.Dialer(), s.Addr()); err != nil {
				return nil, err
			}
		}
		words := append([]string{"EVAL", script, strconv.Itoa(len(keys))}, keys...)
		if reply, err = c.Do(ctx, append(words, args...)...); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		select {
		case free <- c:
		default:
			err = c.Close()
		}
		return reply, err
	}
}

type rows struct {
	server redistest.Server
	guard  *Guard
}

func data(resource string) string { return slot.Sibling("data:", resource) }

func (r rows) Get(ctx context.Context, resource string) (string, error) {
	v, err := r.server.Do(ctx, "GET", data(resource))
	value, _ := text(v)
	return value, err
}

func (r rows) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	_, err := r.guard.Run(ctx, resource, token, []string{data(resource)}, "SET", data(resource), value)
	return err
}

func (r rows) Overwrite(ctx context.Context, resource, value string) error {
	_, err := r.server.Do(ctx, "SET", data(resource), value)
	return err
}

func over(s redistest.Server) fencetest.Fixture {
	guard := New(evalOf(s))
	restart := func() (fencetest.Fixture, error) { return over(s), s.Restart(true) } // with kill -9
	return fencetest.Fixture{
		Guard: guard, Storage: rows{s, guard}, Crash: restart, Lacks: "endings",
		Reopen: func() (fence.Guard, error) { f, err := restart(); return f.Guard, err },
	}
}

// durable is a server that loses nothing when it is killed.
func durable(t *testing.T) redistest.Server {
	return rt.RealWith(t, 1, redistest.RealConfig{Persist: redistest.AppendAlways}).Servers[0]
}

func TestServerIsAGuard(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	s := durable(t)
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
		require.NoError(t, s.Flush())
		return over(s)
	})
}

func TestEmbeddedServerIsAGuard(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture { return over(rt.Embedded(t, 1).Servers[0]) })
}

func TestGuardedServerLosesNothing(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	s := durable(t)
	fencetest.RunSet(t, func(t *testing.T) fencetest.Fixture {
		require.NoError(t, s.Flush())
		return over(s)
	}, 100)
}

// Something between sends commands twice, or late. They write what they write, so no more than the first one counts.
func TestRepeatedCommandsLoseNothing(t *testing.T) {
	t.Parallel()
	f := over(rt.Embedded(t, 1).Servers[0])
	eval, b := f.Guard.(*Guard).eval, fencetest.NewBetween(t)
	f.Guard.(*Guard).eval = func(ctx context.Context, script string, keys []string, args ...string) (any, error) {
		return fencetest.Send(b, func() (any, error) { return eval(ctx, script, keys, args...) })
	}
	result := fencetest.Set(t, f, fencetest.Guarded, 100)
	assert.Zero(t, result.Lost, "%v", result)
}

func each(t *testing.T, test func(t *testing.T, s redistest.Server, g *Guard)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		s := rt.Embedded(t, 1).Servers[0]
		test(t, s, New(evalOf(s)))
	})
	t.Run("real", func(t *testing.T) {
		s := rt.Real(t, 1).Servers[0]
		test(t, s, New(evalOf(s)))
	})
}

// Replies come back as the client gives them; a command that fails keeps its token.
func TestCommandsAnswerThroughTheGuard(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Server, g *Guard) {
		ctx := t.Context()
		run := func(token uint64, command ...string) (any, error) {
			return g.Run(ctx, "k", token, []string{"k"}, command...)
		}
		for _, tc := range []struct {
			want    any
			command []string
		}{
			{nil, []string{"GET", "k"}},
			{int64(3), []string{"RPUSH", "k", "a", "b", "c"}},
			{[]any{"a", "b", "c"}, []string{"LRANGE", "k", "0", "-1"}},
			{int64(1), []string{"DEL", "k"}},
			{"OK", []string{"SET", "k", "7"}},
			{"7", []string{"GET", "k"}},
			{int64(8), []string{"INCR", "k"}},
		} {
			got, err := run(5, tc.command...)
			require.NoError(t, err, "%v", tc.command)
			if status, ok := got.(fmt.Stringer); ok {
				got = status.String()
			}
			assert.Equal(t, tc.want, got, "%v", tc.command)
		}
		_, err := run(6, "LPUSH", "k", "a")
		assert.Equal(t, fence.StepWrite, rt.As[*fence.StepError](t, err).Step)
		refused := rt.As[*CommandError](t, err)
		assert.Contains(t, refused.Reply, "WRONGTYPE")
		_, err = run(5, "SET", "k", "late")
		assert.Equal(t, &fence.StaleError{Resource: "k", Token: 5, Highest: 6}, err)
		require.ErrorAs(t, rt.Err(run(7, "NOSUCHCOMMAND", "k")), &refused)
		assert.Equal(t, "8", rt.Must(s.Do(ctx, "GET", "k"))(t))
	})
}

// What cannot work is said before anything is sent; what was sent leaves no half.
func TestBadInputSendsNothing(t *testing.T) {
	t.Parallel()
	sent := 0
	g := New(func(context.Context, string, []string, ...string) (any, error) { sent++; return nil, nil })
	ctx := t.Context()
	for token, want := range map[uint64]error{0: fence.ErrNoToken, fence.MaxToken + 1: fence.ErrTokenRange} {
		assert.ErrorIs(t, g.Check(ctx, "k", token), want)
		assert.ErrorIs(t, rt.Err(g.Run(ctx, "k", token, nil, "PING")), want)
	}
	_, err := g.Run(ctx, "k", 5, []string{"k", "other"}, "DEL", "k", "other")
	assert.ErrorIs(t, err, ErrSlot)
	assert.ErrorContains(t, err, `"other"`)
	assert.Error(t, rt.Err(g.Run(ctx, "k", 5, nil)))
	assert.Error(t, rt.Err(g.Run(ctx, "k", 5, nil, make([]string, MaxWords+1)...)))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	step := rt.As[*fence.StepError](t, g.Check(ended, "k", 5))
	assert.Equal(t, fence.StepClaim, step.Step)
	assert.ErrorIs(t, step, context.Canceled)
	require.ErrorAs(t, rt.Err(g.Run(ended, "k", 5, []string{"k"}, "DEL", "k")), &step)
	assert.Equal(t, fence.StepEnter, step.Step, "the command was not sent")
	assert.ErrorIs(t, step, context.Canceled)
	assert.ErrorIs(t, rt.Err(g.Run(ctx, "k", 5, []string{Key("k")}, "DEL", Key("k"))), ErrGuardKey)
	assert.Zero(t, sent)
	assert.Panics(t, func() { New(nil) })

	assert.ErrorIs(t, rt.Err(g.Run(ctx, "k", 5, []string{"{k}:a", "k", "{k}:b"}, "DEL", "k")), ErrReply)
	assert.Equal(t, 1, sent)
}

func TestRepliesOfAnotherScriptAreNoAnswer(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{
		nil, "done", int64(1), []any{}, []any{"maybe"}, []any{nil}, []any{"stale"}, []any{"done", 1, 2}, []any{"stale", "4"},
		[]any{"stale", "5"}, []any{"stale", int64(6)}, []any{"failed"},
	} {
		g := New(func(context.Context, string, []string, ...string) (any, error) { return reply, nil })
		var step *fence.StepError
		require.ErrorAs(t, g.Check(t.Context(), "k", 5), &step, "%v", reply)
		assert.NotErrorIs(t, step, fence.ErrStale, "%v", reply)
	}
	g := New(func(context.Context, string, []string, ...string) (any, error) {
		return []any{[]byte("stale"), []byte("6")}, nil
	})
	assert.ErrorIs(t, g.Check(t.Context(), "k", 5), fence.ErrStale)
	lost := errors.New("connection lost")
	g = New(func(context.Context, string, []string, ...string) (any, error) { return nil, lost })
	assert.ErrorIs(t, g.Check(t.Context(), "k", 5), lost)
}

// A key of the guard that something else has written accepts nobody.
func TestDamagedKeyAcceptsNobody(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Server, g *Guard) {
		ctx := t.Context()
		key := Key("k")
		for _, text := range []string{"", "0", "05", "1e3", "-5", "5.0", "five"} {
			require.NoError(t, rt.Err(s.Do(ctx, "SET", key, text)))
			assert.ErrorIs(t, g.Check(ctx, "k", 9), ErrDamaged, "%q", text)
			_, err := g.Run(ctx, "k", 9, nil, "SET", "k", "v")
			assert.ErrorIs(t, err, ErrDamaged, "%q", text)
			assert.Equal(t, fence.StepEnter, rt.As[*fence.StepError](t, err).Step, "the command did not run")
		}
		require.NoError(t, rt.Err(s.Do(ctx, "DEL", key)))
		require.NoError(t, rt.Err(s.Do(ctx, "RPUSH", key, "5")))
		step := rt.As[*fence.StepError](t, g.Check(ctx, "k", 9))
		assert.True(t, strings.Contains(step.Error(), "WRONGTYPE"), "%v", step)
		assert.Equal(t, int64(0), rt.Must(s.Do(ctx, "EXISTS", "k"))(t))
	})
}

// The key is in the slot of the name, whatever bytes the name has, and has no end.
func TestKeyIsBesideTheData(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"k", "", "{a}b", "}{", "{}", "a}b", "\x00", "redquorum:fence:{k}"} {
		assert.Equal(t, slot.Of(name), slot.Of(Key(name)), "%q", name)
	}
	assert.Equal(t, "redquorum:fence:{invoice:42}", Key("invoice:42"))
}
