package redlock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// shared is a lock that a reader of the client holds.
func shared(t testing.TB, members *Yes, opts ...LockOption) (*RWMutex, *Lease) {
	rw := Agreed(t, members).RWMutex("k", opts...)
	return rw, rt.Must(rw.RLock(t.Context()))(t)
}

func readOnce(t testing.TB, rw *RWMutex) {
	l, err := rw.RLock(t.Context())
	if err == nil {
		err = l.Unlock(t.Context())
	}
	assert.NoError(t, err)
}

func TestSharedReadCostsItsLeaseAlone(t *testing.T) {
	var member Yes
	rw, first := shared(t, &member)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { readOnce(t, rw) }), 2.0)
	require.Equal(t, 1, member.Called(script.RWRead))
	require.Zero(t, member.Called(script.RWRelease))
	require.LessOrEqual(t, member.Called(script.RWExtend), 1, "if this has taken a second")
	require.NoError(t, first.Unlock(t.Context()))
	require.Equal(t, 1, member.Called(script.RWRelease))
}

func TestMajorityMustSayThatNobodyWaits(t *testing.T) {
	_, first := shared(t, &Yes{})
	h := first.hold.terms.extra.(*tenure)
	before := h.seen
	says := func(member int, word int64, sent time.Time) { readWord(first.hold, member, word, sent) }
	h.c.need = 2
	one, two := before.Add(time.Second), before.Add(2*time.Second)
	says(0, script.NobodyWaits, one)
	says(0, script.NobodyWaits, one)
	require.Equal(t, before, h.seen, "one member")
	says(1, script.NobodyWaits, two)
	require.Equal(t, before, h.seen, "to another question")
	says(2, script.NobodyWaits, one)
	require.Equal(t, before, h.seen, "to an earlier question")
	says(2, script.NobodyWaits, two)
	require.Equal(t, two, h.seen)
	says(0, script.Closed, one)
	require.Nil(t, h.site, "once is enough of the contrary")
	h.c.need = 1
	require.NoError(t, first.Unlock(t.Context()))
}

func TestShareEndsInTheInstantOfItsHold(t *testing.T) {
	_, first := shared(t, &Yes{})
	all := first.hold.terms.extra.(*tenure).lease
	all.mu.Lock()
	all.term.End(&LostError{LockName: LockName{Key: "k"}, Reason: LostRefused}, time.Now())
	all.mu.Unlock()
	require.False(t, first.ValidUntil().After(time.Now()))
	require.ErrorIs(t, first.Err(), ErrLost)

	rw, second := shared(t, &Yes{})
	h := second.hold.terms.extra.(*tenure)
	h.lease.lose(LostRefused)
	require.ErrorIs(t, second.Err(), ErrLost)
	require.Nil(t, h.site, "nobody comes to it any more")
	require.NoError(t, rt.Must(rw.RLock(t.Context()))(t).Unlock(t.Context()))
}

// Many users beside renewals, signs of writers that close one hold after the other, limits, and
// whoever looks at everything: with the race detector.
func TestUsersOfHoldsBesideEverythingElse(t *testing.T) {
	var member Yes
	c := Agreed(t, &member)
	stop := make(chan struct{})
	var wg, looks sync.WaitGroup
	for i := range 16 {
		rw := c.RWMutex("k", AutoRenew(300*time.Millisecond))
		if i%4 == 0 {
			rw = c.RWMutex("k", AutoRenew(300*time.Millisecond), MaxHold(time.Duration(1+i)*time.Millisecond))
		}
		wg.Go(func() {
			for j := range 400 {
				get := rw.RLock
				if (i+j)%9 == 0 {
					get = rw.TryRLock
				}
				l, err := get(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if (i+j)%5 == 0 {
					<-time.After(time.Millisecond)
				}
				if (i+j)%7 == 0 {
					_, _ = l.Context(), l.ValidUntil()
				}
				if (i+j)%50 == 0 {
					_ = l.Extend(t.Context(), 350*time.Millisecond)
				}
				_ = l.Unlock(t.Context()) // its limit may be over
			}
		})
	}
	looks.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				_ = c.Stats()
				c.holds.each(readBehind)
			}
		}
	})
	wg.Wait()
	close(stop)
	looks.Wait()
	require.Zero(t, c.Stats()[KindRead].Held)
	require.Equal(t, member.Called(script.RWRead), member.Called(script.RWRelease), "each hold was released once")
	for i := range sitesOf.of(c).shards {
		require.Empty(t, sitesOf.of(c).shards[i].m)
	}
}
