package redlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock/internal/script"
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

// Reference is one of its clients at one server, in one thread.
type Reference struct {
	testing.TB
	server redistest.Server
	name   string
	owner  string
	Plain  bool // its plain lock: draws no token
}

func JavaOf(t testing.TB, s redistest.Server, name string, n int) *Reference {
	return &Reference{TB: t, server: s, name: name, owner: javaOwner(n)}
}

func javaOwner(n int) string { return fmt.Sprintf("0b1c2d3e-0000-4000-8000-%012d:%d", n, 40+n) }

func (r *Reference) Channel() string { return theirs("redisson_lock__channel", r.name) }

func (r *Reference) counter() string { return theirs("redisson_lock_token", r.name) }

func (r *Reference) eval(script string, args ...string) any {
	r.Helper()
	return rt.Must(r.server.Do(context.Background(), append([]string{"EVAL", script}, args...)...))(r)
}

// try returns its token, or the PTTL that it is refused with.
func (r *Reference) try(ttl time.Duration) (token, left int64, ok bool) {
	r.Helper()
	args := []string{"2", r.name, r.counter(), strconv.FormatInt(script.Millis(ttl), 10), r.owner}
	if r.Plain {
		args = []string{"1", r.name, strconv.FormatInt(script.Millis(ttl), 10), r.owner}
	}
	v := r.eval(theirAcquire, args...).([]any)
	return v[1].(int64), v[0].(int64), v[0] == int64(-1)
}

func (r *Reference) Take(ttl time.Duration) int64 {
	r.Helper()
	token, left, ok := r.try(ttl)
	require.True(r, ok, "refused for %d ms", left)
	return token
}

func (r *Reference) renew(ttl time.Duration) any {
	r.Helper()
	return r.eval(theirRenew, "1", r.name, strconv.FormatInt(script.Millis(ttl), 10), r.owner)
}

// Release returns 1 free, 0 still held, nil not its own.
func (r *Reference) Release() any {
	r.Helper()
	return r.eval(theirRelease, "2", r.name, r.Channel(), "30000", r.owner)
}

func (r *Reference) Listen() *redistest.Client {
	r.Helper()
	c := rt.Must(redistest.DialClient(context.Background(), r.server.Path(), r.server.Addr()))(r)
	require.NoError(r, rt.Err(c.Do(context.Background(), "SUBSCRIBE", r.Channel())))
	return c
}

func Numsub(t testing.TB, s redistest.Server, channel string) int64 {
	t.Helper()
	return Admin(t, s, "PUBSUB", "NUMSUB", channel).([]any)[1].(int64)
}

func TestNothingOfInteropIsThereByDefault(t *testing.T) {
	for _, source := range Scripts() {
		require.NotContains(t, source, "NUMSUB")
	}
	require.Equal(t, script.Writing("k"), new(Config).lockOf("k"))
	Alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		l := p.Hold(t, "k")
		w := p.LockLater(t.Context(), "k")
		synctest.Wait()
		q := JoinAll(t, cluster, Quiet).LockLater(t.Context(), "k")
		time.Sleep(time.Second)
		require.Equal(t, []any{}, Admin(t, cluster.Servers[0], "PUBSUB", "CHANNELS", "redisson*"))
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, w.Get(t).Unlock(t.Context())) // was there first
		require.NoError(t, q.Get(t).Unlock(t.Context()))
		NothingLeft(t, cluster)
	}, Quiet)
}
