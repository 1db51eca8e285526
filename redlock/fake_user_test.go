package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
)

// Open does not wait for a function of the user that ignores its context, and says which it was and at which members.
func TestOpenNamesTheFunctionThatIgnoresItsContext(t *testing.T) {
	for name, option := range map[string]func(c *redlock.Config, hang func()){
		"Config.Credentials": func(c *redlock.Config, hang func()) {
			c.Credentials = func(context.Context, string) (string, string, error) { hang(); return "", "pw", nil }
		},
		"Config.Dialer": func(c *redlock.Config, hang func()) {
			c.Dialer = func(context.Context, string, string) (net.Conn, error) { hang(); return nil, errors.New("too late") }
		},
	} {
		for _, timeout := range []time.Duration{50 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(name, timeout), inBubble(3, func(t *testing.T, cluster *redistest.Cluster) {
				end := make(chan struct{})
				defer close(end)
				urls, ways := meshed(cluster)
				began := time.Now()
				_, err := redlock.OpenWith(t.Context(), urls, ways, func(c *redlock.Config) {
					c.DialTimeout = timeout
					option(c, func() { <-end })
				})
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.LessOrEqual(t, time.Since(began), timeout+timeout/5)
				for i := range urls {
					require.ErrorContains(t, err, fmt.Sprintf("member-%d.mesh:6379: ", i))
				}
				require.ErrorContains(t, err, name)
				require.ErrorContains(t, err, "did not return")
			}))
		}
	}
}

func TestDialerThatNeverReturnsIsGivenUp(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		var running, most atomic.Int64
		var hangs atomic.Bool
		end := make(chan struct{})
		urls, ways := meshed(cluster)
		c, err := redlock.OpenWith(t.Context(), urls, ways, redlock.WithFreshMembers(), func(c *redlock.Config) {
			dial := c.Dialer
			c.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "member-1.mesh:6379" && hangs.Load() {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					<-end
				}
				return dial(ctx, network, address)
			}
		})
		require.NoError(t, err)
		defer c.Close()
		p := &redlock.Peer{Client: c}
		p.Voting(t, 3)
		hangs.Store(true)
		cluster.Embedded(1).Faults().Cut()
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, most.Load(), int64(17))
		require.Greater(t, most.Load(), int64(8))
		require.ErrorContains(t, c.Members()[1].Err, "Config.Dialer, of member-1.mesh:6379: 16 calls")
		hangs.Store(false)
		close(end)
		p.Voting(t, 3)
	})
}

// A provider without a password would make a client of the default user, with permissions that nobody meant.
func TestProviderWithoutAPasswordIsRefused(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		urls, ways := meshed(cluster)
		_, err := redlock.OpenWith(t.Context(), urls, ways, func(c *redlock.Config) {
			c.Credentials = func(context.Context, string) (string, string, error) { return "", "", nil }
		})
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Equal(t, "member-0.mesh:6379", rt.As[*node.CredentialsError](t, err).Member)
		require.ErrorContains(t, err, "no credentials for member-2.mesh:6379: Config.Credentials: it returned no password")
	})
}

func TestCredentialsEveryNeedsCredentials(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		urls, ways := meshed(cluster)
		every := func(c *redlock.Config) { c.CredentialsEvery = time.Minute }
		_, err := redlock.OpenWith(t.Context(), urls, ways, every)
		rt.Says(t, err, redlock.ErrInput, "CredentialsEvery is set, but there is neither Config.Credentials nor a URL with password_file")

		for i := range cluster.Len() {
			cluster.Embedded(i).Require("pw")
		}
		file := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(file, []byte("pw\n"), 0o600))
		urls[0] += "?password_file=" + file
		for i := range urls[1:] { // theirs never change
			urls[1+i] = fmt.Sprintf("redis://:pw@member-%d.mesh:6379", 1+i)
		}
		require.NoError(t, rt.Must(redlock.OpenWith(t.Context(), urls, ways, every))(t).Close())
	})
}

// Each URL may have a dial_timeout of its own: Open has the patience of the longest.
func TestOpenHasThePatienceOfEveryMember(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		urls, ways := meshed(cluster)
		urls[0] += "?dial_timeout=100ms"
		urls[1] += "?dial_timeout=3s"
		urls[2] += "?dial_timeout=3s"
		c, err := redlock.OpenWith(t.Context(), urls, ways, func(c *redlock.Config) {
			dial := c.Dialer
			c.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
				if address != "member-0.mesh:6379" {
					time.Sleep(2 * time.Second)
				}
				return dial(ctx, network, address)
			}
		})
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}

func TestClientStartsWithoutAMinorityAndSaysWhoIsMissing(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		urls, ways := meshed(cluster)
		cluster.Kill(0, 4)
		var log transcript
		p := &redlock.Peer{Client: opened(t, urls, ways, redlock.WithLogger(log.logger()), redlock.WithFreshMembers())}
		works(t, p.Client)
		for i := range urls {
			missing := fmt.Sprintf("started without a member\" member=member-%d.mesh:6379 ", i)
			require.Equal(t, i == 0 || i == 4, strings.Contains(log.String(), missing), log.String())
		}
		require.NoError(t, cluster.Restart(true, 0, 4))
		p.Voting(t, 5)
		require.Equal(t, 5, p.Hold(t, "k").Votes())
	})
}

// Two servers are dead, and one hangs.
func TestClientDoesNotStartWithoutAMajorityAndSaysWhoIsMissing(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		urls, ways := meshed(cluster)
		cluster.Kill(0, 2)
		cluster.Pause(3)
		start := time.Now()
		_, err := redlock.OpenWith(t.Context(), urls, ways, func(c *redlock.Config) { c.DialTimeout = 200 * time.Millisecond })
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.WithinRange(t, time.Now(), start.Add(200*time.Millisecond), start.Add(240*time.Millisecond))
		q := rt.As[*redlock.QuorumError](t, err)
		for i, v := range q.Votes {
			missing := i == 0 || i == 2 || i == 3
			require.Equal(t, missing, v.Err != nil)
			require.Equal(t, missing, strings.Contains(err.Error(), fmt.Sprintf("member-%d.mesh:6379", i)), "%v", err)
		}
		require.ErrorContains(t, err, "connection refused")
		cluster.Resume(3)
	})
}

func TestOpenEndsWithItsContext(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		urls, ways := meshed(cluster)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, rt.Err(redlock.OpenWith(ctx, urls, ways)), context.Canceled)
		cluster.Pause()
		ctx = rt.Within(t, 100*time.Millisecond)
		start := time.Now()
		_, err := redlock.OpenWith(ctx, urls, ways, func(c *redlock.Config) { c.DialTimeout = time.Minute })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		cluster.Resume()
		works(t, opened(t, urls, ways, redlock.WithFreshMembers()))
	})
}
