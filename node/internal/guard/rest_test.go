package guard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/member"
)

// rest has a client make no calls from here on.
func (c *client) rest() {
	for _, h := range c.hosts {
		h.idle.Store(true)
	}
}

// rested plays in fake time with a client that makes no calls, of n servers.
func rested(t *testing.T, n int, play func(t *testing.T, servers []*server, c *client)) {
	t.Helper()
	met(t, n, plain, func(t *testing.T, servers []*server, c *client) { c.rest(); play(t, servers, c) })
}

func (h *fakeHost) on() *fakeSession { return h.Now().Session.(*fakeSession) }

func TestLooksAreAPingApartIfThereAreCallsAndTenIfNot(t *testing.T) {
	for _, tc := range []struct {
		name     string
		edit     func(*Config, *Terms)
		calls    time.Duration // not 0: so often a call comes
		low, top int64         // looks in 160 pings
	}{
		{"no calls", plain, 0, 15, 16},
		{"calls all the time", plain, 10 * time.Millisecond, 155, 161},
		{"a call now and then", plain, 4 * time.Second, 39, 41},
		{"no calls, and a replica may take over", func(_ *Config, t *Terms) { t.Replicated = true }, 0, 159, 161},
	} {
		t.Run(tc.name, faketime.In(func(t *testing.T) {
			c := connect(t, tc.edit, started(1)...)
			defer c.close()
			c.rest()
			for end := time.Now().Add(160*time.Second + 500*time.Millisecond); time.Now().Before(end); {
				if tc.calls == 0 {
					c.after(time.Second)
					continue
				}
				c.after(tc.calls)
				c.hosts[0].on().outside()
			}
			looks := c.hosts[0].on().looks.Load()
			require.LessOrEqual(t, looks, tc.top)
			require.GreaterOrEqual(t, looks, tc.low)
		}))
	}
}

func TestFirstCallAfterARestLooksBefore(t *testing.T) {
	rested(t, 3, func(t *testing.T, servers []*server, c *client) {
		h := c.hosts[2]
		c.after(900 * time.Millisecond)
		require.False(t, h.on().outside(), "the last look is younger than a ping")
		for range 3 {
			c.after(time.Second)
			looks := h.on().looks.Load()
			require.True(t, h.on().outside())
			require.Equal(t, looks+1, h.on().looks.Load())
			o, _ := h.seat.HeardOffset()
			require.Less(t, o.Within, 50*time.Millisecond, "how far the clocks are apart: it was sent with the call")
		}
	})
}

// The supervisor may lose the processor before a look that it decided on is in line. A call that comes then has one of its own.
func TestNoCallComesLaterThanAPingAfterTheLastLookInLine(t *testing.T) {
	rested(t, 1, func(t *testing.T, _ []*server, c *client) {
		on := c.hosts[0].on()
		late := func() {
			require.True(t, on.outside())
			require.False(t, on.outside(), "that one is in line")
		}
		on.lines.Store(&late)
		c.after(lookPings * time.Second)
		require.Nil(t, on.lines.Load())
	})
}

// What a member is when a look goes out. A call behind the look is answered after it, so the generation must have ended
// when the look is answered, whoever takes its result and when.
func TestGenerationEndsBeforeTheFirstCallAfterARestIsAnswered(t *testing.T) {
	for what, edit := range map[string]func(s *server){
		"the same":                       func(*server) {},
		"the same, with a first replica": func(s *server) { s.edit(func() { s.repl = "another" }) },
		"silent of its replication":      func(s *server) { s.edit(func() { s.denies = true }) },
		"a replica":                      func(s *server) { s.edit(func() { s.follow("another") }) },
		"the copy that it was":           func(s *server) { s.reload(s.copied()) },
		"flushed":                        (*server).flush,
		"marked anew":                    func(s *server) { s.do("HSET", member.MarkerKey, "id", "run0 5") },
		"of another q":                   func(s *server) { s.do("HSET", member.MarkerKey, "q", "999") },
		"of no q":                        func(s *server) { s.do("HDEL", member.MarkerKey, "q") },
		"of a broken q":                  func(s *server) { s.do("HSET", member.MarkerKey, "q", "x") },
		"refusing looks":                 func(s *server) { s.edit(func() { s.refuses = true }) },
	} {
		for _, end := range []string{"a call", "its time"} {
			faketime.Test(t, func(t *testing.T) {
				name := fmt.Sprintf("%s, sent by %s", what, end)
				servers := started(1)
				c := connect(t, plain, servers...)
				defer c.close()
				c.rest()
				h := c.hosts[0]
				// A second Watch, whose results nobody takes: all that is seen is what the reader does.
				on := h.dial()
				w := h.seat.Watch(on, servers[0].process())
				defer w.Stop()
				c.after(time.Second)
				w.Tick(time.Now())
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
				case "its time":
					w.Tick(time.Now().Add((lookPings + 1) * time.Second))
				}
				require.EqualValues(t, 1, on.looks.Load(), name)
				a, v, now := h.stands()
				require.Equal(t, gen, now, name)
				require.Equal(t, same, a.Admitted(), name)
				require.Equal(t, same, v.Votes, name)
			})
		}
	}
}

// The generation ends at a look, and the next one begins.
func TestLookThatFindsAnotherMemoryHasTheMemberMarked(t *testing.T) {
	rested(t, 3, func(t *testing.T, servers []*server, c *client) {
		c.after(500 * time.Millisecond)
		servers[2].flush()
		began, looks := time.Now(), c.hosts[2].on().looks.Load()
		for c.hosts[2].on().looks.Load() == looks {
			require.False(t, c.told("2 forgot"))
			c.after(time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(began), lookPings*time.Second)
		require.True(t, c.told("2 forgot"), "by that look, and not by another one after it")
		require.Equal(t, 2, c.voting())
		c.after(longest + 2*time.Second)
		require.Equal(t, 3, c.voting())
	})
}

func TestClientWithoutCallsEndsAQuarantine(t *testing.T) {
	rested(t, 3, func(t *testing.T, servers []*server, c *client) {
		c.after(3 * time.Second)
		servers[2].flush()
		c.hosts[2].Suspect() // a reply said so, on another way than the look
		c.after(longest - time.Second)
		require.Equal(t, 2, c.voting())
		c.after(3 * time.Second)
		require.Equal(t, 3, c.voting())
	})
	met(t, 1, unvouched, func(t *testing.T, servers []*server, c *client) {
		c.rest()
		c.after(longest - time.Second)
		servers[0].do("SET", quarantineKey, "1", "PX", "4000") // by a client with a greater MaxTTL
		c.after(3900 * time.Millisecond)
		require.Zero(t, c.voting())
		c.after(1200 * time.Millisecond)
		require.Equal(t, 1, c.voting(), "a ping later")
	})
}

func TestGreaterMaxTTLWaitsForClientsAtRest(t *testing.T) {
	for _, phase := range []time.Duration{0, 500 * time.Millisecond, 999 * time.Millisecond, time.Second, 1001 * time.Millisecond, 4 * time.Second, 9 * time.Second, 10 * time.Second} {
		faketime.Test(t, func(t *testing.T) {
			servers := started(3)
			small := connect(t, plain, servers...)
			defer small.close()
			small.rest()
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
