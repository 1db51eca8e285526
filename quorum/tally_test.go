package quorum

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

// votes reads a picture: Y yes, N no, ? unsure, . open.
func votes(picture string) []Vote {
	out := make([]Vote, len(picture))
	for i, r := range picture {
		out[i] = map[rune]Vote{'Y': Yes, 'N': No, '?': Unsure, '.': Open}[r]
	}
	return out
}

func tally(votes []Vote, need int) Verdict {
	n := map[Vote]int{}
	for _, v := range votes {
		n[v]++
	}
	return Decide(n[Yes], n[Open], need)
}

func TestTallyDecidesAsSoonAsItCan(t *testing.T) {
	for _, tc := range []struct {
		votes string
		want  Verdict
	}{
		{"Y", Won}, {"N", Lost}, {"?", Lost}, {".", Undecided},
		{"Y..", Undecided}, {"YY.", Won}, {"YN.", Undecided}, {"NN.", Lost}, {"Y?N", Lost},
		{"YYY..", Won}, {"YYNN.", Undecided}, {"YNNN.", Lost}, {"YY???", Lost}, {"Y??..", Undecided},
		// An even N: one more than half, and a tie is lost at once instead of never.
		{"YY", Won}, {"Y.", Undecided}, {"YN", Lost}, {"N.", Lost},
		{"YYNN", Lost}, {"YYN.", Undecided}, {"YYY.", Won}, {"YNN.", Lost}, {"..??", Lost},
		{"YYYNNN", Lost}, {"YYYYNN", Won},
	} {
		v := votes(tc.votes)
		require.Equal(t, tc.want, tally(v, member.Majority(len(v))), tc.votes)
	}
}

// The verdict is the one a patient observer would reach by trying every way the open votes can fall.
func TestTallyAgreesWithTryingEveryFuture(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		n := 1 + rng.IntN(9)
		v := make([]Vote, n)
		for i := range v {
			v[i] = Vote(rng.IntN(4))
		}
		need := member.Majority(n)
		canWin, canLose := false, false
		open := 0
		for _, x := range v {
			if x == Open {
				open++
			}
		}
		for future := range 1 << open {
			yes, k := 0, 0
			for _, x := range v {
				if x == Open {
					if future>>k&1 == 1 {
						yes++
					}
					k++
				} else if x == Yes {
					yes++
				}
			}
			if yes >= need {
				canWin = true
			} else {
				canLose = true
			}
		}
		want := Undecided
		switch {
		case canWin && !canLose:
			want = Won
		case canLose && !canWin:
			want = Lost
		}
		require.Equal(t, want, tally(v, need), "%v", v)
	}
}

// A number of refusals decides as well: a round is open while it can be won, and, once it has a
// refusal, while it can have that number of them.
func TestRefusalsDecideToo(t *testing.T) {
	for _, tc := range []struct {
		yes, no, open, need, deny int
		want                      Verdict
	}{
		{0, 0, 3, 2, 2, Undecided}, {2, 0, 1, 2, 2, Won}, {1, 1, 1, 2, 2, Undecided},
		{0, 1, 1, 2, 2, Undecided}, // a member is down, and one has refused
		{0, 2, 0, 2, 2, Lost}, {1, 1, 0, 2, 2, Lost}, {0, 2, 1, 2, 2, Lost},
		{0, 1, 0, 2, 2, Lost},      // two are down
		{0, 0, 1, 2, 2, Lost},      // two are down, and nobody has refused
		{0, 0, 2, 3, 2, Lost},      // of four
		{0, 1, 1, 2, 0, Lost},      // it does not matter
		{0, 1, 2, 3, 3, Undecided}, // of five
		{1, 1, 1, 3, 3, Lost},
	} {
		require.Equal(t, tc.want, decideDenied(tc.yes, tc.no, tc.open, tc.need, tc.deny), "%+v", tc)
		if tc.deny == 0 {
			require.Equal(t, Decide(tc.yes, tc.open, tc.need), tc.want)
		}
	}
}
