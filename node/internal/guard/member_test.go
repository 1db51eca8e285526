package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// What a member forgets, in fake time and without a socket: servers in memory, and a Seat for each
// in one Guard.

const longest = 30 * time.Second // MaxTTL of the clients here

// client is one client with its members.
type client struct {
	t     *testing.T
	guard *Guard
	hosts []*fakeHost

	mu     sync.Mutex
	events []string
}

// started are n servers.
func started(n int) (servers []*server) {
	for i := range n {
		servers = append(servers, newServer(fmt.Sprintf("run%d", i)))
	}
	return servers
}

// connect makes a client of these servers, for which a person vouches, and connects it.
func connect(t *testing.T, edit func(*Config, *Terms), servers ...*server) *client {
	c := &client{t: t}
	cfg := Config{Members: len(servers), MaxTTL: longest, Fresh: true, Event: func(e Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e.Member+" "+e.Step)
	}}
	terms := Terms{}
	edit(&cfg, &terms)
	c.guard = New(cfg)
	for i, s := range servers {
		c.hosts = append(c.hosts, sit(t, c.guard, s, strconv.Itoa(i), terms))
	}
	for _, h := range c.hosts {
		h.mend()
	}
	synctest.Wait()
	return c
}

func plain(*Config, *Terms) {}

// unvouched is a client to which nobody has said that nothing was held at its members.
func unvouched(cfg *Config, _ *Terms) { cfg.Fresh = false }

// met plays in fake time with a client of n servers.
func met(t *testing.T, n int, edit func(*Config, *Terms), play func(t *testing.T, servers []*server, c *client)) {
	t.Helper()
	faketime.Test(t, func(t *testing.T) {
		servers := started(n)
		c := connect(t, edit, servers...)
		defer c.close()
		play(t, servers, c)
	})
}

func (c *client) close() {
	for _, h := range c.hosts {
		h.leave()
	}
}

// voting are the members that vote.
func (c *client) voting() (n int) {
	for _, h := range c.hosts {
		if h.votes() {
			n++
		}
	}
	return n
}

// after lets time pass.
func (c *client) after(d time.Duration) { c.t.Helper(); time.Sleep(d); synctest.Wait() }

func (c *client) told(event string) bool {
	return rt.Under(&c.mu, func() bool { return slices.Contains(c.events, event) })
}

func (h *fakeHost) stands() (s Standing, v Verdict, gen uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.standing, h.verdict, h.state.Gen
}

func TestMemberThatWasFlushedIsSilentForTheLongestLeaseAndRestored(t *testing.T) {
	met(t, 3, plain, func(t *testing.T, servers []*server, c *client) {
		require.Equal(t, 3, c.voting())
		for i, s := range servers {
			s.do("HSET", member.TokensKey, "7", strconv.Itoa(4e15+40+i), "8", "5", "7.3", strconv.Itoa(4e15+70+i), "limit:redquorum:s1:{k}", strconv.Itoa(90+i))
		}
		_, before, gen := c.hosts[2].stands()
		servers[2].flush()
		c.after(1100 * time.Millisecond) // a ping
		_, v, now := c.hosts[2].stands()
		require.Equal(t, gen+1, now, "what it said before counts for nothing")
		require.False(t, v.Votes)
		require.Equal(t, NoHandOver, v.Tag)
		require.ErrorAs(t, v.Barred, new(*member.QuarantineError))
		require.WithinDuration(t, time.Now().Add(longest), v.Quarantine, 2*time.Second)
		require.True(t, c.told("2 forgot"))
		require.Equal(t, 2, c.voting(), "the others vote")

		c.after(longest - 2*time.Second)
		require.Equal(t, 2, c.voting())
		c.after(3 * time.Second)
		require.Equal(t, 3, c.voting())
		a, v, _ := c.hosts[2].stands()
		require.Equal(t, whole, a.marker.state)
		require.NotEqual(t, before.Tag, v.Tag, "another marking")
		require.Equal(t, "4000000000000041", string(servers[2].do("HGET", member.TokensKey, "7").Str), "the greatest that the others know")
		require.Equal(t, "4000000000000071", string(servers[2].do("HGET", member.TokensKey, "7.3").Str), "of a semaphore's slot")
		require.Equal(t, "91", string(servers[2].do("HGET", member.TokensKey, "limit:redquorum:s1:{k}").Str), "its stored limit")
		require.True(t, c.told("2 restored"))
	})
}

