package redlock

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// longLine is a lock with more than 333 waiters, whose holder yields its vote.
type longLine struct {
	*scripted
	last int // number of the last waiter
}

func newLongLine(t *testing.T, server redistest.Server) *longLine {
	l := &longLine{scripted: newScripted(t, server)}
	l.take(l.name(), minute)
	for range 400 {
		l.comes()
	}
	return l
}

func (l *longLine) name() string {
	l.last++
	return fmt.Sprintf("AAAA:%d", l.last)
}

func (l *longLine) comes() string {
	owner := l.name()
	l.line(owner, minute, minute)
	return owner
}

// below is the name of a waiter that hashes lower than another.
func (l *longLine) below(other string) string {
	owner := l.name()
	for hashOf(owner) >= hashOf(other) {
		owner = l.name()
	}
	return owner
}

// entry gives a waiter so much more time, of the minute that it has asked for.
func (l *longLine) entry(waiter string, left time.Duration) {
	l.ask("HSET", WaitersOf(l.Name), waiter, fmt.Sprintf("%d %d", l.now()/1000+left.Milliseconds(), minute.Milliseconds()))
}

func (l *longLine) queue() (all []string) {
	for _, waiter := range l.ask("ZRANGE", QueueOf(l.Name), "0", "-1").([]any) {
		all = append(all, waiter.(string))
	}
	return all
}

func (l *longLine) holder() (owner, token string) {
	for owner, token = range l.hash(l.Name) {
	}
	return owner, token
}

// heir is whoever hashes lowest of the holder and all waiters that have missed no heartbeat.
func (l *longLine) heir() string {
	heir, _ := l.holder()
	entries, now := l.hash(WaitersOf(l.Name)), l.now()/1000
	for _, waiter := range l.queue() {
		var deadline, ttl int64
		_, err := fmt.Sscan(entries[waiter], &deadline, &ttl)
		require.NoError(l, err)
		if deadline-now >= ttl/2 && hashOf(waiter) < hashOf(heir) {
			heir = waiter
		}
	}
	return heir
}

func hashOf(owner string) string {
	sum := sha1.Sum([]byte(owner))
	return hex.EncodeToString(sum[:])
}

// yield has the holder yield its vote, and returns who has it then.
func (l *longLine) yield() string {
	owner, token := l.holder()
	l.list(l.Yield(nil, owner, asNumber(l.T, token), minute, minute, 0))
	now, other := l.holder()
	require.NotEqual(l, token, other, "it is another vote")
	return now
}

func asNumber(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return n
}

// few is what a yield has kept for those that follow: until when, since when, below which hash, and whom.
func (l *longLine) few() []string { return strings.Fields(l.hash(WaitersOf(l.Name))["!few"]) }

func (l *longLine) keep(few []string) {
	l.ask("HSET", WaitersOf(l.Name), "!few", strings.Join(few, " "))
}

// Whatever has befallen the waiters meanwhile, a yield in a long line goes to whom it would go to if it looked at all.
func TestYieldInALongLineGoesToWhomItWouldInAShortOne(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server redistest.Server, _ bool) {
		l := newLongLine(t, server)
		rng := rand.New(rand.NewPCG(1, 2))
		kept, changed := 0, 0
		for range 150 {
			waiters := l.queue()
			any := func() string { return waiters[rng.IntN(len(waiters))] }
			few := l.few()
			switch rng.IntN(8) {
			case 0:
				for range 20 {
					l.comes()
				}
			case 1:
				for range 20 {
					l.number(l.Release(nil, any(), ""))
				}
			case 2:
				for range 40 {
					l.entry(any(), minute/4)
				}
			case 3:
				for range 10 {
					l.ask("HSET", WaitersOf(l.Name), any(), "1 60000") // it has run out
				}
			case 4: // its second is over
				if few != nil {
					few[0] = "1"
					l.keep(few)
				}
			case 5: // the clock went back
				if few != nil {
					few[1] = text(l.now() + minute.Microseconds())
					l.keep(few)
				}
			case 6: // all that are kept are late
				for _, waiter := range few[min(3, len(few)):] {
					if slices.Contains(waiters, waiter) {
						l.entry(waiter, minute/4)
					}
				}
			case 7: // who was late is so no more
				for _, waiter := range waiters {
					l.entry(waiter, minute)
				}
			}
			for len(l.queue()) < 350 {
				l.comes()
			}
			before, _ := l.holder()
			want := l.heir()
			require.Equal(t, want, l.yield())
			if want == before {
				kept++
			} else {
				changed++
			}
			if rng.IntN(3) == 0 { // another holder, who waits for nothing
				owner, _ := l.holder()
				l.number(l.Release(nil, owner, ""))
			}
		}
		require.Greater(t, kept, 10)
		require.Greater(t, changed, 10)
	})
}

