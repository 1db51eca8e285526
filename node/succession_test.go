package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
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

// lateWrite breaks a connection while a SET is on its way, waits for the next connection, deletes the
// key there, lets the SET arrive, and returns whether the key is there afterwards.
func lateWrite(t *testing.T, s *redisServer, c Config) bool {
	p := startProxy(t, s.addr())
	c.Addr = p.addr()
	n := up(t, c)
	p.holdAll()
	write := submit(n, "SET", "late", "1", "PX", "30000")
	until(t, "at the proxy", func() bool { return p.holds() >= len(write.Cmd) })
	p.breakOff()
	if write.wait(t); write.Outcome != member.Unknown || !errors.Is(write.Err, member.ErrBroken) {
		t.Fatalf("%v, %v", write.Outcome, write.Err)
	}
	if n.State().Epoch == 1 && n.State().Up {
		t.Error("up after a call of the connection was told that it broke")
	}
	until(t, "up again", func() bool { return n.State().Up })
	if st := n.State(); st.Epoch != 2 || st.Gen != 1 {
		t.Errorf("state %+v", st)
	}
	do(t, n, "DEL", "late")
	p.let()
	for range 30 {
		if do(t, n, "EXISTS", "late") == "1" {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

func TestNothingOfABrokenConnectionIsExecutedLater(t *testing.T) {
	s := startRedis(t)
	for range 5 {
		if lateWrite(t, s, Config{}) {
			t.Fatal("the late write was executed behind the clean-up")
		}
	}
}

// The counterpart: without the kill the late write is executed, and the operator is told.
func TestForbiddenKillIsToldOnce(t *testing.T) {
	s := startRedis(t)
	s.cli("ACL", "SETUSER", "default", "-client", "+client|id", "+client|setname")
	var log logBuffer
	if !lateWrite(t, s, Config{Logger: log.logger()}) {
		t.Error("the late write was not executed: the test above proves nothing")
	}
	if text := log.String(); strings.Count(text, "CLIENT KILL") != 1 || !strings.Contains(text, "TTL") {
		t.Errorf("log:\n%s", text)
	}
}

// logBuffer collects a log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// history records what a fake is sent, handshakes included.
type history struct {
	mu    sync.Mutex
	lines []string
}

func (h *history) record(handle func(id int64, args []string) string) func(int64, []string) string {
	return func(id int64, args []string) string {
		if args[0] != "PING" && args[0] != "HELLO" {
			h.mu.Lock()
			h.lines = append(h.lines, strings.Join(args, " "))
			h.mu.Unlock()
		}
		if handle == nil {
			return "default"
		}
		return handle(id, args)
	}
}

func (h *history) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

func (h *history) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := h.take(); !slices.Equal(got, want) {
		t.Errorf("%s: the server got %q, want %q", what, got, want)
	}
}

func TestPredecessorsAreKilledOnlyInTheSameProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		f := newFake(h.record(nil))
		f.lags = true
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		h.expect(t, "first connection", "CLIENT ID", "INFO server")
		f.cut()
		time.Sleep(time.Second)
		h.expect(t, "same process", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "CLIENT KILL ID 1")
		f.cut()
		time.Sleep(time.Second)
		h.expect(t, "killed ones are forgotten", "CLIENT ID", "INFO server", "CLIENT LIST ID 2", "CLIENT KILL ID 2")
		if st := n.State(); st.Gen != 1 || st.Epoch != 3 {
			t.Errorf("state %+v", st)
		}
		f.set(func() { f.runID = "run-2" })
		f.cut()
		time.Sleep(time.Second)
		h.expect(t, "restarted", "CLIENT ID", "INFO server", "CLIENT LIST ID 3")
		if st := n.State(); st.Gen != 2 || st.Epoch != 4 || st.RunID != "run-2" {
			t.Errorf("state %+v", st)
		}
		f.cut()
		time.Sleep(time.Second)
		h.expect(t, "after the restart", "CLIENT ID", "INFO server", "CLIENT LIST ID 4", "CLIENT KILL ID 4")
	})
}