func TestProcessThatIsNotTheOneOfTheMarkerHasForgotten(t *testing.T) {
	for mode, forgets := range map[Mode]bool{Quarantine: true, Strict: true, Off: false} {
		met(t, 3, func(cfg *Config, _ *Terms) { cfg.Mode = mode }, func(t *testing.T, servers []*server, c *client) {
			gen := c.hosts[1].Now().State.Gen
			servers[1].edit(func() { servers[1].run = "other" }) // with its data
			c.after(2 * time.Second)
			c.hosts[1].cut()
			c.hosts[1].mend()
			c.after(time.Millisecond)
			require.Equal(t, !forgets, c.hosts[1].votes(), "mode %d", mode)
			require.Equal(t, gen+1, c.hosts[1].Now().State.Gen, "what another process said counts for nothing")
			c.after(longest + time.Second)
			require.Equal(t, 3, c.voting())
		})
	}
}

func TestSuspicionLooksAtOnceAndOnlyOnceInAWhile(t *testing.T) {
	met(t, 1, plain, func(t *testing.T, servers []*server, c *client) {
		h := c.hosts[0]
		require.True(t, h.seat.Suspects(&member.ReplyError{Kind: member.KindForgot}))
		require.False(t, h.seat.Suspects(&member.ReplyError{Kind: member.KindBusy}))
		calls, _, gen := servers[0].executed(), 0, h.Now().State.Gen
		for range 10 {
			h.Suspect()
			synctest.Wait()
		}
		require.Equal(t, calls+1, servers[0].executed())
		require.Equal(t, gen+1, h.Now().State.Gen)
		c.after(60 * time.Millisecond)
		require.Equal(t, calls+2, servers[0].executed(), "and once more when the while is over")
		require.True(t, h.votes())
	})
}

func TestReplicaThatTookOverIsSilentForTheLongestLeaseAndTheLag(t *testing.T) {
	const lag = 10 * time.Second
	for _, way := range []string{"the marker had reached it", "it had not", "it is the same server, demoted and promoted again"} {
		faketime.Test(t, func(t *testing.T) {
			master := newServer("master")
			c := connect(t, func(_ *Config, terms *Terms) { terms.Replicated, terms.Lag = true, lag }, master)
			defer c.close()
			require.Equal(t, 1, c.voting())
			replica := newServer("replica")
			replica.succeed("replica", master)
			switch way {
			case "it had not":
				replica.flush()
			case "it is the same server, demoted and promoted again":
				replica = master
				master.edit(func() { master.follow("another"); master.follow("NO") })
			}
			h := c.hosts[0]
			h.server = replica
			h.cut()
			h.mend()
			c.after(longest + lag - time.Second)
			require.False(t, h.votes(), way)
			c.after(3 * time.Second)
			require.True(t, h.votes())

			replica.edit(func() { replica.role = "slave" })
			c.after(2 * time.Second)
			require.False(t, h.Now().State.Up)
			require.ErrorIs(t, h.err, errReplica)
		})
	}
}

func TestReplicationIDThatChangesWithoutAPromotionIsNoted(t *testing.T) {
	for _, replicated := range []bool{true, false} {
		met(t, 1, func(_ *Config, terms *Terms) { terms.Replicated = replicated }, func(t *testing.T, servers []*server, c *client) {
			gen := c.hosts[0].Now().State.Gen
			servers[0].edit(func() { servers[0].repl = "another" })
			c.after((lookPings + 1) * time.Second)
			require.True(t, c.hosts[0].votes())
			require.Equal(t, gen, c.hosts[0].Now().State.Gen)
			require.Equal(t, "another", string(servers[0].do("HGET", member.MarkerKey, "repl").Str))
		})
	}
}

