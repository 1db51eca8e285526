//go:build unix

package clients

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/mediocregopher/radix/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fenceredis"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/slot"
)

// GoRedis is EVAL by go-redis. The client must not repeat commands, as it does by default: MaxRetries
// is -1.
func GoRedis(client redis.UniversalClient) fenceredis.Eval {
	return func(ctx context.Context, script string, keys []string, args ...string) (any, error) {
		words := make([]any, len(args))
		for i, word := range args {
			words[i] = word
		}
		return client.Eval(ctx, script, keys, words...).Result()
	}
}

// Rueidis is EVAL by rueidis, which repeats no command that writes.
func Rueidis(client rueidis.Client) fenceredis.Eval {
	return func(ctx context.Context, script string, keys []string, args ...string) (any, error) {
		return client.Do(ctx, client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToAny()
	}
}

// Valkey is EVAL by valkey-go, which repeats no command that writes.
func Valkey(client valkey.Client) fenceredis.Eval {
	return func(ctx context.Context, script string, keys []string, args ...string) (any, error) {
		return client.Do(ctx, client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToAny()
	}
}

// Radix is EVAL by radix, which repeats nothing. The connection speaks RESP3 (Protocol is "3"): with RESP2
// radix takes a reply that is nil for an empty text.
func Radix(client radix.Client) fenceredis.Eval {
	return func(ctx context.Context, script string, keys []string, args ...string) (reply any, err error) {
		words := append([]string{script, strconv.Itoa(len(keys))}, keys...)
		err = client.Do(ctx, radix.Cmd(&reply, "EVAL", append(words, args...)...))
		return reply, err
	}
}

// goRedis connects to a server of a test, by a path that has faults, as the others do.
func goRedis(t *testing.T, s redistest.Server, retries int) fenceredis.Eval {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: retries, Dialer: s.Dialer().DialContext})
	t.Cleanup(func() { _ = client.Close() })
	return GoRedis(client)
}

var clients = map[string]func(t *testing.T, s redistest.Server) fenceredis.Eval{
	"go-redis": func(t *testing.T, s redistest.Server) fenceredis.Eval { return goRedis(t, s, -1) },
	"rueidis": func(t *testing.T, s redistest.Server) fenceredis.Eval {
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true,
			DialCtxFn: func(ctx context.Context, at string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return s.Dialer().DialContext(ctx, "tcp", at)
			},
		})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return Rueidis(client)
	},
	"valkey-go": func(t *testing.T, s redistest.Server) fenceredis.Eval {
		client, err := valkey.NewClient(valkey.ClientOption{
			InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true,
			DialCtxFn: func(ctx context.Context, at string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return s.Dialer().DialContext(ctx, "tcp", at)
			},
		})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return Valkey(client)
	},
	"radix": func(t *testing.T, s redistest.Server) fenceredis.Eval {
		client := rt.Must(radix.PoolConfig{Dialer: radix.Dialer{Protocol: "3", NetDialer: s.Dialer()}}.New(t.Context(), "tcp", s.Addr()))(t)
		t.Cleanup(func() { _ = client.Close() })
		return Radix(client)
	},
}

func each(t *testing.T, test func(t *testing.T, s redistest.Server, eval fenceredis.Eval)) {
	t.Parallel()
	s := rt.Real(t, 1).Servers[0]
	for name, connect := range clients {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, s.Flush())
			test(t, s, connect(t, s))
		})
	}
}

type strings struct {
	server redistest.Server
	guard  *fenceredis.Guard
}

func key(resource string) string { return slot.Sibling("data:", resource) }

func (r strings) Get(ctx context.Context, resource string) (string, error) {
	v, err := r.server.Do(ctx, "GET", key(resource))
	value, _ := v.(string)
	return value, err
}

func (r strings) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	_, err := r.guard.Run(ctx, resource, token, []string{key(resource)}, "SET", key(resource), value)
	return err
}

func (r strings) Overwrite(ctx context.Context, resource, value string) error {
	_, err := r.server.Do(ctx, "SET", key(resource), value)
	return err
}

