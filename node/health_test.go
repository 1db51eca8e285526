package node

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// longest is a jitter that always draws the longest pause.
func longest(d time.Duration) time.Duration { return d }

// mute makes a fake silent towards everything that handle does not know, from the moment on is set.
func mute(on *atomic.Bool) func(int64, []string) string {
	return func(int64, []string) string {
		if on.Load() {
			return ""
		}
		return "default"
	}
}

func TestStallEndsTheConnectionExactlyOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		f := newFake(mute(&silent))
		n := start(t, Config{Dialer: f, StallTimeout: 2 * time.Second, PingInterval: 700 * time.Millisecond, jitter: longest})
		synctest.Wait()
		time.Sleep(5*time.Second + 123*time.Millisecond) // pings of an idle hour pass
		if st := n.State(); !st.Up || st.Epoch != 1 {
			t.Fatalf("idle: %+v", st)
		}
		silent.Store(true)
		began := time.Now()
		first := submit(n, "A")
		time.Sleep(1500 * time.Millisecond)
		second := submit(n, "B")
		<-first.done
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("first call done after %v", took)
		}
		<-second.done
		for _, c := range []*result{first, second} {
			if c.Outcome != member.Unknown || !errors.Is(c.Err, member.ErrStalled) || errors.Is(c.Err, member.ErrBroken) {
				t.Errorf("%v, %v", c.Outcome, c.Err)
			}
		}
		synctest.Wait()
		if st := n.State(); st.Up || !errors.Is(st.Err, member.ErrStalled) {
			t.Errorf("state %+v", st)
		}
		if c := submit(n, "C"); c.Outcome != member.NotSent || !errors.Is(c.Err, member.ErrDown) || errors.Is(c.Err, member.ErrStalled) {
			t.Errorf("while down: %v, %v", c.Outcome, c.Err)
		}
	})
}

// A call that is kept goes out right before the first one from outside, and the connection is watched again.
func TestConnectionAtRest(t *testing.T) {
	for _, way := range []string{"call", "group"} {
		synctest.Test(t, func(t *testing.T) {
			var silent atomic.Bool
			var mu sync.Mutex
			var sent []string
			since := func(i int) []string {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(sent[i:])
			}
			f := newFake(func(_ int64, args []string) string {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, args[0])
				return mute(&silent)(0, args)
			})
			n := start(t, Config{Dialer: f, StallTimeout: 2 * time.Second})
			synctest.Wait()
			s := n.published.Load().session
			look := newCall("LOOK")
			if err := s.Hold(&look.Call); err != nil {
				t.Fatal(err)
			}
			if err := s.submit(ownCall(resp.Command("OWN"), discard{}), true); err != nil || !s.resting() {
				t.Fatalf("a call of the node's own: %v", err)
			}
			time.Sleep(2 * time.Second) // the supervisor looks, and sees that it is at rest
			before := len(since(0))
			time.Sleep(100 * time.Second)
			if got := since(before); len(got) != 0 {
				t.Errorf("%s: at rest it sends %q", way, got)
			}
			silent.Store(true)
			began, c := time.Now(), newCall("A")
			if way == "call" {
				n.Submit(&c.Call)
			} else {
				n.SubmitGroup([]*member.Call{&c.Call})
			}
			if other := newCall("OTHER"); s.Replace(&other.Call) {
				t.Errorf("%s: what is in line was replaced", way)
			}
			synctest.Wait()
			if got := since(before); !slices.Equal(got, []string{"LOOK", "A"}) {
				t.Errorf("%s: sent %q", way, got)
			}
			<-c.done
			if took := time.Since(began); took != 2*time.Second || !errors.Is(c.Err, member.ErrStalled) {
				t.Errorf("%s: done after %v: %v", way, took, c.Err)
			}
			<-look.done
		})
	}
}