// A plain member that followed another server and is a master again has the same process, connections that are up, and a
// marker that came along with the data.
func TestMemberThatWasAReplicaHasForgotten(t *testing.T) {
	for _, mode := range []Mode{Quarantine, Off} {
		for _, way := range []string{"a look sees the replica", "no look sees it", "a call is refused there", "its client is new", "it followed nobody"} {
			met(t, 3, func(cfg *Config, _ *Terms) { cfg.Mode = mode }, func(t *testing.T, servers []*server, c *client) {
				c.after(time.Second)
				s, h, what := servers[2], c.hosts[2], fmt.Sprint(way, mode)
				for i, s := range servers {
					s.do("HSET", member.TokensKey, "7", strconv.Itoa(4e15+40+i))
				}
				copied, ends := s.copied()
				id := h.Now().Standing.Marker()
				s.do("HSET", member.TokensKey, "7", "4000000000000050")
				switch way {
				case "a look sees the replica", "a call is refused there":
					s.edit(func() { s.follow("another") })
					if way == "a call is refused there" {
						h.Suspect()
						c.after(10 * time.Millisecond)
					} else {
						c.after((lookPings + 1) * time.Second)
					}
					require.False(t, h.Now().State.Up, what)
					require.ErrorIs(t, h.err, errReplica)
					require.False(t, errors.As(h.err, new(*member.ReplyError)), "calls in flight may have been executed")
					h.mend()
					c.after(time.Millisecond)
					var refused *member.ReplyError
					require.ErrorAs(t, h.err, &refused, "who asks why it gives no vote is told")
					require.Equal(t, member.KindReadOnly, refused.Kind)
					s.reload(copied, ends)
					h.mend()
					c.after(time.Millisecond)
				case "its client is new":
					h.cut()
					s.reload(copied, ends)
					next := connect(t, func(cfg *Config, _ *Terms) { cfg.Mode = mode }, servers...)
					defer next.close()
					require.False(t, next.hosts[2].votes(), what)
					h.mend()
					c.after(time.Millisecond)
				case "no look sees it":
					s.reload(copied, ends)
					c.after((lookPings + 1) * time.Second)
					require.True(t, c.told("2 forgot"), what)
				case "it followed nobody": // and kept its data, which nobody knows
					s.edit(func() { s.follow("another"); s.follow("NO") })
					c.after((lookPings + 1) * time.Second)
				}
				require.False(t, h.votes(), what)
				require.Equal(t, 2, c.voting(), what)
				require.NotEqual(t, id, h.Now().Standing.Marker(), what)
				require.Equal(t, forgot, h.Now().Standing.marker.state, what)
				require.WithinDuration(t, time.Now().Add(longest), h.Now().State.Quarantine, (lookPings+2)*time.Second)
				c.after(longest + time.Second)
				require.Equal(t, 3, c.voting(), what)
				require.Equal(t, whole, h.Now().Standing.marker.state, what)
				require.Equal(t, "4000000000000041", string(s.do("HGET", member.TokensKey, "7").Str), what)
			})
		}
	}
}

// What a client finds that comes after the replication id has changed, or at a marker of a former version, which noted none.
func TestReplicationIDThatNobodySawChange(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edit  func(s *server)
		votes bool
	}{
		{"a first replica came, or it was one, for long", func(s *server) { s.repl = "another" }, false},
		{"it was a replica", func(s *server) { s.follow("another"); s.follow("NO") }, false},
		{"a former version noted nothing", func(s *server) { delete(s.hashes[member.MarkerKey], "repl") }, true},
		{"a former version noted nothing, and it was a replica", func(s *server) {
			delete(s.hashes[member.MarkerKey], "repl")
			s.follow("another")
			s.follow("NO")
		}, false},
	} {
		t.Run(tc.name, faketime.In(func(t *testing.T) {
			servers := started(1)
			connect(t, plain, servers...).close()
			servers[0].edit(func() { tc.edit(servers[0]) })
			c := connect(t, plain, servers...)
			defer c.close()
			require.Equal(t, tc.votes, c.hosts[0].votes())
			require.Equal(t, servers[0].repl, string(servers[0].do("HGET", member.MarkerKey, "repl").Str), "it is noted from now on")
			c.after(longest + 2*time.Second)
			require.True(t, c.hosts[0].votes())
		}))
	}
}

