package guard

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/member"
)

// resting makes a client of these servers that is at rest whenever quiet says so.
func resting(t *testing.T, quiet *atomic.Bool, edit func(*Config, *Terms), servers ...*server) *client {
	return connect(t, func(cfg *Config, terms *Terms) {
		edit(cfg, terms)
		cfg.Quiet = quiet.Load
	}, servers...)
}

// rested plays in fake time with a client at rest, of n servers that have run for an hour.
func rested(t *testing.T, n int, play func(t *testing.T, servers []*server, c *client)) {
	t.Helper()
	met(t, n, time.Hour, func(cfg *Config, _ *Terms) { cfg.Quiet = func() bool { return true } }, play)
}

func (h *fakeHost) on() *fakeSession { return h.Now().Session.(*fakeSession) }

func TestClientAtRestLooksSeldom(t *testing.T) {
	waits := func(c *Config, _ *Terms) { c.Waits = func() bool { return true } }
	for _, tc := range []struct {
		name     string
		quiet    bool
		edit     func(*Config, *Terms)
		calls    time.Duration // not 0: so often a call is answered that leaves the look
		low, top int64         // looks in 160 pings
		glances  int64         // of them, at least
	}{
		{"at rest", true, plain, 0, 15, 16, 14 - 1},
		{"waits for a push", true, waits, 0, 51, 54, 44 - 1},
		{"waits, and its calls are answered", true, waits, 2900 * time.Millisecond, 15, 16, 14 - 1},
		{"waits, and its calls are answered now and then", true, waits, 3500 * time.Millisecond, 32, 46, 28 - 1},
		{"holds or waits", false, plain, 0, 159, 160, 0},
		{"at rest, and a replica may take over", true, func(_ *Config, t *Terms) { t.Replicated = true }, 0, 159, 160, 0},
	} {
		t.Run(tc.name, bubble(func(t *testing.T) {
			c := connect(t, func(cfg *Config, terms *Terms) {
				tc.edit(cfg, terms)
				cfg.Quiet = func() bool { return tc.quiet }
			}, started(1, time.Hour)...)
			defer c.close()
			if tc.calls > 0 {
				on := c.hosts[0].on()
				var hear func()
				hear = func() { on.hear(); time.AfterFunc(tc.calls, hear) }
				hear()
			}
			c.after(160*time.Second + 500*time.Millisecond)
			looks, whole := c.hosts[0].on().looks.Load(), c.hosts[0].on().whole.Load()
			require.LessOrEqual(t, looks, tc.top)
			require.GreaterOrEqual(t, looks, tc.low)
			require.GreaterOrEqual(t, looks-whole, tc.glances)
			require.GreaterOrEqual(t, whole, looks/8, "one look in eight is a whole one")
			if tc.glances == 0 {
				require.Equal(t, looks, whole)
			}
		}))
	}
}

func TestWhatIsLeftOfARest(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name        string
		due, heard  time.Duration // from now on
		waits       bool
		left, sleep time.Duration
	}{
		{"it has begun", 9, -1, false, 9, 9},
		{"nothing was heard for long", 4, -6, false, 4, 4},
		{"it is over", -1, 0, false, -1, -1},
		{"it waits", 9, -1, true, 2, 2},
		{"it waits, and has just heard", 9, 0, true, 3, 2},
		{"it waits, and hears while the end comes", 1, 0, true, 1, 1},
		{"it waits, and has not heard for three pings", 9, -3, true, 0, 0},
		{"it waits, and has not heard for longer", 9, -5, true, -2, -2},
		{"it waits, hears, and the end is over", -1, 0, true, -1, -1},
	} {
		left, sleep := restLeft(now, now.Add(tc.due*time.Second), now.Add(tc.heard*time.Second), time.Second, tc.waits)
		require.Equal(t, tc.left*time.Second, left, tc.name)
		require.Equal(t, tc.sleep*time.Second, sleep, tc.name)
	}
}

