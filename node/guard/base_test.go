package guard

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

func init() {
	base := func(s *memory) string {
		s.Helper()
		b, _ := s.ask("HGET", member.TokensKey, baseField).(string)
		require.Equal(s, b, map[bool]string{false: fmt.Sprint(s.look().base)}[s.look().base == 0], "as a look tells it")
		return b
	}
	begins := func(runID, state string, base int64) []byte {
		return blindHome.markCommand(runID, "", leases, 0, state, base)
	}
	lift := func(m marker, base int64, believed bool) []byte { return blindHome.baseCommand(m.id, base, believed) }
	recent := func(s *memory, asked marker) {
		s.Helper()
		require.GreaterOrEqual(s, s.look().base, asked.time)
		require.LessOrEqual(s, s.look().base, s.look().time)
	}
	guardCases = append(guardCases,
		guardCase{"mark gives a member that never forgot a base, and never a lesser one", func(s *memory) {
			s.run(begins("run", neverForgot, 500))
			require.Equal(s, "500", base(s))
			s.run(begins("second", neverForgot, 400))
			require.Equal(s, "500", base(s))
			s.run(begins("third", neverForgot, 600))
			require.Equal(s, "600", base(s))
			s.ask("HSET", member.TokensKey, "7", "41")
			s.run(begins("fourth", forgot, 0))
			require.Empty(s, base(s), "it is lost with the counters")
			require.EqualValues(s, 0, s.ask("EXISTS", member.TokensKey))
			s.flush()
			s.run(begins("run", neverForgot, 0))
			require.Empty(s, base(s), "none is known")
		}},
		guardCase{"base raises, and never lowers", func(s *memory) {
			m := s.run(begins("run", neverForgot, 500))
			require.EqualValues(s, 700, s.run(lift(m, 700, false)).base)
			require.Equal(s, "700", base(s))
			s.unchanged(lift(m, 600, false))
			s.unchanged(lift(m, 700, false))
		}},
		guardCase{"base of a member that has none begins at its time, where that is later", func(s *memory) {
			m := s.run(begins("run", neverForgot, 0))
			s.run(lift(m, 500, false))
			recent(s, m)
			s.flush()
			m = s.run(begins("run", neverForgot, 0))
			s.run(lift(m, 9e15, false))
			require.Equal(s, "9000000000000000", base(s))
		}},
		guardCase{"base for another marking, or of a member that is not restored, does nothing", func(s *memory) {
			m := s.run(begins("run", neverForgot, 500))
			s.unchanged(lift(marker{id: m.id + "0"}, 700, false))
			s.unchanged(lift(marker{id: "run 1"}, 700, true))
			m = s.run(begins("other", forgot, 0))
			s.unchanged(lift(m, 700, false))
			s.unchanged(lift(m, 700, true))
			require.Empty(s, base(s))
		}},
		guardCase{"base of a snapshot that is believed is raised to the time", func(s *memory) {
			m := s.run(begins("run", neverForgot, 500))
			s.run(lift(m, 0, true))
			recent(s, m)
			s.unchangedButBase(lift(m, 400, true))
			recent(s, m)
		}},
		guardCase{"restore writes the base that is known, and by clocks none before the time", func(s *memory) {
			m := s.run(begins("run", forgot, 0))
			s.restored(m, wholly, "500", "7", "100")
			require.Equal(s, "500", base(s))
			m = s.run(begins("second", forgot, 0))
			s.restored(m, plan{known: true, byClock: true, q: leases}, "500", "7", "100")
			recent(s, m)
			m = s.run(begins("third", forgot, 0))
			s.restored(m, wholly, "0", "7", "100")
			require.Empty(s, base(s), "nobody has one")
			m = s.run(begins("fourth", forgot, 0))
			s.run(blindHome.command(restoreLua, m.id, "1", millis(leases), ""))
			require.Empty(s, base(s), "a slot of a cluster has none")
		}},
		guardCase{"seal gives a slot that was never stamped a base, unless its master forgot", func(s *memory) {
			key := tokensOf(7)
			seal := func(m marker, base int64, want any) {
				s.Helper()
				s.ask("HSET", key, "pending", "mine")
				s.send(sealCommand(7, m, "mine", base))
				require.Equal(s, want, s.ask("HGET", key, baseField))
				require.Equal(s, m.id, s.ask("HGET", key, "id"))
			}
			m := marker{id: "run 5", state: neverForgot}
			seal(m, 0, nil)
			s.flush()
			seal(m, 500, "500")
			seal(m, 700, "500") // another client announces and seals: it is stamped already
			seal(marker{id: "run 9", state: neverForgot}, 700, nil)
			seal(marker{id: "run 11", state: neverForgot}, 700, nil)
			s.flush()
			seal(marker{id: "run 9", state: forgot}, 500, nil)
			s.flush()
			seal(m, 500, "500")
			seal(marker{id: "run 9", state: forgot}, 500, nil)
		}},
		guardCase{"stamp takes the base of a slot that came from another master away", func(s *memory) {
			key := tokensOf(7)
			stamp := func(id string) {
				s.Helper()
				s.ask("HSET", key, "pending", "word")
				require.EqualValues(s, 1, s.send(stampCommand(7, id, leases, true, "word")).Int)
			}
			s.ask("HSET", key, "id", "run 5", baseField, "500", "7", "600")
			stamp("run 5")
			require.Equal(s, "500", s.ask("HGET", key, baseField), "it is this one's")
			stamp("other 9")
			require.Nil(s, s.ask("HGET", key, baseField))
			require.Equal(s, "600", s.ask("HGET", key, "7"))
		}},
		onMaster("base of a server that does not write stays, and the look is answered", func(s *memory, _ string) {
			m := s.run(begins("run", neverForgot, 500))
			s.follow()
			s.unchanged(lift(m, 700, false))
		}),
	)
}

