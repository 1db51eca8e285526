package node

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/stretchr/testify/require"
)

// users is a Dialer as a user writes one.
type users func(ctx context.Context, network, addr string) (net.Conn, error)

func (u users) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return u(ctx, network, addr)
}

// A connection that comes when nobody waits for it any more is closed.
func TestConnectionThatCameTooLateIsClosed(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		f, server := net.Pipe()
		dials := 0
		n := start(t, Config{BackoffMin: time.Hour, BackoffMax: time.Hour, jitter: longest, Dialer: users(func(context.Context, string, string) (net.Conn, error) {
			dials++
			time.Sleep(2 * time.Second)
			return f, nil
		})})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		_ = server.SetReadDeadline(time.Now())
		got, err := server.Read(make([]byte, 1))
		require.True(t, (errors.Is(err, net.ErrClosed) || err.Error() == "EOF") && dials == 1, "%d, %v after %d dials", got, err, dials)
		require.False(t, n.State().Up, "%+v", n.State())
	})
}

func TestDialerThatReturnsNothingIsNamed(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		nothing := users(func(context.Context, string, string) (net.Conn, error) { return nil, nil })
		for _, secure := range []string{"redis", "rediss"} {
			c := rt.Must(ParseURL(secure + "://h:1"))(t)
			c.Dialer = nothing
			n := start(t, c)
			synctest.Wait()
			var broken *DialerError
			require.ErrorAs(t, n.State().Err, &broken, secure)
			require.Equal(t, "h:1", broken.Addr)
			require.ErrorContains(t, n.State().Err, "Config.Dialer, of h:1: it returned neither")
			require.ErrorAs(t, rt.Err(Query(t.Context(), c, ping)), &broken, secure)
		}
	})
}

// An error that a Dialer returns is its own, also when it returns it because its context ended.
func TestErrorOfADialerIsPassedOn(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		down := errors.New("the mesh is down")
		for _, d := range []users{
			func(context.Context, string, string) (net.Conn, error) { return nil, down },
			func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, down },
			func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				time.Sleep(90 * time.Millisecond)
				return nil, down
			},
		} {
			n := start(t, Config{Dialer: d, BackoffMin: time.Hour, BackoffMax: time.Hour, jitter: longest})
			time.Sleep(2 * time.Second)
			var broken *DialerError
			err := n.State().Err
			require.True(t, errors.Is(err, down) && !errors.As(err, &broken), "%v", err)
		}
	})
}
