package redlock_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Environments that share members: Config.Prefix.

// prefixedNames have siblings of each of the three forms.
var prefixedNames = []string{"invoice", "{order}invoice", "a}b{"}

// under are the patterns of the keys and channels of the locks under a prefix, as an ACL has them: docs/servers.md.
func under(prefix string) (keys, channels []string) {
	keys = []string{"~" + prefix + "*"}
	for _, word := range []string{"?", "??"} {
		for _, form := range []string{"{" + prefix, prefix, "{???}:" + prefix} {
			keys = append(keys, "~redquorum:"+word+":"+form+"*")
		}
	}
	return append(keys, "~redquorum:tokens*", "~redquorum:boot*", "~redquorum:quarantine*"), []string{"&redquorum:inbox:*"}
}

func TestListedKeysOfAnEnvironmentAreThoseThatAreTested(t *testing.T) {
	t.Parallel()
	page := rt.Must(os.ReadFile(filepath.Join("..", "docs", "servers.md")))(t)
	_, section, found := strings.Cut(string(page), "\n### One environment of several\n")
	require.True(t, found)
	block := strings.Split(section, "```")
	keys, _ := under("prod:")
	require.ElementsMatch(t, keys, strings.Fields(strings.TrimPrefix(block[1], "text")))
}

// globs is a regular expression for ACL patterns.
func globs(patterns []string) *regexp.Regexp {
	var all []string
	for _, p := range patterns {
		q := regexp.QuoteMeta(p[1:])
		all = append(all, strings.ReplaceAll(strings.ReplaceAll(q, `\*`, `(?s:.*)`), `\?`, `(?s:.)`))
	}
	return regexp.MustCompile(`^(` + strings.Join(all, "|") + `)$`)
}

// passOn has b wait for what a holds, and a give it up then. inLine reports whether somebody waits.
func passOn(t testing.TB, held *redlock.Lease, get func(context.Context) (*redlock.Lease, error), inLine func() bool) *redlock.Lease {
	t.Helper()
	next := later(ending(t), get)
	for !inLine() {
		time.Sleep(5 * time.Millisecond)
	}
	require.NoError(t, held.Unlock(t.Context()))
	return next.Get(t)
}

// everyKind uses each kind of lock of a name, with waiters, by two clients, and tells each name that the API says.
func everyKind(t testing.TB, a, b *redlock.Client, name string, interop bool, said func(name string)) {
	t.Helper()
	ctx := ending(t)
	inLine := func() bool {
		in := rt.Must(a.Inspect(ctx, name))(t)
		said(in.Key)
		return slices.ContainsFunc(in.Members, func(v redlock.MemberView) bool { return len(v.Queue) > 0 })
	}
	done := func(l *redlock.Lease) {
		said(l.Key())
		require.NoError(t, l.Unlock(ctx))
	}
	kinds := [][]redlock.LockOption{nil, {redlock.Fair()}}
	if interop {
		kinds = kinds[:1]
	}
	for _, opts := range kinds {
		held := locked(t, a, name, opts...)
		require.ErrorIs(t, rt.Err(b.Mutex(name, opts...).TryLock(ctx)), redlock.ErrHeld)
		require.NoError(t, held.Extend(ctx, 20*time.Second))
		if interop { // Inspect does not show who waits in a lock of Redisson's
			require.NoError(t, held.Unlock(ctx))
			held = locked(t, b, name)
		} else {
			held = passOn(t, held, b.Mutex(name, opts...).Lock, inLine)
		}
		h := rt.Must(held.Handoff())(t)
		held = rt.Must(a.Adopt(ctx, h))(t)
		done(held)
	}
	seen := locked(t, a, name)
	require.Positive(t, rt.Must(b.ForceUnlockSeen(ctx, rt.Must(b.Inspect(ctx, name))(t)))(t))
	require.Error(t, seen.Unlock(ctx))
	require.NoError(t, rt.Err(b.ForceUnlock(ctx, name)))
	set := rt.Must(a.Multi([]string{name + "2", name + "1"}).Lock(ctx))(t)
	require.NotZero(t, set.Token(name+"1"))
	said(strings.TrimSuffix(set.Of(name+"2").Key(), "2"))
	require.NoError(t, set.Unlock(ctx))
	if interop {
		return
	}

	rw := redlockRW{a.RWMutex(name), b.RWMutex(name)}
	write := rt.Must(rw.a.Lock(ctx))(t)
	read := rt.Must(write.Downgrade(ctx))(t)
	write = passOn(t, read, rw.b.Lock, inLine)
	done(passOn(t, write, rw.a.RLock, inLine))

	sem := [2]*redlock.Semaphore{a.Semaphore(name, 1), b.Semaphore(name, 1)}
	permit := rt.Must(sem[0].Acquire(ctx))(t)
	permit = passOn(t, permit, sem[1].Acquire, func() bool {
		in := rt.Must(a.InspectSemaphore(ctx, name))(t)
		said(in.Key)
		return slices.ContainsFunc(in.Members, func(v redlock.MemberView) bool { return len(v.Queue) > 0 })
	})
	require.NoError(t, permit.Extend(ctx, 20*time.Second))
	done(permit)
	require.NoError(t, sem[0].SetLimit(ctx, 3))
	require.NoError(t, sem[0].ClearLimit(ctx))

	e := a.Election(name)
	leader := rt.Must(e.Campaign(ctx, []byte("first")))(t)
	require.NoError(t, e.Proclaim(ctx, leader, []byte("second")))
	require.Equal(t, "second", string(rt.Must(b.Election(name).Leader(ctx))(t).Value))
	for l := range b.Election(name).Observe(ctx) {
		require.Equal(t, "second", string(l.Value))
		break
	}
	require.NoError(t, leader.Unlock(ctx))

	latch := a.Latch(name, 1)
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, b.Latch(name, 1).Await(ctx)) })
	for waiting := false; !waiting; time.Sleep(5 * time.Millisecond) {
		in := rt.Must(a.InspectLatch(ctx, name))(t)
		said(in.Key)
		waiting = slices.ContainsFunc(in.Members, func(v redlock.MemberView) bool { return v.Latch != nil && v.Latch.Waiting > 0 })
	}
	require.NoError(t, latch.CountDown(ctx))
	wg.Wait()
	require.NoError(t, latch.Delete(ctx))
}

