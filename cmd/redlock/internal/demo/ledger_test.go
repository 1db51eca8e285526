package demo

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var epoch = time.Now()

func ms(n int) time.Time { return epoch.Add(time.Duration(n) * time.Millisecond) }

func until(n int) func() time.Time { return func() time.Time { return ms(n) } }

func TestLedgerOfAnOrderlyRun(t *testing.T) {
	t.Parallel()
	l := newLedger(2)
	l.granted(0, 10, ms(0), ms(1), until(100))
	l.ended(0, ms(5))
	l.granted(1, 11, ms(2), ms(7), until(100)) // waited since 2: a hand-off of 2 ms
	l.ended(1, ms(9))
	l.granted(0, 12, ms(20), ms(21), until(30)) // nobody was waiting
	l.granted(1, 14, ms(22), ms(31), until(50)) // 0 overslept: its lease ended at 30
	l.ended(0, ms(32))                          // too late to hand anything over
	l.ended(1, ms(33))
	if l.grants != 4 || l.problems() != 0 {
		t.Errorf("%d grants, %d overlaps, %d falling", l.grants, l.overlaps, l.falling)
	}
	if want := []time.Duration{2 * time.Millisecond}; !slices.Equal(l.handoffs, want) {
		t.Errorf("hand-offs %v, want %v", l.handoffs, want)
	}
}

func TestLedgerSeesAnOverlap(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ended, until, granted int // of the first; grant of the second
		want                  int
	}{
		"unlocked before":                {ended: 5, until: 100, granted: 6, want: 0},
		"ran out before":                 {ended: 50, until: 10, granted: 11, want: 0},
		"ran out at the instant":         {ended: 50, until: 10, granted: 10, want: 0},
		"still valid":                    {ended: 50, until: 10, granted: 9, want: 1},
		"still valid, never to unlock":   {ended: 1000, until: 900, granted: 2, want: 1},
		"granted at the same instant":    {ended: 50, until: 10, granted: 1, want: 1},
		"granted at the end of validity": {ended: 11, until: 10, granted: 10, want: 0},
	} {
		l := newLedger(2)
		l.granted(0, 1, ms(0), ms(1), until(tc.until))
		if tc.ended < tc.granted {
			l.ended(0, ms(tc.ended))
		}
		l.granted(1, 2, ms(0), ms(tc.granted), until(2000))
		if l.overlaps != tc.want {
			t.Errorf("%s: %d overlaps, want %d", name, l.overlaps, tc.want)
		}
	}
}

// A validity that a renewal has moved counts as it is at the moment of the grant.
func TestLedgerFollowsRenewals(t *testing.T) {
	t.Parallel()
	l, end := newLedger(2), ms(10)
	l.granted(0, 1, ms(0), ms(1), func() time.Time { return end })
	end = ms(40)
	l.granted(1, 2, ms(0), ms(20), until(60))
	if l.overlaps != 1 {
		t.Errorf("%d overlaps, want 1", l.overlaps)
	}
}

// A worker that is told of its grant, and gets no processor time until its lease is over, is no evidence
// against the lock; but its token must still be its own.
func TestLedgerOfAGrantThatIsToldTooLate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		token             uint64 // of the late one; the other has 7
		until             int    // of the late one, told at 20
		overlaps, falling int
	}{
		"overtaken":                    {6, 15, 0, 0},
		"ended at the instant":         {6, 20, 0, 0},
		"still valid":                  {6, 21, 1, 1},
		"the same token":               {7, 15, 0, 1},
		"the same token, still valid":  {7, 21, 1, 1},
		"a greater token, still valid": {8, 21, 1, 0},
	} {
		l := newLedger(2)
		l.granted(1, 7, ms(0), ms(16), until(100))
		l.granted(0, tc.token, ms(0), ms(20), until(tc.until))
		if l.overlaps != tc.overlaps || l.falling != tc.falling || l.grants != 2 {
			t.Errorf("%s: %d overlaps, %d falling", name, l.overlaps, l.falling)
		}
		l.ended(0, ms(30))
		l.granted(0, 9, ms(18), ms(101), until(200))
		if l.overlaps != tc.overlaps || len(l.handoffs) != 0 {
			t.Errorf("%s, and later: %d overlaps, hand-offs %v", name, l.overlaps, l.handoffs)
		}
	}
}

func TestLedgerSeesTokensThatDoNotRise(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tokens []uint64
		want   int
	}{
		"rising":      {[]uint64{1, 2, 5, 6}, 0},
		"equal":       {[]uint64{1, 2, 2, 3}, 1},
		"falling":     {[]uint64{7, 3, 8}, 1},
		"stays below": {[]uint64{7, 3, 4, 5}, 3}, // below 7, though rising among themselves
		"zero":        {[]uint64{0}, 1},
	} {
		l := newLedger(1)
		for i, token := range tc.tokens {
			l.granted(0, token, ms(10*i), ms(10*i+1), until(10*i+9))
			l.ended(0, ms(10*i+5))
		}
		if l.falling != tc.want {
			t.Errorf("%s: %d, want %d", name, l.falling, tc.want)
		}
	}
}

// The ledger, which hears of one event after the other, and a naive count over whole intervals agree
// about random runs.
func TestLedgerAgreesWithIntervals(t *testing.T) {
	t.Parallel()
	type interval struct{ from, to int }
	r := rand.New(rand.NewPCG(1, 2))
	clean, dirty := 0, 0
	for range 5000 {
		l := newLedger(4)
		var all []interval
		holds := [4]int{-1, -1, -1, -1} // worker to its interval
		for now := 1; now < 40; now += 1 + r.IntN(6) {
			w := r.IntN(4)
			if i := holds[w]; i >= 0 {
				l.ended(w, ms(now))
				all[i].to = min(all[i].to, now)
				holds[w] = -1
				continue
			}
			holds[w] = len(all)
			all = append(all, interval{now, now + 1 + r.IntN(8)})
			l.granted(w, uint64(now), ms(now), ms(now), until(all[len(all)-1].to))
		}
		want := 0
		for i, late := range all {
			for _, early := range all[:i] {
				if early.to > late.from {
					want++
				}
			}
		}
		if l.overlaps != want {
			t.Fatalf("%d overlaps, want %d of %v", l.overlaps, want, all)
		}
		if want == 0 {
			clean++
		} else {
			dirty++
		}
	}
	if clean < 100 || dirty < 100 {
		t.Errorf("%d runs without overlap and %d with: too few of one kind to mean anything", clean, dirty)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, tc := range []struct {
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{hundred[:1], 0.5, 1},
		{hundred[:1], 0.99, 1},
		{hundred[:2], 0.5, 1},
		{hundred[:3], 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.999, 100},
		{hundred, 1, 100},
		{hundred, 0, 1},
	} {
		if got := quantile(tc.sorted, tc.q); got != tc.want {
			t.Errorf("%v-quantile of %d values is %d, want %d", tc.q, len(tc.sorted), got, tc.want)
		}
	}
}

func TestQuantilesOfTheLatest(t *testing.T) {
	t.Parallel()
	l := newLedger(1)
	l.handoffs = []time.Duration{100, 1, 3, 2}
	if got := l.quantiles(3, 0.5, 1); got[0] != 2 || got[1] != 3 {
		t.Errorf("got %v", got)
	}
	if got := l.quantiles(0, 1); got[0] != 100 {
		t.Errorf("got %v", got)
	}
	if l.handoffs[0] != 100 || l.handoffs[3] != 2 {
		t.Errorf("the order of the hand-offs was changed: %v", l.handoffs)
	}
}
