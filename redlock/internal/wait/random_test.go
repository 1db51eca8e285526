package wait

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// ending is how a game ends.
type ending struct {
	do  Action
	why Cause
}

// flight is a call without an answer.
type flight struct {
	sent  float64
	from  member.State
	yield bool
}

// Members come and go, refuse, fail, forget, are moved and have full lines, in any order: what a waiter is to do next always
// comes to an end, and it never sleeps for longer than until its next heartbeat.
func TestWaiterNeitherSpinsNorSleepsWhateverItHears(t *testing.T) {
	ends := map[ending]int{}
	for seed := range uint64(10_000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := []int{1, 3, 5}[rng.IntN(3)]
		d := newDesk(n)
		if rng.IntN(2) == 0 {
			d.terms.GiveUp = -1
		}
		if rng.IntN(4) == 0 {
			Probe{&d.Ballot}.SetPart(15 * time.Millisecond)
		}
		if rng.IntN(3) == 0 {
			d.more().silentBefore = memberset.Set(rng.IntN(1 << n))
			d.notBefore = d.at(float64(rng.IntN(1000)))
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
				s := d.Next(now, d.states)
				if s.Do == Register {
					for i, st := range d.states {
						if s.To.Has(i) && st.Votes && st.Inbox {
							if rng.IntN(6) == 0 {
								err := member.ErrDown
								if rng.IntN(2) == 0 {
									err = member.ErrOverflow
								}
								d.Answered(i, Answer{Err: err, Answer: core.Answer{Outcome: member.NotSent, Sent: now, At: now, From: st.Brief, Now: st.Brief}}, d.part)
								continue
							}
							fl[i] = append(fl[i], flight{ms, st, false})
						}
					}
					continue
				}
				if s.Do == Yield {
					for _, y := range s.Offers {
						fl[y.Given.Member()] = append(fl[y.Given.Member()], flight{ms, d.states[y.Given.Member()], true})
					}
					continue
				}
				if s.Do != Sleep {
					ends[ending{s.Do, s.Cause}]++
					break game
				}
				if !s.Wake.After(now) {
					t.Fatalf("seed %d: wakes at once: %v, %v", seed, s.Wake.Sub(now), ms)
				}
				if s.Wake.Sub(now) > d.terms.Entry/3+time.Millisecond {
					t.Fatalf("seed %d: sleeps for %v", seed, s.Wake.Sub(now))
				}
				switch rng.IntN(4) {
				case 0:
					ms = float64(s.Wake.Sub(d.start)) / 1e6
				default:
					ms = min(ms+rng.Float64()*[]float64{1, 10, 300}[rng.IntN(3)], float64(s.Wake.Sub(d.start))/1e6)
				}
				break
			}
			for i := range n {
				name, exists := Probe{&d.Ballot}.Combination(i)
				require.True(t, exists, "seed %d: %s", seed, name)
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
				d.Pushed(i, Push{Push: core.Push{Token: tok, Server: micros(ms - rng.Float64()), TTL: d.part}, Next: "-"}, d.states[i], d.at(ms))
			default:
				if len(fl[i]) == 0 {
					break
				}
				f := fl[i][0]
				fl[i] = fl[i][1:]
				a := Answer{Answer: core.Answer{Outcome: member.Answered, Sent: d.at(f.sent), At: d.at(ms), Server: micros((ms + f.sent) / 2), From: f.from.Brief, Now: d.states[i].Brief}}
				switch rng.IntN(8) {
				case 0:
					a.Outcome, a.Err = member.Unknown, member.ErrBroken
				case 1:
					a.Outcome, a.Err = member.Refused, errors.New("x")
				case 2:
					a.Outcome, a.Err = member.Refused, &member.ReplyError{Kind: []member.Kind{member.KindForeign, member.KindAuth, member.KindExhausted, member.KindOther}[rng.IntN(4)]}
				case 3, 4:
					tok++
					a.N = tok
				default:
					a.N = -int64(rng.IntN(3000))
				}
				if f.yield {
					a.N = max(a.N, 0)
					d.YieldAnswered(i, a)
				} else {
					d.Answered(i, a, d.part)
				}
			}
		}
	}
	for _, e := range []ending{{Win, 0}, {Raise, 0}, {Lose, Foreign}, {Lose, NoQuorum}, {Again, StoodBack}} {
		require.NotZero(t, ends[e], "%v: %v", e, ends)
	}
}