// A call whose answer needs no look leaves the kept one where it is. The connection is watched for its answer.
func TestUnlookedCallLeavesTheRest(t *testing.T) {
	for _, way := range []string{"call", "group"} {
		synctest.Test(t, func(t *testing.T) {
			var silent atomic.Bool
			f := newFake(mute(&silent))
			n := start(t, Config{Dialer: f, StallTimeout: 2 * time.Second})
			synctest.Wait()
			submit := func(cs ...*result) {
				var group []*member.Call
				for _, c := range cs {
					group = append(group, &c.Call)
				}
				if way == "call" && len(cs) == 1 {
					n.Submit(group[0])
				} else {
					n.SubmitGroup(group)
				}
			}
			unlooked := func(name string) *result {
				c := newCall(name)
				c.Unlooked = true
				return c
			}
			s, look := n.published.Load().session, newCall("LOOK")
			if err := s.Hold(&look.Call); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Second) // the supervisor has seen that it is at rest
			before := len(f.commands())
			for range 3 {
				c := unlooked("A")
				submit(c)
				<-c.done
				if heard := s.Heard(); !heard.Equal(time.Now()) {
					t.Errorf("%s: heard %v", way, heard)
				}
				time.Sleep(10 * time.Second)
			}
			if got := f.commands()[before:]; !slices.Equal(got, []string{"A", "A", "A"}) || !s.resting() {
				t.Errorf("%s: sent %q, resting %v", way, got, s.resting())
			}
			silent.Store(true)
			began, c := time.Now(), unlooked("B")
			submit(c)
			<-c.done
			if took := time.Since(began); took != 2*time.Second || !errors.Is(c.Err, member.ErrStalled) {
				t.Errorf("%s: done after %v: %v", way, took, c.Err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		s, before := n.published.Load().session, len(f.commands())
		look, release, acquire := newCall("LOOK"), newCall("RELEASE"), newCall("ACQUIRE")
		if err := s.Hold(&look.Call); err != nil {
			t.Fatal(err)
		}
		release.Unlooked = true
		n.SubmitGroup([]*member.Call{&release.Call, &acquire.Call})
		<-acquire.done
		if got := f.commands()[before:]; !slices.Equal(got, []string{"LOOK", "RELEASE", "ACQUIRE"}) {
			t.Errorf("a group of which one call needs the look: sent %q", got)
		}
	})
}

// Whoever submits a call while the supervisor decides how long it sleeps is not overlooked.
func TestSupervisorSleepsNoLongerThanACallMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		n := start(t, Config{Dialer: newFake(mute(&silent)), StallTimeout: 2 * time.Second})
		synctest.Wait()
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
			s.mu.Lock()
			until := time.Now().Add(tc.sleeps)
			s.asleep = until
			s.beginLocked(time.Now())
			woken := !s.asleep.Equal(until)
			s.mu.Unlock()
			if woken != tc.wakes {
				t.Errorf("asleep for %v: woken %v", tc.sleeps, woken)
			}
		}
		quiet()
		if got := s.sleep(time.Now(), time.Hour); got != time.Hour {
			t.Errorf("nothing is in line: sleeps %v", got)
		}
		silent.Store(true)
		c := newCall("B")
		n.Submit(&c.Call)
		if got := s.sleep(time.Now(), time.Hour); got != 2*time.Second {
			t.Errorf("a call is in line: sleeps %v", got)
		}
		<-c.done
	})
}

func TestCallThatIsKeptIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		s, before := n.published.Load().session, len(f.commands())
		kept, look, again := newCall("KEPT"), newCall("LOOK"), newCall("AGAIN")
		if err := s.Hold(&kept.Call); err != nil || !s.Replace(&look.Call) || s.resting() || s.Replace(&again.Call) {
			t.Fatalf("%v, or it was not replaced once", err)
		}
		do(t, n, "A")
		<-look.done
		if got := f.commands()[before:]; !slices.Equal(got, []string{"LOOK", "A"}) {
			t.Errorf("sent %q", got)
		}
	})
}

func TestFlusherIsThereOnlyWhileItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, Config{Dialer: newFake(nil), PingInterval: 10 * time.Second})
		synctest.Wait()
		s := n.published.Load().session
		there := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.flusherUp
		}
		for i := range 3 {
			time.Sleep(5 * time.Second) // twice the supervisor has looked, and one of them saw nothing to do
			if synctest.Wait(); there() {
				t.Fatalf("%d: a flusher, and nothing to write", i)
			}
			late := newCall("ECHO", "late")
			late.Late = true
			n.Submit(&late.Call)
			if late.wait(t); late.Outcome != member.Answered {
				t.Fatalf("%d: %v, %v", i, late.Outcome, late.Err)
			}
			if synctest.Wait(); !there() {
				t.Fatalf("%d: no flusher right behind a call", i)
			}
		}
	})
}

func TestShortStallLeavesTheConnectionInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "SLOW" {
				<-release
			}
			return "default"
		})
		n := start(t, Config{Dialer: f, StallTimeout: 2 * time.Second})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		for range 5 {
			if _, err := member.Ask(ctx, n, member.Command{Cmd: resp.Command("SLOW")}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("callers waited %v", took)
		}
		time.Sleep(1900 * time.Millisecond)
		close(release)
		if got := do(t, n, "ECHO", "mine"); got != "mine" {
			t.Errorf("answer of another call: %q", got)
		}
		if st := n.State(); st.Epoch != 1 {
			t.Errorf("connection was replaced: %+v", st)
		}
	})
}

func TestAnswersWithinTheStallTimeoutKeepTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "SLOW" {
				time.Sleep(1900 * time.Millisecond)
			}
			return "default"
		})
		n := start(t, Config{Dialer: f, StallTimeout: 2 * time.Second})
		synctest.Wait()
		var calls []*result
		for range 5 {
			calls = append(calls, submit(n, "SLOW"))
		}
		for i, c := range calls { // each is first in line for 1.9 s, the last waits for 9.5 s
			if <-c.done; c.Outcome != member.Answered {
				t.Errorf("call %d: %v, %v", i, c.Outcome, c.Err)
			}
		}
	})
}

func TestIdleConnectionIsPinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			if len(pings) != 4 || pings[3].Sub(began) != 3*time.Second { // the first is the handshake's
				t.Errorf("pings %v", pings)
			}
		})
		time.Sleep(4*time.Second + 500*time.Millisecond - 11*time.Millisecond) // PING at 4 s, stalled at 6 s
		if n.State().Epoch != 2 {
			t.Errorf("a dead idle connection was not replaced: %+v", n.State())
		}
	})
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		f.refuse = errors.New("connection refused")
		n := start(t, Config{Dialer: f, BackoffMax: 2 * time.Second, jitter: longest})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var gaps []time.Duration
		f.set(func() {
			for i := 1; i < len(f.dials); i++ {
				gaps = append(gaps, f.dials[i].Sub(f.dials[i-1]))
			}
		})
		ms := time.Millisecond
		want := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2000 * ms, 2000 * ms, 2000 * ms}
		if !slices.Equal(gaps, want) {
			t.Errorf("gaps %v", gaps)
		}
		if st := n.State(); st.Up || !errors.Is(st.Err, f.refuse) || !strings.HasPrefix(st.Err.Error(), "member:6379: ") {
			t.Errorf("state %+v", st)
		}
		f.set(func() { f.refuse = nil })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f.cut() // after a success the pauses begin again
		f.set(func() { f.dials = nil })
		cut := time.Now()
		time.Sleep(time.Second)
		f.set(func() {
			if len(f.dials) != 1 || f.dials[0].Sub(cut) != 50*ms {
				t.Errorf("dials %v after the cut at %v", f.dials, cut)
			}
		})
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
		if got := proved(up, up.Add(tc.heard), up.Add(tc.end), tc.cause, low); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if proved(up, time.Time{}, up.Add(time.Hour), stalled, low) {
		t.Error("stalled, and never answered")
	}
}