// unchangedButBase runs a script that may change the base alone.
func (s *memory) unchangedButBase(cmd []byte) {
	s.Helper()
	before := s.look()
	after := s.run(cmd)
	after.base, after.time, after.age, after.arrived = before.base, before.time, before.age, before.arrived
	require.Equal(s, before, after)
}

// bases of the servers' counters.
func bases(servers []*server) (out []int64) {
	for _, s := range servers {
		n, _ := strconv.ParseInt(string(s.do("HGET", member.TokensKey, baseField).Str), 10, 64)
		out = append(out, n)
	}
	return out
}

func same(b []int64) bool { return len(slices.Compact(slices.Clone(b))) == 1 }

func TestNewMembersBeginWithOneBase(t *testing.T) {
	for name, fresh := range map[string]bool{"when leases would have ended": false, "at once": true} {
		t.Run(name, bubble(func(t *testing.T) {
			servers := started(3, time.Minute)
			servers[1].ahead = 40 * time.Millisecond
			servers[2].ahead = -30 * time.Millisecond
			began := time.Now()
			c := connect(t, func(cfg *Config, _ *Terms) { cfg.Fresh = fresh }, servers...)
			defer c.close()
			require.Equal(t, 3, c.voting())
			b := bases(servers)
			require.True(t, same(b), "before the first look after the marking: %v", b)
			require.Equal(t, began.Add(40*time.Millisecond).UnixMicro(), b[0], "the greatest of the clocks")
		}))
	}
}

func TestMemberThatGoesOnFromTheClocksHasABaseBeyondAllThatItForgot(t *testing.T) {
	met(t, 3, time.Hour, plain, func(t *testing.T, servers []*server, c *client) {
		c.after(time.Hour)
		forgot := time.Now().UnixMicro()
		servers[1].flush()
		servers[2].flush()
		c.after(longest + 5*time.Second)
		require.True(t, c.told("1 tokens_by_clock"))
		for i, b := range bases(servers)[1:] {
			require.Greater(t, b, forgot, i)
		}
		c.after(2 * time.Second)
		require.True(t, same(bases(servers)), "the one that forgot nothing follows: %v", bases(servers))
	})
}

func TestMembersOfDifferentBasesGetTheGreatest(t *testing.T) {
	for name, edit := range map[string]func(servers []*server){
		"two clients marked them":       func(s []*server) { s[1].do("HSET", member.TokensKey, baseField, "700") },
		"a former version marked them":  func(s []*server) { s[1].do("HDEL", member.TokensKey, baseField) },
		"a former version marked all":   func(s []*server) { removeBases(s) },
		"another client restored one":   func(s []*server) { s[2].do("HSET", member.TokensKey, baseField, fmt.Sprint(time.Now().UnixMicro())) },
		"a client of another view came": func(s []*server) { s[0].do("HSET", member.TokensKey, baseField, fmt.Sprint(time.Now().UnixMicro())) },
	} {
		t.Run(name, func(t *testing.T) {
			met(t, 3, time.Hour, plain, func(t *testing.T, servers []*server, c *client) {
				before := slices.Max(bases(servers))
				c.after(time.Second)
				edit(servers)
				greatest := max(before, slices.Max(bases(servers)))
				c.after(3100 * time.Millisecond) // a look that finds it, one that raises, and one at the others
				b := bases(servers)
				require.True(t, same(b), b)
				require.GreaterOrEqual(t, b[0], greatest)
				require.Equal(t, 3, c.voting(), "no generation ends by it")
			})
		})
	}
}

