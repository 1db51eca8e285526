package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/member"
)

const agrees = "%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n"

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

// pushing answers as a server with RESP3 does.
func pushing(f *fake, id int64, args []string) string {
	switch args[0] {
	case "HELLO":
		if args[1] == "3" {
			return agrees
		}
	case "SUBSCRIBE", "UNSUBSCRIBE":
		f.set(func() { f.subscribed = append(f.subscribed, id) })
		out := ""
		for _, c := range args[1:] {
			out += pushOf(strings.ToLower(args[0]), c, "1")
		}
		return out
	}
	return "default"
}

func newPushing(handle func(id int64, args []string) string) *fake {
	f := newFake(nil)
	f.handle = func(id int64, args []string) string {
		if handle != nil {
			if a := handle(id, args); a != "default" {
				return a
			}
		}
		return pushing(f, id, args)
	}
	return f
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
	synctest.Test(t, func(t *testing.T) {
		f := newPushing(nil)
		n := start(t, Config{Dialer: f})
		var l talkative
		n.Listen("ch", &l)
		n.Subscribe("a", "b")
		synctest.Wait()
		if st := n.State(); !st.Inbox || st.Ear == 0 || len(f.dials) != 1 {
			t.Fatalf("%d connections, %+v", len(f.dials), st)
		}
		f.say(pushOf("message", "ch", "one"))
		synctest.Wait()
		c := submit(n, "ECHO", "x")
		f.say(pushOf("message", "ch", "two") + pushOf("message", "b", "three") + pushOf("invalidate", "k"))
		synctest.Wait()
		if c.wait(t); c.Outcome != member.Answered || show(c.Reply) != "x" {
			t.Errorf("%v %v", c.Outcome, c.Err)
		}
		n.Unsubscribe("a")
		synctest.Wait()
		if got := l.messages(); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("delivered %q", got)
		}
		slices.Sort(l.heard)
		if !slices.Equal(l.heard, []string{"a=", "b=", "b=three"}) {
			t.Errorf("heard %q", l.heard)
		}
		// The connection is lost: so is the inbox, until it is subscribed on the next one.
		ear := n.State().Ear
		f.handle = func(id int64, args []string) string {
			if args[0] == "SUBSCRIBE" {
				return ""
			}
			return pushing(f, id, args)
		}
		f.cut()
		time.Sleep(time.Second)
		if st := n.State(); !st.Up || st.Inbox {
			t.Errorf("before the confirmation: %+v", st)
		}
		f.say(pushOf("subscribe", "ch", "1"))
		synctest.Wait()
		if st := n.State(); !st.Inbox || st.Ear == ear {
			t.Errorf("after the confirmation: %+v", st)
		}
	})
}

// A message from before the confirmation is of a generation that may have ended.
func TestMessageBeforeTheConfirmationIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPushing(func(_ int64, args []string) string {
			if args[0] == "SUBSCRIBE" {
				return ""
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		var l pushLog
		n.Listen("ch", &l)
		synctest.Wait()
		f.say(pushOf("message", "ch", "early"))
		f.say(pushOf("subscribe", "ch", "1") + pushOf("message", "ch", "in time") + pushOf("message", "other", "not ours"))
		synctest.Wait()
		if got := l.messages(); !slices.Equal(got, []string{"in time"}) {
			t.Errorf("delivered %q", got)
		}
		// The generation ends: from then on the same connection brings nothing until it is asked anew.
		ear := n.State().Ear
		n.change(func(p *published) { p.state.Gen++ })
		f.say(pushOf("message", "ch", "old"))
		synctest.Wait()
		n.Recheck()
		synctest.Wait()
		f.say(pushOf("message", "ch", "old still"))
		synctest.Wait()
		if st := n.State(); st.Inbox || !st.Up {
			t.Errorf("not confirmed again: %+v", st)
		}
		f.say(pushOf("subscribe", "ch", "1") + pushOf("message", "ch", "new"))
		synctest.Wait()
		if st := n.State(); !st.Inbox || st.Ear == ear || len(f.dials) != 1 {
			t.Errorf("%d connections, %+v", len(f.dials), st)
		}
		if got := l.messages(); !slices.Equal(got, []string{"in time", "new"}) {
			t.Errorf("delivered %q", got)
		}
	})
}