// Every connection is made and then serves nothing: the pauses grow as if it were not made. Then one
// serves for a while, and they begin again.
func TestConnectionThatServesNothingLengthensThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		f := newFake(nil)
		f.handle = func(_ int64, args []string) string {
			if silent.Load() && args[0] == "A" {
				return ""
			}
			return "default"
		}
		n := start(t, Config{Dialer: f, StallTimeout: time.Second, jitter: longest})
		synctest.Wait()
		silent.Store(true)
		var gaps []time.Duration
		for range 6 {
			c := submit(n, "A") // as soon as the connection is there
			<-c.done
			stalled := time.Now()
			if !errors.Is(c.Err, member.ErrStalled) {
				t.Fatal(c.Err)
			}
			for synctest.Wait(); !n.State().Up; synctest.Wait() {
				time.Sleep(50 * time.Millisecond)
			}
			gaps = append(gaps, time.Since(stalled))
		}
		ms := time.Millisecond
		if want := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms}; !slices.Equal(gaps, want) {
			t.Errorf("pauses %v", gaps)
		}
		silent.Store(false)
		time.Sleep(500 * time.Millisecond)
		<-submit(n, "A").done
		silent.Store(true)
		c := submit(n, "A")
		<-c.done
		time.Sleep(50 * time.Millisecond)
		if synctest.Wait(); !n.State().Up {
			t.Error("a member that served is not back soon")
		}
	})
}

func TestJitterStaysWithinTheCeiling(t *testing.T) {
	low, high := 50*time.Millisecond, 2*time.Second
	draw := fullJitter()
	for k := range 200 {
		limit := ceiling(k, low, high)
		if limit < low || limit > high || k > 0 && limit < ceiling(k-1, low, high) {
			t.Errorf("ceiling(%d) = %v", k, limit)
		}
		if d := draw(limit); d < 0 || d > limit {
			t.Errorf("jitter %v outside 0 to %v", d, limit)
		}
	}
	if draw(0) != 0 || ceiling(100, 1, 1<<63-1) != 1<<63-1 {
		t.Error("edges")
	}
}

func TestRefusedCredentialsWaitLong(t *testing.T) {
	for name, tc := range map[string]struct{ config, reply, command string }{
		"wrong password":  {"pw", "-WRONGPASS invalid username-password pair or user is disabled.\r\n", "AUTH"},
		"password needed": {"", "-NOAUTH Authentication required.\r\n", "CLIENT"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(func(_ int64, args []string) string {
					if args[0] == tc.command || tc.command == "CLIENT" {
						return tc.reply
					}
					return "default"
				})
				n := start(t, Config{Dialer: f, Password: Secret(tc.config)})
				time.Sleep(29 * time.Second)
				var refused *member.ReplyError
				if st := n.State(); !errors.As(st.Err, &refused) || refused.Kind != member.KindAuth {
					t.Errorf("state %+v", st)
				}
				if c := submit(n, "PING"); !errors.As(c.Err, &refused) || !errors.Is(c.Err, member.ErrDown) {
					t.Errorf("call: %v", c.Err)
				}
				f.set(func() {
					if len(f.dials) != 1 {
						t.Errorf("%d attempts in 29 s", len(f.dials))
					}
				})
				time.Sleep(2 * time.Second)
				f.set(func() {
					if len(f.dials) != 2 {
						t.Errorf("%d attempts in 31 s", len(f.dials))
					}
				})
			})
		})
	}
}

