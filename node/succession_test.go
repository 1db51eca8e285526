package node

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// lateWrite breaks a connection while a SET is on its way, waits for the next connection, deletes the key there, lets the SET
// arrive, and tells whether the key is there afterwards.
func lateWrite(t *testing.T, forbidden bool) (executed bool, said string) {
	faketime.Test(t, func(t *testing.T) {
		s := rt.Embedded(t, 1).Servers[0]
		if forbidden {
			s.Faults().Fail(redistest.Named("CLIENT KILL"), -1, "NOPERM this user has no permissions to run the 'client|kill' command")
		}
		s.Faults().ZombieOn(redistest.WithArg("late"), 1, 10*time.Second)
		var log logBuffer
		n := start(t, Config{Dialer: s.Dialer(), Logger: log.logger()})
		synctest.Wait()
		submit(n, "SET", "late", "1", "PX", "30000").is(t, member.Unknown, member.ErrBroken)
		require.True(t, n.State().Epoch != 1 || !n.State().Up, "up after a call of the connection was told that it broke")
		time.Sleep(time.Second)
		require.True(t, n.State().Up && n.State().Epoch == 2 && n.State().Gen == 1, "state %+v", n.State())
		do(t, n, "DEL", "late")
		time.Sleep(10 * time.Second)
		executed, said = do(t, n, "EXISTS", "late") == "1", log.String()
	})
	return executed, said
}

func TestNothingOfABrokenConnectionIsExecutedLater(t *testing.T) {
	executed, _ := lateWrite(t, false)
	require.False(t, executed, "behind the clean-up")
}

// The counterpart: without the kill the late write is executed, and the operator is told.
func TestForbiddenKillIsToldOnce(t *testing.T) {
	executed, said := lateWrite(t, true)
	require.True(t, executed, "the test above proves nothing")
	require.Equal(t, 1, strings.Count(said, "CLIENT KILL"), said)
	require.Contains(t, said, "TTL")
}

