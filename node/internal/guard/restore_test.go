package guard

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/member"
)

// counting gives servers so many counters, all of them beyond the clocks.
func counting(n int, servers ...*server) {
	for i, s := range servers {
		for b := range n {
			s.do("HSET", member.TokensKey, fmt.Sprint(b%16384, ".", b/16384), strconv.FormatInt(4e15+int64(b*3+i*b%7), 10))
		}
	}
}

// crowded plays in fake time with clients of the same three servers, the first of which has n counters lost when the
// quarantine begins.
func crowded(t *testing.T, clients, n int, play func(t *testing.T, servers []*server, all []*client)) {
	t.Helper()
	faketime.Test(t, func(t *testing.T) {
		servers := started(3)
		var all []*client
		for range clients {
			c := connect(t, plain, servers...)
			defer c.close()
			all = append(all, c)
		}
		counting(n, servers...)
		play(t, servers, all)
	})
}

// lost are the counters that a member has less of than another.
func lost(s, than *server) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for field, v := range than.hashes[member.TokensKey] {
		if has := s.hashes[member.TokensKey][field]; has == "" || integer(has) < integer(v) {
			n++
		}
	}
	return n
}

func TestOneClientOfManyRestoresAMember(t *testing.T) {
	const pages = 5
	crowded(t, 30, pages*page, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		all[0].after(longest) // marked, at some of the looks
		scripts := servers[0].executed()
		all[0].after(3 * time.Second)
		for i, c := range all {
			require.Equal(t, 3, c.voting(), i)
		}
		for i, s := range servers[1:] {
			require.LessOrEqual(t, s.scans, pages+1, "pages of source %d", i)
			require.Zero(t, lost(servers[0], s))
		}
		require.Less(t, servers[0].executed()-scripts, 30*10, "who does not restore asks seldom")
		require.Empty(t, servers[0].marked("by"), "nothing of it stays")
	})
}

// Whoever restores ends in the middle: the next one begins anew, at once if it could say so, and when the claim has ended if it
// could not.
func TestRestoringIsTakenOverFromAClientThatHasStopped(t *testing.T) {
	for name, silent := range map[string]bool{"it says so": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			crowded(t, 1, 6*page, func(t *testing.T, servers []*server, all []*client) {
				servers[0].flush()
				all[0].after(longest)
				var stopped atomic.Bool
				stop := func() {
					if all[0].hosts[0].Now().Standing.marker.left == 0 && servers[1].scanned() == 3 && stopped.CompareAndSwap(false, true) {
						if silent {
							all[0].hosts[0].Now().Session.(*fakeSession).end()
						}
						all[0].hosts[0].cancel()
					}
				}
				servers[1].before.Store(&stop)
				for !stopped.Load() {
					all[0].after(50 * time.Millisecond)
				}
				servers[1].before.Store(nil)
				next := connect(t, plain, servers...)
				defer next.close()
				if silent {
					next.after(2200 * time.Millisecond)
				}
				next.after(200 * time.Millisecond)
				require.Equal(t, 3, next.voting())
				require.Zero(t, lost(servers[0], servers[1])+lost(servers[0], servers[2]))
			})
		})
	}
}

