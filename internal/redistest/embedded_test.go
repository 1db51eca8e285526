package redistest_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

func TestFakeTimeIsExactOverMinutes(t *testing.T) {
	inFakeTime(t, func(t *testing.T, e *redistest.Embedded, c *redistest.Client) {
		const oneWay = 150 * time.Millisecond
		e.Faults().SetDelay(redistest.Delay{Fixed: oneWay}, redistest.Delay{Fixed: oneWay})
		ask(t, c, "HSET", "lock", "o", "1")
		ask(t, c, "PEXPIRE", "lock", strconv.Itoa(int((10 * time.Minute).Milliseconds())))
		set := time.Now().Add(-oneWay) // when the server executed it

		for range 100 {
			time.Sleep(5 * time.Second)
			began := time.Now()
			left := ask(t, c, "PTTL", "lock")
			require.Equal(t, 2*oneWay, time.Since(began))
			require.EqualValues(t, (10*time.Minute - began.Add(oneWay).Sub(set)).Milliseconds(), left)
		}
		e.Faults().Heal()
		time.Sleep(time.Until(set.Add(10*time.Minute)) - time.Millisecond)
		require.EqualValues(t, 1, ask(t, c, "EXISTS", "lock"))
		time.Sleep(time.Millisecond)
		require.EqualValues(t, 0, ask(t, c, "EXISTS", "lock"))
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

// Whatever happens to the network and the servers: replies are never mixed up, a lone counter never
// goes back while memory is kept, and everything ends.
func TestStorm(t *testing.T) {
	t.Run("fake time", func(t *testing.T) {
		faketime.Test(t, func(t *testing.T) { storm(t, rt.Embedded(t, 2), time.Minute) })
	})
}

func TestLongStorm(t *testing.T) {
	rt.Long(t, "storms in real time")
	t.Run("embedded", func(t *testing.T) { storm(t, rt.Embedded(t, 2), 10*time.Second) })
	t.Run("real", func(t *testing.T) { storm(t, rt.Real(t, 2), 10*time.Second) })
}

func storm(t *testing.T, c *redistest.Cluster, length time.Duration) {
	ctx := rt.Within(t, length)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for w := range 8 {
		s := c.Servers[w%c.Len()]
		wg.Go(func() {
			seen := int64(0)
			for n := 0; ctx.Err() == nil; {
				call, stop := context.WithTimeout(ctx, length/100)
				cl, err := redistest.DialClient(call, s.Dialer(), s.Addr())
				if err != nil {
					stop()
					time.Sleep(length / 10000)
					continue
				}
				for ; err == nil; n++ {
					tag := fmt.Sprintf("%d-%d", w, n)
					if err = cl.Send([]string{"INCR", "n"}, []string{"ECHO", tag}); err != nil {
						break
					}
					var got, echo any
					if got, err = receive(call, cl); err != nil {
						break
					}
					if echo, err = receive(call, cl); err != nil {
						break
					}
					count, isInt := got.(int64)
					_, isErr := got.(redistest.Error)
					loading := isErr && echo == got // Redis 6.2 then refuses ECHO, too
					if !(isInt && count > seen || isErr) || echo != tag && !loading {
						t.Errorf("asked %s after %d, got %v %v", tag, seen, got, echo)
					}
					if isInt {
						seen = count
						mu.Lock()
						done++
						mu.Unlock()
					}
					time.Sleep(length / 10000)
				}
				stop()
				_ = cl.Close()
			}
		})
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	for ctx.Err() == nil {
		s := c.Servers[rnd.IntN(c.Len())]
		l := s.Faults()
		d := time.Duration(rnd.Int64N(int64(length / 200)))
		faults := []func(){
			func() { l.Cut() }, func() { l.Zombie(d) }, l.Pause, l.DropReplies, l.BlackHole, func() { l.Refuse(true) },
			func() { l.SetDelay(redistest.Delay{Jitter: d / 10}, redistest.Delay{Fixed: d / 20}) },
			func() { l.Fail(redistest.Named("INCR"), 1+rnd.IntN(5), "LOADING x") },
			func() { l.LoseReply(redistest.Named("INCR"), 1) }, func() { l.CutAfter(redistest.Named("ECHO"), 1) },
			func() { l.ZombieOn(redistest.Named("INCR"), 1, d) }, func() { l.DelayReply(redistest.Any(), 3, d) },
			s.Pause, s.Kill, func() { l.Window(64) },
		}
		for range 2 {
			faults[rnd.IntN(len(faults))]()
			time.Sleep(d)
		}
		l.Heal()
		s.Resume()
		if rnd.IntN(3) == 0 {
			assert.NoError(t, s.Restart(true))
		} else if _, err := s.Do(ctx, "PING"); err != nil && ctx.Err() == nil {
			assert.NoError(t, s.Restart(true))
		}
		time.Sleep(length / 200)
	}
	wg.Wait()
	t.Logf("%d commands answered", done)
	require.Greater(t, done, 50, "the storm left room for work")
}

func receive(ctx context.Context, c *redistest.Client) (any, error) {
	if end, ok := ctx.Deadline(); ok {
		if err := c.Conn().SetReadDeadline(end); err != nil {
			return nil, err
		}
	}
	return c.Receive()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func embedded(t *testing.T) redistest.Server { return rt.Embedded(t, 1).Servers[0] }

func real(t *testing.T) redistest.Server { return rt.Real(t, 1).Servers[0] }

func TestEmbeddedConforms(t *testing.T) { rt.Conformance(t, embedded) }

func TestEmbeddedConformsInFakeTime(t *testing.T) { rt.ConformanceInBubble(t, embedded) }

func TestRealConforms(t *testing.T) { rt.Conformance(t, real) }
