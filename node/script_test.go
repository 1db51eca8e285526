package node

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

const (
	setScript = `redis.call('SET', KEYS[1], ARGV[1], 'PX', 30000) return ARGV[2] or 'no tag'`
	delScript = `return redis.call('DEL', KEYS[1])`
)

func scriptCall(source string, args ...string) *result {
	r := newCall(append([]string{"EVALSHA", scriptSHA(source), "1"}, args...)...)
	r.Marks = marks(r.Cmd, 0)
	return r
}

// marks reads a script call as a server does. Some keys behind the first one are those that all locks share.
func marks(cmd []byte, shared int) resp.Marks {
	at := bytes.IndexByte(cmd, '\n') + 1
	next := func() (text string) {
		head := bytes.IndexByte(cmd[at:], '\n') + 1
		size, _ := strconv.Atoi(string(cmd[at+1 : at+head-2]))
		text = string(cmd[at+head : at+head+size])
		at += head + size + 2
		return text
	}
	next()
	next()
	m := resp.Marks{Count: uint8(at), Sharing: uint8(shared)}
	keys, _ := strconv.Atoi(next())
	m.Own = uint8(at)
	for i := range keys {
		if next(); i == 0 {
			m.Shared = int32(at)
		}
		if i == shared {
			m.More = int32(at)
		}
		if i == keys-2 {
			m.Lean = int32(at)
		}
	}
	m.Args = int32(at)
	if shared > 0 { // bucket, and two more
		next()
		m.Owner = int32(at)
		next()
		m.Last = int32(at)
	}
	return m
}

// tagged appends the tag to the call's command, as one more argument that its header counts already.
func tagged(source string, args ...string) *result {
	r := scriptCall(source, append(args, "tag")...)
	r.Cmd, r.Tagged = r.Cmd[:len(r.Cmd)-len("$3\r\ntag\r\n")], true
	return r
}

// sent submits a call, and returns it.
func (r *result) sent(n *Node) *result { n.Submit(&r.Call); return r }

const noScript = "-NOSCRIPT No matching script. Please use EVAL.\r\n"

// setTag is for nodes without a guard, which have no tag. It lasts until the node's state changes.
func (n *Node) setTag(tag string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := *n.published.Load()
	p.tag = tag
	n.published.Store(&p)
}

func TestScriptsAreLoadedAndRepaired(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{setScript, delScript}})
	for _, step := range []string{"loaded", "flushed"} {
		if step == "flushed" {
			s.cli("SCRIPT", "FLUSH")
		}
		c := tagged(setScript, "k", "v").sent(n)
		c.is(t, member.Answered)
		require.True(t, string(c.Reply.Str) == "" && c.Reply.Kind == '$', "%s: %+v", step, c.Reply)
		n.setTag("marker 7")
		c = tagged(setScript, "k", "v").sent(n).wait(t)
		require.Equal(t, "marker 7", string(c.Reply.Str), "%s: %v", step, c.Err)
		n.setTag("")
	}
	c := scriptCall(delScript, "k").sent(n).wait(t) // was loaded again with the other
	require.EqualValues(t, 1, c.Reply.Int, "%v", c.Err)
	require.Equal(t, "[1 1]", s.cli("SCRIPT", "EXISTS", scriptSHA(setScript), scriptSHA(delScript)), "scripts at the server")
}

func TestTagIsReadWhenTheCallIsRepaired(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{setScript}})
	s.cli("SCRIPT", "FLUSH")
	s.Pause()
	c := tagged(setScript, "k", "v").sent(n)
	n.setTag("younger")
	s.Resume()
	require.Equal(t, "younger", string(c.wait(t).Reply.Str), "%v", c.Err)
}

func TestRepairSendsTheSourceOnlyAsOftenAsThereIsRoom(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		long := "-- " + strings.Repeat("x", 5000)
		var loaded bool
		var sources, calls int
		hold := make(chan struct{})
		f := newFake(nil)
		f.handle = func(_ int64, args []string) string {
			<-hold
			f.mu.Lock()
			defer f.mu.Unlock()
			switch {
			case args[0] == "EVALSHA" && !loaded:
				return "-NOSCRIPT No matching script.\r\n"
			case args[0] == "EVAL":
				sources++
				loaded = true
			}
			if strings.HasPrefix(args[0], "EVAL") {
				calls++
				return ":1\r\n"
			}
			f.mu.Unlock()
			defer f.mu.Lock()
			return "default"
		}
		close(hold)
		n := start(t, Config{Dialer: f, MaxBytes: 64 << 10, Scripts: []string{long}})
		synctest.Wait()
		hold = make(chan struct{})
		var sent []*result
		for range 200 {
			sent = append(sent, scriptCall(long, "k").sent(n))
		}
		synctest.Wait()
		close(hold)
		all(t, sent, member.Answered)
		require.True(t, sources != 0 && sources <= 13 && calls == 200, "%d of %d calls sent the source", sources, calls)
	})
}

func TestScriptOfSomebodyElseIsRefused(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{setScript}})
	scriptCall("return 'not ours'", "k").sent(n).isRefused(t, member.KindNoScript)
}

