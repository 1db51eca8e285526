package redlock

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// flight is a call without an answer.
type flight struct {
	sent  float64
	from  member.State
	yield bool
}

// Members come and go, refuse, fail, forget, are moved and have full lines, in any order: what a waiter is to do next always
// comes to an end, and it never sleeps for longer than until its next heartbeat.
func TestWaiterNeitherSpinsNorSleepsWhateverItHears(t *testing.T) {
	ends := map[deed]int{}
	for seed := range seeds(12_000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := []int{1, 3, 5}[rng.IntN(3)]
		d := newDesk(n)
		if rng.IntN(2) == 0 {
			d.giveUp = -1
		}
		if rng.IntN(4) == 0 {
			d.part = 15 * time.Millisecond
		}
		if rng.IntN(3) == 0 {
			d.doubt = quorum.Set(rng.IntN(1 << n))
			d.notYet = d.at(float64(rng.IntN(1000)))
		}
		fl := make([][]flight, n)
		ms := 0.0
		tok := int64(1)
	game:
		for range 120 {
			for k := 0; ; k++ {
				if k > 12 {
					t.Fatalf("seed %d: spins", seed)
				}
				now := d.at(ms)
				s := d.advance(now, d.states)
				if s.deed == deedAsk {
					for i, st := range d.states {
						if s.to.Has(i) && st.Votes && st.Inbox {
							d.waitSubmitted(i, st.Gen, now)
							d.submitted(i, true, now)
							if rng.IntN(6) == 0 {
								err := member.ErrDown
								if rng.IntN(2) == 0 {
									err = member.ErrOverflow
								}
								d.answered(i, answer{outcome: member.NotSent, err: err, sent: now, at: now, from: st, now: st}, d.part)
								continue
							}
							fl[i] = append(fl[i], flight{ms, st, false})
						}
					}
					continue
				}
				if s.deed == deedYield {
					for _, y := range s.yields {
						d.submitted(y.member, false, now)
						fl[y.member] = append(fl[y.member], flight{ms, d.states[y.member], true})
					}
					continue
				}
				if s.deed != deedWait {
					ends[s.deed]++
					break game
				}
				if !s.wake.After(now) {
					t.Fatalf("seed %d: wakes at once: %v, %v", seed, s.wake.Sub(now), ms)
				}
				if s.wake.Sub(now) > d.entry/3+time.Millisecond {
					t.Fatalf("seed %d: sleeps for %v", seed, s.wake.Sub(now))
				}
				switch rng.IntN(4) {
				case 0:
					ms = float64(s.wake.Sub(d.start)) / 1e6
				default:
					ms = min(ms+rng.Float64()*[]float64{1, 10, 300}[rng.IntN(3)], float64(s.wake.Sub(d.start))/1e6)
				}
				break
			}
			i := rng.IntN(n)
			switch rng.IntN(10) {
			case 0:
				d.states[i].Inbox = !d.states[i].Inbox
			case 1:
				d.states[i].Votes = !d.states[i].Votes
				d.states[i].Quarantine = time.Time{}
				if !d.states[i].Votes && rng.IntN(2) == 0 {
					d.states[i].Quarantine = d.at(ms + 30000)
				}
			case 2:
				d.states[i].Ear++
			case 3:
				d.states[i].Gen++
			case 4:
				tok++
				d.pushed(i, push{token: tok, server: micros(ms - rng.Float64()), other: "-", ttl: d.part}, d.states[i], d.at(ms))
			default:
				if len(fl[i]) == 0 {
					break
				}
				f := fl[i][0]
				fl[i] = fl[i][1:]
				a := answer{outcome: member.Answered, sent: d.at(f.sent), at: d.at(ms), server: micros((ms + f.sent) / 2), from: f.from, now: d.states[i]}
				switch rng.IntN(8) {
				case 0:
					a.outcome, a.err = member.Unknown, member.ErrBroken
				case 1:
					a.outcome, a.err = member.Refused, errors.New("x")
				case 2:
					a.outcome, a.err = member.Refused, &member.ReplyError{Kind: []member.Kind{member.KindForeign, member.KindAuth, member.KindExhausted, member.KindOther}[rng.IntN(4)]}
				case 3, 4:
					tok++
					a.n = tok
				default:
					a.n = -int64(rng.IntN(3000))
				}
				if f.yield {
					a.n = max(a.n, 0)
					d.yieldAnswered(i, a)
				} else {
					d.answered(i, a, d.part)
				}
			}
		}
	}
	for _, deed := range []deed{deedDecide, deedForeign, deedNoQuorum, deedStandBack} {
		require.NotZero(t, ends[deed], "deed %d: %v", deed, ends)
	}
}
