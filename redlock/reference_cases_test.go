//go:build !race

package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// shareable are names of every shape that the prefix rule knows.
var shareable = []string{"orders", "{orders}", "{orders}:1", "x{orders}y", "a{b", "a}b", "a{}b", "{}", "{{a}}", "with space", "ключ", "\x00\xff"}

// shares is a lock with Config.Interop at one server, asked as a member would ask; the reference's
// clients are beside it.
type shares struct {
	*scripted
	java, other *Reference
	theirs      *redistest.Client // hears both channels
}

func newShares(t *testing.T, server redistest.Server, name string) *shares {
	cfg := Config{Interop: true}
	s := &shares{scripted: &scripted{T: t, server: server, Lock: cfg.lockOf(name)}}
	s.c, s.inbox = s.dial(), s.dial()
	for _, source := range Scripts(WithInterop()) {
		s.ask("SCRIPT", "LOAD", source)
	}
	require.NoError(t, rt.Err(s.inbox.Do(t.Context(), "PSUBSCRIBE", script.Inbox("*"))))
	s.java, s.other = JavaOf(t, server, name, 1), JavaOf(t, server, name, 2)
	s.theirs = s.dial()
	// By pattern: no subscriber of the channel, as far as NUMSUB knows.
	require.NoError(t, rt.Err(s.theirs.Do(t.Context(), "PSUBSCRIBE", "redisson_lock__channel:*", "redquorum:ours:*", "end")))
	for range 2 { // confirmations
		require.NoError(t, rt.Err(s.theirs.ReceiveFor(10*time.Second)))
	}
	return s
}

// told returns what was heard in the two channels, "t" in ours and "0" in theirs.
func (s *shares) told() (out []string) {
	s.Helper()
	s.ask("PUBLISH", "end", "end")
	for {
		v := rt.Must(s.theirs.ReceiveFor(10 * time.Second))(s)
		got := v.([]any)
		if got[3] == "end" {
			return out
		}
		require.Equal(s, map[any]string{"t": theirs("redquorum:ours", s.Name), "0": s.java.Channel()}[got[3]], got[2])
		out = append(out, got[3].(string))
	}
}

func (s *shares) count() string {
	s.Helper()
	v, _ := s.ask("GET", s.java.counter()).(string)
	return v
}

// waiter subscribes as one of theirs, and ours as one of our clients.
func (s *shares) waiter() *redistest.Client { s.Helper(); return s.java.Listen() }

// turn is there while the lock is left to their waiters.
func (s *scripted) turn() string { return slot.Sibling("redquorum:turn", s.Name) }

func (s *shares) ours() *redistest.Client {
	s.Helper()
	c := s.dial()
	theirs, ours, _ := s.Channels()
	require.NoError(s, rt.Err(c.Do(s.Context(), "SUBSCRIBE", theirs, ours)))
	return c
}

func TestScriptsBesideTheReferenceSystem(t *testing.T) {
	onServers(t, func(t *testing.T, server redistest.Server, _ bool) {
		for _, c := range cases.Read(t, "internal/script/testdata/redisson/*.txt") {
			t.Run(c.Name, func(t *testing.T) {
				require.NoError(t, server.Flush())
				s := newShares(t, server, "invoice:42")
				rt.Until(s, "who was subscribed has left", func() bool { return Numsub(t, server, s.java.Channel()) == 0 }) // of the case before
				(&scriptPlay{T: t, stage: &sharedSite{serverSite{s.scripted}, s, map[string]*redistest.Client{}}}).play(c.Lines)
			})
		}
		for _, name := range shareable {
			t.Run(fmt.Sprintf("names %q", name), func(t *testing.T) {
				require.NoError(t, server.Flush())
				sharedName(newShares(t, server, name))
			})
		}
	})
}

// sharedName: what both sides mean by a name is the same lock, counter and channel.
func sharedName(s *shares) {
	first := s.take(alice, minute)
	_, left, ok := s.java.try(minute)
	require.False(s, ok)
	require.Positive(s, left)
	require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
	require.Equal(s, []string{"0"}, s.told())
	second := s.java.Take(minute)
	require.Equal(s, first+1, second)
	require.Negative(s, s.take(alice, minute))
	require.EqualValues(s, 1, s.java.Release())
	require.Equal(s, []string{"0"}, s.told())
	require.Equal(s, second+1, s.take(alice, minute))
	s.number(s.Release(nil, alice, ""))
	require.Equal(s, []string{"0"}, s.told())
	require.ElementsMatch(s, []any{member.TokensKey, s.java.counter()}, s.ask("KEYS", "*"), "the counters stay, nothing else")
}