func TestRepairHappensOnce(t *testing.T) {
	refuse := func(_ int64, args []string) string {
		if strings.HasPrefix(args[0], "EVAL") {
			return noScript
		}
		return "default"
	}
	faked(t, refuse, Config{Scripts: []string{delScript}}, func(t *testing.T, f *fake, n *Node) {
		f.take()
		scriptCall(delScript, "k").sent(n).isRefused(t, member.KindNoScript)
		f.expect(t, "repair", "EVALSHA "+scriptSHA(delScript)+" 1 k", "EVAL "+delScript+" 1 k")
	})
}

// The acquire must not be executed behind its own release, where it would leave a key to nobody.
func TestEndedAttemptIsNotRepaired(t *testing.T) {
	faked(t, says("EVALSHA", noScript), Config{Scripts: []string{setScript}}, func(t *testing.T, f *fake, n *Node) {
		answer := f.hold("EVALSHA")
		f.take()
		var ended atomic.Bool
		acquire := scriptCall(setScript, "k", "v")
		acquire.Ended, acquire.OweUntil = &ended, time.Time{}
		n.Submit(&acquire.Call)
		ended.Store(true)
		release := submit(n, "DEL", "k")
		answer()
		acquire.is(t, member.NotSent, ability.ErrEnded)
		<-release.done
		synctest.Wait()
		f.expect(t, "order", "EVALSHA "+scriptSHA(setScript)+" 1 k v", "DEL k")
	})
}

// A member that forgot meanwhile must not execute what was asked of it before. A release it must.
func TestCallOfAnEndedGenerationIsNotRepaired(t *testing.T) {
	faked(t, says("EVALSHA", noScript), Config{Scripts: []string{setScript, delScript}}, func(t *testing.T, f *fake, n *Node) {
		answer := f.hold("EVALSHA")
		f.take()
		acquire, release := tagged(setScript, "k", "v"), tagged(delScript, "k")
		release.Always = true
		submitAll(n, acquire, release)
		n.change(func(p *published) { p.state.Gen++ })
		answer()
		acquire.is(t, member.NotSent, ability.ErrEnded)
		release.is(t, member.Answered)
		require.NotContains(t, strings.Join(f.take(), "\n"), "EVAL "+setScript)
	})
}

func TestWrongScriptKeepsTheMemberDown(t *testing.T) {
	s := startRedis(t)
	n := start(t, Config{Addr: s.Addr(), Scripts: []string{"return )"}})
	rt.Until(t, "refused", func() bool { return !errors.Is(n.State().Err, errConnecting) })
	require.True(t, !n.State().Up && strings.Contains(n.State().Err.Error(), "SCRIPT LOAD"), "state %+v", n.State())
}

func TestPreloadedScriptsAreThereAndOthersComeWithTheirFirstCall(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{setScript, delScript}, Preload: 1})
	exist := func() string { return s.cli("SCRIPT", "EXISTS", scriptSHA(setScript), scriptSHA(delScript)) }
	require.Equal(t, "[1 0]", exist(), "after the handshake")
	scriptCall(delScript, "k").sent(n).is(t, member.Answered)
	require.Equal(t, "[1 1]", exist(), "after the call")
	require.Error(t, rt.Err(New(Config{Addr: s.Addr(), Preload: -1})), "a negative Preload was taken")
}

func TestForbiddenScriptLoadIsDoneWithout(t *testing.T) {
	s := startRedis(t)
	s.cli("ACL", "SETUSER", "default", "-script")
	var log logBuffer
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{delScript}, Logger: log.logger()})
	for range 2 {
		scriptCall(delScript, "k").sent(n).is(t, member.Answered)
	}
	require.Contains(t, log.String(), "SCRIPT LOAD")
}

// A server that has the scripts is not sent them again: at thousands of connections they are what costs most.
func TestScriptsAreSentToAServerThatLacksThem(t *testing.T) {
	for name, tc := range map[string]struct {
		exists string // answer to SCRIPT EXISTS
		want   []int  // LOADs, of these two: of the first connection, of another, and of one behind SCRIPT FLUSH
	}{
		"asked":         {"default", []int{2, 0, 2}},
		"not permitted": {"-NOPERM this user has no permissions to run the 'script|exists' command\r\n", []int{2, 2, 2}},
		"no array":      {"+OK\r\n", []int{2, 2, 2}},
	} {
		t.Run(name, faketime.In(func(t *testing.T) {
			loads := 0 // under f.mu
			var f *fake
			f = newFake(func(_ int64, args []string) string {
				switch {
				case args[0] == "SCRIPT" && args[1] == "EXISTS":
					return tc.exists
				case args[0] == "SCRIPT":
					f.set(func() { loads++ })
				}
				return "default"
			})
			n := start(t, Config{Dialer: f, Scripts: []string{setScript, delScript}})
			for i, want := range tc.want {
				time.Sleep(time.Second)
				f.set(func() {
					st := n.State()
					require.True(t, st.Up && st.Epoch == uint64(i+1) && loads == want,
						"connection %d: %d loads, want %d; state %+v", i+1, loads, want, st)
					if loads = 0; i == 1 {
						f.loaded = ""
					}
				})
				f.cut()
			}
		}))
	}
}
