package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// longest is a jitter that always draws the longest pause.
func longest(d time.Duration) time.Duration { return d }

func TestStallEndsTheConnectionExactlyOnTime(t *testing.T) {
	c := Config{StallTimeout: 2 * time.Second, PingInterval: 700 * time.Millisecond, jitter: longest}
	faked(t, nil, c, func(t *testing.T, f *fake, n *Node) {
		time.Sleep(5*time.Second + 123*time.Millisecond) // pings of an idle hour pass
		require.True(t, n.State().Up && n.State().Epoch == 1, "idle: %+v", n.State())
		f.silence(true)
		began := time.Now()
		first := submit(n, "A")
		time.Sleep(1500 * time.Millisecond)
		second := submit(n, "B")
		<-first.done
		require.Equal(t, 2*time.Second, time.Since(began), "first call done")
		for _, c := range []*result{first, second} {
			c.is(t, member.Unknown, member.ErrStalled)
			require.NotErrorIs(t, c.Err, member.ErrBroken)
		}
		synctest.Wait()
		require.False(t, n.State().Up)
		require.ErrorIs(t, n.State().Err, member.ErrStalled)
		c := submit(n, "C")
		c.isAtOnce(t, member.NotSent, member.ErrDown)
		require.NotErrorIs(t, c.Err, member.ErrStalled)
	})
}

// resting plays with a node that its guard looks at: sent tells what the server was sent, and a look by that word. All of a
// ping before, nobody has called.
func resting(t *testing.T, play func(f *fake, n *Node, sent func() []string)) {
	t.Helper()
	looks := func(_ int64, args []string) string {
		if args[0] == "EVAL" {
			return "*10\r\n" + bulk("run-1 5") + bulk("n") + bulk("1000") + ":-2\r\n" + bulk("") + ":9\r\n" + bulk("") +
				bulk("a") + bulk("role:master\r\nmaster_replid:a\r\n") + bulk("")
		}
		return "default"
	}
	c := Config{StallTimeout: 2 * time.Second, Guard: NewGuard(GuardConfig{Members: 1, MaxTTL: time.Second})}
	faked(t, looks, c, func(t *testing.T, f *fake, n *Node) {
		time.Sleep(1500 * time.Millisecond)
		require.True(t, n.State().Votes)
		f.take()
		play(f, n, func() (sent []string) {
			for _, line := range f.take() {
				word, _, _ := strings.Cut(line, " ")
				sent = append(sent, strings.Replace(word, "EVAL", "LOOK", 1))
			}
			return sent
		})
	})
}

// submitAs submits calls one by one, or as a group.
func submitAs(n *Node, way string, cs ...*result) {
	var group []*member.Call
	for _, c := range cs {
		group = append(group, &c.Call)
	}
	if way == "call" {
		n.Submit(group[0])
	} else {
		n.SubmitGroup(group)
	}
}

// A look goes out right before the first call, and the connection is watched again.
func TestConnectionAtRest(t *testing.T) {
	for _, way := range []string{"call", "group"} {
		resting(t, func(f *fake, n *Node, sent func() []string) {
			pings := 0
			f.set(func() {
				answer := f.handle
				f.handle = func(id int64, args []string) string {
					if args[0] == "PING" {
						pings++
					}
					return answer(id, args)
				}
			})
			time.Sleep(100 * time.Second)
			require.Equal(t, slices.Repeat([]string{"LOOK"}, 10), sent(), way+": at rest")
			require.Zero(t, pings)
			f.silence(true)
			began, c := time.Now(), newCall("A")
			submitAs(n, way, c)
			synctest.Wait()
			require.Equal(t, []string{"LOOK", "A"}, sent(), way)
			c.is(t, member.Unknown, member.ErrStalled)
			require.Equal(t, 2*time.Second, time.Since(began))
		})
	}
}