// A wall clock that was set since the session began, or a suspend, makes no answer older.
func TestWhatWasHeardIsAsOldAsTheMonotonicClockSays(t *testing.T) {
	began := time.Now()
	heard := began.Add(time.Minute) // as a session counts it
	for _, step := range []time.Duration{-time.Hour, 0, time.Hour} {
		now := apart(t, began, time.Minute, time.Minute+step)
		left, sleep := restLeft(now, now.Add(9*time.Second), heard, time.Second, true)
		require.Equal(t, waitLooks*time.Second, left, step)
		require.Equal(t, (waitLooks-1)*time.Second, sleep, step)
	}
}

func TestFirstCallAfterARestLooksBefore(t *testing.T) {
	rested(t, 3, func(t *testing.T, servers []*server, c *client) {
		h := c.hosts[2]
		c.after(900 * time.Millisecond)
		require.False(t, h.on().outside(), "the last look is younger than a ping")
		c.after(time.Second)
		looks := h.on().looks.Load()
		require.True(t, h.on().outside())
		require.Equal(t, looks+1, h.on().looks.Load())
		alone := 0
		for range restGlances + 1 {
			whole := h.on().whole.Load()
			looks := h.on().looks.Load()
			c.after(time.Second + time.Millisecond)
			if h.on().looks.Load() > looks {
				require.EqualValues(t, 1, h.on().whole.Load()-whole, "it tells how far the clocks are apart")
				alone++
			}
			c.after(time.Second)
			h.on().outside()
		}
		// One look in eight, and it is not known which of them was the first.
		require.NotZero(t, alone, "a client with calls now and then looks by itself, too")
		require.LessOrEqual(t, alone, 2)
	})
}

// What ends a rest, and what a member is by then. A call behind the look is answered after it, so the generation must have ended
// when the look is answered, whoever takes its result and when.
func TestGenerationEndsBeforeTheFirstCallAfterARestIsAnswered(t *testing.T) {
	for what, edit := range map[string]func(s *server){
		"the same":                       func(*server) {},
		"the same, with a first replica": func(s *server) { s.edit(func() { s.repl = "another" }) },
		"the same, which does not tell of its replication": func(s *server) { s.edit(func() { s.denies = true }) },
		"a replica":            func(s *server) { s.edit(func() { s.follow("another") }) },
		"the copy that it was": func(s *server) { s.reload(s.copied()) },
		"flushed":              (*server).flush,
		"marked anew":          func(s *server) { s.do("HSET", member.MarkerKey, "id", "run0 5") },
		"of another q":         func(s *server) { s.do("HSET", member.MarkerKey, "q", "999") },
		"of no q":              func(s *server) { s.do("HDEL", member.MarkerKey, "q") },
		"of a broken q":        func(s *server) { s.do("HSET", member.MarkerKey, "q", "x") },
		"refusing looks":       func(s *server) { s.edit(func() { s.refuses = true }) },
	} {
		for _, end := range []string{"a call", "its time", "the client's", "the member's"} {
			for _, glance := range []bool{true, false} {
				faketime.Test(t, func(t *testing.T) {
					name := fmt.Sprintf("%s, ended by %s, glance %v", what, end, glance)
					var quiet atomic.Bool
					quiet.Store(true)
					servers := started(1, time.Hour)
					c := resting(t, &quiet, plain, servers...)
					defer c.close()
					h := c.hosts[0]
					// A second Watch, whose results nobody takes: all that is seen is what the reader does.
					on := h.dial()
					w := h.seat.Watch(on, servers[0].process())
					defer w.Stop()
					if w.glances = restGlances; glance {
						w.glances = 0
					}
					w.Tick(time.Now().Add(time.Second))
					require.Zero(t, on.looks.Load(), name)
					_, _, gen := h.stands()
					edit(servers[0])
					same := strings.HasPrefix(what, "the same")
					if !same {
						gen++
					}
					switch end {
					case "a call":
						c.after(200 * time.Millisecond)
						require.True(t, on.outside(), name)
						o, _ := h.seat.HeardOffset()
						require.Less(t, o.Within, 50*time.Millisecond, "it is not known when the look was sent: %s", name)
					case "its time":
						w.Tick(time.Now().Add((restLooks + 1) * time.Second))
					case "the client's":
						quiet.Store(false)
						w.Tick(time.Now().Add(2 * time.Second))
					case "the member's":
						h.change(func() { h.state.Up = false })
						w.Tick(time.Now().Add(2 * time.Second))
						h.change(func() { h.state.Up = true })
					}
					require.EqualValues(t, 1, on.looks.Load(), name)
					whole := on.whole.Load() == 1
					require.Equal(t, !glance || end[:3] == "the", whole, "only who rests on glances: %s", name)
					a, v, now := h.stands()
					require.Equal(t, gen, now, name)
					require.Equal(t, same, a.Admitted(), name)
					require.Equal(t, same, v.Votes, name)
				})
			}
		}
	}
}

