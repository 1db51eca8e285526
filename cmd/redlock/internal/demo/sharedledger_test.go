package demo

import "testing"

func TestSharedLedger(t *testing.T) {
	t.Parallel()
	type grant struct {
		write            bool
		token            uint64
		at, until, ended int
	}
	for name, tc := range map[string]struct {
		grants                   []grant // in order of at
		beside, disorder, atOnce int
	}{
		"readers together":              {[]grant{{false, 5, 1, 50, 20}, {false, 5, 2, 50, 20}, {false, 6, 3, 50, 20}}, 0, 0, 3},
		"a reader after another":        {[]grant{{false, 5, 1, 50, 2}, {false, 6, 3, 50, 20}}, 0, 0, 1},
		"writers between":               {[]grant{{true, 4, 1, 50, 2}, {false, 5, 3, 50, 4}, {true, 6, 5, 50, 6}}, 0, 0, 1},
		"a reader beside a writer":      {[]grant{{true, 4, 1, 50, 20}, {false, 5, 3, 50, 4}}, 1, 0, 1},
		"a writer beside two readers":   {[]grant{{false, 4, 1, 50, 20}, {false, 4, 2, 50, 20}, {true, 5, 3, 50, 4}}, 2, 0, 2},
		"a writer beside a writer":      {[]grant{{true, 4, 1, 50, 20}, {true, 5, 3, 50, 4}}, 1, 0, 0},
		"a reader's lease ran out":      {[]grant{{false, 4, 1, 3, 20}, {true, 5, 3, 50, 4}}, 0, 0, 1},
		"a writer with a reader's":      {[]grant{{false, 5, 1, 50, 2}, {true, 5, 3, 50, 4}}, 0, 1, 1},
		"a reader with a writer's":      {[]grant{{true, 5, 1, 50, 2}, {false, 5, 3, 50, 4}}, 0, 1, 1},
		"a reader below a writer":       {[]grant{{true, 5, 1, 50, 2}, {false, 4, 3, 50, 4}}, 0, 1, 1},
		"a reader below another reader": {[]grant{{false, 6, 1, 50, 2}, {false, 5, 3, 50, 4}}, 0, 0, 1},
		"a writer below a reader":       {[]grant{{false, 6, 1, 50, 2}, {true, 5, 3, 50, 4}}, 0, 1, 1},
		"told after its end":            {[]grant{{true, 5, 1, 50, 20}, {false, 4, 10, 9, 11}, {true, 3, 12, 12, 13}}, 0, 0, 0},
	} {
		var l sharedLedger
		numbers := make([]int, len(tc.grants))
		for i, g := range tc.grants {
			for j, before := range tc.grants[:i] {
				if before.ended <= g.at {
					l.ended(numbers[j])
				}
			}
			numbers[i] = l.granted(g.write, g.token, ms(g.at), until(g.until))
		}
		if l.beside != tc.beside || l.disorder != tc.disorder || l.atOnce != tc.atOnce || l.reads+l.writes != len(tc.grants) {
			t.Errorf("%s: %d beside, %d out of order, %d at once, %d reads, %d writes", name, l.beside, l.disorder, l.atOnce, l.reads, l.writes)
		}
	}
}