// A call whose answer needs no look leaves the rest. The connection is watched for its answer.
func TestUnlookedCallLeavesTheRest(t *testing.T) {
	unlooked := func(name string) *result {
		c := newCall(name)
		c.Unlooked = true
		return c
	}
	for _, way := range []string{"call", "group"} {
		resting(t, func(f *fake, n *Node, sent func() []string) {
			for range 3 {
				c := unlooked("A")
				submitAs(n, way, c)
				<-c.done
				time.Sleep(2 * time.Second)
			}
			require.Equal(t, []string{"A", "A", "A"}, sent(), way)
			require.True(t, n.seat.AtRest(), way)
			f.silence(true)
			began, c := time.Now(), unlooked("B")
			submitAs(n, way, c)
			c.is(t, member.Unknown, member.ErrStalled)
			require.Equal(t, 2*time.Second, time.Since(began), way)
		})
	}
	resting(t, func(f *fake, n *Node, sent func() []string) {
		release, acquire := unlooked("RELEASE"), newCall("ACQUIRE")
		submitAs(n, "group", release, acquire)
		<-acquire.done
		require.Equal(t, []string{"LOOK", "RELEASE", "ACQUIRE"}, sent(), "a group of which one call needs the look: sent")
	})
}

// Whoever submits a call while the supervisor decides how long it sleeps is not overlooked.
func TestSupervisorSleepsNoLongerThanACallMayWait(t *testing.T) {
	faked(t, nil, Config{StallTimeout: 2 * time.Second}, func(t *testing.T, f *fake, n *Node) {
		s := n.published.Load().session
		quiet := func() { // a line that is empty, and a supervisor that does not interfere
			t.Helper()
			do(t, n, "A")
			synctest.Wait()
		}
		for _, tc := range []struct {
			sleeps time.Duration
			wakes  bool
		}{{time.Second, false}, {2 * time.Second, false}, {2*time.Second + 1, true}, {time.Hour, true}} {
			quiet()
			s.line.Lock()
			until := time.Now().Add(tc.sleeps)
			s.asleep = until
			s.beginLocked(time.Now())
			woken := !s.asleep.Equal(until)
			s.line.Unlock()
			require.Equal(t, tc.wakes, woken, "asleep for %v: woken %v", tc.sleeps, woken)
		}
		quiet()
		require.Equal(t, time.Hour, s.sleep(time.Now(), time.Hour), "nothing is in line: sleeps")
		f.silence(true)
		c := newCall("B")
		n.Submit(&c.Call)
		require.Equal(t, 2*time.Second, s.sleep(time.Now(), time.Hour), "a call is in line: sleeps")
		<-c.done
	})
}

func TestFlusherIsThereOnlyWhileItIsNeeded(t *testing.T) {
	faked(t, nil, Config{PingInterval: 10 * time.Second}, func(t *testing.T, f *fake, n *Node) {
		s := n.published.Load().session
		there := func() bool {
			s.line.Lock()
			defer s.line.Unlock()
			return s.flusherUp
		}
		for i := range 3 {
			time.Sleep(5 * time.Second) // twice the supervisor has looked, and one of them saw nothing to do
			synctest.Wait()
			require.False(t, there(), "%d: a flusher, and nothing to write", i)
			late := newCall("ECHO", "late")
			late.Late = true
			n.Submit(&late.Call)
			late.is(t, member.Answered)
			synctest.Wait()
			require.True(t, there(), "%d: no flusher right behind a call", i)
		}
	})
}

func TestShortStallLeavesTheConnectionInUse(t *testing.T) {
	faked(t, nil, Config{StallTimeout: 2 * time.Second}, func(t *testing.T, f *fake, n *Node) {
		release := f.hold("SLOW")
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		for range 5 {
			_, err := member.Ask(ctx, n, member.Command{Cmd: resp.Command("SLOW")})
			require.ErrorIs(t, err, context.DeadlineExceeded, "got %v", err)
		}
		require.Equal(t, 50*time.Millisecond, time.Since(began), "callers waited")
		time.Sleep(1900 * time.Millisecond)
		release()
		require.Equal(t, "mine", do(t, n, "ECHO", "mine"), "answer of another call")
		require.EqualValues(t, 1, n.State().Epoch, "connection was replaced")
	})
}

func TestAnswersWithinTheStallTimeoutKeepTheConnection(t *testing.T) {
	faked(t, slow("SLOW", 1900*time.Millisecond), Config{StallTimeout: 2 * time.Second}, func(t *testing.T, _ *fake, n *Node) {
		var calls []*result
		for range 5 {
			calls = append(calls, submit(n, "SLOW"))
		}
		all(t, calls, member.Answered) // each is first in line for 1.9 s, the last waits for 9.5 s
	})
}