func TestSilentServerFailsTheHandshakeInTime(t *testing.T) {
	for name, password := range map[string]Secret{"in AUTH": "pw", "in the handshake": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var silent atomic.Bool
				silent.Store(true)
				f := newFake(mute(&silent))
				n := start(t, Config{Dialer: f, Password: password, DialTimeout: 300 * time.Millisecond, jitter: longest})
				time.Sleep(300*time.Millisecond + 49*time.Millisecond)
				synctest.Wait()
				if st := n.State(); !errors.Is(st.Err, context.DeadlineExceeded) {
					t.Errorf("state %+v", st)
				}
				f.set(func() {
					if len(f.dials) != 1 {
						t.Errorf("dials %v", f.dials)
					}
				})
				time.Sleep(2 * time.Millisecond)
				f.set(func() {
					if len(f.dials) != 2 {
						t.Errorf("dials %v", f.dials)
					}
				})
			})
		})
	}
}

func TestSlowWriteEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		defer close(block)
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "BLOCK" {
				<-block
			}
			return "default"
		})
		n := start(t, Config{Dialer: f, WriteTimeout: time.Second, StallTimeout: 10 * time.Second, MaxBytes: 4 << 20})
		synctest.Wait()
		submit(n, "BLOCK")
		synctest.Wait()
		began := time.Now()
		big := strings.Repeat("x", 100<<10)
		var calls []*result
		for range 20 { // 2 MB, the pipe takes half a megabyte
			calls = append(calls, submit(n, "SET", "k", big))
			if time.Since(began) != 0 {
				t.Fatal("Submit waited")
			}
		}
		synctest.Wait()
		late := submit(n, "LATE") // is not part of the write that hangs
		count := map[member.Outcome]int{}
		for _, c := range append(calls, late) {
			<-c.done
			count[c.Outcome]++
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("ended after %v", took)
		}
		if late.Outcome != member.NotSent || count[member.Unknown] == 0 {
			t.Errorf("late: %v, %v, all: %v", late.Outcome, late.Err, count)
		}
		if !errors.Is(calls[0].Err, member.ErrBroken) {
			t.Errorf("%v", calls[0].Err)
		}
	})
}

// A write to a connection that takes nothing blocks, and would block its caller: fake time would pass.
func TestCallerIsNeverBlockedByAPeerThatStoppedReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		defer close(block)
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "BLOCK" {
				<-block
			}
			return "default"
		})
		n := start(t, Config{Dialer: f, MaxBytes: 4 << 20})
		synctest.Wait()
		submit(n, "BLOCK")
		synctest.Wait()
		value := strings.Repeat("x", 1000)
		began := time.Now()
		overflow := 0
		for range 5000 {
			synctest.Wait() // each caller comes alone, and finds nobody writing unless somebody is stuck
			c := newCall("SET", "k", value)
			n.Submit(&c.Call)
			if took := time.Since(began); took != 0 {
				t.Fatalf("Submit waited for %v", took)
			}
			if c.refused() {
				overflow++
			}
		}
		if overflow == 0 {
			t.Error("the bound on bytes was not reached")
		}
	})
}

// gate is a connection on which a write waits while it is shut.
type gate struct {
	net.Conn
	shut atomic.Bool
	open chan struct{}
}

func (g *gate) Write(b []byte) (int, error) {
	if g.shut.Load() {
		<-g.open
	}
	return g.Conn.Write(b)
}

type gatedDialer struct {
	*fake
	last *gate
}

func (d *gatedDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.fake.DialContext(ctx, network, addr)
	d.last = &gate{Conn: c, open: make(chan struct{})}
	return d.last, err
}

// The reader of one connection that writes to another can deadlock with that one's reader.
func TestLateCallIsWrittenBySomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &gatedDialer{fake: newFake(nil)}
		n := start(t, Config{Dialer: d})
		synctest.Wait()
		d.last.shut.Store(true)
		c := newCall("ECHO", "x")
		c.Late = true
		began := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { close(d.last.open) })
		n.Submit(&c.Call)
		if time.Since(began) != 0 {
			t.Error("Submit of a late call wrote")
		}
		if <-c.done; c.Outcome != member.Answered {
			t.Errorf("%v, %v", c.Outcome, c.Err)
		}
	})
}

func TestOverflowIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		f := newFake(mute(&silent))
		n := start(t, Config{Dialer: f, MaxCalls: 10, MaxBytes: 1000})
		synctest.Wait()
		silent.Store(true)
		for range 10 {
			if c := submit(n, "X"); c.refused() {
				t.Fatalf("%v, %v", c.Outcome, c.Err)
			}
		}
		if c := submit(n, "X"); c.Outcome != member.NotSent || !errors.Is(c.Err, member.ErrOverflow) || !strings.HasPrefix(c.Err.Error(), "member:6379: ") {
			t.Errorf("11th call: %v, %v", c.Outcome, c.Err)
		}
		silent.Store(false)
		f.cut()
		time.Sleep(time.Second)
		if c := submit(n, "X", strings.Repeat("x", 1000)); !errors.Is(c.Err, member.ErrOverflow) {
			t.Errorf("1000 bytes: %v, %v", c.Outcome, c.Err)
		}
		c := submit(n, "X", strings.Repeat("x", 900))
		if <-c.done; c.Outcome != member.Answered {
			t.Errorf("900 bytes: %v, %v", c.Outcome, c.Err)
		}
	})
}

func TestCapacityComesBackWithTheAnswers(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), MaxCalls: 4, MaxBytes: 200})
	for i := range 1000 {
		if c := submit(n, "ECHO", "0123456789").wait(t); c.Outcome != member.Answered {
			t.Fatalf("call %d: %v", i, c.Err)
		}
	}
}

func TestDownMemberCostsNothing(t *testing.T) {
	f := newFake(nil)
	f.refuse = errors.New("connection refused")
	n := start(t, Config{Dialer: f, BackoffMin: time.Hour, BackoffMax: time.Hour})
	until(t, "down", func() bool { return errors.Is(n.State().Err, f.refuse) })
	c := &member.Call{Command: member.Command{Cmd: ping}, Sink: discard{}}
	allocs := testing.AllocsPerRun(1000, func() { n.Submit(c) })
	if allocs != 0 || c.Outcome != member.NotSent || !errors.Is(c.Err, member.ErrDown) || !errors.Is(c.Err, f.refuse) {
		t.Errorf("%v allocations, %v, %v", allocs, c.Outcome, c.Err)
	}
	f.set(func() {
		if len(f.dials) > 1 {
			t.Errorf("%d dials: submitting must not dial", len(f.dials))
		}
	})
}

func TestAnswerToNothingEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(_ int64, args []string) string {
			switch args[0] {
			case "TWICE":
				return ":1\r\n:2\r\n"
			case "GARBAGE":
				return "HTTP/1.1 400 Bad Request\r\n\r\n"
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		c := submit(n, "TWICE")
		<-c.done
		synctest.Wait()
		if st := n.State(); st.Up || c.Outcome != member.Answered || c.Reply.Int != 1 {
			t.Errorf("%v %+v", c.Outcome, st)
		}
		time.Sleep(time.Second)
		c = submit(n, "GARBAGE")
		if <-c.done; c.Outcome != member.Unknown || strings.Contains(c.Err.Error(), "HTTP") {
			t.Errorf("%v, %v", c.Outcome, c.Err)
		}
	})
}

func TestCallsAreExecutedInTheOrderOfTheirSubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		var want []string
		var last *result
		for i := range 500 {
			last = newCall("N", string(rune('a'+i%26)), time.Duration(i).String())
			last.Late = i%3 == 0
			want = append(want, "N "+string(rune('a'+i%26))+" "+time.Duration(i).String())
			n.Submit(&last.Call)
		}
		<-last.done
		if !slices.Equal(f.commands(), want) {
			t.Errorf("order %v", f.commands())
		}
	})
}
