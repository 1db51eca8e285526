package demo

import (
	"slices"
	"testing"
	"time"
)

var epoch = time.Now()

func ms(n int) time.Time { return epoch.Add(time.Duration(n) * time.Millisecond) }

// The judge has its own tests. What a ledger adds is when a belief ends, whose it is, and how many there are at once.
func TestLedger(t *testing.T) {
	t.Parallel()
	type grant struct {
		slot                    int
		shared                  bool
		token                   uint64
		at, until, moved, ended int // moved: until when a renewal has moved the validity; 0: none did
	}
	for name, tc := range map[string]struct {
		grants                     []grant // in order of at
		overlaps, disorder, atOnce int
	}{
		"unlocked before":             {[]grant{{0, false, 1, 1, 100, 0, 5}, {0, false, 2, 6, 100, 0, 9}}, 0, 0, 1},
		"unlocked at the instant":     {[]grant{{0, false, 1, 1, 100, 0, 6}, {0, false, 2, 6, 100, 0, 9}}, 0, 0, 1},
		"ran out at the instant":      {[]grant{{0, false, 1, 1, 10, 0, 50}, {0, false, 2, 10, 100, 0, 60}}, 0, 0, 1},
		"still valid":                 {[]grant{{0, false, 1, 1, 10, 0, 50}, {0, false, 2, 9, 100, 0, 60}}, 1, 0, 2},
		"granted at the same instant": {[]grant{{0, false, 1, 1, 10, 0, 50}, {0, false, 2, 1, 100, 0, 60}}, 1, 0, 2},
		"renewed":                     {[]grant{{0, false, 1, 1, 10, 40, 50}, {0, false, 2, 20, 60, 0, 60}}, 1, 0, 2},
		"a token falls":               {[]grant{{0, false, 7, 1, 100, 0, 5}, {0, false, 3, 6, 100, 0, 9}}, 0, 1, 1},
		"a token twice":               {[]grant{{0, false, 7, 1, 100, 0, 5}, {0, false, 7, 6, 100, 0, 9}}, 0, 1, 1},
		"no token":                    {[]grant{{0, false, 0, 1, 100, 0, 5}}, 0, 1, 1},
		"told after its end":          {[]grant{{0, false, 7, 1, 100, 0, 30}, {0, false, 6, 20, 20, 0, 31}}, 0, 0, 1},
		"told after its end, twice":   {[]grant{{0, false, 7, 1, 100, 0, 30}, {0, false, 7, 20, 15, 0, 31}}, 0, 1, 1},
		"readers together": {[]grant{
			{0, true, 5, 1, 50, 0, 20}, {0, true, 5, 2, 50, 0, 20}, {0, true, 6, 3, 50, 0, 20}}, 0, 0, 3},
		"a writer beside two readers": {[]grant{
			{0, true, 4, 1, 50, 0, 20}, {0, true, 4, 2, 50, 0, 20}, {0, false, 5, 3, 50, 0, 4}}, 2, 0, 2},
		"two slots":                        {[]grant{{0, false, 5, 1, 50, 0, 20}, {1, false, 5, 2, 50, 0, 20}}, 0, 0, 2},
		"two in one slot":                  {[]grant{{0, false, 5, 1, 50, 0, 20}, {0, false, 6, 3, 50, 0, 20}}, 1, 0, 2},
		"a token of a slot falls":          {[]grant{{0, false, 5, 1, 50, 0, 2}, {0, false, 4, 3, 50, 0, 20}}, 0, 1, 1},
		"a token of another slot is lower": {[]grant{{0, false, 5, 1, 50, 0, 2}, {1, false, 4, 3, 50, 0, 20}}, 0, 0, 1},
	} {
		l, most, reads := newLedger("k"), 0, 0
		numbers := make([]int, len(tc.grants))
		for now := range 100 {
			for i, g := range tc.grants {
				if g.ended == now {
					l.ended(numbers[i], ms(now))
				}
			}
			for i, g := range tc.grants {
				if g.at != now {
					continue
				}
				end := ms(g.until)
				until := func() time.Time { return end }
				n, atOnce := l.granted(i, g.slot, g.shared, g.token, ms(now), until)
				if numbers[i], most = n, max(most, atOnce); g.moved > 0 {
					end = ms(g.moved)
				}
				if g.shared {
					reads++
				}
			}
		}
		if l.overlaps != tc.overlaps || l.disorder != tc.disorder || most != tc.atOnce ||
			l.grants != len(tc.grants) || l.reads != reads || len(l.open) != 0 {
			t.Errorf("%s: %d overlaps, %d out of order, %d at once, %d grants, %d reads", name, l.overlaps, l.disorder, most, l.grants, l.reads)
		}
	}
}

func TestHandoffs(t *testing.T) {
	t.Parallel()
	var h handoffs
	h.granted(ms(0), ms(1)) // nobody had it
	h.ended(ms(5))
	h.granted(ms(2), ms(7)) // waited since 2: a hand-off of 2 ms
	h.ended(ms(9))
	h.granted(ms(20), ms(21)) // nobody was waiting
	h.granted(ms(2), ms(31))  // the one before overslept
	if want := []time.Duration{2 * time.Millisecond}; !slices.Equal(h.all, want) {
		t.Errorf("hand-offs %v, want %v", h.all, want)
	}
}

func TestQuantilesAreByNearestRankOfTheLatest(t *testing.T) {
	t.Parallel()
	hundred, mixed := make([]time.Duration, 100), handoffs{all: []time.Duration{100, 1, 3, 2}}
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	qs := []float64{0, 0.5, 0.99, 0.999, 1}
	for n, want := range map[int][]time.Duration{0: {0, 0, 0, 0, 0}, 1: {1, 1, 1, 1, 1}, 2: {1, 1, 2, 2, 2}, 3: {1, 2, 3, 3, 3}, 100: {1, 50, 99, 100, 100}} {
		if got := (&handoffs{all: hundred[:n]}).quantiles(0, qs...); !slices.Equal(got, want) {
			t.Errorf("of %d values: %v, want %v", n, got, want)
		}
	}
	if got, all := mixed.quantiles(3, 0.5, 1), mixed.quantiles(0, 1); got[0] != 2 || got[1] != 3 || all[0] != 100 || mixed.all[0] != 100 || mixed.all[3] != 2 {
		t.Errorf("%v, %v; their order: %v", got, all, mixed.all)
	}
}
