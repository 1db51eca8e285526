package clock_test

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
)

func TestStartCountsFromTheAnchor(t *testing.T) {
	sent := time.Now()
	anchor := clock.Anchor{Sent: sent, Server: 1_000_000_000}
	const ms = time.Millisecond
	for _, tc := range []struct {
		name    string
		passed  time.Duration // on the server, from the anchor to the grant
		arrival time.Time
		want    time.Duration // after sent, by the monotonic clock
		ok      bool
	}{
		{"a prompt push", 1000 * ms, sent.Add(1001 * ms), 990 * ms, true},
		{"a push that travelled a minute", 1000 * ms, sent.Add(time.Minute), 990 * ms, true},
		{"at once", 0, sent.Add(ms), 0, true},
		{"with the anchor itself", 0, sent, 0, true},
		{"within the grain of the clocks: not before its arrival", ms, sent, 0, true},
		{"a server clock set forward", 2000 * ms, sent.Add(1000 * ms), 0, false},
		{"a server clock set back", -time.Microsecond, sent.Add(1000 * ms), 0, false},
		// 60 s passed, and the monotonic clock saw one of them: the start is 0.6 s before the arrival.
		{"a suspend in between", 60_000 * ms, split(t, sent, 1000*ms, 60_000*ms), 400 * ms, true},
		{"the local clock set back", 1000 * ms, split(t, sent, 1001*ms, -time.Hour), 990 * ms, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start, ok := anchor.Start(anchor.Server+tc.passed.Microseconds(), tc.arrival, clock.DefaultDrift)
			require.Equal(t, tc.ok, ok)
			if !ok {
				return
			}
			assert.Equal(t, tc.want, start.Sub(sent), "on the monotonic clock")
			assert.NotEqual(t, start.Round(0), start, "the monotonic reading is gone")
			assert.LessOrEqual(t, start.Sub(tc.arrival), time.Duration(0), "after the arrival")
			assert.LessOrEqual(t, start.Round(0).Sub(tc.arrival.Round(0)), time.Duration(0), "after the arrival, by the wall clock")
		})
	}
}

func TestStartBearsReadingsFromAnywhere(t *testing.T) {
	now := time.Now()
	for _, readings := range [][2]int64{{math.MinInt64, math.MaxInt64}, {0, math.MaxInt64}, {math.MaxInt64, math.MinInt64}, {math.MinInt64, 0}} {
		_, ok := clock.Anchor{Sent: now, Server: readings[0]}.Start(readings[1], now.Add(time.Second), 0.01)
		assert.False(t, ok, "%v", readings)
		assert.True(t, clock.Stepped(clock.Anchor{Sent: now, Server: readings[0]}, clock.Anchor{Sent: now, Server: readings[1]}, time.Second, 0.01), "%v", readings)
	}
}

func TestSteppedSeesAServerClockThatWasSet(t *testing.T) {
	sent := time.Now()
	const ms = time.Millisecond
	for _, tc := range []struct {
		name          string
		local, server time.Duration // from one anchor to the next
		want          bool
	}{
		{"in step", 1000 * ms, 1000 * ms, false},
		{"fast, within drift and round trip", 1000 * ms, 1012 * ms, false},
		{"slow, within drift and round trip", 1000 * ms, 988 * ms, false},
		{"set forward", 1000 * ms, 1013 * ms, true},
		{"set back", 1000 * ms, 987 * ms, true},
		{"set back beyond the first anchor", 1000 * ms, -1 * ms, true},
		{"the grain of the server's clock", 0, 2*ms + time.Microsecond, false},
		{"the same moment", 0, 0, false},
		{"at once, set back", 0, -3 * ms, true},
	} {
		a := clock.Anchor{Sent: sent, Server: 1_000_000_000}
		b := clock.Anchor{Sent: sent.Add(tc.local), Server: a.Server + tc.server.Microseconds(), Epoch: 7}
		assert.Equal(t, tc.want, clock.Stepped(a, b, 2*ms, clock.DefaultDrift), tc.name)
	}
	// A suspend is no step: the server's clock went on, and so did the local wall clock.
	a := clock.Anchor{Sent: sent, Server: 0}
	assert.False(t, clock.Stepped(a, clock.Anchor{Sent: split(t, sent, ms, time.Hour), Server: time.Hour.Microseconds()}, ms, 0.01))
}

// trial is one pushed grant between a client and a server whose clocks run at rates of their own. Its
// own notion of real time is a float of seconds, which neither of the two can see.
type trial struct {
	clientRate, serverRate float64 // seconds of the clock per second of real time
	base                   time.Time
	offset                 int64 // the server's clock at real time 0, in microseconds
}

func (w trial) client(real float64) time.Time {
	return w.base.Add(time.Duration(real * w.clientRate * float64(time.Second)))
}

