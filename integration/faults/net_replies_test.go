package faults

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// purpose is what the comment of each script says, and of no other.
var purpose = map[string]string{
	"acquire": "Asks for the lock once",
	"wait":    "Asks for the lock and stays registered",
	"release": "Gives up the vote and the place in the queue, and executes",
	"yield":   "Resolves a split: all members",
	"raise":   "Lifts the counter to a token",
	"extend":  "Renews many leases in one call",
	"rejoin":  "Gives a lease that is held and valid a further vote",
	"force":   "Takes the vote from whoever has it, all readers among them",
}

// callOf matches the calls of one script.
func callOf(t testing.TB, script string) redistest.Match {
	t.Helper()
	var found []string
	for _, source := range redlock.Scripts() {
		if strings.Contains(source, purpose[script]) {
			sum := sha1.Sum([]byte(source))
			found = append(found, hex.EncodeToString(sum[:]))
		}
	}
	require.Len(t, found, 1, "scripts that say what %s does", script)
	return redistest.WithArg(found[0])
}

// losses are the ways in which the reply to a script that was executed can fail to come.
var losses = []struct {
	name string
	rule func(l *redistest.Link, m redistest.Match, n int) *redistest.Rule
}{
	{"and silence", (*redistest.Link).LoseReply},
	{"and the connection cut", (*redistest.Link).CutAfter},
}

// Each script is executed, and its reply is lost: for a while at two members, and then once at each of
// the five for every client. What the lost replies said is found out or undone: no orphan, no overlap.
func TestReplyLostAfterTheWrite(t *testing.T) {
	cluster := rt.Real(t, 5)
	for _, c := range []struct {
		scripts []string
		terms   terms
		stir    func(ctx context.Context) // makes the scripts needed
		floor   float64
		way     int // of losing, of the first script, in make test
	}{
		{scripts: []string{"acquire"}, terms: terms{clients: 6, keys: 101, hold: 2 * time.Millisecond}},
		{scripts: []string{"wait", "release", "yield"}, terms: terms{clients: 6, keys: 1, hold: 2 * time.Millisecond}},
		// Grants to waiters are for 100 ms, renewed after 33.
		{scripts: []string{"extend"}, terms: terms{clients: 6, keys: 2, hold: 60 * time.Millisecond, config: func(c *redlock.Config) {
			quick(c)
			c.Entry = 100 * time.Millisecond
		}}},
		// An attempt of which one confirmation is lost waits for it in vain (Config.MemberTimeout) and begins
		// anew: here that is nearly each, because nearly each needs one of the two that lose them.
		{scripts: []string{"raise"}, terms: terms{clients: 6, keys: 1, hold: 2 * time.Millisecond}, floor: 0.1, way: 1, stir: func(ctx context.Context) {
			// Other names of the slot count on in the same counter, at each member for itself.
			bucket := strconv.Itoa(int(slot.Of("key:0")))
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = cluster.Servers[i%5].Do(ctx, "HINCRBY", lasting[0], bucket, strconv.Itoa(1+i%7))
			}
		}},
	} {
		if c.terms.config == nil {
			c.terms.config = quick
		}
		w := start(t, cluster, c.terms)
		ctx, cancel := context.WithCancel(t.Context())
		if c.stir != nil {
			w.done.Go(func() { c.stir(ctx) })
		}
		for n, script := range c.scripts {
			m := callOf(t, script)
			for k, loss := range losses {
				var rules []*redistest.Rule
				lose := func(times int, members ...int) func() func() {
					return func() func() {
						rules = nil
						each(w.paths(members...), func(l *redistest.Link) { rules = append(rules, loss.rule(l, m, times)) })
						return func() { each(w.paths(), (*redistest.Link).Heal) }
					}
				}
				felt := func() int { return hits(rules) }
				two := []int{(n + 2*k) % 5, (n + 2*k + 1) % 5}
				if !long() && k != (n+c.way)%2 { // in make test one way each
					continue
				}
				w.play(t, episode{name: script + ": reply lost at two, " + loss.name, span: span(300*time.Millisecond) / 2,
					goes: true, floor: c.floor, inject: lose(-1, two...), felt: felt})
				if !long() && n > 0 {
					continue
				}
				rules = nil
				w.play(t, episode{name: script + ": reply lost once at all, " + loss.name, span: span(200*time.Millisecond) / 4,
					inject: lose(1), felt: felt})
				rules = nil
			}
		}
		cancel()
		w.end().safe(t, 20)
		nothingLeft(t, cluster)
		for _, c := range w.clients {
			require.NoError(t, c.Close())
		}
	}
}