// The generation ends at a glance as at a whole look, and the next one begins.
func TestGlanceThatFindsAnotherMemoryHasTheMemberMarked(t *testing.T) {
	rested(t, 3, func(t *testing.T, servers []*server, c *client) {
		c.after(500 * time.Millisecond)
		for range 3 {
			servers[2].flush()
			began, looks := time.Now(), c.hosts[2].on().looks.Load()
			for c.hosts[2].on().looks.Load() == looks {
				require.False(t, c.told("2 forgot"))
				c.after(time.Millisecond)
			}
			require.LessOrEqual(t, time.Since(began), restLooks*time.Second)
			require.True(t, c.told("2 forgot"), "by that look, and not by another one after it")
			require.Equal(t, 2, c.voting())
			c.after(longest + 2*time.Second)
			require.Equal(t, 3, c.voting())
			c.mu.Lock()
			c.events = nil
			c.mu.Unlock()
		}
	})
}

func TestGlanceTellsOfLongerLeases(t *testing.T) {
	rested(t, 1, func(t *testing.T, servers []*server, c *client) {
		h := c.hosts[0]
		h.on().end()
		h.work.Wait()
		on := h.dial()
		h.change(func() { h.state.Up = true })
		w := h.seat.Watch(on, servers[0].process())
		defer w.Stop()
		w.glances = 0
		_, _, gen := h.stands()
		servers[0].do("HSET", member.MarkerKey, "q", millis(2*longest))
		w.Tick(time.Now().Add(time.Second))
		w.Tick(time.Now().Add(restLooks * time.Second))
		require.NoError(t, w.Take(<-w.Results))
		require.Zero(t, on.whole.Load())
		require.Equal(t, 2*longest, c.guard.longest())
		_, _, now := h.stands()
		require.Equal(t, gen, now)
		require.True(t, h.votes())
	})
}

func TestClientAtRestEndsAQuarantine(t *testing.T) {
	rested(t, 3, func(t *testing.T, servers []*server, c *client) {
		c.after(3 * time.Second)
		servers[2].flush()
		c.hosts[2].Suspect() // a reply said so, on another way than the look
		c.after(longest - time.Second)
		require.Equal(t, 2, c.voting())
		c.after(3 * time.Second)
		require.Equal(t, 3, c.voting())
	})
}

func TestGreaterMaxTTLWaitsForClientsAtRest(t *testing.T) {
	for _, phase := range []time.Duration{0, 500 * time.Millisecond, 999 * time.Millisecond, time.Second, 1001 * time.Millisecond, 4 * time.Second, 9 * time.Second, 10 * time.Second} {
		faketime.Test(t, func(t *testing.T) {
			servers := started(3, time.Hour)
			small := connect(t, func(cfg *Config, _ *Terms) { cfg.Quiet = func() bool { return true } }, servers...)
			defer small.close()
			small.after(phase)
			great := connect(t, func(cfg *Config, _ *Terms) { cfg.MaxTTL = 2 * longest }, servers...)
			defer great.close()
			for range 130 {
				if great.voting() > 0 {
					require.Equal(t, 2*longest, small.guard.longest(), "it votes, and a client at rest does not know")
				}
				great.after(100 * time.Millisecond)
			}
			require.Equal(t, 3, great.voting())
		})
	}
}