// Nobody would see that it restarted, or that it followed another.
func TestServerThatDoesNotTellWhichMemoryItHasIsNotAdmitted(t *testing.T) {
	for err, silent := range map[error]func(s *server){
		errNameless: func(s *server) { s.nameless = true },
		errNoRole:   func(s *server) { s.denies = true },
	} {
		faketime.Test(t, func(t *testing.T) {
			s := started(1)[0]
			silent(s)
			c := connect(t, plain, s)
			defer c.close()
			require.ErrorIs(t, c.hosts[0].admitErr, err)
		})
	}
}

// masters is one cluster, which is a member of a client.
type masters struct {
	*client
	group *Group
	mu    sync.Mutex
	slots [][]uint16
	doubt int
	eras  int
}

// clustered makes a client of one cluster, and connects it.
func clustered(t *testing.T, servers []*server, slots ...[]uint16) *masters {
	c := cluster(t, servers, slots...)
	for _, h := range c.hosts {
		h.mend()
	}
	synctest.Wait()
	return c
}

// mastered plays in fake time with a client of one cluster, whose masters have these slots.
func mastered(t *testing.T, play func(t *testing.T, servers []*server, c *masters), slots ...[]uint16) {
	t.Helper()
	faketime.Test(t, func(t *testing.T) {
		servers := started(len(slots))
		c := clustered(t, servers, slots...)
		defer c.close()
		play(t, servers, c)
	})
}

func cluster(t *testing.T, servers []*server, slots ...[]uint16) *masters {
	return joined(t, New(Config{Members: 1, MaxTTL: longest, Fresh: true}), servers, slots...)
}

// joined makes a cluster one of the members of a client.
func joined(t *testing.T, g *Guard, servers []*server, slots ...[]uint16) *masters {
	c := &masters{client: &client{t: t, guard: g}, slots: slots}
	c.group = &Group{Changed: func() { c.edit(func() { c.eras++ }) }, Masters: func() (n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.slots {
			if len(s) > 0 {
				n++
			}
		}
		return n
	}}
	for i, s := range servers {
		c.add(i, s)
	}
	return c
}

func (c *masters) add(i int, s *server) {
	shard := &Shard{Group: c.group, Unknown: func() { c.edit(func() { c.doubt++ }) }, Slots: func() (slots []uint16) {
		c.edit(func() { slots = c.slots[i] })
		return slots
	}}
	c.hosts = append(c.hosts, sit(c.t, c.guard, s, strconv.Itoa(i), Terms{Shard: shard, Replicated: true, Lag: time.Second}))
}

func (c *masters) edit(f func()) { rt.Locked(&c.mu, f) }

func span(from, to uint16) (slots []uint16) {
	for s := from; s <= to; s++ {
		slots = append(slots, s)
	}
	return slots
}

// The counters of a slot are its own, those of the slots of its semaphores, and their stored limits. All of them are read, and
// all are raised.
func TestClusterReadsAndRaisesEveryCounterOfASlot(t *testing.T) {
	mastered(t, func(t *testing.T, servers []*server, c *masters) {
		h := c.hosts[0]
		limit := "limit:redquorum:s1:{" + slot.TagOf(3) + "}"
		servers[0].do("HSET", tokensOf(3), "3", "9", "3.7", "70", limit, "1048580")
		servers[0].do("HSET", tokensOf(4), "4", "5", "forgot", "1")
		read := map[string]int64{}
		require.NoError(t, h.seat.slotCounters(t.Context(), &wholly, []uint16{3, 4}, read))
		require.Equal(t, map[string]int64{"3": 9, "3.7": 70, limit: 1048580, "4": 5}, read)

		id := h.Now().Standing.Marker()
		servers[0].do("HSET", tokensOf(3), "id", id, "3", "1", "3.7", "99", limit, "1")
		servers[0].do("HSET", tokensOf(4), "id", id)
		read["12"], read["5000.3"] = 7, 8 // of other masters
		require.NoError(t, h.seat.refill(t.Context(), id, &wholly, read))
		for field, want := range map[string]string{"3": "9", "3.7": "99", limit: "1048580"} {
			require.Equal(t, want, string(servers[0].do("HGET", tokensOf(3), field).Str), field)
		}
	}, span(0, 9))
}

