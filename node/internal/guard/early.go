package guard

import (
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// lookAgain is how long a process that never saw a marker waits for another client's marking.
const lookAgain = time.Second

// waiting is what early needs to know beside the view.
type waiting struct {
	waited   time.Duration // since the first look at this member found no marker
	patience time.Duration // for the other members' first answers
	young    bool          // a marker of another member has state n and is younger than youngMarker
}

// early reports whether the client looks again before it decides what a missing marker means. Nothing rests on that but time:
// without more looks decide takes the member for one that forgot, or has it rest for longer.
func early(m marker, v view) bool {
	switch {
	case m.id != "" || v.known || v.mode == Off && v.fresh:
		return false
	case !v.saw && v.unmarked == v.members:
		return false
	}
	return !v.saw && v.waited < v.patience || v.young && v.waited < lookAgain
}

// early is what the function says, at a look of a session that began to look then.
func (s *Seat) early(m marker, runID string, v view, began time.Time) bool {
	v.waited, v.patience = clock.Elapsed(began, time.Now()), s.terms.Patience
	// A part was marked for this process: somebody is about to carry the marker here.
	v.young = s.young() || m.id == "" && strings.HasPrefix(m.stamp, runID+" ")
	return early(m, v)
}

// age is how long ago the member was marked.
func (m marker) age() time.Duration {
	_, micros, _ := strings.Cut(m.id, " ")
	made, _ := strconv.ParseInt(micros, 10, 64)
	return time.Duration(m.told-made)*time.Microsecond + time.Since(m.arrived)
}

// young reports whether another member was marked a moment ago, in a first deployment.
func (s *Seat) young() bool {
	for _, o := range s.guard.others() {
		m := o.host.Now().Standing.marker
		if o != s && m.id != "" && m.state == neverForgot && m.age() < youngMarker {
			return true
		}
	}
	return false
}
