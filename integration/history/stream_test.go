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
	r := func(owner string, token uint64, from, to int64) Belief {
		x := b(owner, token, from, to)
		x.Shared = true
		return x
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

		"readers between writers":          {[]Belief{b("a", 1, 1, 2), r("b", 3, 2, 5), r("c", 2, 3, 4), r("d", 3, 4, 6), b("e", 4, 6, 7)}, 0, 0},
		"a writer beside a reader":         {[]Belief{r("a", 1, 1, 4), b("b", 2, 3, 5)}, 1, 0},
		"a reader beside a writer":         {[]Belief{r("b", 2, 3, 5), b("a", 1, 1, 4)}, 1, 0},
		"a writer beside each reader":      {[]Belief{r("a", 1, 1, 4), r("b", 1, 2, 4), b("c", 2, 3, 5)}, 2, 0},
		"a reader with a writer's token":   {[]Belief{b("a", 2, 1, 2), r("b", 2, 3, 4)}, 0, 1},
		"a writer with a reader's token":   {[]Belief{r("a", 2, 1, 2), b("b", 2, 3, 4)}, 0, 1},
		"a reader below a writer before":   {[]Belief{b("a", 3, 1, 2), r("b", 2, 3, 4)}, 0, 1},
		"a reader above a writer after":    {[]Belief{r("a", 5, 1, 2), b("b", 4, 3, 4)}, 0, 1},
		"the same, told the other way":     {[]Belief{b("b", 4, 3, 4), r("a", 5, 1, 2)}, 0, 1},
		"downgraded":                       {[]Belief{b("a", 2, 1, 2), r("a", 2, 2, 4), r("b", 3, 3, 5), b("c", 4, 5, 6)}, 0, 0},
		"downgraded and still written":     {[]Belief{b("a", 2, 1, 3), r("a", 2, 2, 4)}, 1, 0},
		"a writer in a downgrade's gap":    {[]Belief{b("a", 2, 1, 2), r("a", 2, 2, 5), b("b", 3, 3, 4)}, 1, 0},
		"a reader with a downgraded one's": {[]Belief{b("a", 2, 1, 2), r("a", 2, 2, 4), r("b", 2, 3, 5)}, 0, 1},
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

func TestStreamKnowsTokensOfForgottenReadersAndWriters(t *testing.T) {
	minute := int64(time.Minute)
	b := func(owner string, token uint64, from int64, shared bool) Belief {
		return Belief{Key: "k", Owner: owner, Token: token, From: from, To: from + 1, Shared: shared}
	}
	told := func() *Stream {
		var s Stream
		s.End("", b("writer", 5, 1, false))
		s.End("", b("reader", 7, 3, true))
		for i := range int64(62) {
			s.End("", b("later", 9, 2*minute+i, true))
		}
		require.Equal(t, 62, s.Kept(), "the first two are forgotten")
		return &s
	}
	for name, x := range map[string]struct {
		b     Belief
		found int
	}{
		"a reader below a reader": {b("a", 6, 10, true), 0},
		"a reader below a writer": {b("a", 4, 10, true), 1},
		"a writer below a reader": {b("a", 6, 10, false), 1},
		"a writer between":        {b("a", 8, 10, false), 0},
	} {
		_, r := told().End("", x.b)
		require.Len(t, r, x.found, name)
	}
}