// The inbox that is refused beside the commands gets a connection of its own.
func TestRefusedSharedInboxGetsItsOwnConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fake
		three := map[int64]bool{}
		f = newPushing(func(id int64, args []string) string {
			switch {
			case args[0] == "HELLO":
				f.set(func() { three[id] = args[1] == "3" })
				if args[1] == "2" {
					return "*2\r\n$5\r\nproto\r\n:2\r\n"
				}
			case args[0] == "SUBSCRIBE":
				refused := false
				f.set(func() { refused = three[id] })
				if refused {
					return "-ERR not here\r\n"
				}
				f.set(func() { f.subscribed = append(f.subscribed, id) })
				return fmt.Sprintf("*3\r\n%s%s:1\r\n", bulk("subscribe"), bulk(args[1]))
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		n.Listen("ch", &pushLog{})
		time.Sleep(10 * time.Second)
		if st := n.State(); !st.Inbox || st.Gen != 1 || st.Epoch != 1 || len(f.dials) != 2 {
			t.Errorf("%d dials, %+v", len(f.dials), st)
		}
		ctx := t.Context()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Messages show that the server can send; they do not show that our commands arrive.
func TestMessagesDoNotHideAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := make(chan struct{})
		f := newPushing(func(_ int64, args []string) string {
			select {
			case <-silent:
				return ""
			default:
				return "default"
			}
		})
		n := start(t, Config{Dialer: f, PingInterval: time.Second, StallTimeout: 2 * time.Second})
		n.Listen("ch", &pushLog{})
		synctest.Wait()
		close(silent)
		for range 35 {
			f.say(pushOf("message", "ch", "x"))
			time.Sleep(100 * time.Millisecond)
		}
		if st := n.State(); st.Up {
			t.Errorf("not found to be stalled: %+v", st)
		}
	})
}

// Close leaves nothing behind at the server: QUIT is the last command.
func TestSharedInboxEndsBehindEverythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		f := newPushing(nil)
		inner := f.handle
		f.handle = h.record(func(id int64, args []string) string {
			if args[0] == "QUIT" {
				f.set(func() { _ = f.conns[id].Close() })
				return "+OK\r\n"
			}
			return inner(id, args)
		})
		n := start(t, Config{Dialer: f})
		n.Listen("ch", &pushLog{})
		synctest.Wait()
		h.take()
		submit(n, "LAST")
		begun := time.Now()
		if err := n.Close(t.Context()); err != nil || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		h.expect(t, "the end", "LAST", "QUIT")
	})
}

func TestConfirmationOfNothingEndsTheConnection(t *testing.T) {
	for name, says := range map[string]string{
		"nothing in line": pushOf("subscribe", "ch", "1"),
		"another":         pushOf("unsubscribe", "ch", "1"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newPushing(func(id int64, args []string) string {
					if args[0] == "SUBSCRIBE" && id == 1 && name == "another" {
						return ""
					}
					return "default"
				})
				n := start(t, Config{Dialer: f})
				n.Listen("ch", &pushLog{})
				synctest.Wait()
				f.say(says)
				time.Sleep(5 * time.Second)
				if st := n.State(); st.Epoch != 2 || !st.Inbox {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

func TestReadBufferFollowsItsUse(t *testing.T) {
	client, server := pipe()
	defer client.Close()
	defer server.Close()
	f := feed{br: newBuffer(client)}
	take := func(n int) {
		if _, err := server.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		for n > 0 {
			if err := f.fill(client); err != nil {
				t.Fatal(err)
			}
			k, err := f.br.Discard(f.br.Buffered())
			if err != nil {
				t.Fatal(err)
			}
			n -= k
		}
	}
	take(100)
	if f.br.Size() != readBuffer {
		t.Errorf("%d bytes at first", f.br.Size())
	}
	take(256 << 10)
	if f.br.Size() != mostBuffer {
		t.Errorf("%d bytes in a crowd", f.br.Size())
	}
	for range 4 * lean {
		take(1)
	}
	if f.br.Size() != readBuffer {
		t.Errorf("%d bytes after it", f.br.Size())
	}
	_ = server.Close()
	if err := f.fill(client); err == nil {
		t.Error("no end")
	}
}

// The scripts of the handshake are in the write buffer last.
func TestWriteBuffersAreGivenBackWhenLittleIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, Config{Dialer: newPushing(nil), PingInterval: time.Second})
		synctest.Wait()
		submit(n, "ECHO", strings.Repeat("x", 100<<10)).wait(t)
		time.Sleep(5 * time.Second)
		s := n.published.Load().session
		s.mu.Lock()
		defer s.mu.Unlock()
		if cap(s.wbuf) > leanBuffer || cap(s.spare) > leanBuffer {
			t.Errorf("%d and %d bytes are kept", cap(s.wbuf), cap(s.spare))
		}
	})
}