func TestMarkerGoesAlongWhenItsSlotIsGivenAway(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		servers := started(1)
		c := joined(t, New(Config{Members: 1, MaxTTL: longest}), servers, span(0, 9)) // in quarantine, which goes along
		defer c.close()
		c.hosts[0].mend()
		synctest.Wait()
		h := c.hosts[0]
		before := h.Now()
		require.False(t, before.State.Votes)
		at, _ := h.seat.HomeSlot()
		require.EqualValues(t, 9, at)

		servers[0].edit(func() { servers[0].stolen = map[uint16]bool{9: true} })
		c.after(1200 * time.Millisecond)
		require.Positive(t, c.doubt, "the topology is asked for")
		c.edit(func() { c.slots[0] = span(0, 8) })
		c.after(2 * time.Second)
		at, _ = h.seat.HomeSlot()
		require.EqualValues(t, 8, at)
		now := h.Now()
		require.Equal(t, before.Standing.Marker(), now.Standing.Marker())
		require.Equal(t, before.State.Gen, now.State.Gen)
		require.Equal(t, 1, h.recur, "the inbox looks where it stands")
		require.WithinDuration(t, before.State.Quarantine, now.State.Quarantine, time.Second)
		c.after(longest)
		require.True(t, h.votes())
	})
}

// While the marker is on its way it is still at its old place, or not to be had: a slot is stamped or has to wait, and
// nobody takes the master for one that forgot.
func TestSlotIsStampedWhileTheMarkerIsCarried(t *testing.T) {
	for _, given := range []bool{false, true} { // the slot that the marker was in
		mastered(t, func(t *testing.T, servers []*server, c *masters) {
			h := c.hosts[0]
			before := h.Now()
			servers[0].carrying.Store(int64(300 * time.Millisecond))
			if given {
				servers[0].edit(func() { servers[0].stolen = map[uint16]bool{9: true} })
				c.edit(func() { c.slots[0] = span(0, 8) })
			} else {
				c.edit(func() { c.slots[0] = span(0, 12) })
			}
			time.Sleep(1100 * time.Millisecond) // a ping
			err := h.seat.Stamp(t.Context(), 2)
			at, _ := h.seat.HomeSlot()
			var refused *member.ReplyError
			if given {
				require.ErrorAs(t, err, &refused)
				require.Equal(t, member.KindCluster, refused.Kind, "to be tried again")
			} else {
				require.NoError(t, err)
			}
			require.EqualValues(t, 9, at, "the carry is on its way")
			c.after(time.Second)
			at, _ = h.seat.HomeSlot()
			require.NotEqualValues(t, 9, at)
			require.NoError(t, h.seat.Stamp(t.Context(), 2))
			require.Equal(t, before.State.Gen, h.Now().State.Gen, "nobody suspects the master")
		}, span(0, 9))
	}
}

// Another client may have raised q after this one had looked, where the marker was. Who comes now waits until that is told.
func TestMarkerThatIsCarriedIsReliedOnAfterAPing(t *testing.T) {
	mastered(t, func(t *testing.T, servers []*server, c *masters) {
		c.edit(func() { c.slots[0] = span(0, 12) })
		c.after(1100 * time.Millisecond) // a ping
		at, _ := c.hosts[0].seat.HomeSlot()
		require.EqualValues(t, 12, at)
		require.True(t, c.hosts[0].votes())
		next := clustered(t, servers, span(0, 12))
		defer next.close()
		require.False(t, next.hosts[0].votes())
		next.after(time.Second)
		require.True(t, next.hosts[0].votes())
	}, span(0, 9))
}

