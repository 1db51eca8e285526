package redistest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func dial(t testing.TB, d redistest.Dialer, addr string) *redistest.Client {
	t.Helper()
	c := rt.Must(redistest.DialClient(t.Context(), d, addr))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ask(t testing.TB, c *redistest.Client, args ...string) any {
	t.Helper()
	v, err := c.Do(t.Context(), args...)
	require.NoError(t, err, "%q", args)
	return v
}

func inFakeTime(t *testing.T, play func(t *testing.T, e *redistest.Embedded, c *redistest.Client)) {
	faketime.Test(t, func(t *testing.T) {
		e := rt.Embedded(t, 1).Embedded(0)
		play(t, e, dial(t, e.Dialer(), e.Addr()))
	})
}

func TestServerClockRunsAtItsRate(t *testing.T) {
	inFakeTime(t, func(t *testing.T, e *redistest.Embedded, c *redistest.Client) {
		start := e.Now()
		ask(t, c, "SET", "k", "v", "PX", "10000")

		e.SetRate(1.5)
		time.Sleep(4 * time.Second)
		require.EqualValues(t, 4000, ask(t, c, "PTTL", "k"))
		require.Equal(t, 6*time.Second, e.Now().Sub(start))
		sec := start.Unix() + 6
		require.Equal(t, []any{strconv.FormatInt(sec, 10), fmt.Sprint(start.Nanosecond() / 1000)}, ask(t, c, "TIME"))

		e.SetRate(0.5)
		time.Sleep(4 * time.Second)
		require.EqualValues(t, 2000, ask(t, c, "PTTL", "k"))

		e.SetRate(0)
		time.Sleep(time.Hour)
		require.EqualValues(t, 2000, ask(t, c, "PTTL", "k"), "the clock stands still")

		e.SetRate(1)
		time.Sleep(1999 * time.Millisecond)
		require.EqualValues(t, 1, ask(t, c, "PTTL", "k"))
		time.Sleep(time.Millisecond)
		require.EqualValues(t, -2, ask(t, c, "PTTL", "k"))
	})
}

// The demo reaches embedded servers as any program reaches a server.
func TestEmbeddedServesTCP(t *testing.T) {
	e := rt.Embedded(t, 1).Embedded(0)
	require.NoError(t, e.ServeTCP("127.0.0.1:0"))
	require.Error(t, e.ServeTCP("127.0.0.1:0"), "once")
	addr := e.Addr()
	c := dial(t, &net.Dialer{}, addr)
	require.Equal(t, "OK", ask(t, c, "SET", "k", "v"))

	e.Faults().Fail(redistest.Any(), 1, "LOADING later")
	_, err := c.Do(t.Context(), "GET", "k")
	require.Equal(t, redistest.Error("LOADING later"), err, "faults apply there too")

	e.Kill()
	_, err = c.ReceiveFor(time.Minute)
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, rt.Err(redistest.DialClient(t.Context(), &net.Dialer{}, addr)), "refused")

	require.NoError(t, e.Restart(true))
	require.Equal(t, addr, e.Addr())
	c = dial(t, &net.Dialer{}, addr)
	require.Equal(t, "v", ask(t, c, "GET", "k"))

	e.Pause()
	late := dial(t, &net.Dialer{}, addr)
	require.NoError(t, late.Send([]string{"PING"}))
	e.Resume()
	require.Equal(t, "PONG", rt.Must(late.ReceiveFor(time.Minute))(t))

	e.Faults().Cut()
	require.Error(t, rt.Err(c.ReceiveFor(time.Minute)))
}

func TestWhatIsNotRESPIsAnsweredLikeRedisDoes(t *testing.T) {
	for name, start := range map[string]func(*testing.T) redistest.Server{"embedded": embedded, "real": real} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			c := dial(t, s.Dialer(), s.Addr())
			require.NoError(t, rt.Err(c.Conn().Write([]byte("PING\r\n*1\r\n:1\r\n"))))
			v := rt.Must(c.ReceiveFor(time.Minute))(t)
			require.Equal(t, "PONG", v, "inline commands work")
			v = rt.Must(c.ReceiveFor(time.Minute))(t)
			require.ErrorContains(t, v.(redistest.Error), "Protocol error")
			require.ErrorIs(t, rt.Err(c.ReceiveFor(time.Minute)), io.EOF)
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func embedded(t *testing.T) redistest.Server { return rt.Embedded(t, 1).Servers[0] }

func real(t *testing.T) redistest.Server { return rt.Real(t, 1).Servers[0] }

func TestEmbeddedConforms(t *testing.T) { rt.Conformance(t, embedded) }

func TestEmbeddedConformsInFakeTime(t *testing.T) { rt.ConformanceInBubble(t, embedded) }

func TestRealConforms(t *testing.T) { rt.Conformance(t, real) }