func TestLongGuardOverEachClient(t *testing.T) {
	rt.Long(t, "runs the suite of guards with every client")
	each(t, func(t *testing.T, s redistest.Server, eval fenceredis.Eval) {
		fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
			require.NoError(t, s.Flush())
			guard := fenceredis.New(eval)
			return fencetest.Fixture{Guard: guard, Storage: strings{s, guard}}
		})
	})
}

// A reply is what the command replies, in each client's words: nil, an integer, a text, an array.
func TestRepliesOfEachClient(t *testing.T) {
	each(t, func(t *testing.T, _ redistest.Server, eval fenceredis.Eval) {
		ctx, guard := t.Context(), fenceredis.New(eval)
		for _, tc := range []struct {
			want    any
			command []string
		}{
			{nil, []string{"GET", "k"}},
			{int64(3), []string{"RPUSH", "k", "a", "", "\x00\xff"}},
			{[]any{"a", "", "\x00\xff"}, []string{"LRANGE", "k", "0", "-1"}},
			{[]any{}, []string{"LRANGE", "k", "5", "6"}},
			{int64(1), []string{"DEL", "k"}},
			{"OK", []string{"SET", "k", "7"}},
			{"7", []string{"GET", "k"}},
			{[]any{"7", nil}, []string{"MGET", "k", "{k}:none"}},
		} {
			got, err := guard.Run(ctx, "k", 5, []string{"k", "{k}:none"}, tc.command...)
			require.NoError(t, err, "%v", tc.command)
			assert.Equal(t, tc.want, plain(got), "%v", tc.command)
		}
		_, err := guard.Run(ctx, "k", 5, []string{"k"}, "LPUSH", "k", "a")
		assert.Contains(t, rt.As[*fenceredis.CommandError](t, err).Reply, "WRONGTYPE")
		_, err = guard.Run(ctx, "k", 4, []string{"k"}, "DEL", "k")
		assert.Equal(t, &fence.StaleError{Resource: "k", Token: 4, Highest: 5}, err)
		for _, name := range []string{"", "\x00\xff\r\n", "{"} { // no byte and no digit is lost on the way
			require.NoError(t, guard.Check(ctx, name, 1<<53+1), "%q", name)
			require.NoError(t, guard.Check(ctx, name, fence.MaxToken), "%q", name)
			assert.Equal(t, &fence.StaleError{Resource: name, Token: 1<<53 + 1, Highest: fence.MaxToken}, guard.Check(ctx, name, 1<<53+1))
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		assert.ErrorIs(t, guard.Check(ended, "k", 6), context.Canceled)
		assert.NoError(t, guard.Check(ctx, "k", 5), "the context had ended: nobody has claimed 6")
	})
}

// plain makes a text of what a client has for one.
func plain(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case fmt.Stringer:
		return v.String()
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = plain(v[i])
		}
		return all
	}
	return v
}

// A command whose answer was lost has run once. The caller hears that it may have run.
func TestNoClientRepeatsACommand(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Server, eval fenceredis.Eval) { once(t, s, eval, "1") })
}

// The control: with its usual MaxRetries go-redis runs the command twice, and tells nobody.
func TestGoRedisAsUsualRepeatsACommand(t *testing.T) {
	t.Parallel()
	s := rt.Real(t, 1).Servers[0]
	once(t, s, goRedis(t, s, 0), "2")
}

func once(t *testing.T, s redistest.Server, eval fenceredis.Eval, want string) {
	t.Helper()
	ctx, guard := t.Context(), fenceredis.New(eval)
	require.NoError(t, guard.Check(ctx, "k", 5))
	s.Faults().CutAfter(redistest.WithArg("INCR"), 1)
	_, err := guard.Run(ctx, "k", 5, []string{"k"}, "INCR", "k")
	if want == "1" {
		assert.Equal(t, fence.StepWrite, rt.As[*fence.StepError](t, err).Step)
	} else {
		assert.NoError(t, err)
	}
	assert.Equal(t, want, rt.Must(s.Do(ctx, "GET", "k"))(t))
	require.NoError(t, guard.Check(ctx, "k", 6), "the client goes on")
}