// A yield looks at thousands of waiters once a second at most. Those that follow it look at whom it has kept, and at who came
// since.
func TestYieldInALongLineLooksAtFew(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server redistest.Server, _ bool) {
		l := newLongLine(t, server)
		first := l.now() - time.Hour.Microseconds()
		l.yield()
		few := l.few()
		require.Len(t, few, 3+32)
		bound := few[2]
		lowest, _ := l.holder() // it was preferred
		came := l.below(lowest)
		hidden := l.below(came)
		l.ask("ZADD", QueueOf(l.Name), text(first), hidden) // no script registers it in the past
		l.entry(hidden, minute)
		l.line(came, minute, minute)
		l.keep(append([]string{text(l.now()/1000 + 60_000)}, few[1:]...)) // a minute, however slow this machine is
		require.Equal(t, came, l.yield())
		require.Equal(t, bound, l.few()[2])
		require.NotContains(t, l.few(), hidden)
		l.ask("HSET", WaitersOf(l.Name), "#", "1") // somebody has a ticket, as if it had come in the past
		require.Equal(t, hidden, l.yield())
		l.ask("HDEL", WaitersOf(l.Name), "#")
		l.number(l.Release(nil, hidden, ""))
		l.ask("ZADD", QueueOf(l.Name), text(first), hidden)
		l.entry(hidden, minute)
		require.Equal(t, came, l.yield())
		few = l.few()
		few[0] = text(l.now() / 1000)
		l.keep(few)
		before := l.now() / 1000
		require.Equal(t, hidden, l.yield())
		until := asNumber(t, l.few()[0])
		require.GreaterOrEqual(t, until, before+1000)
		require.LessOrEqual(t, until, l.now()/1000+1000)
		require.NotContains(t, l.few(), came, "it has the lock no more, and waits since then")

		next := l.below(hidden) // comes before the time at which the clock stood at the last yield
		l.line(next, minute, minute)
		few = l.few()
		few[0], few[1] = text(l.now()/1000+2*minute.Milliseconds()), text(l.now()+minute.Microseconds())
		l.keep(few)
		require.Equal(t, next, l.yield())

		bound = l.few()[2]
		for range 40 { // all that were kept have had the lock
			few = l.few()
			few[0] = text(l.now()/1000 + 60_000)
			l.keep(few)
			owner, _ := l.holder()
			l.number(l.Release(nil, owner, ""))
			require.Equal(t, l.heir(), l.yield())
		}
		require.Greater(t, l.few()[2], bound)
		require.Greater(t, len(l.few()), 3+10)
	})
}

// A short line is looked at as a whole, and nothing is kept.
func TestYieldInAShortLineKeepsNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server redistest.Server, _ bool) {
		l := &longLine{scripted: newScripted(t, server)}
		l.take(l.name(), minute)
		for range 333 {
			l.comes()
		}
		require.Equal(t, l.heir(), l.yield())
		require.Empty(t, l.few())
	})
}