// logBuffer collects a log.
type logBuffer struct{ rt.Text }

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestPredecessorsAreKilledOnlyInTheSameProcess(t *testing.T) {
	faked(t, nil, Config{}, func(t *testing.T, f *fake, n *Node) {
		f.lags = true
		f.expect(t, "first connection", "CLIENT ID", "INFO server")
		f.cut()
		time.Sleep(time.Second)
		f.expect(t, "same process", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "CLIENT KILL ID 1")
		f.cut()
		time.Sleep(time.Second)
		f.expect(t, "killed ones are forgotten", "CLIENT ID", "INFO server", "CLIENT LIST ID 2", "CLIENT KILL ID 2")
		assert.True(t, n.State().Gen == 1 && n.State().Epoch == 3, "state %+v", n.State())
		f.set(func() { f.runID = "run-2" })
		f.cut()
		time.Sleep(time.Second)
		f.expect(t, "restarted", "CLIENT ID", "INFO server", "CLIENT LIST ID 3")
		assert.True(t, n.State().Gen == 2 && n.State().Epoch == 4 && n.State().RunID == "run-2", "state %+v", n.State())
		f.cut()
		time.Sleep(time.Second)
		f.expect(t, "after the restart", "CLIENT ID", "INFO server", "CLIENT LIST ID 4", "CLIENT KILL ID 4")
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
		t.Run(name, playing(says("CLIENT LIST", tc.says), Config{}, func(t *testing.T, f *fake, n *Node) {
			f.cut()
			time.Sleep(time.Second)
			require.True(t, n.State().Up && n.State().Epoch == 2, "%+v", n.State())
			f.set(func() { require.Equal(t, tc.kills, f.killed) })
		}))
	}
}

func TestUnknownKillIsRepeated(t *testing.T) {
	faked(t, nil, Config{DialTimeout: time.Second, jitter: longest}, func(t *testing.T, f *fake, n *Node) {
		f.set(func() { f.lags, f.handle = true, says("CLIENT KILL", "") })
		f.take()
		f.cut()
		time.Sleep(time.Second) // 50 ms, then the handshake waits for the kill
		require.False(t, n.State().Up, "up before the kill was answered")
		f.expect(t, "first try", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "CLIENT KILL ID 1")
		f.set(func() { f.handle = nil })
		time.Sleep(time.Second)
		f.expect(t, "second try", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "CLIENT KILL ID 1")
		require.True(t, n.State().Up, "not up")
	})
}

func TestServerWithoutIdentityIsUsedButNobodyIsKilled(t *testing.T) {
	for name, denied := range map[string]string{
		"CLIENT": "-NOPERM this user has no permissions to run the 'client|id' command\r\n",
		"INFO":   "-ERR unknown command 'INFO', with args beginning with: 'server' \r\n",
	} {
		var log logBuffer
		t.Run(name, playing(says(name, denied), Config{Logger: log.logger()}, func(t *testing.T, f *fake, n *Node) {
			for range 3 {
				f.cut()
				time.Sleep(time.Second)
			}
			require.True(t, n.State().Up && n.State().Gen == 1 && n.State().Epoch == 4, "state %+v", n.State())
			require.NotContains(t, strings.Join(f.take(), " "), "KILL")
			require.Equal(t, 1, strings.Count(log.String(), "does not permit"), log.String())
		}))
	}
}

func TestLoadingServerIsNotUp(t *testing.T) {
	faked(t, says("PING", "-LOADING Redis is loading the dataset in memory\r\n"), Config{}, func(t *testing.T, f *fake, n *Node) {
		time.Sleep(time.Second)
		var refused *member.ReplyError
		require.False(t, n.State().Up)
		require.ErrorAs(t, n.State().Err, &refused)
		require.Equal(t, member.KindLoading, refused.Kind)
		f.set(func() { f.handle = nil })
		time.Sleep(2 * time.Second)
		require.True(t, n.State().Up, "state %+v", n.State())
	})
}

// release is a call whose outcome is owed for a while.
func release(name string, owe time.Duration) *result {
	r := newCall("RELEASE", name)
	r.OweUntil = time.Now().Add(owe)
	return r
}

func TestOwedReleaseComesFirstOnTheNextConnection(t *testing.T) {
	faked(t, nil, Config{jitter: longest}, func(t *testing.T, f *fake, n *Node) {
		f.lags = true
		f.take()
		f.silence(true)
		acquire := submit(n, "ACQUIRE", "a")
		unknown := release("a", time.Minute).sent(n)
		synctest.Wait()
		f.cut()
		<-acquire.done
		unknown.is(t, member.Unknown)
		for i := range unknown.Cmd { // it is ours again
			unknown.Cmd[i] = '?'
		}
		release("b", time.Minute).sent(n).isAtOnce(t, member.NotSent, member.ErrDown)
		release("c", 40*time.Millisecond).sent(n) // a server that was stopped grants its lock when the connection is back
		f.expect(t, "old connection", "ACQUIRE a", "RELEASE a")
		f.silence(false)
		synctest.Wait()
		time.Sleep(time.Second)
		submit(n, "NEW")
		synctest.Wait()
		f.expect(t, "new connection", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "CLIENT KILL ID 1", "RELEASE a", "RELEASE b", "RELEASE c", "NEW")
		f.cut()
		time.Sleep(time.Second)
		f.expect(t, "paid debts are forgotten", "CLIENT ID", "INFO server", "CLIENT LIST ID 2", "CLIENT KILL ID 2")
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
	faked(t, says("SUBSCRIBE", ""), Config{}, func(t *testing.T, f *fake, n *Node) {
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
		require.Equal(t, []string{"RELEASE a", "RELEASE b", "RELEASE c", "NEW"}, f.commands(), "order")
	})
}

func TestOwedReleaseIsSentAgainUntilAnswered(t *testing.T) {
	faked(t, says("RELEASE", ""), Config{jitter: longest}, func(t *testing.T, f *fake, n *Node) {
		f.take()
		r := release("a", 3500*time.Millisecond).sent(n)
		for range 6 {
			synctest.Wait()
			f.cut()
			time.Sleep(time.Second)
		}
		<-r.done
		require.Equal(t, 1, r.count)
		sent := slices.DeleteFunc(f.take(), func(line string) bool { return line != "RELEASE a" })
		require.Len(t, sent, 6, "at 0, and on the connections of 0.05, 1.05, 2.05 and 3.05 s, and once after its time")
	})
}

func TestRefusalThatPassesKeepsTheDebt(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		f := newFake(says("RELEASE", "-BUSY Redis is busy running a script.\r\n"))
		f.refuse = errors.New("no route to host")
		n := start(t, Config{Dialer: f, PingInterval: time.Second, jitter: longest})
		synctest.Wait()
		release("a", time.Minute).sent(n)
		f.set(func() { f.refuse = nil })
		time.Sleep(2500 * time.Millisecond)
		require.Len(t, f.take(), 2+6, "behind the handshake, after 62, 125, 250, 500 and 1000 ms")
		f.set(func() { f.handle = nil })
		time.Sleep(5 * time.Second)
		f.expect(t, "when it has passed", "RELEASE a")
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
		t.Run(strings.Fields(refusal)[0], faketime.In(func(t *testing.T) {
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
			release("a", time.Minute).sent(n).is(t, member.Refused)
			time.Sleep(10 * time.Second)
			ms := time.Millisecond
			want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms} // a pause that is doubled each time
			if !owed {
				want = want[:1]
			}
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, tries)
		}))
	}
}

