package node

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

func pushOf(parts ...string) string {
	out := fmt.Sprintf(">%d\r\n", len(parts))
	for _, p := range parts {
		if p == "1" {
			out += ":1\r\n"
		} else {
			out += bulk(p)
		}
	}
	return out
}

// say sends something on every connection there is.
func (f *fake) say(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_, _ = c.Write([]byte(what))
	}
}

// talkative is a pushLog that hears other channels, too.
type talkative struct {
	pushLog
	heard []string
}

func (l *talkative) Channel(channel string, msg []byte, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, channel+"="+string(msg))
}

func TestOneConnectionCarriesCommandsAndMessages(t *testing.T) {
	faked(t, nil, Config{}, func(t *testing.T, f *fake, n *Node) {
		var l talkative
		n.Listen("ch", &l)
		n.Subscribe("a", "b")
		synctest.Wait()
		require.True(t, n.State().Inbox && n.State().Ear != 0, "%+v", n.State())
		require.Len(t, f.dialled(), 1)
		f.say(pushOf("message", "ch", "one"))
		synctest.Wait()
		c := submit(n, "ECHO", "x")
		f.say(pushOf("message", "ch", "two") + pushOf("message", "b", "three") + pushOf("invalidate", "k"))
		synctest.Wait()
		c.is(t, member.Answered)
		require.Equal(t, "x", show(c.Reply))
		n.Unsubscribe("a")
		synctest.Wait()
		require.Equal(t, []string{"one", "two"}, l.messages(), "delivered")
		slices.Sort(l.heard)
		require.Equal(t, []string{"a=", "b=", "b=three"}, l.heard)
		// The connection is lost: so is the inbox, until it is subscribed on the next one.
		ear := n.State().Ear
		f.set(func() { f.handle = says("SUBSCRIBE", "") })
		f.cut()
		time.Sleep(time.Second)
		require.True(t, n.State().Up && !n.State().Inbox, "before the confirmation: %+v", n.State())
		f.say(pushOf("subscribe", "ch", "1"))
		synctest.Wait()
		require.True(t, n.State().Inbox && n.State().Ear != ear, "after the confirmation: %+v", n.State())
	})
}

// A message from before the confirmation is of a generation that may have ended.
func TestMessageBeforeTheConfirmationIsDropped(t *testing.T) {
	faked(t, says("SUBSCRIBE", ""), Config{}, func(t *testing.T, f *fake, n *Node) {
		var l pushLog
		n.Listen("ch", &l)
		synctest.Wait()
		f.say(pushOf("message", "ch", "early"))
		f.say(pushOf("subscribe", "ch", "1") + pushOf("message", "ch", "in time") + pushOf("message", "other", "not ours"))
		synctest.Wait()
		require.Equal(t, []string{"in time"}, l.messages(), "delivered")
		// The generation ends: from then on the same connection brings nothing until it is asked anew.
		ear := n.State().Ear
		n.change(func(p *published) { p.state.Gen++ })
		f.say(pushOf("message", "ch", "old"))
		synctest.Wait()
		n.Recheck()
		synctest.Wait()
		f.say(pushOf("message", "ch", "old still"))
		synctest.Wait()
		require.True(t, !n.State().Inbox && n.State().Up, "not confirmed again: %+v", n.State())
		f.say(pushOf("subscribe", "ch", "1") + pushOf("message", "ch", "new"))
		synctest.Wait()
		require.True(t, n.State().Inbox && n.State().Ear != ear, "%+v", n.State())
		require.Len(t, f.dialled(), 1)
		require.Equal(t, []string{"in time", "new"}, l.messages(), "delivered")
	})
}

// Messages show that the server can send; they do not show that our commands arrive.
func TestMessagesDoNotHideAStall(t *testing.T) {
	faked(t, nil, Config{PingInterval: time.Second, StallTimeout: 2 * time.Second}, func(t *testing.T, f *fake, n *Node) {
		n.Listen("ch", &pushLog{})
		synctest.Wait()
		f.silence(true)
		for range 35 {
			f.say(pushOf("message", "ch", "x"))
			time.Sleep(100 * time.Millisecond)
		}
		require.False(t, n.State().Up, "not found to be stalled")
	})
}

// Close leaves nothing behind at the server: QUIT is the last command.
func TestSharedInboxEndsBehindEverythingElse(t *testing.T) {
	faked(t, nil, Config{}, func(t *testing.T, f *fake, n *Node) {
		n.Listen("ch", &pushLog{})
		synctest.Wait()
		f.take()
		submit(n, "LAST")
		begun := time.Now()
		require.NoError(t, n.Close(t.Context()))
		require.Zero(t, time.Since(begun))
		f.expect(t, "the end", "LAST", "QUIT")
	})
}

func TestConfirmationOfNothingEndsTheConnection(t *testing.T) {
	for name, says := range map[string]string{
		"nothing in line": pushOf("subscribe", "ch", "1"),
		"another":         pushOf("unsubscribe", "ch", "1"),
		"a plain answer":  "+OK\r\n",
	} {
		handle := func(id int64, args []string) string {
			if args[0] == "SUBSCRIBE" && id == 1 && name != "nothing in line" {
				return ""
			}
			return "default"
		}
		t.Run(name, playing(handle, Config{}, func(t *testing.T, f *fake, n *Node) {
			n.Listen("ch", &pushLog{})
			synctest.Wait()
			f.say(says)
			time.Sleep(5 * time.Second)
			require.True(t, n.State().Epoch == 2 && n.State().Inbox, "%+v", n.State())
		}))
	}
}

func TestReadBufferFollowsItsUse(t *testing.T) {
	client, server := pipe()
	defer client.Close()
	defer server.Close()
	var f feed
	size := readBuffer
	take := func(n int) {
		require.NoError(t, rt.Err(server.Write(make([]byte, n))))
		for n > 0 {
			br := bufio.NewReaderSize(client, size)
			require.NoError(t, rt.Err(br.Peek(1)))
			size = f.size(br)
			n -= br.Buffered()
		}
	}
	take(100)
	require.Equal(t, readBuffer, size, "at first")
	take(256 << 10)
	require.Equal(t, mostBuffer, size, "in a crowd")
	for range 4 * lean {
		take(1)
	}
	require.Equal(t, readBuffer, size, "after it")
}

// The scripts of the handshake are in the write buffer last.
func TestWriteBuffersAreGivenBackWhenLittleIsWritten(t *testing.T) {
	faked(t, nil, Config{PingInterval: time.Second}, func(t *testing.T, _ *fake, n *Node) {
		synctest.Wait()
		submit(n, "ECHO", strings.Repeat("x", 100<<10)).wait(t)
		time.Sleep(5 * time.Second)
		s := n.published.Load().session
		s.line.Lock()
		defer s.line.Unlock()
		for range 2 { // it writes from one while the other is filled
			s.line.Add(line.Entry{Call: ownCall(ping, discard{})}, member.Brief{}, "", false)
			require.LessOrEqual(t, cap(s.line.Take()), leanBuffer)
			s.line.Give([]byte{})
		}
	})
}
