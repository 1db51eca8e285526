package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// Waits of one client share a timer. Each ends at its own moment all the same, whatever begins and ends meanwhile.
func TestWaitsOfAnyLengthEndWhenTheyShould(t *testing.T) {
	for seed := range uint64(20) {
		faketime.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			var rounds Rounds
			var all sync.WaitGroup
			for range 60 {
				begins, takes := time.Duration(rng.IntN(50))*time.Millisecond, time.Duration(1+rng.IntN(50))*time.Millisecond
				decided := time.Duration(rng.IntN(150)) * time.Millisecond // perhaps never: the time is over before
				all.Go(func() {
					time.Sleep(begins)
					fs, ms := fakes(1)
					r := asking(&rounds, ms, Question{To: memberset.All(1), Need: 1, Judge: &judge{}}).Start()
					defer r.Free()
					time.AfterFunc(decided, func() { fs[0].answer(member.Answered, nil) })
					began := time.Now()
					v, err := r.Wait(context.Background(), began, takes)
					took := time.Since(began)
					switch {
					case err != nil:
						t.Error(err)
					case decided < takes && (v != Won || took != decided):
						t.Errorf("%v after %v, not won after %v", v, took, decided)
					case decided > takes && (v != Undecided || took != takes):
						t.Errorf("%v after %v, not undecided after %v", v, took, takes)
					}
				})
			}
			all.Wait()
			synctest.Wait()
			require.Nil(t, rounds.alarms.first)
			require.Nil(t, rounds.alarms.last)
		})
	}
}

// A wait that is late because this process did not run gets as long again, once, and never longer than it was to take.
func TestWaitThatWasOversleptGetsAsLongAgain(t *testing.T) {
	for _, c := range []struct{ timeout, late, takes time.Duration }{
		{100 * time.Millisecond, 5 * time.Millisecond, 0},
		{100 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond},
		{100 * time.Millisecond, time.Hour, 100 * time.Millisecond},
	} {
		faketime.Test(t, func(t *testing.T) {
			_, ms := fakes(1)
			r := asking(new(Rounds), ms, Question{To: memberset.All(1), Need: 1, Judge: &judge{}}).Start()
			defer r.Free()
			now := time.Now()
			v, err := r.Wait(t.Context(), now.Add(-c.timeout-c.late), c.timeout)
			require.NoError(t, err)
			require.Equal(t, Undecided, v)
			require.Equal(t, c.takes, time.Since(now))
		})
	}
}

// A member that goes on answering other calls of the line is busy and not silent: it is waited for, but not for ever.
func TestBusyMemberIsWaitedForLongerThanASilentOne(t *testing.T) {
	const timeout = 100 * time.Millisecond
	for name, c := range map[string]struct {
		last  time.Duration // since when the call at the head of the line stands there; -1: the line is empty
		every time.Duration // how often that changes; 0: never
		takes time.Duration
		ttl   time.Duration  // of what is asked for
		also  member.Outcome // of a third member; Unanswered: it is silent
	}{
		"silent":                         {0, 0, timeout, 0, member.Answered},
		"silent since a while ago":       {-50 * time.Millisecond, 0, timeout, 0, member.Answered},
		"nothing in line":                {-1, 0, timeout, 0, member.Answered},
		"silent from now on":             {70 * time.Millisecond, 0, 170 * time.Millisecond, 0, member.Answered},
		"busy":                           {0, 30 * time.Millisecond, Patience * timeout, 0, member.Answered},
		"busy for too long to be of use": {0, 30 * time.Millisecond, 250 * time.Millisecond, 250 * time.Millisecond, member.Answered},
		"busy, and what it decides is over before it is silent": {0, 30 * time.Millisecond, timeout, timeout / 2, member.Answered},
		"busy, beside too many that are silent":                 {0, 30 * time.Millisecond, timeout, 0, member.Unanswered},
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				fs, ms := fakes(5)
				began := time.Now()
				fs[1].waiting = func() (time.Time, bool) {
					if c.every > 0 {
						return began.Add(time.Since(began).Truncate(c.every)), true
					}
					if c.last == -1 {
						return time.Now(), false
					}
					return began.Add(c.last), true
				}
				fs[2].waiting = func() (time.Time, bool) { return time.Now(), true } // has answered: it is not waited for
				r := asking(new(Rounds), ms, Question{Sent: began, TTL: c.ttl, To: memberset.All(5), Need: 3, Judge: &judge{}}).Start()
				defer r.Free()
				fs[2].answer(member.Refused, errors.New("refused"))
				fs[3].answer(member.Answered, nil)
				if c.also != member.Unanswered {
					fs[4].answer(c.also, nil)
				}
				v, err := r.Wait(t.Context(), began, timeout)
				require.NoError(t, err)
				require.Equal(t, Undecided, v)
				require.Equal(t, c.takes, time.Since(began))
			})
		})
	}
}
