package judge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func told(all []Hold) (v Verdict) {
	s := Stream{Keep: time.Minute}
	for _, h := range all {
		overlaps, regressions := s.End("", h)
		v.Overlaps, v.Regressions = append(v.Overlaps, overlaps...), append(v.Regressions, regressions...)
	}
	return v
}

func TestJudgeFindsWhatMustNotBeInWhateverOrderItIsTold(t *testing.T) {
	second := int64(time.Second)
	b := func(owner string, token uint64, from, to int64) Hold {
		return Hold{Key: "k", Owner: owner, Token: token, From: from * second, To: to * second}
	}
	r := func(owner string, token uint64, from, to int64) Hold {
		x := b(owner, token, from, to)
		x.Shared = true
		return x
	}
	other := func(h Hold) Hold { h.Key = "other"; return h }
	for name, x := range map[string]struct {
		told                  []Hold
		overlaps, regressions int
	}{
		"one after the other":             {[]Hold{b("a", 1, 1, 2), b("b", 2, 2, 3), b("c", 3, 4, 5)}, 0, 0},
		"told late":                       {[]Hold{b("c", 3, 4, 5), b("a", 1, 1, 2), b("b", 2, 2, 3)}, 0, 0},
		"two at once":                     {[]Hold{b("a", 1, 1, 3), b("b", 2, 2, 4)}, 1, 0},
		"two at once, told late":          {[]Hold{b("b", 2, 2, 4), b("a", 1, 1, 3)}, 1, 0},
		"two at once from one instant on": {[]Hold{b("a", 1, 1, 3), b("b", 2, 1, 2)}, 1, 0},
		"two at once, and a token falls":  {[]Hold{b("a", 5, 1, 3), b("b", 4, 2, 4)}, 1, 1},
		"two at once, of nobody":          {[]Hold{b("", 1, 1, 3), b("", 2, 2, 4)}, 1, 0},
		"one inside another":              {[]Hold{b("b", 2, 2, 3), b("c", 3, 3, 4), b("a", 1, 1, 9)}, 2, 0},
		"beside one of another name":      {[]Hold{b("a", 5, 1, 3), other(b("b", 5, 2, 4)), other(b("c", 6, 4, 5))}, 0, 0},
		"no token":                        {[]Hold{b("a", 0, 1, 2)}, 0, 1},
		"a token falls":                   {[]Hold{b("a", 5, 1, 2), b("b", 4, 3, 4)}, 0, 1},
		"tokens stay below one":           {[]Hold{b("a", 7, 1, 2), b("b", 3, 3, 4), b("c", 4, 5, 6), b("d", 5, 7, 8)}, 0, 3},
		"a token twice":                   {[]Hold{b("a", 5, 1, 2), b("b", 5, 3, 4)}, 0, 1},
		"a token twice, of nobody":        {[]Hold{b("", 5, 1, 2), b("", 5, 3, 4)}, 0, 1},
		"a token twice, never believed":   {[]Hold{b("a", 5, 1, 2), b("b", 5, 3, 3)}, 0, 1},
		"handed over":                     {[]Hold{b("a", 5, 1, 2), b("a", 5, 3, 4)}, 0, 0},
		"handed over and still held":      {[]Hold{b("a", 5, 1, 3), b("a", 5, 2, 4)}, 1, 0},
		"over before it was believed":     {[]Hold{b("a", 5, 1, 4), b("b", 4, 3, 2)}, 0, 0},

		"readers between writers":          {[]Hold{b("a", 1, 1, 2), r("b", 3, 2, 5), r("c", 2, 3, 4), r("d", 3, 4, 6), b("e", 4, 6, 7)}, 0, 0},
		"a writer beside a reader":         {[]Hold{r("a", 1, 1, 4), b("b", 2, 3, 5)}, 1, 0},
		"a reader beside a writer":         {[]Hold{r("b", 2, 3, 5), b("a", 1, 1, 4)}, 1, 0},
		"a writer beside each reader":      {[]Hold{r("a", 1, 1, 4), r("b", 1, 2, 4), b("c", 2, 3, 5)}, 2, 0},
		"a reader with a writer's token":   {[]Hold{b("a", 2, 1, 2), r("b", 2, 3, 4)}, 0, 1},
		"a writer with a reader's token":   {[]Hold{r("a", 2, 1, 2), b("b", 2, 3, 4)}, 0, 1},
		"a reader below a writer before":   {[]Hold{b("a", 3, 1, 2), r("b", 2, 3, 4)}, 0, 1},
		"a reader above a writer after":    {[]Hold{r("a", 5, 1, 2), b("b", 4, 3, 4)}, 0, 1},
		"the same, told the other way":     {[]Hold{b("b", 4, 3, 4), r("a", 5, 1, 2)}, 0, 1},
		"downgraded":                       {[]Hold{b("a", 2, 1, 2), r("a", 2, 2, 4), r("b", 3, 3, 5), b("c", 4, 5, 6)}, 0, 0},
		"downgraded and still written":     {[]Hold{b("a", 2, 1, 3), r("a", 2, 2, 4)}, 1, 0},
		"a writer in a downgrade's gap":    {[]Hold{b("a", 2, 1, 2), r("a", 2, 2, 5), b("b", 3, 3, 4)}, 1, 0},
		"a reader with a downgraded one's": {[]Hold{b("a", 2, 1, 2), r("a", 2, 2, 4), r("b", 2, 3, 5)}, 0, 1},
	} {
		for _, v := range []Verdict{told(x.told), Check(x.told)} {
			require.Len(t, v.Overlaps, x.overlaps, "%s: %v", name, v)
			require.Len(t, v.Regressions, x.regressions, "%s: %v", name, v)
			require.Equal(t, x.overlaps+x.regressions == 0, v.Clean(), name)
		}
	}
}

