package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStreamFindsWhatMustNotBeInWhateverOrderItIsTold(t *testing.T) {
	second := int64(time.Second)
	b := func(owner string, token uint64, from, to int64) Belief {
		return Belief{Key: "k", Owner: owner, Token: token, From: from * second, To: to * second}
	}
	for name, x := range map[string]struct {
		told                  []Belief
		overlaps, regressions int
	}{
		"one after the other":         {[]Belief{b("a", 1, 1, 2), b("b", 2, 2, 3), b("c", 3, 4, 5)}, 0, 0},
		"told late":                   {[]Belief{b("c", 3, 4, 5), b("a", 1, 1, 2), b("b", 2, 2, 3)}, 0, 0},
		"two at once":                 {[]Belief{b("a", 1, 1, 3), b("b", 2, 2, 4)}, 1, 0},
		"two at once, told late":      {[]Belief{b("b", 2, 2, 4), b("a", 1, 1, 3)}, 1, 0},
		"one inside another":          {[]Belief{b("b", 2, 2, 3), b("c", 3, 3, 4), b("a", 1, 1, 9)}, 2, 0},
		"a token falls":               {[]Belief{b("a", 5, 1, 2), b("b", 4, 3, 4)}, 0, 1},
		"a token twice":               {[]Belief{b("a", 5, 1, 2), b("b", 5, 3, 4)}, 0, 1},
		"handed over":                 {[]Belief{b("a", 5, 1, 2), b("a", 5, 3, 4)}, 0, 0},
		"handed over and still held":  {[]Belief{b("a", 5, 1, 3), b("a", 5, 2, 4)}, 1, 0},
		"over before it was believed": {[]Belief{b("a", 5, 1, 4), b("b", 6, 3, 2)}, 0, 0},
	} {
		var s Stream
		overlaps, regressions := 0, 0
		for _, one := range x.told {
			o, r := s.End("", one)
			overlaps, regressions = overlaps+len(o), regressions+len(r)
		}
		require.Equal(t, x.overlaps, overlaps, name)
		require.Equal(t, x.regressions, regressions, name)
	}
}

func TestStreamForgetsWhatNothingCanLieBesideAnyMore(t *testing.T) {
	var s Stream
	s.Begin("k", "long", 0)
	step := int64(10 * time.Millisecond)
	one := func(i int64, token uint64) Belief {
		return Belief{Key: "k", Owner: fmt.Sprint(i), Token: token, From: i * step, To: i*step + 1}
	}
	for i := range int64(10_000) {
		o, r := s.End(fmt.Sprint(i), one(i, uint64(i)+1))
		require.Empty(t, o)
		require.Empty(t, r)
	}
	require.Greater(t, s.Kept(), 10_000, "one that has not ended may lie beside all")
	o, _ := s.End("long", Belief{Key: "k", Owner: "long", Token: 20_000, From: 0, To: step})
	require.Len(t, o, 1)
	for i := range int64(10_000) {
		i += 10_000
		s.End(fmt.Sprint(i), one(i, 20_001+uint64(i)))
	}
	require.Less(t, s.Kept(), 6_200)
	_, r := s.End("", Belief{Key: "k", Owner: "low", Token: 3, From: 20_000 * step, To: 20_001 * step})
	require.NotEmpty(t, r, "a token below those that are forgotten")
}