type redlockRW struct{ a, b *redlock.RWMutex }

// Every key of every kind lies where an ACL can tell environments apart, and no name in the API has the prefix.
func TestAllKeysOfALockLieUnderItsPrefix(t *testing.T) {
	for _, interop := range []bool{false, true} {
		t.Run(fmt.Sprint("interop ", interop), inBubble(3, func(t *testing.T, cluster *redistest.Cluster) {
			var tr tracerOfNames
			opts := []redlock.Option{redlock.Quiet, redlock.WithPrefix("prod:"), redlock.WithLabel("billing"), redlock.WithTracer(&tr), func(c *redlock.Config) { c.Interop = interop }}
			a, b := redlock.JoinAll(t, cluster, opts...), redlock.JoinAll(t, cluster, opts...)
			keys, _ := under("prod:")
			if interop {
				keys = append(keys, "~redquorum:turn:*", "~redisson_lock_token:{prod:*", "~redisson_lock_token:prod:*")
			}
			allowed := globs(keys)
			var mu sync.Mutex
			var wrong []string
			calls := 0
			for _, p := range []*redlock.Peer{a, b} {
				p.EveryLink(func(l *redistest.Link) {
					l.Call(redistest.Named("EVALSHA"), -1, func(cmd []string) {
						n, err := strconv.Atoi(cmd[2])
						mu.Lock()
						defer mu.Unlock()
						calls++
						for _, key := range cmd[3 : 3+n] {
							if err != nil || !allowed.MatchString(key) {
								wrong = append(wrong, key)
							}
						}
					})
				})
			}
			for _, name := range prefixedNames {
				everyKind(t, a.Client, b.Client, name, interop, func(said string) { require.Equal(t, name, said) })
			}
			mu.Lock()
			defer mu.Unlock()
			require.Empty(t, wrong)
			require.Greater(t, calls, 100)
			for _, name := range tr.all() {
				require.True(t, slices.ContainsFunc(prefixedNames, func(n string) bool { return strings.TrimRight(name, "12") == n }), "%q in an event", name)
			}
		}))
	}
}

// tracerOfNames notes the names in events.
type tracerOfNames struct {
	mu    sync.Mutex
	names []string
}

func (tr *tracerOfNames) note(name string) {
	rt.Locked(&tr.mu, func() { tr.names = append(tr.names, name) })
}

func (tr *tracerOfNames) all() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(tr.names)))
}

func (tr *tracerOfNames) CallStart(ctx context.Context, e redlock.CallStart) context.Context {
	tr.note(e.Key)
	return ctx
}
func (tr *tracerOfNames) CallEnd(_ context.Context, e redlock.CallEnd) { tr.note(e.Key) }
func (tr *tracerOfNames) Released(e redlock.Released)                  { tr.note(e.Key) }
func (tr *tracerOfNames) Woken(_ context.Context, lock redlock.LockName, _ redlock.WakeReason) {
	tr.note(lock.Key)
}