// A lease is given back to two members that did not have it, and their replies are lost. It lives on, and
// its release takes it from them all the same.
func TestReplyOfARejoinLost(t *testing.T) {
	for _, loss := range losses {
		cluster := rt.Real(t, 5)
		c, links := dial(t, cluster, func(c *redlock.Config) {
			quick(c)
			c.TTL, c.MaxTTL, c.FreshMembers = time.Second, time.Second, true
		})
		voting(t, c, 5)
		for _, l := range links[3:] {
			l.Refuse(true)
			l.Cut()
		}
		var leases []*redlock.Lease
		for i := range 20 {
			lease, err := c.Mutex("k" + strconv.Itoa(i)).Lock(t.Context())
			require.NoError(t, err)
			leases = append(leases, lease)
		}
		var rules []*redistest.Rule
		for _, l := range links[3:] {
			rules = append(rules, loss.rule(l, callOf(t, "rejoin"), 1))
			l.Refuse(false)
		}
		for _, r := range rules {
			select {
			case <-r.Fired():
			case <-time.After(20 * time.Second):
				t.Fatal("no lease was given back")
			}
		}
		for _, l := range leases {
			require.Eventually(t, func() bool { return l.Votes() == 5 }, 20*time.Second, 5*time.Millisecond)
			require.NoError(t, l.Err())
			require.NoError(t, l.Unlock(t.Context()))
		}
		nothingLeft(t, cluster)
	}
}

// The replies of a forced release are lost at two members: it is done all the same, at all five. Lost at
// three, it is said that too few answered, and the lock is free. Either way the next one has it, with a greater
// token, and who had it hears of it.
func TestReplyOfAForcedReleaseLost(t *testing.T) {
	cluster := rt.Real(t, 5)
	config := func(c *redlock.Config) {
		quick(c)
		c.TTL, c.MaxTTL, c.FreshMembers = time.Second, time.Second, true
	}
	holder, _ := dial(t, cluster, config)
	voting(t, holder, 5)
	for _, loss := range losses {
		for lost := 2; lost <= 3; lost++ {
			operator, links := dial(t, cluster, config)
			voting(t, operator, 5)
			lease, err := holder.Mutex("k").Lock(t.Context())
			require.NoError(t, err)
			require.Eventually(t, func() bool { return lease.Votes() == 5 }, 20*time.Second, time.Millisecond)
			var rules []*redistest.Rule
			for _, l := range links[:lost] {
				rules = append(rules, loss.rule(l, callOf(t, "force"), 1))
			}
			held, err := operator.ForceUnlock(t.Context(), "k")
			if lost == 2 {
				require.NoError(t, err)
				require.True(t, held)
			} else {
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
			}
			require.Equal(t, lost, hits(rules))
			next, err := holder.Mutex("k").TryLock(t.Context())
			require.NoError(t, err)
			require.Greater(t, next.Token(), lease.Token())
			select {
			case <-lease.Done():
				require.ErrorIs(t, lease.Err(), redlock.ErrLost)
			case <-time.After(20 * time.Second):
				t.Fatal("who had it never hears of it")
			}
			require.NoError(t, next.Err())
			require.NoError(t, next.Unlock(t.Context()))
			require.NoError(t, operator.Close())
			nothingLeft(t, cluster)
		}
	}
}
