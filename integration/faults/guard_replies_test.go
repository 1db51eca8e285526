package faults

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// guardCall matches the calls of one of the restart guard's scripts, which are sent in full.
func guardCall(script string) redistest.Match {
	all := node.GuardScripts()
	source := all[0] + map[string]string{"look": "return look()", "mark": all[1], "lift": all[2], "table": all[3], "restore": all[4]}[script]
	return redistest.Both(redistest.Named("EVAL"), redistest.WithArg(source))
}

// The scripts of the restart guard are executed at a member that has restarted without memory, and their
// replies are lost, once for every client: it is marked, rests, has its counters again, and votes.
func TestReplyOfAGuardScriptLost(t *testing.T) {
	cluster := rt.Real(t, 5)
	x := rows()
	x.config = func(c *redlock.Config) {
		quick(c)
		c.PingInterval = 2 * time.Second // a client that for so long hears from too few members goes on by the clock
	}
	x.name = "key"
	for _, s := range cluster.Servers { // counters far ahead of any clock: only memory keeps their order
		for k := range x.keys {
			admin(t, s, "HSET", lasting[0], strconv.Itoa(int(slot.Of(x.name+":"+strconv.Itoa(k)))), "9000000000000000")
		}
	}
	w := start(t, cluster, x)
	w.progress(t, 20)
	scripts := []string{"look", "mark", "table", "restore"}
	type round struct {
		scripts []string
		way     int // of losing; -1: one of half of the clients, the other of the others
	}
	rounds := []round{{scripts, -1}}
	if long() {
		for _, s := range scripts {
			for way := range losses {
				rounds = append(rounds, round{[]string{s}, way})
			}
		}
	}
	for n, round := range rounds {
		member := n % 5
		rules := map[string][]*redistest.Rule{}
		what := "in both ways"
		if round.way >= 0 {
			what = losses[round.way].name
		}
		var began time.Time
		w.play(t, episode{
			name: strings.Join(round.scripts, ", ") + ": reply lost, " + what, span: span(300 * time.Millisecond), goes: true,
			inject: func() func() {
				for c, links := range w.links {
					for i, l := range links {
						for k, s := range round.scripts {
							asked := member
							if s == "table" { // of the others: three of four are needed
								asked = (member + 1) % 5
							}
							if i != asked {
								continue
							}
							way := round.way
							if way < 0 {
								way = (c + k) % 2
							}
							rules[s] = append(rules[s], losses[way].rule(l, guardCall(s), 1))
						}
					}
				}
				began = time.Now()
				require.NoError(t, cluster.Restart(false, member))
				return func() {} // each rule is used up by itself
			},
			felt: func() int { // all of the scripts
				if len(rules) == 0 {
					return 0
				}
				least := math.MaxInt
				for _, list := range rules {
					least = min(least, hits(list))
				}
				return least
			},
		})
		rested(t, w.clients, member, began)
		require.Equal(t, "w", admin(t, cluster.Servers[member], "HGET", "redquorum:boot", "state"))
		require.Equal(t, "0", admin(t, cluster.Servers[member], "HGET", "redquorum:boot", "clk"), "its counters are from the others' memory")
		each(w.paths(), (*redistest.Link).Heal)
	}
	w.end().safe(t, 50)

	// Longer leases are told to all members, of which two are not heard.
	ttl := 2 * w.terms.maxTTL
	var urls []string
	var rules []*redistest.Rule
	for i, s := range cluster.Servers {
		l := s.Path()
		if i < len(losses) {
			rules = append(rules, losses[i].rule(l, guardCall("lift"), 1))
		}
		front, err := l.Listen("127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = front.Close() })
		urls = append(urls, "redis://"+front.Addr())
	}
	c := open(t, urls, func(c *redlock.Config) {
		quick(c)
		c.TTL, c.MaxTTL = ttl, ttl
	})
	voting(t, c, 5)
	require.Equal(t, len(losses), hits(rules))
	for _, s := range cluster.Servers {
		require.Equal(t, strconv.FormatInt(ttl.Milliseconds(), 10), admin(t, s, "HGET", "redquorum:boot", "q"))
	}
	lease, err := c.Mutex("long", redlock.TTL(ttl)).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	nothingLeft(t, cluster)
}