func TestMasterWithSlotsOfMastersThatRememberIsNew(t *testing.T) {
	for what, stamp := range map[string]func(slot uint16, remembers string) string{
		"its slots came with what their former master wrote there": func(_ uint16, remembers string) string { return remembers },
		"they have no stamp": func(uint16, string) string { return "" },
		"they have the stamp of a master that it may have taken over": func(uint16, string) string { return "gone 5" },
		"one of them has another stamp": func(slot uint16, remembers string) string {
			if slot == 4 {
				return "gone 5"
			}
			return remembers
		},
	} {
		mastered(t, func(t *testing.T, servers []*server, c *masters) {
			require.Equal(t, 2, c.voting())
			joined, all := newServer("joined"), true
			remembers := c.hosts[0].Now().Standing.Marker()
			for _, s := range span(0, 4) {
				said := stamp(s, remembers)
				if said != "" {
					joined.do("HSET", tokensOf(s), "id", said)
				}
				all = all && said == remembers
			}
			c.edit(func() { c.slots = [][]uint16{span(5, 9), span(10, 19), span(0, 4)} })
			c.add(2, joined)
			c.hosts[2].mend()
			c.after(time.Second / 2)
			require.Equal(t, all, c.hosts[2].votes(), what)
		}, span(0, 9), span(10, 19))
	}
}

func TestConnectionToAnotherMemoryAloneBeginsAGeneration(t *testing.T) {
	mastered(t, func(t *testing.T, servers []*server, c *masters) {
		h := c.hosts[0]
		before, other := h.Now().State, c.hosts[1].Now().State
		require.NotEqual(t, before.Epoch, other.Epoch, "server times of one master are no anchors of another")
		require.EqualValues(t, 2, c.group.Era(), "each master that comes begins one")
		require.Equal(t, 2, c.eras)

		h.cut()
		require.ErrorIs(t, h.Now().State.Err, errCut)
		h.mend()
		c.after(time.Millisecond)
		now := h.Now().State
		require.True(t, now.Votes)
		require.Equal(t, before.Gen, now.Gen)
		require.Greater(t, now.Epoch, max(before.Epoch, other.Epoch))
		require.EqualValues(t, 2, c.group.Era())

		servers[0].restart("other")
		h.cut()
		h.mend()
		c.after(time.Millisecond)
		now = h.Now().State
		require.False(t, now.Votes)
		require.Equal(t, "other", now.RunID)
		require.Equal(t, before.Gen+1, now.Gen)
		require.EqualValues(t, 3, c.group.Era())
		require.Equal(t, 3, c.eras)
	}, span(0, 9), span(10, 19))
}

// A master of the cluster that may come at any moment is told of MaxTTL first, one that is down is
// not waited for.
func TestClusterIsMetWhenNoMasterOfItIsConnecting(t *testing.T) {
	for _, connecting := range []bool{true, false} {
		faketime.Test(t, func(t *testing.T) {
			servers := started(2)
			earlier := clustered(t, servers, span(0, 9), span(10, 19)) // marks them
			earlier.close()
			var slots []uint16 // of the second master
			if !connecting {
				slots = span(10, 19)
				servers[1].edit(func() { servers[1].role = "slave" })
			}
			c := cluster(t, servers, span(0, 9), slots)
			defer c.close()
			c.hosts[1].mend()
			c.after(2 * time.Second)
			if connecting {
				require.ErrorIs(t, c.hosts[1].Now().State.Err, errSlots)
				c.edit(func() { c.slots[1] = span(10, 19) })
			} else {
				require.ErrorIs(t, c.hosts[1].Now().State.Err, errReplica)
			}
			c.hosts[0].mend()
			c.after(2 * time.Second)
			require.Equal(t, !connecting, c.hosts[0].votes())
			servers[1].edit(func() { servers[1].role = "master" })
			c.hosts[1].mend()
			c.after(time.Millisecond)
			require.Equal(t, 2, c.voting())
		})
	}
}