func (w trial) server(real float64) int64 { return w.offset + int64(math.Floor(real*w.serverRate*1e6)) }

// overBelief plays one grant and returns by how many seconds of real time the client believes in it
// after the server's key has expired; negative is safe. ok is false if Start saw that the clocks cannot
// be right. drawRate draws how far the rate of a clock is off.
func overBelief(rng *rand.Rand, base time.Time, drawRate func() float64) (seconds float64, ok bool) {
	w := trial{1 + drawRate(), 1 + drawRate(), base, rng.Int64N(4e15)}
	latency := func() float64 { return rng.ExpFloat64() * []float64{0.0001, 0.01, 1}[rng.IntN(3)] }

	sent := latency() // of the request that gives the anchor, then its way to the server
	executed := sent + latency()
	anchor := clock.Anchor{Sent: w.client(sent), Server: w.server(executed)}

	granted := executed + rng.Float64()*[]float64{0.001, 1, 90}[rng.IntN(3)]
	arrival := granted + latency()
	ttl := time.Duration(10+rng.Int64N(30_000)) * time.Millisecond
	// PEXPIRE adds to a clock of whole milliseconds, cut off.
	expires := w.server(granted)/1000*1000 + ttl.Microseconds()

	start, ok := anchor.Start(w.server(granted), w.client(arrival), clock.DefaultDrift)
	if !ok {
		return 0, false
	}
	believed := start.Add(clock.Validity(ttl, clock.DefaultDrift)).Sub(base).Seconds() / w.clientRate
	return believed - float64(expires-w.offset)/1e6/w.serverRate, true
}

// worstOverBelief returns the largest overBelief of many trials with clocks off by up to bound, and how
// many pushes were not believed at all. Every
// other rate is at the bound itself, because that is where the assumption ends.
func worstOverBelief(t testing.TB, trials int, bound float64) (worst float64, refused int) {
	seed := rand.Uint64()
	if text := os.Getenv("REDQUORUM_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "REDQUORUM_SEED")
	}
	t.Logf("seed %d (set REDQUORUM_SEED to repeat)", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	drawRate := func() float64 {
		return bound * []float64{-1, 1, 2*rng.Float64() - 1, 2*rng.Float64() - 1}[rng.IntN(4)]
	}
	base := time.Now()
	worst = math.Inf(-1)
	for range trials {
		if over, ok := overBelief(rng, base, drawRate); ok {
			worst = max(worst, over)
		} else {
			refused++
		}
	}
	t.Logf("%d trials, rates within %.3f %%: latest over-belief %+.3f ms, %d pushes refused", trials, bound*100, worst*1000, refused)
	return worst, refused
}

func TestPushedGrantIsNeverBelievedBeyondItsKey(t *testing.T) {
	worst, refused := worstOverBelief(t, 300_000, clock.DefaultDrift/2)
	assert.Negative(t, worst)
	assert.Zero(t, refused, "honest pushes were refused")
}

// The control: with clocks further off than the assumption allows, the same trials find violations, so
// they would find them in a wrong formula, too.
func TestClocksBeyondTheAssumptionAreBelievedTooLong(t *testing.T) {
	worst, refused := worstOverBelief(t, 300_000, 0.006)
	assert.Greater(t, worst, 0.05)
	assert.Positive(t, refused, "Start never saw that the clocks are off")
}

func TestHonestClocksAreNeverCalledStepped(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	base := time.Now()
	const bound = clock.DefaultDrift / 2 * (1 - clock.DefaultDrift) // elapsed time is on the local clock
	drawRate := func() float64 { return bound * []float64{-1, 1, 2*rng.Float64() - 1}[rng.IntN(3)] }
	for range 300_000 {
		w := trial{1 + drawRate(), 1 + drawRate(), base, rng.Int64N(4e15)}
		roundTrip := rng.ExpFloat64() * 0.01
		read := func(sent float64) clock.Anchor { // the reply needs some of the time, too
			return clock.Anchor{Sent: w.client(sent), Server: w.server(sent + roundTrip*0.98*rng.Float64())}
		}
		first := rng.Float64()
		second := first + rng.Float64()*[]float64{0.01, 1, 90}[rng.IntN(3)]
		a, b := read(first), read(second)
		measured := time.Duration(roundTrip * w.clientRate * float64(time.Second))
		require.False(t, clock.Stepped(a, b, measured, clock.DefaultDrift), "%+v: %+v %+v", w, a, b)

		// A step of more than the bound on both sides always shows.
		elapsed := b.Sent.Sub(a.Sent)
		step := 2*(elapsed/100+measured+time.Microsecond) + 2*time.Microsecond
		if rng.IntN(2) == 0 {
			step = -step
		}
		b.Server += step.Microseconds()
		require.True(t, clock.Stepped(a, b, measured, clock.DefaultDrift), "%+v: step %v not seen", w, step)
	}
}
