package guard

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// resting makes a client of these servers that is at rest whenever quiet says so.
func resting(t *testing.T, quiet *atomic.Bool, edit func(*Config, *Terms), servers ...*server) *client {
	return connect(t, func(cfg *Config, terms *Terms) {
		edit(cfg, terms)
		cfg.Quiet = quiet.Load
	}, servers...)
}

func (h *fakeHost) on() *fakeSession { return h.Now().Session.(*fakeSession) }

func TestClientAtRestLooksSeldom(t *testing.T) {
	for _, tc := range []struct {
		name     string
		quiet    bool
		edit     func(*Config, *Terms)
		low, top int64 // looks in 70 pings
	}{
		{"at rest", true, plain, 9, 10},
		{"holds or waits", false, plain, 69, 70},
		{"at rest, and a replica may take over", true, func(_ *Config, t *Terms) {
			t.Replicated = true
		}, 69, 70},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var quiet atomic.Bool
				quiet.Store(tc.quiet)
				c := resting(t, &quiet, tc.edit, started(1, time.Hour)...)
				defer c.close()
				c.after(70*time.Second + 500*time.Millisecond)
				looks := c.hosts[0].on().looks.Load()
				require.LessOrEqual(t, looks, tc.top)
				require.GreaterOrEqual(t, looks, tc.low)
			})
		})
	}
}

func TestFirstCallAfterARestLooksBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		servers := started(3, time.Hour)
		c := resting(t, &quiet, plain, servers...)
		defer c.close()
		h := c.hosts[2]
		c.after(900 * time.Millisecond)
		require.False(t, h.on().outside(), "the last look is younger than a ping")
		c.after(time.Second)
		looks := h.on().looks.Load()
		require.True(t, h.on().outside())
		require.Equal(t, looks+1, h.on().looks.Load())
		c.after(time.Second + time.Millisecond)
		require.Equal(t, looks+2, h.on().looks.Load(), "a ping after a look that a call took along, another one follows by itself")
	})
}

func TestGenerationEndsBeforeTheFirstCallAfterARestIsAnswered(t *testing.T) {
	for _, what := range []string{"flushed", "the same"} {
		synctest.Test(t, func(t *testing.T) {
			var quiet atomic.Bool
			quiet.Store(true)
			servers := started(1, time.Hour)
			c := resting(t, &quiet, plain, servers...)
			defer c.close()
			h := c.hosts[0]
			// A second Watch, whose results nobody takes: all that is seen is what the reader does.
			on := &fakeSession{server: servers[0], run: servers[0].process().RunID, host: h.ctx, broken: make(chan struct{}), woken: make(chan struct{}, 1)}
			w := h.seat.Watch(on, servers[0].process())
			defer w.Stop()
			w.Tick(time.Now().Add(time.Second))
			_, _, gen := h.stands()
			if what == "flushed" {
				servers[0].flush()
				gen++
			}
			require.True(t, on.outside())
			a, v, now := h.stands()
			require.Equal(t, gen, now, what)
			require.Equal(t, what == "the same", a.Admitted())
			require.Equal(t, what == "the same", v.Votes)
		})
	}
}

func TestClientAtRestEndsAQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		servers := started(3, time.Hour)
		c := resting(t, &quiet, plain, servers...)
		defer c.close()
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
	for _, phase := range []time.Duration{0, 500 * time.Millisecond, 999 * time.Millisecond, time.Second, 1001 * time.Millisecond, 4 * time.Second, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var quiet atomic.Bool
			quiet.Store(true)
			servers := started(3, time.Hour)
			small := resting(t, &quiet, plain, servers...)
			defer small.close()
			small.after(phase)
			great := connect(t, func(cfg *Config, _ *Terms) { cfg.MaxTTL = 2 * longest }, servers...)
			defer great.close()
			for range 100 {
				if great.voting() > 0 {
					require.Equal(t, 2*longest, small.guard.longest(), "it votes, and a client at rest does not know")
				}
				great.after(100 * time.Millisecond)
			}
			require.Equal(t, 3, great.voting())
		})
	}
}