// Whoever restores may end or lose its connections at any time, and the claim of who ended silently lasts two seconds.
func TestMemberThatForgotVotesAgainAtOnceAfterItsQuarantineWhateverEndsMeanwhile(t *testing.T) {
	for seed := range uint64(40) {
		faketime.Test(t, func(t *testing.T) {
			random, servers := rand.New(rand.NewPCG(seed, 0)), started(3)
			counting(page/8, servers...)
			all := []*client{connect(t, plain, servers...), connect(t, plain, servers...), connect(t, plain, servers...)}
			servers[0].flush()
			var mu sync.Mutex // of what follows
			down := map[*fakeHost]bool{}
			fall := func(h *fakeHost) {
				if on, _ := h.Now().Session.(*fakeSession); on != nil && !down[h] {
					on.end()
					down[h] = true
				}
			}
			inTheMiddle := func() { // of the pages, whose claim then stays
				mu.Lock()
				defer mu.Unlock()
				if random.IntN(3) == 0 {
					fall(all[random.IntN(3)].hosts[0])
				}
			}
			servers[1].before.Store(&inTheMiddle)
			for end := time.Now().Add(longest + 5*time.Second); time.Now().Before(end); {
				mu.Lock()
				i := random.IntN(3)
				h, c, again, pause := all[i].hosts[random.IntN(3)], all[i], random.IntN(8) == 0, random.IntN(400)
				rises := down[h]
				if delete(down, h); !rises && !again {
					fall(h)
				}
				mu.Unlock()
				if rises {
					h.mend()
				} else if again {
					c.close()
					c = connect(t, plain, servers...)
					mu.Lock()
					all[i] = c
					mu.Unlock()
				}
				c.after(time.Duration(pause) * time.Millisecond)
			}
			servers[1].before.Store(nil)
			for _, c := range all {
				for _, h := range c.hosts {
					if down[h] {
						h.mend()
					}
				}
			}
			all[0].after(3 * time.Second)
			for i, c := range all {
				require.Equal(t, 3, c.voting(), "client %d, seed %d", i, seed)
				c.close()
			}
			if servers[0].marked("clk") == "0" { // or too few of its sources were connected
				require.Zero(t, lost(servers[0], servers[1]), "seed %d", seed)
			}
		})
	}
}

// A page is no snapshot: counters rise between pages, and begin. What was there when the quarantine ended is restored.
// Cost: 3 s, of seventeen pages of counters.
func TestCountersThatRiseBetweenPagesAreRestoredAsTheyWereOrGreater(t *testing.T) {
	crowded(t, 1, 17*page, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		all[0].after(longest)
		before := newServer("before")
		for field, v := range servers[1].hashes[member.TokensKey] {
			before.do("HSET", member.TokensKey, field, v)
		}
		var rises atomic.Int64
		for _, s := range servers[1:] {
			f := func() {
				n := rises.Add(1)
				s.edit(func() {
					s.hset(member.TokensKey, fmt.Sprint(n%16384), "4999999999999999", "0."+fmt.Sprint(n%100), "4999999999999999")
				})
			}
			s.before.Store(&f)
		}
		all[0].after(3 * time.Second)
		require.Equal(t, 3, all[0].voting())
		require.Greater(t, rises.Load(), int64(20))
		require.Less(t, servers[0].words, 10_000, "a command that a slow network brings in time")
		require.Zero(t, lost(servers[0], before))
	})
}

// The first part comes while the member has a replication id that nobody has noted yet, and is refused. When the last one comes,
// another client has noted it. Cost: 4 s, of seventeen pages of counters.
func TestMemberIsNotMadeWholeWithoutAPartThatItRefused(t *testing.T) {
	crowded(t, 1, 17*page, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		all[0].after(longest)
		commands := 0 // behind the last page
		f := func() {
			if servers[1].scanned()+servers[2].scanned() < 2*17 {
				return
			}
			commands++
			servers[0].edit(func() {
				if servers[0].repl = "first"; commands == 2 {
					servers[0].hset(member.MarkerKey, "repl", "first")
				}
			})
		}
		servers[0].before.Store(&f)
		all[0].after(3 * time.Second)
		require.Greater(t, commands, 2)
		require.Equal(t, 3, all[0].voting())
		require.Zero(t, lost(servers[0], servers[1]))
	})
}

// A source that forgets while its pages are read has lent nothing, and whoever goes on begins it anew.
func TestSourceThatForgetsBetweenPagesIsNone(t *testing.T) {
	crowded(t, 1, 10*page, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		all[0].after(longest)
		f := func() {
			if servers[2].scanned() == 3 {
				servers[2].edit(func() { clear(servers[2].hashes) })
			}
		}
		servers[2].before.Store(&f)
		all[0].after(3 * time.Second)
		servers[2].before.Store(nil)
		require.Equal(t, 2, all[0].voting())
		require.True(t, all[0].told("0 tokens_by_clock"))
		require.False(t, all[0].told("0 restored"))
	})
}