func removeBases(servers []*server) {
	for _, s := range servers {
		s.do("HDEL", member.TokensKey, baseField)
	}
}

func TestBaseOfAWrongClockIsNotHandedOn(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		servers := started(3, time.Hour)
		servers[2].ahead = 100 * 365 * 24 * time.Hour
		c := connect(t, plain, servers...)
		defer c.close()
		require.Equal(t, 3, c.voting())
		now := time.Now().UnixMicro()
		require.Equal(t, []int64{now, now, now}, bases(servers), "it is none of the clocks that a base comes from")
		servers[2].do("HSET", member.TokensKey, baseField, "9007199254740000")
		c.after(3 * time.Second)
		require.Equal(t, []int64{now, now, 9007199254740000}, bases(servers))
		servers[0].flush()
		c.after(longest + 3*time.Second)
		require.True(t, c.told("0 restored"))
		require.Equal(t, []int64{now, now, 9007199254740000}, bases(servers))
	})
}

// Its counters may be older than what it granted: no bucket that they lack begins below that.
func TestSnapshotThatIsBelievedHasNoOldBase(t *testing.T) {
	met(t, 3, time.Hour, func(cfg *Config, _ *Terms) { cfg.Mode = Off }, func(t *testing.T, servers []*server, c *client) {
		c.after(time.Hour)
		restarted := time.Now().UnixMicro()
		servers[1].edit(func() { servers[1].run = "other" })
		c.hosts[1].cut()
		c.hosts[1].mend()
		synctest.Wait()
		require.True(t, c.hosts[1].votes())
		b := bases(servers)
		require.GreaterOrEqual(t, b[1], restarted)
		c.after(2 * time.Second)
		require.Equal(t, []int64{b[1], b[1], b[1]}, bases(servers), "looks raise it no further")
	})
}

// slotBases are those of the slots that the masters of a cluster serve.
func (c *masters) slotBases() (out []int64) {
	for i, h := range c.hosts {
		for _, s := range c.slots[i] {
			n, _ := strconv.ParseInt(string(h.server.do("HGET", tokensOf(s), baseField).Str), 10, 64)
			out = append(out, n)
		}
	}
	return out
}

func TestSlotsOfNewClustersBeginWithOneBase(t *testing.T) {
	for name, fresh := range map[string]bool{"when leases would have ended": false, "at once": true} {
		t.Run(name, bubble(func(t *testing.T) {
			servers := started(4, time.Minute)
			for i, ahead := range []time.Duration{0, 40, -30, 20} {
				servers[i].ahead = ahead * time.Millisecond
			}
			began := time.Now()
			g := New(Config{Members: 3, MaxTTL: longest, Fresh: fresh})
			a := joined(t, g, servers[:2], span(0, 9), span(10, 19))
			defer a.close()
			b := joined(t, g, servers[2:3], span(0, 19))
			defer b.close()
			c := sit(t, g, servers[3], "plain", Terms{})
			defer c.leave()
			for _, h := range append(append(a.hosts, b.hosts...), c) {
				h.mend()
			}
			synctest.Wait()
			require.Equal(t, 3, a.voting()+b.voting())
			all := append(append(a.slotBases(), b.slotBases()...), bases(servers[3:])...)
			require.Len(t, all, 41)
			require.True(t, same(all), all)
			require.Equal(t, began.Add(40*time.Millisecond).UnixMicro(), all[0], "the greatest of the clocks")
		}))
	}
}