// What one server refused is not held back from the one that takes its place.
func TestRefusedReleaseIsFirstOnTheNextConnection(t *testing.T) {
	readOnly := says("RELEASE", "-READONLY You can't write against a read only replica.\r\n")
	faked(t, readOnly, Config{PingInterval: time.Hour, jitter: longest}, func(t *testing.T, f *fake, n *Node) {
		release("a", time.Minute).sent(n)
		synctest.Wait()
		f.set(func() { f.runID, f.handle = "run-2", nil })
		f.take()
		f.cut()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		f.expect(t, "its successor", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "RELEASE a")
	})
}

func TestReleasesOfManyLeasesThatEndAtOnceAreAllPaid(t *testing.T) {
	const leases = 30000
	var paid atomic.Int64
	count := func(_ int64, args []string) string {
		if args[0] == "RELEASE" {
			paid.Add(1)
			return ":1\r\n"
		}
		return "default"
	}
	faked(t, count, Config{}, func(t *testing.T, f *fake, n *Node) {
		hold := f.hold("HOLD")
		submit(n, "HOLD")
		name := strings.Repeat("n", 700) // and the keys of its queue and its counters
		for range leases {
			cmd := resp.Command("RELEASE", name)
			n.Submit(&member.Call{Command: member.Command{Cmd: cmd}, Delivery: member.Delivery{OweUntil: time.Now().Add(time.Minute), Late: true}, Sink: discard{}})
		}
		calls, size := n.published.Load().session.inFlight()
		require.True(t, size <= 1<<20 && calls <= 16384, "%d calls of %d bytes in line", calls, size)
		began := time.Now()
		hold()
		for n.owed.any(time.Now()) && time.Since(began) < time.Minute {
			time.Sleep(room)
			synctest.Wait()
		}
		require.EqualValues(t, leases, paid.Load())
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
	})
}

func TestReleaseThatFoundTheLineFullIsOwed(t *testing.T) {
	faked(t, nil, Config{maxCalls: 2}, func(t *testing.T, f *fake, n *Node) {
		hold := f.hold("HOLD")
		f.take()
		submit(n, "HOLD")
		submit(n, "X")
		release("a", time.Minute).sent(n).isAtOnce(t, member.NotSent, member.ErrOverflow)
		time.Sleep(500 * time.Millisecond)
		hold()
		time.Sleep(50 * time.Millisecond)
		f.expect(t, "when there is room", "HOLD", "X", "RELEASE a")
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
	require.Equal(t, []string{"c", "d", "e"}, left())
	require.Equal(t, 1, drops)
	add("f" + strings.Repeat("x", 997))
	require.Contains(t, [][]string{{"d", "e", "f"}, {"e", "f"}}, left())
	debts, _ := o.due(now, math.MaxInt, false)
	for _, d := range debts { // also while they are on the wire
		add("g")
		d.call.Outcome = member.Answered
		d.Done(&d.call)
	}
	require.True(t, o.count == len(left()) && o.count <= 3 && !o.any(now.Add(time.Hour)), "%d left", o.count)
	o.due(now.Add(time.Hour), math.MaxInt, false)
	require.True(t, o.count == 0 && o.bytes == 0 && o.first == nil && o.last == nil, "%d debts of %d bytes after their time", o.count, o.bytes)
}

func TestNoDebtIsLostInTheMomentOfABreak(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), backoffMin: time.Millisecond, backoffMax: time.Millisecond})
	stop := killing(s)
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
	stop()
	rt.Until(t, "up", func() bool { return n.State().Up && !n.owed.any(time.Now()) })
	require.NoError(t, n.Close(patient(t)))
	require.Equal(t, strconv.FormatInt(sent.Load(), 10), s.cli("SCARD", "released"))
}