// A server looks at all its connections to kill one. It need not where it has that one no more.
func TestPredecessorThatIsGoneIsNotKilled(t *testing.T) {
	for name, tc := range map[string]struct {
		says  string // to CLIENT LIST ID
		kills []int64
	}{
		"gone":          {bulk(""), nil},
		"gone, RESP3":   {"=4\r\ntxt:\r\n", nil},
		"there":         {bulk("id=1 addr=127.0.0.1:1\n"), []int64{1}},
		"null":          {"$-1\r\n", []int64{1}},
		"not permitted": {"-NOPERM this user has no permissions to run the 'client|list' command\r\n", []int64{1}},
		"not known":     {"-ERR syntax error\r\n", []int64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(func(_ int64, args []string) string {
					if args[0] == "CLIENT" && args[1] == "LIST" {
						return tc.says
					}
					return "default"
				})
				n := start(t, Config{Dialer: f})
				synctest.Wait()
				f.cut()
				time.Sleep(time.Second)
				f.set(func() {
					if st := n.State(); !st.Up || st.Epoch != 2 || !slices.Equal(f.killed, tc.kills) {
						t.Errorf("killed %v, state %+v", f.killed, st)
					}
				})
			})
		})
	}
}

func TestUnknownKillIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		var silent atomic.Bool
		f := newFake(h.record(func(_ int64, args []string) string {
			if args[0] == "CLIENT" && args[1] == "KILL" && silent.Load() {
				return ""
			}
			return "default"
		}))
		f.lags = true
		n := start(t, Config{Dialer: f, DialTimeout: time.Second, jitter: longest})
		synctest.Wait()
		silent.Store(true)
		h.take()
		f.cut()
		time.Sleep(time.Second) // 50 ms, then the handshake waits for the kill
		if n.State().Up {
			t.Error("up before the kill was answered")
		}
		h.expect(t, "first try", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "CLIENT KILL ID 1")
		silent.Store(false)
		time.Sleep(time.Second)
		h.expect(t, "second try", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "CLIENT KILL ID 1")
		if !n.State().Up {
			t.Error("not up")
		}
	})
}

func TestServerWithoutIdentityIsUsedButNobodyIsKilled(t *testing.T) {
	for name, denied := range map[string]string{
		"CLIENT": "-NOPERM this user has no permissions to run the 'client|id' command\r\n",
		"INFO":   "-ERR unknown command 'INFO', with args beginning with: 'server' \r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h history
				f := newFake(h.record(func(_ int64, args []string) string {
					if args[0] == name {
						return denied
					}
					return "default"
				}))
				var log logBuffer
				n := start(t, Config{Dialer: f, Logger: log.logger()})
				synctest.Wait()
				for range 3 {
					f.cut()
					time.Sleep(time.Second)
				}
				if st := n.State(); !st.Up || st.Gen != 1 || st.Epoch != 4 {
					t.Errorf("state %+v", st)
				}
				if got := strings.Join(h.take(), " "); strings.Contains(got, "KILL") {
					t.Errorf("sent %s", got)
				}
				if strings.Count(log.String(), "does not permit") != 1 {
					t.Errorf("log:\n%s", log.String())
				}
			})
		})
	}
}

func TestLoadingServerIsNotUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loading atomic.Bool
		loading.Store(true)
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "PING" && loading.Load() {
				return "-LOADING Redis is loading the dataset in memory\r\n"
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		time.Sleep(time.Second)
		var refused *member.ReplyError
		if st := n.State(); st.Up || !errors.As(st.Err, &refused) || refused.Kind != member.KindLoading {
			t.Errorf("state %+v", st)
		}
		loading.Store(false)
		time.Sleep(2 * time.Second)
		if !n.State().Up {
			t.Errorf("state %+v", n.State())
		}
	})
}

// release is a call whose outcome is owed for a while.
func release(name string, owe time.Duration) *result {
	r := newCall("RELEASE", name)
	r.OweUntil = time.Now().Add(owe)
	return r
}

func TestOwedReleaseComesFirstOnTheNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		var silent atomic.Bool
		f := newFake(h.record(mute(&silent)))
		f.lags = true
		n := start(t, Config{Dialer: f, jitter: longest})
		synctest.Wait()
		h.take()
		silent.Store(true)
		acquire := submit(n, "ACQUIRE", "a")
		unknown := release("a", time.Minute)
		n.Submit(&unknown.Call)
		synctest.Wait()
		f.cut()
		<-acquire.done
		if <-unknown.done; unknown.Outcome != member.Unknown {
			t.Fatalf("%v, %v", unknown.Outcome, unknown.Err)
		}
		for i := range unknown.Cmd { // it is ours again
			unknown.Cmd[i] = '?'
		}
		down := release("b", time.Minute)
		n.Submit(&down.Call)
		short := release("c", 40*time.Millisecond) // its lock is gone when the connection is back
		n.Submit(&short.Call)
		if down.Outcome != member.NotSent || !errors.Is(down.Err, member.ErrDown) {
			t.Fatalf("%v, %v", down.Outcome, down.Err)
		}
		h.expect(t, "old connection", "ACQUIRE a", "RELEASE a")
		silent.Store(false)
		synctest.Wait()
		time.Sleep(time.Second)
		submit(n, "NEW")
		synctest.Wait()
		h.expect(t, "new connection", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "CLIENT KILL ID 1", "RELEASE a", "RELEASE b", "NEW")
		f.cut()
		time.Sleep(time.Second)
		h.expect(t, "paid debts are forgotten", "CLIENT ID", "INFO server", "CLIENT LIST ID 2", "CLIENT KILL ID 2")
	})
}

// upCall is a Listener that submits a call in the moment in which the member is up.
type upCall struct {
	n    *Node
	call *result
}

func (l *upCall) Push([]byte, member.State, time.Time) {}
func (l *upCall) Changed(st member.State) {
	if st.Up && st.Epoch == 2 && !st.Inbox {
		l.n.Submit(&l.call.Call)
	}
}

func TestNoNewCallOvertakesAnOwedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "SUBSCRIBE" {
				return ""
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		l := &upCall{n, newCall("NEW")}
		l.call.Late = true
		n.Listen("ch", l)
		synctest.Wait()
		f.cut()
		synctest.Wait()
		for _, name := range []string{"a", "b", "c"} {
			n.Submit(&release(name, time.Minute).Call)
		}
		<-l.call.done
		if got := f.commands(); !slices.Equal(got, []string{"RELEASE a", "RELEASE b", "RELEASE c", "NEW"}) {
			t.Errorf("order %q", got)
		}
	})
}

func TestOwedReleaseIsSentAgainUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		f := newFake(h.record(func(_ int64, args []string) string {
			if args[0] == "RELEASE" {
				return ""
			}
			return "default"
		}))
		n := start(t, Config{Dialer: f, jitter: longest})
		synctest.Wait()
		r := release("a", 3500*time.Millisecond)
		n.Submit(&r.Call)
		count := 0
		for range 6 {
			synctest.Wait()
			for _, line := range h.take() {
				if line == "RELEASE a" {
					count++
				}
			}
			f.cut()
			time.Sleep(time.Second)
		}
		if <-r.done; r.count != 1 || count != 5 { // at 0, and on the connections of 0.05, 1.05, 2.05 and 3.05 s
			t.Errorf("sent %d times, done %d times", count, r.count)
		}
	})
}

func TestRefusalThatPassesKeepsTheDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		var busy atomic.Bool
		f := newFake(h.record(func(_ int64, args []string) string {
			if args[0] == "RELEASE" && busy.Load() {
				return "-BUSY Redis is busy running a script.\r\n"
			}
			return "default"
		}))
		f.refuse = errors.New("no route to host")
		n := start(t, Config{Dialer: f, PingInterval: time.Second, jitter: longest})
		synctest.Wait()
		r := release("a", time.Minute)
		n.Submit(&r.Call)
		busy.Store(true)
		f.set(func() { f.refuse = nil })
		time.Sleep(2500 * time.Millisecond)
		if tries := len(h.take()) - 2; tries != 6 { // after 62, 125, 250, 500 and 1000 ms
			t.Errorf("%d tries in 2.5 s", tries)
		}
		busy.Store(false)
		time.Sleep(5 * time.Second)
		h.expect(t, "when it has passed", "RELEASE a")
	})
}

