package demo

import "testing"

func TestPermitLedger(t *testing.T) {
	t.Parallel()
	type grant struct {
		slot             int
		token            uint64
		at, until, ended int
	}
	for name, tc := range map[string]struct {
		grants                   []grant // in order of at
		beside, disorder, atOnce int
	}{
		"two slots together":       {[]grant{{0, 5, 1, 50, 20}, {1, 5, 2, 50, 20}}, 0, 0, 2},
		"one slot after the other": {[]grant{{0, 5, 1, 50, 2}, {0, 6, 3, 50, 20}}, 0, 0, 1},
		"two in one slot":          {[]grant{{0, 5, 1, 50, 20}, {0, 6, 3, 50, 20}}, 1, 0, 2},
		"a slot that is not there": {[]grant{{2, 5, 1, 50, 20}}, 1, 0, 1},
		"a lease that ran out":     {[]grant{{0, 5, 1, 3, 20}, {0, 6, 3, 50, 20}}, 0, 0, 1},
		"a token of a slot falls":  {[]grant{{0, 5, 1, 50, 2}, {0, 4, 3, 50, 20}}, 0, 1, 1},
		"a token comes twice":      {[]grant{{0, 5, 1, 50, 2}, {0, 5, 3, 50, 20}}, 0, 1, 1},
		"tokens of two slots":      {[]grant{{0, 5, 1, 50, 2}, {1, 4, 3, 50, 20}}, 0, 0, 1},
		"told after its end":       {[]grant{{0, 5, 1, 50, 20}, {0, 4, 10, 9, 11}}, 0, 0, 1},
	} {
		l := permitLedger{limit: 2}
		numbers := make([]int, len(tc.grants))
		for i, g := range tc.grants {
			for j, before := range tc.grants[:i] {
				if before.ended <= g.at {
					l.ended(numbers[j])
				}
			}
			numbers[i] = l.granted(g.slot, g.token, ms(g.at), until(g.until))
		}
		if l.beside != tc.beside || l.disorder != tc.disorder || l.atOnce != tc.atOnce || l.grants != len(tc.grants) {
			t.Errorf("%s: %d beside, %d out of order, %d at once, %d grants", name, l.beside, l.disorder, l.atOnce, l.grants)
		}
	}
}