func TestMasterThatWasFlushedEndsTheEraOfItsCluster(t *testing.T) {
	mastered(t, func(t *testing.T, servers []*server, c *masters) {
		era, eras := c.group.Era(), c.eras
		servers[1].flush()
		c.after(1100 * time.Millisecond)
		require.Greater(t, c.group.Era(), era)
		require.Greater(t, c.eras, eras)
		require.True(t, c.hosts[0].votes())
		require.False(t, c.hosts[1].votes())
		require.Equal(t, "1", string(servers[1].do("HGET", tokensOf(10), "forgot").Str), "nor does a master that gets the slot")
		// Its slots go to the other one, as their keys do.
		moved := c.hosts[1].Now().Standing.Marker()
		for _, slot := range []uint16{10, 11} {
			servers[0].do("HSET", tokensOf(slot), "id", moved, "forgot", "1")
		}
		require.ErrorContains(t, c.hosts[0].seat.Stamp(t.Context(), 10), "forgot a moment ago")
		c.after(longest + 2*time.Second)
		require.NoError(t, c.hosts[0].seat.Stamp(t.Context(), 10), "there is nobody who could tell")
		c.guard.cfg.Members = 2 // the other one is not heard of
		require.ErrorContains(t, c.hosts[0].seat.Stamp(t.Context(), 11), "too few members tell")
		c.after(1100 * time.Millisecond)
		require.NoError(t, c.hosts[0].seat.Stamp(t.Context(), 11), "nobody tells for a ping")
		require.Equal(t, c.hosts[0].Now().Standing.Marker(), string(servers[0].do("HGET", tokensOf(10), "id").Str))
	}, span(0, 9), span(10, 19))
}

// A stamp, and a marker, say that the master was not emptied since it was marked. So none comes back after that, whatever
// a client had begun before. The master is emptied before each command in turn.
func TestNothingBegunBeforeAMasterWasEmptiedComesBack(t *testing.T) {
	use := func(t *testing.T, s *server, slots []uint16) *masters {
		c := cluster(t, []*server{s}, slots)
		c.hosts[0].mend()
		synctest.Wait()
		return c
	}
	for name, play := range map[string]func(t *testing.T, s *server, arm func()){
		"at first use": func(t *testing.T, s *server, arm func()) {
			arm()
			c := use(t, s, span(0, 3))
			defer c.close()
			c.after(1100 * time.Millisecond)
		},
		"at the use of a slot from elsewhere": func(t *testing.T, s *server, arm func()) {
			c := use(t, s, span(0, 3))
			defer c.close()
			s.do("DEL", tokensOf(1))
			arm()
			_ = c.hosts[0].seat.Stamp(t.Context(), 1)
			c.after(1100 * time.Millisecond)
		},
		"while a marker is carried": func(t *testing.T, s *server, arm func()) {
			c := use(t, s, span(0, 3))
			defer c.close()
			c.edit(func() { c.slots[0] = span(0, 5) })
			arm()
			c.after(1100 * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for emptied := 1; ; emptied++ {
				n := 0
				for marked := range emptied {
					if marked > 0 && name != "at first use" { // where another client may mark the master, too
						break
					}
					faketime.Test(t, func(t *testing.T) { n = max(n, emptiedAt(t, emptied, marked, play)) })
				}
				if n < emptied {
					require.Greater(t, n, 3)
					return
				}
			}
		})
	}
}

// emptiedAt plays what a client does, and returns how many commands were sent since it was armed.
// Another client marks the master before the command number marked, unless that is 0.
func emptiedAt(t *testing.T, emptied, marked int, play func(t *testing.T, s *server, arm func())) (n int) {
	s := started(1)[0]
	home := slotHome(3, s.process().MasterID)
	var gone []string
	back := func() {
		s.edit(func() {
			for key, h := range s.hashes {
				require.NotContains(t, gone, h["id"], "%s, emptied at %d, marked at %d", key, emptied, marked)
			}
		})
	}
	var step func()
	step = func() {
		s.before.Store(nil)
		defer s.before.Store(&step)
		back()
		switch n++; n {
		case marked:
			s.do(words(home.markCommand(s.run, s.repl, longest, 0, neverForgot))...)
		case emptied:
			s.edit(func() {
				for _, h := range s.hashes {
					if h["id"] != "" {
						gone = append(gone, h["id"])
					}
				}
				s.ahead += time.Millisecond // no two markings are of one moment
			})
			s.flush()
		}
	}
	play(t, s, func() { s.before.Store(&step) })
	s.before.Store(nil)
	back()
	return n
}