// What a master may have lost begins at its time: a base is older than that.
func TestSlotHasABaseOnlyUnderTheMarkingOfItsFirstDeployment(t *testing.T) {
	none := make([]int64, 10)
	for name, c := range map[string]struct {
		mode Mode
		edit func(c *masters, s *server)
		want bool
	}{
		"another client, and another connection": {edit: func(c *masters, s *server) {
			c.hosts[0].cut()
			c.hosts[0].mend()
			other := clustered(c.t, []*server{s}, span(0, 9))
			defer other.close()
			require.Equal(c.t, 1, other.voting())
		}, want: true},
		"emptied": {edit: func(_ *masters, s *server) { s.flush() }},
		"another process with a snapshot": {edit: func(c *masters, s *server) {
			s.edit(func() { s.run, s.repl = "other", "replother" })
			c.hosts[0].cut()
			c.hosts[0].mend()
		}},
		"another process with a snapshot that is believed": {mode: Off, edit: func(c *masters, s *server) {
			s.edit(func() { s.run, s.repl = "other", "replother" })
			c.hosts[0].cut()
			c.hosts[0].mend()
			synctest.Wait()
			require.Equal(c.t, none, c.slotBases(), "before it votes")
			require.Equal(c.t, 1, c.voting())
		}},
		"a replica took over": {edit: func(c *masters, s *server) {
			replica := newServer("replica")
			replica.succeed("replica", s)
			c.hosts[0].server = replica
			c.hosts[0].cut()
			c.hosts[0].mend()
		}},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			servers := started(1, time.Hour)
			m := joined(t, New(Config{Members: 1, MaxTTL: longest, Mode: c.mode}), servers, span(0, 9))
			defer m.close()
			m.hosts[0].mend()
			synctest.Wait()
			before := m.slotBases()
			require.True(t, same(before) && before[0] > 0, before)
			m.after(time.Minute)
			c.edit(m, servers[0])
			m.after(longest + 5*time.Second)
			require.Equal(t, 1, m.voting())
			if c.want {
				require.Equal(t, before, m.slotBases())
			} else {
				require.Equal(t, none, m.slotBases())
			}
		}))
	}
}

func TestSlotsOfAMasterThatIsNotOfTheFirstDeploymentHaveNoBase(t *testing.T) {
	for name, play := range map[string]func(t *testing.T) *masters{
		// The former master may go on granting for a while.
		"a replica took over before its marker came": func(t *testing.T) *masters {
			master := newServer("master")
			replica := newServer("replica")
			replica.succeed("replica", master)
			return clustered(t, []*server{replica}, span(0, 9))
		},
		"they were used before, and their marker is gone": func(t *testing.T) *masters {
			servers := started(1, time.Hour)
			for _, s := range span(0, 9) {
				servers[0].do("HSET", tokensOf(s), "id", "before 7", baseField, "700")
			}
			return clustered(t, servers, span(0, 9))
		},
		// One of its slots was lost on the way.
		"its slots come from masters that remember": func(t *testing.T) *masters {
			servers := started(1, time.Hour)
			c := clustered(t, servers, span(0, 19))
			next := newServer("next")
			for _, s := range span(10, 19) {
				next.do("HSET", tokensOf(s), "id", c.hosts[0].Now().Standing.Marker(), baseField, "700")
			}
			c.edit(func() { c.slots = [][]uint16{span(0, 9), span(10, 19)} })
			lose := func() { // behind the look at the stamps
				next.edit(func() {
					if next.hashes[tokensOf(10)]["pending"] != "" && next.hashes[tokensOf(15)]["pending"] == "" {
						delete(next.hashes, tokensOf(15))
					}
				})
			}
			next.before.Store(&lose)
			c.add(1, next)
			c.hosts[1].mend()
			c.after(time.Second / 2)
			next.before.Store(nil)
			require.True(t, c.hosts[1].votes())
			return c
		},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			c := play(t)
			defer c.close()
			require.NotEmpty(t, c.hosts[0].Now().Standing.Marker())
			all := c.slotBases()
			require.Equal(t, make([]int64, 10), all[len(all)-10:])
		}))
	}
}

// A slot that is not there any more has no base here. One that cannot be asked may have one.
func TestBasesOfASnapshotAreTakenAwayBeforeItsMasterIsAdmitted(t *testing.T) {
	mastered(t, func(t *testing.T, servers []*server, c *masters) {
		servers[0].edit(func() { servers[0].stolen = map[uint16]bool{4: true} })
		on := c.hosts[0].Now().Session
		require.NoError(t, c.hosts[0].seat.unbase(on))
		servers[0].edit(func() { servers[0].stolen = nil })
		require.Equal(t, 1, len(slices.DeleteFunc(c.slotBases(), func(b int64) bool { return b == 0 })))
		servers[0].edit(func() { servers[0].role = "slave" })
		require.ErrorContains(t, c.hosts[0].seat.unbase(on), "READONLY")
	}, span(0, 9))
}