// What a server refuses because of its state is owed; what it forbids, or does not know, never is.
func TestReleaseRefusedForAPassingReasonIsOwed(t *testing.T) {
	for refusal, owed := range map[string]bool{
		"NOREPLICAS Not enough good replicas to write.":                      true,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL": true,
		"MISCONF Redis is configured to save RDB snapshots":                  true,
		"OOM command not allowed when used memory > 'maxmemory'.":            true,
		"READONLY You can't write against a read only replica.":              true,
		"LOADING Redis is loading the dataset in memory":                     true,
		"MASTERDOWN Link with MASTER is down":                                true,
		"CLUSTERDOWN The cluster is down":                                    true,
		"NOPERM this user has no permissions to run the 'evalsha' command":   false,
		"ERR something else": false,
		"WRONGTYPE Operation against a key holding the wrong kind of value": false,
		"FORGOT marker": false, // the vote is freed
	} {
		t.Run(strings.Fields(refusal)[0], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var tries []time.Duration
				began := time.Now()
				f := newFake(nil)
				f.handle = func(_ int64, args []string) string {
					mu.Lock()
					defer mu.Unlock()
					if args[0] == "RELEASE" {
						tries = append(tries, time.Since(began))
						if len(tries) <= 3 {
							return "-" + refusal + "\r\n"
						}
					}
					return "default"
				}
				n := start(t, Config{Dialer: f, PingInterval: 1600 * time.Millisecond})
				synctest.Wait()
				r := release("a", time.Minute)
				n.Submit(&r.Call)
				if <-r.done; r.Outcome != member.Refused {
					t.Fatalf("%v, %v", r.Outcome, r.Err)
				}
				time.Sleep(10 * time.Second)
				ms := time.Millisecond
				want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms} // a pause that is doubled each time
				if !owed {
					want = want[:1]
				}
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(tries, want) {
					t.Errorf("tried at %v, want %v", tries, want)
				}
			})
		})
	}
}

// What one server refused is not held back from the one that takes its place.
func TestRefusedReleaseIsFirstOnTheNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		f := newFake(h.record(func(id int64, args []string) string {
			if args[0] == "RELEASE" && id == 1 {
				return "-READONLY You can't write against a read only replica.\r\n"
			}
			return "default"
		}))
		n := start(t, Config{Dialer: f, PingInterval: time.Hour, jitter: longest})
		synctest.Wait()
		n.Submit(&release("a", time.Minute).Call)
		synctest.Wait()
		f.set(func() { f.runID = "run-2" })
		h.take()
		f.cut()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		h.expect(t, "its successor", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "RELEASE a")
	})
}

// A client whose leases all end at once, at a member that hangs meanwhile, owes more releases than the line takes.
func TestReleasesOfAHundredThousandLeasesThatEndAtOnceAreAllPaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 100000
		hold := make(chan struct{})
		var paid atomic.Int64
		f := newFake(func(_ int64, args []string) string {
			switch args[0] {
			case "HOLD":
				<-hold
			case "RELEASE":
				paid.Add(1)
				return ":1\r\n"
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		submit(n, "HOLD")
		name := strings.Repeat("n", 300) // and the keys of its queue and its counters
		for range leases {
			cmd := resp.Command("RELEASE", name)
			n.Submit(&member.Call{Command: member.Command{Cmd: cmd}, Delivery: member.Delivery{OweUntil: time.Now().Add(time.Minute), Late: true}, Sink: discard{}})
		}
		if calls, size := n.published.Load().session.inFlight(); size > 1<<20 || calls > 16384 {
			t.Errorf("%d calls of %d bytes in line", calls, size)
		}
		began := time.Now()
		close(hold)
		for n.owed.any(time.Now()) && time.Since(began) < time.Minute {
			time.Sleep(room)
			synctest.Wait()
		}
		if got := paid.Load(); got != leases {
			t.Errorf("%d of %d releases were executed", got, leases)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("that took %v", took)
		}
	})
}

func TestReleaseThatFoundTheLineFullIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		hold := make(chan struct{})
		f := newFake(h.record(func(_ int64, args []string) string {
			if args[0] == "HOLD" {
				<-hold
			}
			return "default"
		}))
		n := start(t, Config{Dialer: f, MaxCalls: 2})
		synctest.Wait()
		h.take()
		submit(n, "HOLD")
		submit(n, "X")
		r := release("a", time.Minute)
		n.Submit(&r.Call)
		if !errors.Is(r.Err, member.ErrOverflow) {
			t.Fatalf("%v, %v", r.Outcome, r.Err)
		}
		time.Sleep(500 * time.Millisecond)
		close(hold)
		time.Sleep(50 * time.Millisecond)
		h.expect(t, "when there is room", "HOLD", "X", "RELEASE a")
	})
}

func TestDebtsAreBounded(t *testing.T) {
	drops := 0
	o := newOwed(time.Second, time.Second, func() { drops++ })
	o.cmdLimit, o.byteLimit = 3, 1000
	now := time.Now()
	add := func(cmd string) {
		o.add(&member.Call{Command: member.Command{Cmd: []byte(cmd)}, Delivery: member.Delivery{OweUntil: now.Add(time.Minute)}})
	}
	left := func() (cmds []string) {
		debts, _ := o.due(now, math.MaxInt, false)
		for _, d := range debts {
			cmds = append(cmds, string(d.call.Cmd[:1]))
		}
		o.release(debts)
		return cmds
	}
	for _, cmd := range []string{"a", "b", "c", "d", "e"} {
		add(cmd)
	}
	if got := left(); !slices.Equal(got, []string{"c", "d", "e"}) || drops != 1 {
		t.Errorf("left %v, told %d times", got, drops)
	}
	add("f" + strings.Repeat("x", 997))
	if got := left(); !slices.Equal(got, []string{"d", "e", "f"}) && !slices.Equal(got, []string{"e", "f"}) {
		t.Errorf("left %v", got)
	}
	debts, _ := o.due(now, math.MaxInt, false)
	for _, d := range debts { // also while they are on the wire
		add("g")
		d.call.Outcome = member.Answered
		d.Done(&d.call)
	}
	if o.count != len(left()) || o.count > 3 || o.any(now.Add(time.Hour)) {
		t.Errorf("%d left", o.count)
	}
	o.due(now.Add(time.Hour), math.MaxInt, false)
	if o.count != 0 || o.bytes != 0 || o.first != nil || o.last != nil {
		t.Errorf("%d debts of %d bytes after their time", o.count, o.bytes)
	}
}

func TestManyDebtsAreAllPaid(t *testing.T) {
	s := startRedis(t)
	p := startProxy(t, s.addr())
	n := up(t, Config{Addr: p.addr()})
	p.holdAll()
	const debts = 30000
	for i := range debts {
		c := &member.Call{Command: member.Command{Cmd: resp.Command("INCR", "paid")}, Delivery: member.Delivery{OweUntil: time.Now().Add(time.Minute)}, Sink: discard{}}
		c.Late = i%2 == 0
		n.Submit(c)
	}
	p.breakOff()
	until(t, "paid", func() bool { return s.cli("GET", "paid") == "30000" })
	until(t, "told so", func() bool { return !n.owed.any(time.Now()) })
	if got := s.cli("GET", "paid"); got != "30000" || n.State().Epoch != 2 {
		t.Errorf("paid %s, %+v", got, n.State())
	}
}

// Submitting to a connection in the moment it breaks never loses a debt.
func TestNoDebtIsLostInTheMomentOfABreak(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), BackoffMin: time.Millisecond, BackoffMax: time.Millisecond})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				s.cli("CLIENT", "KILL", "TYPE", "normal")
			}
		}
	})
	var sent atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 2000 {
				// SADD of a fresh member: executed once or twice, it counts once.
				c := newCall("SADD", "released", "m"+time.Duration(sent.Add(1)).String())
				c.OweUntil = time.Now().Add(time.Minute)
				n.Submit(&c.Call)
				<-c.done
			}
		})
	}
	callers.Wait()
	close(stop)
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	until(t, "up", func() bool { return n.State().Up && !n.owed.any(time.Now()) })
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
	if got := s.cli("SCARD", "released"); got != show(member.Reply{Kind: ':', Int: sent.Load()}) {
		t.Errorf("%s of %d releases were executed", got, sent.Load())
	}
}