func TestIdleConnectionIsPinged(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var pings []time.Time
		var silent atomic.Bool
		f := newFake(nil)
		f.handle = func(id int64, args []string) string {
			if args[0] == "PING" {
				f.set(func() { pings = append(pings, time.Now()) })
				if silent.Load() && id == 1 {
					return ""
				}
			}
			return "default"
		}
		n := start(t, Config{Dialer: f, PingInterval: time.Second, StallTimeout: 2 * time.Second})
		synctest.Wait()
		began := time.Now()
		time.Sleep(3500 * time.Millisecond)
		silent.Store(true)
		time.Sleep(10 * time.Millisecond)
		f.set(func() {
			require.Len(t, pings, 4, "the first is the handshake's")
			require.Equal(t, 3*time.Second, pings[3].Sub(began))
		})
		time.Sleep(4*time.Second + 500*time.Millisecond - 11*time.Millisecond) // PING at 4 s, stalled at 6 s
		require.EqualValues(t, 2, n.State().Epoch, "a dead idle connection was not replaced: %+v", n.State())
	})
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		f := newFake(nil)
		f.refuse = errors.New("connection refused")
		n := start(t, Config{Dialer: f, backoffMax: 2 * time.Second, jitter: longest})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var gaps []time.Duration
		for i, at := range f.dialled()[1:] {
			gaps = append(gaps, at.Sub(f.dialled()[i]))
		}
		ms := time.Millisecond
		want := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2000 * ms, 2000 * ms, 2000 * ms}
		require.Equal(t, want, gaps)
		st := n.State()
		require.True(t, !st.Up && errors.Is(st.Err, f.refuse) && strings.HasPrefix(st.Err.Error(), "member:6379: "), "state %+v", st)
		f.set(func() { f.refuse = nil })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f.cut() // after a success the pauses begin again
		f.set(func() { f.dials = nil })
		cut := time.Now()
		time.Sleep(time.Second)
		require.Equal(t, []time.Time{cut.Add(50 * ms)}, f.dialled())
	})
}

func TestProved(t *testing.T) {
	up, low := time.Now(), 50*time.Millisecond
	stalled, broke := &broke{member.ErrStalled, errors.New("no answer")}, &broke{member.ErrBroken, errors.New("cut")}
	for name, tc := range map[string]struct {
		heard, end time.Duration
		cause      error
		want       bool
	}{
		"stalled behind the handshake":    {0, time.Hour, stalled, false},
		"stalled soon":                    {499 * time.Millisecond, 3 * time.Second, stalled, false},
		"stalled after it served":         {500 * time.Millisecond, 3 * time.Second, stalled, true},
		"cut behind the handshake":        {0, 0, broke, false},
		"cut soon":                        {400 * time.Millisecond, 499 * time.Millisecond, broke, false},
		"cut after it served":             {500 * time.Millisecond, 500 * time.Millisecond, broke, true},
		"cut at rest, long after a reply": {0, time.Minute, broke, true},
	} {
		require.Equal(t, tc.want, proved(up, up.Add(tc.heard), up.Add(tc.end), tc.cause, low), "%s", name)
	}
	require.False(t, proved(up, time.Time{}, up.Add(time.Hour), stalled, low), "stalled, and never answered")
}

// Every connection is made and then serves nothing: the pauses grow as if it were not made. Then one
// serves for a while, and they begin again.
func TestConnectionThatServesNothingLengthensThePause(t *testing.T) {
	var silent atomic.Bool
	handle := func(_ int64, args []string) string {
		if silent.Load() && args[0] == "A" {
			return ""
		}
		return "default"
	}
	faked(t, handle, Config{StallTimeout: time.Second, jitter: longest}, func(t *testing.T, _ *fake, n *Node) {
		silent.Store(true)
		var gaps []time.Duration
		for range 6 {
			c := submit(n, "A") // as soon as the connection is there
			c.is(t, member.Unknown, member.ErrStalled)
			stalled := time.Now()
			for synctest.Wait(); !n.State().Up; synctest.Wait() {
				time.Sleep(50 * time.Millisecond)
			}
			gaps = append(gaps, time.Since(stalled))
		}
		ms := time.Millisecond
		require.Equal(t, []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms}, gaps)
		silent.Store(false)
		time.Sleep(500 * time.Millisecond)
		<-submit(n, "A").done
		silent.Store(true)
		c := submit(n, "A")
		<-c.done
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		require.True(t, n.State().Up, "a member that served is not back soon")
	})
}