// A search of all schedules of grants, forgetting and restoring, over one bucket of three members. merge, baseOf and behind are
// what they are; what scripts do is written out in bMember. The rules: docs/protocol.md, "Base of the counters". A grant, with its
// raise, is one step: redlock/schedules_test.go has those whose steps interleave. All clocks are right, which is what order rests
// on where too few members know.

// bTick is how far clocks go in a tick, beyond all that is drawn in one.
const bTick = 100

type bMember struct {
	counter, base  int64 // 0: none
	clk            bool
	silent, forgot bool // in quarantine; and its counters are not restored
}

type bWorld struct {
	members [3]bMember
	clock   int64
	last    int64 // the greatest token of the name
	other   int64 // that of a lease of another name in the bucket, which goes on, 0: none
	ticks   int8
	faults  int8
	draws   int8
}

// bRules is what is taken out.
type bRules struct {
	oldClient    bool // it restores, and knows no base
	clockIgnored bool // restoring by clocks writes no base of the time
	newIgnored   bool // a first base is not that of the time
	lowers       bool // a base is set to the others', be it lower
	rejoinLow    bool // a rejoin begins a bucket at the token of the lease
	lendsAbsence bool // so does a source that goes on from the clocks

	slots      bool // members are slots of clusters: only a first deployment gives a base
	moves      bool // a slot may come from a master with a former copy of it, as a snapshot is
	movedKeeps bool // it keeps its base
}

func (m *bMember) begun(now int64) int64 {
	if m.base > 0 {
		return m.base + 1
	}
	return now
}

func (m *bMember) draw(now int64) int64 {
	if m.counter == 0 {
		m.counter = m.begun(now)
	} else {
		m.counter++
	}
	return m.counter
}

func (m *bMember) votes() bool { return !m.silent && !m.forgot }

func (r *bRules) next(w *bWorld, yield func(step explore.Step, w bWorld)) {
	try := func(step explore.Step, edit func(w *bWorld) bool) {
		n := *w
		if edit(&n) && n != *w {
			yield(step, n)
		}
	}
	greatest := int64(0)
	for _, m := range w.members {
		greatest = max(greatest, m.base)
	}
	for set := range uint(8) {
		if bits.OnesCount(set) > 1 && w.draws > 0 {
			try(explore.Say("grant at %03b", int(set)), func(w *bWorld) bool {
				token := int64(0)
				for i := range w.members {
					if m := &w.members[i]; set>>i&1 > 0 {
						if !m.votes() {
							return false
						}
						token = max(token, m.draw(w.clock))
					}
				}
				for i := range w.members {
					if m := &w.members[i]; set>>i&1 > 0 {
						m.counter = max(m.counter, token)
					}
				}
				if w.draws--; token <= w.last {
					w.last = -1 // it fell
					return true
				}
				if w.other == 0 {
					w.other = token
				} else {
					w.last = token
				}
				return true
			})
		}
	}
	for i := range w.members {
		try(explore.Say("rejoin at %d", i), func(w *bWorld) bool {
			m := &w.members[i]
			if w.other == 0 || !m.votes() {
				return false
			}
			if m.counter == 0 && !r.rejoinLow {
				m.counter = m.begun(w.clock) - 1
			}
			m.counter = max(m.counter, w.other)
			return true
		})
		try(explore.Say("base of %d", i), func(w *bWorld) bool {
			m := &w.members[i]
			if r.slots || m.forgot || !r.lowers && !behind(marker{id: "run 1", base: m.base}, greatest) {
				return false
			}
			old := m.base
			m.base = max(old, greatest)
			if r.lowers {
				m.base = w.members[(i+1)%3].base
			}
			if old == 0 && !r.newIgnored {
				m.base = max(m.base, w.clock)
			}
			return true
		})
		if w.faults > 0 {
			try(explore.Say("%d forgets", i), func(w *bWorld) bool {
				w.faults--
				w.members[i] = bMember{silent: true, forgot: true}
				return true
			})
			try(explore.Say("slot %d moves, a former copy of it", i), func(w *bWorld) bool {
				m := &w.members[i]
				if !r.moves || !m.votes() {
					return false
				}
				w.faults--
				w.clock += bTick
				if m.counter = 0; !r.movedKeeps {
					m.base = 0
				}
				return true
			})
		}
		for set := range uint(8) {
			if set>>i&1 > 0 {
				continue
			}
			try(explore.Say("restore %d from %03b", i, int(set)), func(w *bWorld) bool {
				m := &w.members[i]
				if m.silent || !m.forgot {
					return false
				}
				var sources []source
				greatest := int64(0)
				for j, o := range w.members {
					if set>>j&1 > 0 {
						if !o.votes() {
							return false
						}
						sources = append(sources, source{clk: o.clk && !r.lendsAbsence, base: o.base})
						greatest = max(greatest, o.counter)
					}
				}
				p := planOf(sources, enoughSources(3), 0)
				m.counter, m.clk, m.forgot = 0, p.byClock, false
				if p.takes("7") && greatest > 0 { // fill.lua
					if m.counter = max(greatest, p.base); p.byClock {
						m.counter = max(m.counter, w.clock)
					}
				}
				if m.base = p.base; p.byClock && !r.clockIgnored {
					m.base = max(m.base, w.clock)
				}
				if r.oldClient || r.slots {
					m.base = 0
				}
				return true
			})
		}
	}
	if w.ticks > 0 {
		try(explore.Say("a tick passes"), func(w *bWorld) bool {
			w.ticks--
			w.clock += bTick
			for i := range w.members {
				w.members[i].silent = false
			}
			return true
		})
	}
}

