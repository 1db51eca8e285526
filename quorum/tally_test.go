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
		require.Equal(t, tc.want, Tally(v, member.Majority(len(v))), tc.votes)
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
		require.Equal(t, want, Tally(v, need), "%v", v)
	}
}

func BenchmarkTally(b *testing.B) {
	v := votes("YYN.?")
	for b.Loop() {
		Tally(v, 3)
	}
}