func TestJitterStaysWithinTheCeiling(t *testing.T) {
	low, high := 50*time.Millisecond, 2*time.Second
	draw := fullJitter()
	for k := range 200 {
		limit := ceiling(k, low, high)
		require.True(t, limit >= low && limit <= high && (k <= 0 || limit >= ceiling(k-1, low, high)), "ceiling(%d) = %v", k, limit)
		d := draw(limit)
		require.True(t, d >= 0 && d <= limit, "jitter %v outside 0 to %v", d, limit)
	}
	require.True(t, draw(0) == 0 && ceiling(100, 1, 1<<63-1) == 1<<63-1, "edges")
}

func TestRefusedCredentialsWaitLong(t *testing.T) {
	for name, tc := range map[string]struct{ config, reply, command string }{
		"wrong password":  {"pw", "-WRONGPASS invalid username-password pair or user is disabled.\r\n", "AUTH"},
		"password needed": {"", "-NOAUTH Authentication required.\r\n", "CLIENT"},
	} {
		t.Run(name, func(t *testing.T) {
			refuse := func(_ int64, args []string) string {
				if args[0] == tc.command || tc.command == "CLIENT" {
					return tc.reply
				}
				return "default"
			}
			faked(t, refuse, Config{Password: Secret(tc.config)}, func(t *testing.T, f *fake, n *Node) {
				time.Sleep(29 * time.Second)
				refused := rt.As[*member.ReplyError](t, n.State().Err)
				require.Equal(t, member.KindAuth, refused.Kind)
				c := submit(n, "PING")
				c.isAtOnce(t, member.NotSent, member.ErrDown)
				require.ErrorAs(t, c.Err, &refused)
				require.Len(t, f.dialled(), 1, "in 29 s")
				time.Sleep(2 * time.Second)
				require.Len(t, f.dialled(), 2, "in 31 s")
			})
		})
	}
}

func TestSilentServerFailsTheHandshakeInTime(t *testing.T) {
	for name, password := range map[string]Secret{"in AUTH": "pw", "in the handshake": ""} {
		t.Run(name, faketime.In(func(t *testing.T) {
			f := newFake(nil)
			f.silence(true)
			n := start(t, Config{Dialer: f, Password: password, DialTimeout: 300 * time.Millisecond, jitter: longest})
			time.Sleep(300*time.Millisecond + 49*time.Millisecond)
			synctest.Wait()
			rt.Says(t, n.State().Err, context.DeadlineExceeded, "accepts connections")
			rt.Says(t, n.State().Err, context.DeadlineExceeded, "no answer within 300ms")
			require.NotContains(t, n.State().Err.Error(), "deadline", "it would say neither what was asked nor for how long")
			require.Len(t, f.dialled(), 1)
			time.Sleep(2 * time.Millisecond)
			require.Len(t, f.dialled(), 2)
			_, err := Query(t.Context(), Config{Addr: "a:1", Dialer: f, DialTimeout: time.Second}, resp.Command("CLUSTER", "SHARDS"))
			require.EqualError(t, err, "a:1: no answer to CLUSTER SHARDS within 1s")
		}))
	}
}

func TestSlowWriteEndsTheConnection(t *testing.T) {
	faked(t, nil, Config{StallTimeout: time.Second, MaxBytes: 4 << 20}, func(t *testing.T, f *fake, n *Node) {
		block := f.hold("BLOCK")
		defer block()
		submit(n, "BLOCK")
		synctest.Wait()
		began := time.Now()
		big := strings.Repeat("x", 100<<10)
		var calls []*result
		for range 20 { // 2 MB, the pipe takes half a megabyte
			calls = append(calls, submit(n, "SET", "k", big))
			require.Zero(t, time.Since(began), "Submit waited")
		}
		synctest.Wait()
		late := submit(n, "LATE") // is not part of the write that hangs
		count := map[member.Outcome]int{}
		for _, c := range append(calls, late) {
			<-c.done
			count[c.Outcome]++
		}
		require.Equal(t, time.Second, time.Since(began), "ended")
		late.is(t, member.NotSent)
		require.NotZero(t, count[member.Unknown])
		require.ErrorIs(t, calls[0].Err, member.ErrStalled)
	})
}