// search returns the shortest schedule to a token that is not above an earlier one, if there is one.
func (r *bRules) search(first bWorld) explore.Found[explore.Step] {
	return (&explore.World[bWorld, explore.Step]{
		Key: explore.Value[bWorld],
		Next: func(w bWorld, yield func(explore.Step, bWorld, string) bool) {
			r.next(&w, func(s explore.Step, n bWorld) { yield(s, n, "") })
		},
		Wrong: func(w bWorld) string { return map[bool]string{true: "a token fell"}[w.last < 0] },
	}).Explore(first)
}

func TestNoScheduleOfBasesAndForgettingHasATokenThatFalls(t *testing.T) { searchBases(t, false) }

func TestLongNoScheduleOfBasesAndForgettingHasATokenThatFalls(t *testing.T) {
	rt.Long(t, "more states")
	searchBases(t, true)
}

func searchBases(t *testing.T, long bool) {
	world := func(base ...int64) (w bWorld) {
		w = bWorld{clock: 3 * bTick, ticks: 1, faults: 2, draws: 3}
		if long {
			w.ticks = 2
		}
		for i := range w.members {
			w.members[i].base = base[i]
		}
		return w
	}
	for name, first := range map[string]bWorld{
		"one client marked all":    world(250, 250, 250),
		"two clients marked them":  world(250, 280, 250),
		"a former version did":     world(0, 0, 0),
		"it did so at some of all": world(0, 250, 0),
	} {
		t.Run(name, func(t *testing.T) {
			r := bRules{}
			f := r.search(first)
			t.Logf("%d states", f.States)
			require.Greater(t, f.States, 1000)
			require.Empty(t, f.Wrong, f)
			if !long && first.members[0].base == 0 {
				return
			}
			r.oldClient = true
			f = r.search(first)
			t.Logf("%d states, restored by a former version", f.States)
			require.Empty(t, f.Wrong, f)
		})
	}
	for name, rules := range map[string]bRules{"slots of clusters": {slots: true}, "slots that move": {slots: true, moves: true}} {
		t.Run(name, func(t *testing.T) {
			first := world(250, 250, 250)
			if rules.moves { // a second loss, unseen as this one, is beyond what is assumed
				first.faults, first.draws = 1, 4
			}
			f := rules.search(first)
			t.Logf("%d states", f.States)
			require.Greater(t, f.States, 1000)
			require.Empty(t, f.Wrong, f)
		})
	}
	for name, rules := range map[string]bRules{
		"a slot that moves loses its base":                             {slots: true, moves: true, movedKeeps: true},
		"restoring by clocks begins at the time":                       {clockIgnored: true},
		"the first base of a member is not before its time":            {oldClient: true, newIgnored: true},
		"a base is never lowered":                                      {lowers: true},
		"a rejoin begins a bucket at the base":                         {rejoinLow: true},
		"a source that goes on from the clocks lends no absence":       {oldClient: true, lendsAbsence: true},
		"a rejoin begins a bucket at the time where there is no base":  {oldClient: true, rejoinLow: true},
		"where a base is set anew, by clocks, it is set with the time": {clockIgnored: true, newIgnored: true},
	} {
		t.Run("without: "+name, func(t *testing.T) {
			f := rules.search(world(250, 250, 250))
			require.Equal(t, "a token fell", f.Wrong)
			t.Log(f)
		})
	}
}
