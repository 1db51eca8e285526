// Package history records what the holders of locks believed, and finds what must never be in such
// a history. Times are nanoseconds on the machine's monotonic clock, so that tenures of several
// processes on one machine can be compared.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// At returns the reading of Now at time t, which must come from time.Now in this process.
func At(t time.Time) int64 { return Now() + int64(time.Until(t)) }

// Tenure is one grant of a lock, as its holder believed in it.
type Tenure struct {
	Client int    `json:"client"`
	Key    string `json:"key"`
	Token  uint64 `json:"token"`
	Asked  int64  `json:"asked"` // call of Lock
	From   int64  `json:"from"`  // return of Lock
	To     int64  `json:"to"`    // call of Unlock, or the end of validity if that came first
	// Back is the return of Unlock. It is 0 if the tenure ended otherwise, and the members may
	// learn of that later.
	Back  int64 `json:"back,omitempty"`
	Votes int   `json:"votes,omitempty"`
}

// Recorder gathers tenures. Safe for concurrent use; the zero value is ready.
type Recorder struct {
	mu      sync.Mutex
	tenures []Tenure
}

// Add books tenures that have ended.
func (r *Recorder) Add(all ...Tenure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenures = append(r.tenures, all...)
}

// Len is the number of tenures booked.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tenures)
}

// Tenures returns a copy of all.
func (r *Recorder) Tenures() []Tenure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tenures)
}

// PerClient counts the tenures of each of n clients.
func (r *Recorder) PerClient(n int) []int {
	out := make([]int, n)
	for _, x := range r.Tenures() {
		out[x.Client]++
	}
	return out
}

// Verdict is what a check found. The zero value means that it found nothing.
type Verdict struct {
	Overlaps    []string // two holders believed in the same key at once
	Regressions []string // a later tenure with no greater token, or a token given out twice
	Illegal     []string // keys whose history no fenced lock could have produced (porcupine), or undecided
}

// Clean reports whether nothing was found.
func (v Verdict) Clean() bool { return len(v.Overlaps)+len(v.Regressions)+len(v.Illegal) == 0 }

func (v Verdict) String() string {
	s := fmt.Sprintf("%d overlaps, %d token regressions, %d keys with an illegal history",
		len(v.Overlaps), len(v.Regressions), len(v.Illegal))
	for _, list := range [][]string{v.Overlaps, v.Regressions, v.Illegal} {
		for _, x := range list[:min(len(list), 5)] {
			s += "\n  " + x
		}
	}
	return s
}

// Check looks for overlaps and at the order of tokens, by counting and with porcupine.
func Check(tenures []Tenure) Verdict {
	v := Verdict{}
	v.Overlaps, v.Regressions = count(tenures)
	v.Illegal = linearize(tenures)
	return v
}

func count(tenures []Tenure) (overlaps, regressions []string) {
	tenures = slices.Clone(tenures)
	slices.SortStableFunc(tenures, func(x, y Tenure) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.From, y.From))
	})
	type grant struct {
		key   string
		token uint64
	}
	seen := make(map[grant]bool, len(tenures))
	var last Tenure // of the key, the one with the latest end
	for _, x := range tenures {
		if g := (grant{x.Key, x.Token}); seen[g] {
			regressions = append(regressions, fmt.Sprintf("token given out twice: %+v", x))
		} else {
			seen[g] = true
		}
		if x.To <= x.From {
			continue // its validity had ended before its holder looked: nobody believed in it
		}
		if x.Key == last.Key {
			if x.From < last.To {
				overlaps = append(overlaps, fmt.Sprintf("%+v and %+v", last, x))
			}
			if x.Token <= last.Token {
				regressions = append(regressions, fmt.Sprintf("%+v and then %+v", last, x))
			}
		}
		if x.Key != last.Key || x.To > last.To {
			last = x
		}
	}
	return overlaps, regressions
}