// A source whose data are replaced by a stale copy while its pages are read has lent nothing. Marker, process and session stay.
func TestSourceThatFollowedACopyBetweenPagesIsNone(t *testing.T) {
	for name, edit := range map[string]func(s *server, hashes map[string]map[string]string, ends map[string]time.Time){
		"it is a master again": (*server).reload,
		"it is a replica": func(s *server, _ map[string]map[string]string, _ map[string]time.Time) {
			s.edit(func() { s.follow("another") })
		},
	} {
		for _, at := range []int{-1, 0, 3} { // pages of it that were read before; -1: nor was it looked at
			t.Run(fmt.Sprint(name, ", pages before: ", at), func(t *testing.T) {
				crowded(t, 1, 5*page, func(t *testing.T, servers []*server, all []*client) {
					copied, ends := servers[2].copied()
					for b := range 2 * page {
						servers[2].do("HSET", member.TokensKey, fmt.Sprint(b), "4999999999999999") // the copy lacks it
					}
					servers[0].flush()
					all[0].after(longest)
					var replaced atomic.Bool
					f := func() {
						claimed := servers[0].marked("by") != ""
						if claimed && (at < 0 || servers[1].scanned() > 0) && servers[2].scanned() == max(at, 0) && replaced.CompareAndSwap(false, true) {
							edit(servers[2], copied, ends)
						}
					}
					servers[1+min(max(at, 0), 1)].before.Store(&f)
					all[0].after(5 * time.Second)
					require.True(t, replaced.Load())
					require.False(t, all[0].told("0 restored"))
					require.True(t, all[0].told("0 tokens_by_clock"), "too few know")
				})
			})
		}
	}
}

// The member itself follows a copy of what it had by then, with the marking in it.
func TestMemberThatFollowedACopyBetweenPagesIsNotMadeWhole(t *testing.T) {
	crowded(t, 2, 10*page, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		all[0].after(longest)
		var copied map[string]map[string]string
		var ends map[string]time.Time
		f := func() {
			switch scans := servers[1].scanned() + servers[2].scanned(); {
			case scans == 4 && copied == nil:
				copied, ends = servers[0].copied()
			case scans == 8 && copied != nil:
				servers[0].reload(copied, ends)
				copied = map[string]map[string]string{}
				servers[1].before.Store(nil)
				servers[2].before.Store(nil)
			}
		}
		servers[1].before.Store(&f)
		servers[2].before.Store(&f)
		never := func() {
			if servers[0].marked("state") == whole {
				require.Zero(t, lost(servers[0], servers[1])+lost(servers[0], servers[2]), "it votes without what it forgot")
			}
		}
		servers[0].before.Store(&never)
		all[0].after(3 * time.Second)
		require.Equal(t, forgot, all[0].hosts[0].Now().Standing.marker.state, "it rests once more")
		all[0].after(longest + 3*time.Second)
		require.Equal(t, 3, all[0].voting())
		require.Zero(t, lost(servers[0], servers[1])+lost(servers[0], servers[2]))
	})
}

// Pages that were read before q was raised are void: the quarantine that this brings may end behind a grant that they lack.
func TestPagesFromBeforeALongerQuarantineAreReadAgain(t *testing.T) {
	crowded(t, 1, 4*page, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		all[0].after(longest)
		var raised atomic.Bool
		f := func() {
			if servers[1].scanned() == 2 && raised.CompareAndSwap(false, true) {
				m := servers[0].marked("id")
				servers[0].do(words(plainHome.command(liftLua, m, millis(2*longest)))...)
			}
		}
		servers[1].before.Store(&f)
		all[0].after(3 * time.Second)
		require.True(t, raised.Load())
		require.Equal(t, 2, all[0].voting())
		read := servers[1].scanned()
		for field := range servers[1].hashes[member.TokensKey] {
			if field == "base" {
				continue
			}
			servers[1].do("HSET", member.TokensKey, field, "4999999999999999") // until it ends
		}
		all[0].after(longest + time.Second)
		require.Equal(t, 3, all[0].voting())
		require.Zero(t, lost(servers[0], servers[1]))
		require.GreaterOrEqual(t, servers[1].scanned(), read+4)
	})
}