// A write to a connection that takes nothing blocks, and would block its caller: fake time would pass.
func TestCallerIsNeverBlockedByAPeerThatStoppedReading(t *testing.T) {
	faked(t, nil, Config{MaxBytes: 4 << 20}, func(t *testing.T, f *fake, n *Node) {
		block := f.hold("BLOCK")
		defer block()
		submit(n, "BLOCK")
		synctest.Wait()
		value := strings.Repeat("x", 1000)
		began := time.Now()
		overflow := 0
		for range 5000 {
			synctest.Wait() // each caller comes alone, and finds nobody writing unless somebody is stuck
			c := submit(n, "SET", "k", value)
			require.Zero(t, time.Since(began), "Submit waited")
			if c.refused() {
				overflow++
			}
		}
		require.NotZero(t, overflow, "the bound on bytes was not reached")
	})
}

// The reader of one connection that writes to another can deadlock with that one's reader.
func TestLateCallIsWrittenBySomebodyElse(t *testing.T) {
	faked(t, nil, Config{}, func(t *testing.T, _ *fake, n *Node) {
		g := gateOf(n)
		c := newCall("ECHO", "x")
		c.Late = true
		c.sent(n) // and does not wait for the gate
		<-g.began
		close(g.open)
		c.is(t, member.Answered)
	})
}

func TestOverflowIsToldAtOnce(t *testing.T) {
	faked(t, nil, Config{maxCalls: 10, MaxBytes: 1000}, func(t *testing.T, f *fake, n *Node) {
		f.silence(true)
		for range 10 {
			require.False(t, submit(n, "X").refused())
		}
		eleventh := submit(n, "X")
		eleventh.isAtOnce(t, member.NotSent, member.ErrOverflow)
		require.ErrorContains(t, eleventh.Err, "member:6379: ")
		f.silence(false)
		f.cut()
		time.Sleep(time.Second)
		submit(n, "X", strings.Repeat("x", 1000)).isAtOnce(t, member.NotSent, member.ErrOverflow)
		submit(n, "X", strings.Repeat("x", 900)).is(t, member.Answered)
	})
}

// What grows with use, as a page of counters, is not to be refused for good.
func TestBoundsOfCallersDoNotBoundTheGuard(t *testing.T) {
	faked(t, nil, Config{maxCalls: 2, MaxBytes: 1000}, func(t *testing.T, _ *fake, n *Node) {
		page := resp.Command("X", strings.Repeat("x", 5000))
		require.ErrorIs(t, rt.Err(member.Ask(t.Context(), n, member.Command{Cmd: page})), member.ErrOverflow)
		require.NoError(t, rt.Err((*host)(n).Ask(t.Context(), page)))
	})
}

func TestDownMemberCostsNothing(t *testing.T) {
	f := newFake(nil)
	f.refuse = errors.New("connection refused")
	n := start(t, Config{Dialer: f, backoffMin: time.Hour, backoffMax: time.Hour})
	rt.Until(t, "down", func() bool { return errors.Is(n.State().Err, f.refuse) })
	c := &member.Call{Command: member.Command{Cmd: ping}, Sink: discard{}}
	allocs := testing.AllocsPerRun(1000, func() { n.Submit(c) })
	require.True(t, allocs == 0 && c.Outcome == member.NotSent && errors.Is(c.Err, member.ErrDown) && errors.Is(c.Err, f.refuse),
		"%v allocations, %v, %v", allocs, c.Outcome, c.Err)
	require.LessOrEqual(t, len(f.dialled()), 1, "submitting must not dial")
}

func TestAnswerToNothingEndsTheConnection(t *testing.T) {
	faked(t, says("TWICE", ":1\r\n:2\r\n"), Config{}, func(t *testing.T, f *fake, n *Node) {
		c := submit(n, "TWICE")
		c.is(t, member.Answered)
		require.EqualValues(t, 1, c.Reply.Int)
		synctest.Wait()
		require.False(t, n.State().Up)
		f.set(func() { f.handle = says("GARBAGE", "HTTP/1.1 400 Bad Request\r\n\r\n") })
		time.Sleep(time.Second)
		c = submit(n, "GARBAGE")
		c.is(t, member.Unknown)
		require.NotContains(t, c.Err.Error(), "HTTP")
	})
}

func TestCallsAreExecutedInTheOrderOfTheirSubmission(t *testing.T) {
	faked(t, nil, Config{}, func(t *testing.T, f *fake, n *Node) {
		var want []string
		var last *result
		for i := range 500 {
			last = newCall("N", string(rune('a'+i%26)), time.Duration(i).String())
			last.Late = i%3 == 0
			want = append(want, "N "+string(rune('a'+i%26))+" "+time.Duration(i).String())
			n.Submit(&last.Call)
		}
		<-last.done
		require.Equal(t, want, f.commands())
	})
}