// Check forgets on its way, and finds in long histories what a look at every pair of holds finds.
func TestCheckAgreesWithALookAtEveryPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	clean, dirty := 0, 0
	for round := range 100 {
		var all []Hold
		now, token := int64(0), uint64(0)
		for i := range 400 {
			now += rng.Int64N(3)
			token += 1 + rng.Uint64N(2)
			h := Hold{Client: i, Key: "k", Token: token, From: now, To: now + rng.Int64N(6), Shared: rng.IntN(3) == 0}
			if now = max(now, h.To); round%2 == 1 && i > 0 && rng.IntN(100) == 0 {
				switch rng.IntN(3) {
				case 0:
					h.To += rng.Int64N(1000)
				case 1:
					h.Token -= min(h.Token-1, rng.Uint64N(200))
				default:
					h.Token = all[rng.IntN(len(all))].Token
				}
			}
			all = append(all, h)
		}
		overlaps, regressions := 0, false
		for i, y := range all {
			for _, x := range all[:i] {
				switch {
				case x.Shared && y.Shared:
				case x.Token == y.Token:
					regressions = true
				case x.From >= x.To || y.From >= y.To:
				case x.From < y.To && y.From < x.To:
					overlaps++
					regressions = regressions || x.From != y.From && (x.From < y.From) != (x.Token < y.Token)
				case (x.To <= y.From) != (x.Token < y.Token):
					regressions = true
				}
			}
		}
		rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		v := Check(all)
		require.Len(t, v.Overlaps, overlaps, "round %d: %v", round, v)
		require.Equal(t, regressions, len(v.Regressions) > 0, "round %d: %v", round, v)
		if v.Clean() {
			clean++
		} else {
			dirty++
		}
	}
	require.Greater(t, clean, 40)
	require.Greater(t, dirty, 40)
}

func TestStreamForgetsWhatNothingCanLieBesideAnyMore(t *testing.T) {
	s := Stream{Keep: 6 * time.Second}
	s.Begin("k", "long", 0)
	step := int64(10 * time.Millisecond)
	one := func(i int64, token uint64) Hold {
		return Hold{Key: "k", Owner: fmt.Sprint(i), Token: token, From: i * step, To: i*step + 1}
	}
	for i := range int64(1_000) {
		o, r := s.End(fmt.Sprint(i), one(i, uint64(i)+1))
		require.Empty(t, o)
		require.Empty(t, r)
	}
	require.Greater(t, s.Kept(), 1_000, "one that has not ended may lie beside all")
	o, _ := s.End("long", Hold{Key: "k", Owner: "long", Token: 2_000, From: 0, To: step})
	require.Len(t, o, 1)
	for i := range int64(1_000) {
		i += 1_000
		s.End(fmt.Sprint(i), one(i, 2_001+uint64(i)))
	}
	require.Less(t, s.Kept(), 700)
	_, r := s.End("", Hold{Key: "k", Owner: "low", Token: 3, From: 2_000 * step, To: 2_001 * step})
	require.NotEmpty(t, r, "a token below those that are forgotten")
}

func TestStreamKnowsTokensOfForgottenReadersAndWriters(t *testing.T) {
	minute := int64(time.Minute)
	b := func(owner string, token uint64, from int64, shared bool) Hold {
		return Hold{Key: "k", Owner: owner, Token: token, From: from, To: from + 1, Shared: shared}
	}
	told := func() *Stream {
		s := Stream{Keep: time.Minute}
		s.End("", b("writer", 5, 1, false))
		s.End("", b("reader", 7, 3, true))
		for i := range int64(62) {
			s.End("", b("later", 9, 2*minute+i, true))
		}
		require.Equal(t, 62, s.Kept(), "the first two are forgotten")
		return &s
	}
	for name, x := range map[string]struct {
		b     Hold
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

// The kernel and the process that asks it round the clock differently: by less than 100 ns.
func TestNowAndAtAreOneClock(t *testing.T) {
	before := Now()
	at := At(time.Now())
	require.GreaterOrEqual(t, at, before-1000)
	require.LessOrEqual(t, at, Now()+1000)
}