func TestPrefixIsAsIfItWereWrittenIntoTheName(t *testing.T) {
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		prod, test, plain := another(t, d, redlock.Quiet, redlock.WithPrefix("prod:")), another(t, d, redlock.Quiet, redlock.WithPrefix("test:")), another(t, d, redlock.Quiet)
		for _, name := range prefixedNames {
			l := prod.Hold(t, name)
			require.NoError(t, test.Try(t, name))
			require.NoError(t, plain.Try(t, name))
			require.ErrorIs(t, plain.Try(t, "prod:"+name), redlock.ErrHeld)
			err := prod.Try(t, name)
			require.ErrorIs(t, err, redlock.ErrHeld)
			require.NotContains(t, err.Error(), "prod:")

			// Who looks, or adopts, must be under the same prefix, or name it.
			seen := rt.Must(prod.Inspect(t.Context(), name))(t)
			rt.Says(t, rt.Err(test.ForceUnlockSeen(t.Context(), seen)), redlock.ErrInput, `is not under Config.Prefix, "test:"`)
			h := rt.Must(l.Handoff())(t)
			require.Equal(t, "prod:"+name, h.Key())
			h = rt.Must(redlock.ParseHandoff(h.Secret()))(t)
			rt.Says(t, rt.Err(test.Adopt(t.Context(), h)), redlock.ErrInput, `is not under Config.Prefix, "test:"`)
			l = rt.Must(plain.Adopt(t.Context(), h))(t)
			require.Equal(t, "prod:"+name, l.Key())
			seen = rt.Must(prod.Inspect(t.Context(), name))(t)
			require.Positive(t, rt.Must(plain.ForceUnlockSeen(t.Context(), seen))(t))
		}
		// Two deployments, and two environments of one, are taken in the order of their keys.
		x, y := redlock.Join(prod.Mutex("a"), test.Mutex("0")), redlock.Join(test.Mutex("0"), prod.Mutex("a"))
		for _, m := range []*redlock.Multi{x, y} {
			set := rt.Must(m.Lock(t.Context()))(t)
			require.Equal(t, "a", set.All()[0].Key())
			require.NoError(t, set.Unlock(t.Context()))
		}
	})
}

func TestPrefixThatCannotWorkIsRefusedWithWhatWould(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{
		"prod":                         `the prefix is "prod", must end with one of :/._-: use "prod:"`,
		"{prod}:":                      `the prefix is "{prod}:", must have letters and digits of ASCII and :/._- only`,
		"pröd:":                        "letters and digits of ASCII",
		"a*:":                          "letters and digits of ASCII",
		"a b:":                         "letters and digits of ASCII",
		"redquorum:x:":                 "names that begin with redquorum: are the library's own keys",
		strings.Repeat("x", 128) + ":": "the prefix has 129 bytes, but at most 128 are allowed",
	} {
		_, err := redlock.OpenWith(t.Context(), []string{"redis://127.0.0.1:1"}, redlock.WithPrefix(prefix))
		rt.Says(t, err, redlock.ErrInput, want, prefix)
	}
	for _, prefix := range []string{"redisson_lock_token:", "redisson_lock_token:x:"} {
		_, err := redlock.OpenWith(t.Context(), []string{"redis://127.0.0.1:1"}, redlock.WithPrefix(prefix), redlock.WithInterop())
		rt.Says(t, err, redlock.ErrInput, "counters of Redisson's locks")
	}
	m := &redlock.Yes{}
	c := redlock.Agreed(t, m, redlock.WithPrefix("redisson_lock_"), redlock.WithInterop())
	require.ErrorContains(t, rt.Err(c.Mutex("token:k").TryLock(t.Context())), "counters of Redisson's locks")
	c = redlock.Agreed(t, m, redlock.WithPrefix(strings.Repeat("x", 127)+":"))
	l, err := c.Mutex(strings.Repeat("n", 1<<17)).TryLock(t.Context())
	require.NoError(t, err, "the longest name is without the prefix")
	require.NoError(t, l.Unlock(t.Context()))
	require.ErrorIs(t, rt.Err(c.Mutex("redquorum:x").TryLock(t.Context())), redlock.ErrInput, "reserved under a prefix, too")
}

func TestUserOfOneEnvironmentCanDoEverythingThereAndNothingElsewhere(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	keys, channels := under("prod:")
	var urls []string
	for _, s := range cluster.Servers {
		redlock.Admin(t, s, slices.Concat([]string{"ACL", "SETUSER", "prod", "reset", "on", ">" + canary, "resetkeys", "resetchannels"}, keys, channels, permittedCommands)...)
		urls = append(urls, fmt.Sprintf("redis://prod:%s@%s", canary, s.Addr()))
	}
	whole := []redlock.Option{patient, redlock.WithPrefix("prod:"), redlock.WithLabel("billing")}
	a, b := opened(t, urls, whole...), opened(t, urls, whole...)
	settle(t, 3, a, b)
	for _, name := range prefixedNames {
		everyKind(t, a, b, name, false, func(string) {})
	}
	require.Empty(t, denials(t, cluster))
	for _, prefix := range []string{"", "test:", "x:prod:"} {
		other := opened(t, urls, patient, redlock.WithPrefix(prefix))
		for _, name := range prefixedNames {
			require.ErrorContains(t, rt.Err(other.Mutex(name).TryLock(t.Context())), "NOPERM")
			require.ErrorContains(t, rt.Err(other.Semaphore(name, 1).TryAcquire(t.Context())), "NOPERM", "its keys are siblings alone")
		}
	}
}