// What a greater q adds to a quarantine may be over before the member hears of it: it lacks the counters still.
func TestMemberIsNotMadeWholeWithoutTheCountersThatWereNotRead(t *testing.T) {
	crowded(t, 1, 100, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		all[0].after(longest - 2*time.Second)
		var raised atomic.Bool
		f := func() {
			if servers[0].marked("by") != "" && raised.CompareAndSwap(false, true) {
				for _, s := range servers[:2] {
					s.do(words(plainHome.command(liftLua, s.marked("id"), millis(longest+50*time.Millisecond)))...)
				}
				time.Sleep(70 * time.Millisecond)
			}
		}
		servers[1].before.Store(&f)
		all[0].after(10 * time.Second)
		require.True(t, raised.Load())
		require.Equal(t, 3, all[0].voting())
		require.Zero(t, lost(servers[0], servers[1]))
	})
}

// Somebody before found too few that knew. A client that has not reached the others yet does not take that for its own.
func TestClientThatIsStillConnectingDoesNotGoOnFromTheClocks(t *testing.T) {
	crowded(t, 1, 10, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		all[0].after(longest)
		all[0].close()
		servers[0].edit(func() { servers[0].hset(member.MarkerKey, "few", "1") })
		c := &client{t: t, guard: New(Config{Members: 3, MaxTTL: longest})}
		defer c.close()
		for i, s := range servers {
			c.hosts = append(c.hosts, sit(t, c.guard, s, strconv.Itoa(i), Terms{}))
		}
		time.Sleep(2 * time.Second) // the quarantine is over
		c.hosts[0].mend()
		c.after(500 * time.Millisecond)
		require.Equal(t, forgot, c.hosts[0].Now().Standing.marker.state)
		c.hosts[1].mend()
		c.hosts[2].mend()
		c.after(200 * time.Millisecond)
		require.Equal(t, 3, c.voting())
		require.False(t, c.hosts[0].Now().Standing.marker.clk)
		require.Zero(t, lost(servers[0], servers[1]))
	})
}

// Where a member cannot be reached, the patience of all clients counts together.
func TestClientsThatLiveForLessThanAPingGoOnFromTheClocksTogether(t *testing.T) {
	crowded(t, 1, 10, func(t *testing.T, servers []*server, all []*client) {
		servers[0].flush()
		servers[1].flush()
		all[0].after(longest + 900*time.Millisecond)
		all[0].close()
		time.Sleep(2 * time.Second)
		for i := range 4 {
			c := &client{t: t, guard: New(Config{Members: 3, MaxTTL: longest})}
			for i, s := range servers {
				c.hosts = append(c.hosts, sit(t, c.guard, s, strconv.Itoa(i), Terms{}))
			}
			c.hosts[2].change(func() { c.hosts[2].state.Err = errCut })
			c.hosts[0].mend()
			c.hosts[1].mend()
			c.after(400 * time.Millisecond)
			voting := c.voting()
			c.close()
			if require.Equal(t, i >= 2, voting > 0, i); voting > 0 {
				return
			}
		}
	})
}

func TestMemberIsRestoredFromThoseWhoseOrderDoesNotRestOnTheClocks(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		servers := started(5)
		c := connect(t, plain, servers...)
		defer c.close()
		servers[1].do("HSET", member.MarkerKey, "clk", "1")
		c.after(3 * time.Second) // a look
		servers[0].flush()
		c.after(longest + 3*time.Second)
		require.Equal(t, 5, c.voting())
		require.True(t, c.told("0 restored"))
	})
}