func TestMasterWithoutATopologyIsNotAdmitted(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := clustered(t, started(1), nil)
		defer c.close()
		require.Positive(t, c.doubt)
		c.edit(func() { c.slots[0] = span(0, 9) })
		c.after(20 * time.Millisecond)
		require.True(t, c.hosts[0].votes(), "a topology that comes soon is waited for")

		c = clustered(t, started(1), nil)
		defer c.close()
		c.after(2 * time.Second)
		require.ErrorIs(t, c.hosts[0].admitErr, errSlots)
		require.ErrorIs(t, c.hosts[0].admitErr, member.ErrConnecting)
	})
}

// Who closes waits neither for the first answers of other members nor for a topology.
func TestHostThatClosesWhileItsMemberIsAdmittedHasNoStanding(t *testing.T) {
	closes := func(t *testing.T, h *fakeHost) {
		s := h.server.executed()
		began := time.Now()
		h.leave()
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, h.admitErr, member.ErrClosed)
		require.Zero(t, h.gave)
		a, v, _ := h.stands()
		require.Zero(t, a)
		require.False(t, v.Votes)
		require.False(t, h.Now().State.Up)
		require.Nil(t, h.Now().Session)
		require.ErrorIs(t, h.Now().State.Err, member.ErrClosed)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, s, h.server.executed(), "nobody looks after it")
	}
	t.Run("others have not answered", faketime.In(func(t *testing.T) {
		s := started(1)[0]
		h := sit(t, New(Config{Members: 3, MaxTTL: longest}), s, "0", Terms{})
		h.mend()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		require.Positive(t, s.executed())
		closes(t, h)
		require.Zero(t, s.do("EXISTS", member.MarkerKey).Int, "and nothing marks it")
	}))
	t.Run("a topology is to come", faketime.In(func(t *testing.T) {
		c := clustered(t, started(1), span(0, 9))
		h := c.hosts[0]
		require.True(t, h.votes())
		h.cut()
		c.edit(func() { c.slots[0] = nil })
		h.mend()
		c.after(250 * time.Millisecond)
		require.NotEmpty(t, h.Now().Standing.Marker(), "of the connection before")
		closes(t, h)
	}))
}

func TestSeatWithoutAGuardAsksNothing(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newServer("run")
		h := sit(t, nil, s, "alone", Terms{})
		h.mend()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, h.votes())
		require.Zero(t, s.executed())
		_, ok := h.seat.HeardOffset()
		require.False(t, ok)
		h.leave()
		require.False(t, h.votes())
	})
}

// deafSession answers nothing.
type deafSession struct{ fakeSession }

func (*deafSession) Ask(ctx context.Context, _ [][]byte) ([]member.Call, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A bare "context deadline exceeded" would say neither which step had no answer, nor for how long it was waited for.
func TestErrorOfASilentMemberSaysWhatItWasAskedAndForHowLong(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		one := func() []uint16 { return []uint16{7} }
		h, deaf := sit(t, New(Config{Members: 1}), newServer("r"), "a", Terms{Shard: &Shard{Group: new(Group), Slots: one}}), new(deafSession)
		defer h.cancel()
		_, asked := h.seat.askMarker(deaf, h.seat.place().look)
		_, announced := h.seat.announce(deaf, 7)
		_, looked := h.seat.remembers(deaf, "id")
		require.EqualError(t, asked, "marker: no answer to EVAL within 1s")
		require.EqualError(t, h.seat.stampAll(deaf, marker{}), "no answer to announced stamps within 1s")
		require.EqualError(t, announced, "no answer to an announced marker within 1s")
		require.EqualError(t, looked, "no answer to a look at its stamps within 1s")
	})
}

func TestSlowMarkerIsWaitedForLonger(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		h := sit(t, New(Config{Members: 1}), newServer("r"), "a", Terms{})
		defer h.cancel()
		waits := func(on Session) time.Duration {
			start := time.Now()
			_, _ = h.seat.askMarker(on, h.seat.place().look)
			return time.Since(start).Round(time.Millisecond)
		}
		for _, want := range []time.Duration{1, 2, 4, 4} {
			require.Equal(t, want*time.Second, waits(new(deafSession)))
		}
		require.Zero(t, waits(h.dial()))
		require.Equal(t, time.Second, waits(new(deafSession)))
	})
}
