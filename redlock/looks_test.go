package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// stuckAt is a Handler that does not return from one line until it is let.
type stuckAt struct {
	slog.Handler
	line string
	let  chan struct{}
}

func (h stuckAt) Enabled(context.Context, slog.Level) bool { return true }

func (h stuckAt) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.line {
		<-h.let
	}
	return nil
}

func (h stuckAt) WithAttrs([]slog.Attr) slog.Handler { return h }

// As TestMembersThatWereReplicasOfACopyGiveNoVoteWhileALeaseRunsThatTheyForgot, at a client whose Logger, or Tracer, does not
// return: the supervisor of a node is in it, and nobody looks at the member.
func TestClientWhoseCallbackBlocksLooksAllTheSame(t *testing.T) {
	long := func(c *redlock.Config) { c.MaxTTL, c.TTL = 10*time.Second, 10*time.Second }
	for _, who := range []string{"Logger", "Tracer.Member"} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(who, ", members: ", n), inBubble(n, func(t *testing.T, cluster *redistest.Cluster) {
				let := make(chan struct{})
				a := voting(t, cluster, n, long, redlock.WithFreshMembers())
				cycle(t, a, "k")
				for _, s := range cluster.Servers {
					require.NoError(t, s.Snapshot())
				}
				cycle(t, a, "k")
				b := redlock.Guarded(t, cluster, long, func(c *redlock.Config) {
					switch who {
					case "Logger":
						c.Logger = slog.New(stuckAt{slog.DiscardHandler, "redlock: member is up", let})
					case "Tracer.Member":
						c.Tracer.Member = func(_ string, up bool, _ error) {
							if up {
								<-let
							}
						}
					}
				})
				defer func() { close(let); time.Sleep(time.Second) }()
				for range 40 { // a client that is busy, so that looks go out, if anybody sees to it
					time.Sleep(500 * time.Millisecond)
					if l, err := b.Mutex("other", redlock.TTL(10*time.Second)).TryLock(t.Context()); err == nil {
						require.NoError(t, l.Unlock(t.Context()))
					}
				}
				held := a.Lock(t, "k", redlock.TTL(10*time.Second))
				for _, l := range a.Links {
					l.BlackHole()
				}
				for _, s := range cluster.Servers[:n/2+1] {
					require.NoError(t, s.(*redistest.Embedded).Reload())
				}
				time.Sleep(1100 * time.Millisecond) // a ping: what a look in that has seen is believed
				ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
				defer stop()
				next, err := b.Mutex("k", redlock.TTL(10*time.Second)).TryLock(ctx)
				if err == nil {
					require.False(t, time.Now().Before(held.ValidUntil()) && held.Err() == nil, "two holders: tokens %d and %d", held.Token(), next.Token())
				}
			}))
		}
	}
}

// A call that took longer than MemberTimeout, and whose members go on to answer what they answered, does not go on for ever.
func TestTryIsMadeOnceMoreWhenItsTimeIsOver(t *testing.T) {
	redlock.Alone(t, 1, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		require.Equal(t, 1, redlock.ComesBack(p.Client, "k", time.Now().Add(-time.Minute), 3))
		require.Equal(t, 3, redlock.ComesBack(p.Client, "k", time.Now(), 3))
	}, redlock.Quiet)
}