func init() {
	type told struct {
		why  string
		left int64
	}
	claim := func(s *memory, id, word, ms, few string) told {
		s.Helper()
		r := s.send(plainHome.command(claimLua, id, word, ms, few))
		e := r.Elems[len(r.Elems)-1].Elems
		if len(e) < 2 {
			require.Len(s, r.Elems, 10)
			return told{why: "no"}
		}
		return told{why: string(e[0].Str), left: e[1].Int}
	}
	guardCases = append(guardCases,
		guardCase{"claim is one client's, until it ends or is given up", func(s *memory) {
			m := s.run(s.markCommand("run", leases, 0, forgot))
			require.Equal(s, told{}, claim(s, m.id, "a", "20000", "0"))
			other := claim(s, m.id, "b", "20000", "0")
			require.Equal(s, "claimed", other.why)
			require.Greater(s, other.left, int64(1000))
			require.LessOrEqual(s, other.left, int64(20000))
			require.Equal(s, told{}, claim(s, m.id, "a", "20000", "0"), "it is a's")
			require.Equal(s, "no", claim(s, m.id, "b", "0", "0").why)
			require.Equal(s, "claimed", claim(s, m.id, "b", "20000", "0").why, "b has none to give up")
			claim(s, m.id, "a", "0", "0")
			require.Equal(s, told{}, claim(s, m.id, "b", "20000", "0"))
			s.ask("HSET", member.MarkerKey, "till", "1")
			require.Equal(s, told{}, claim(s, m.id, "c", "20000", "0"), "that of b has ended")
			s.ask("HSET", member.MarkerKey, "till", "4000000000000000")
			require.Equal(s, told{}, claim(s, m.id, "d", "20000", "0"), "the clock was set back: nobody claims for so long")
		}},
		guardCase{"claim of a member that does not wait to be restored does nothing", func(s *memory) {
			require.Equal(s, "no", claim(s, "run 1", "a", "20000", "0").why)
			m := s.run(s.markCommand("run", leases, rest, forgot))
			s.unchanged(plainHome.command(claimLua, m.id, "a", "20000", "0"))
			m = s.run(s.markCommand("other", leases, 0, forgot))
			s.unchanged(plainHome.command(claimLua, m.id+"0", "a", "20000", "0"))
			s.restored(m, wholly)
			require.Equal(s, "no", claim(s, m.id, "a", "20000", "0").why)
			require.Nil(s, s.ask("HGET", member.MarkerKey, "by"))
		}},
		guardCase{"claim where too few know comes when they did so for a while, whoever found it", func(s *memory) {
			m := s.run(s.markCommand("run", leases, 0, forgot))
			first := claim(s, m.id, "a", "20000", "15000")
			require.Equal(s, "few", first.why)
			require.Greater(s, first.left, int64(1000))
			require.Nil(s, s.ask("HGET", member.MarkerKey, "by"))
			at, _ := s.ask("HGET", member.MarkerKey, "few").(string)
			s.ask("HSET", member.MarkerKey, "few", strconv.FormatInt(integer(at)-16e6, 10))
			require.Equal(s, told{}, claim(s, m.id, "b", "20000", "15000"), "another client, later")
			require.Equal(s, "claimed", claim(s, m.id, "a", "20000", "15000").why)
			claim(s, m.id, "b", "0", "0")
			require.Equal(s, told{}, claim(s, m.id, "c", "20000", "0"), "enough know")
			claim(s, m.id, "c", "0", "0")
			require.Equal(s, "few", claim(s, m.id, "a", "20000", "15000").why, "it is counted anew")
		}},
		guardCase{"a part of the counters does not make the member whole, and the last one does", func(s *memory) {
			m := s.run(s.markCommand("run", leases, 0, forgot))
			s.ask("HSET", member.TokensKey, "8", "60")
			require.Equal(s, forgot, s.run(fillCommand(plainHome, m.id, wholly, "7", "100", "8", "55", "9", "3", "limit:redquorum:s1:{k}", "4")).state)
			for field, want := range map[string]string{"7": "100", "8": "60", "9": "3", "limit:redquorum:s1:{k}": "4"} {
				require.Equal(s, want, s.ask("HGET", member.TokensKey, field), field)
			}
			claim(s, m.id, "word", "20000", "0")
			require.Equal(s, whole, s.run(plainHome.command(restoreLua, m.id, "0", millis(leases), "1", "9", "5")).state)
			require.Equal(s, "5", s.ask("HGET", member.TokensKey, "9"))
			require.Len(s, s.call("HGETALL", member.MarkerKey).Elems, 2*5, "id, q, state, repl, clk")
		}},
		guardCase{"restore by clocks restores no counter to less than the time", func(s *memory) {
			m := s.run(s.markCommand("run", leases, 0, forgot))
			s.send(fillCommand(plainHome, m.id, plan{byClock: true}, "7", "100", "8", "9000000000000000", "limit:redquorum:s1:{k}", "4"))
			n, _ := s.ask("HGET", member.TokensKey, "7").(string)
			_, made, _ := strings.Cut(m.id, " ")
			require.GreaterOrEqual(s, integer(n), integer(made))
			require.Equal(s, "4", s.ask("HGET", member.TokensKey, "limit:redquorum:s1:{k}"))
			require.Equal(s, "9000000000000000", s.ask("HGET", member.TokensKey, "8"))
		}},
		guardCase{"restore of many counters is one step", func(s *memory) {
			m := s.run(s.markCommand("run", leases, 0, forgot))
			var fields []string
			for i := range 2*page + 1 {
				fields = append(fields, strconv.Itoa(i), strconv.Itoa(i+1))
			}
			s.send(fillCommand(plainHome, m.id, wholly, fields...))
			require.Len(s, s.call("HGETALL", member.TokensKey).Elems, 2*(2*page+1))
			require.Equal(s, strconv.Itoa(2*page+1), s.ask("HGET", member.TokensKey, strconv.Itoa(2*page)))
		}},
		guardCase{"a part for another marking, in a quarantine, for another q or behind the last one does nothing", func(s *memory) {
			m := s.run(s.markCommand("run", leases, 0, forgot))
			s.unchanged(fillCommand(plainHome, m.id+"0", wholly, "7", "100"))
			s.unchanged(plainHome.command(restoreLua, m.id, "0", millis(leases-time.Second), "0", "7", "100"))
			s.ask("SET", quarantineKey, "1", "PX", "60000")
			s.unchanged(fillCommand(plainHome, m.id, wholly, "7", "200"))
			s.ask("DEL", quarantineKey)
			s.restored(m, wholly)
			s.unchanged(fillCommand(plainHome, m.id, wholly, "7", "200"))
		}},
		guardCase{"claim and restore do nothing in a memory that is not the marker's", func(s *memory) {
			for _, repl := range []string{"another", ""} {
				s.flush()
				m := s.run(plainHome.markCommand("run", repl, leases, 0, forgot))
				for _, cmd := range [][]byte{
					plainHome.command(claimLua, m.id, "a", "20000", "0"),
					fillCommand(plainHome, m.id, wholly, "7", "100"),
					plainHome.command(restoreLua, m.id, "0", millis(2*leases), "1"),
					plainHome.command(restoreLua, m.id, "0", millis(leases), "1"),
				} {
					s.unchangedAt(plainHome, cmd)
					require.Len(s, s.send(cmd).Elems, 10)
				}
				s.run(plainHome.command(renameLua, m.id, m.now))
				r := s.send(plainHome.command(claimLua, m.id, "word", "20000", "0"))
				require.Len(s, r.Elems[len(r.Elems)-1].Elems, 2, "it is the memory now")
				s.send(fillCommand(plainHome, m.id, wholly, "7", "100"))
				require.Equal(s, "100", s.ask("HGET", member.TokensKey, "7"))
				require.Equal(s, whole, s.run(plainHome.command(restoreLua, m.id, "0", millis(leases), "1")).state)
			}
		}},
	)
}
