package guard

import (
	"time"

	"github.com/redquorum/redquorum/member"
)

// youngMarker bounds the age of a marker by which a client sees that another client marks a first
// deployment.
const youngMarker = 5 * time.Second

// view is what decide needs to know beside the marker.
type view struct {
	mode     Mode
	fresh    bool
	saw      bool // the client has seen a marker of another client
	known    bool // the client has seen a marker of this very member
	unmarked int  // members whose first look found no marker
	members  int
	q        time.Duration
	lag      time.Duration // Terms.Lag

	waiting // see early
}

// action is what to do with a member whose marker was read.
type action uint8

const (
	accept   action = iota
	markNew         // first deployment: state n
	markLost        // it forgot: state g
)

// decide is the whole rule of docs/protocol.md, "Marker" and docs/protocol.md, "First start". If
// the member is to be marked, quarantine is how long it then rests: q, and the lag besides, because the server may stand in
// the place of a master that goes on granting for that long.
func decide(m marker, runID string, v view) (do action, quarantine time.Duration) {
	rest := v.q + v.lag
	switch {
	case m.of(runID):
		return accept, 0
	case m.id != "" && v.mode == Off && (m.known() || !m.promoted()): // its own data, and no replica's
		return accept, 0
	case m.id == "" && v.mode == Off && v.fresh: // a test suite empties its members as it likes
		return markNew, 0
	case m.id != "" || v.known:
		return markLost, rest
	case !v.saw && v.fresh: // a person vouches for those that do not answer, too
		return markNew, 0
	case !v.saw && v.unmarked == v.members: // a first start, or all lost everything: no sign of a server tells which
		return markNew, rest
	}
	return markLost, rest
}

// enoughToVote reports whether a client may use votes when told members have learnt of its MaxTTL.
func enoughToVote(told, members int) bool { return told >= member.Majority(members) }

// Standing is what the guard has found of a member, as the node publishes it. The zero value is the
// standing of a member that the guard has not admitted.
type Standing struct {
	marker    marker
	admitted  bool      // the marker is that of the running process, in this generation
	votesFrom time.Time // the quarantine ends then, by our monotonic clock: see reads
}

// Marker is the id of the member's marker, and "" if the member was never admitted. It names one
// memory of one process.
func (a Standing) Marker() string { return a.marker.id }

// Admitted reports whether the guard has admitted the member in this generation.
func (a Standing) Admitted() bool { return a.admitted }

// reads takes a newer reading of the marker. What is left of a quarantine runs on our monotonic clock. A later reading may prolong
// it, and never shortens it: a server whose clock was set forward ends the key early, and what it says then ends nothing here.
func (a Standing) reads(m marker) Standing {
	if m.left > 0 {
		a = a.until(m.arrived.Add(m.left))
	}
	a.marker = m
	return a
}

// until has the member vote no sooner than at.
func (a Standing) until(at time.Time) Standing {
	if at.After(a.votesFrom) {
		a.votesFrom = at
	}
	return a
}

// takes is reads, unless the reading is of another marking or older than a restoring: a look that
// was answered before the restoring may be taken after it, and nothing of one id goes back from
// whole.
func (a Standing) takes(m marker) Standing {
	old := a.marker
	if a.admitted && old.id == m.id && !(old.state == whole && m.state == forgot) {
		return a.reads(m)
	}
	return a
}

// mayVote reports whether the guard lets the member vote at now. Two must have ended the quarantine: the member, which others may
// have told of longer leases, and our own count, on the monotonic clock alone, which leaves the most.
func (a Standing) mayVote(now time.Time) bool {
	m := a.marker
	return a.admitted && m.state != forgot && m.left == 0 && now.Sub(a.votesFrom) >= 0
}

// stays reports whether a reading shows the memory of this standing, whose q is at least ours. The server must be a master
// that was no replica since the last reading: its replication id may have changed without a promotion.
func (a Standing) stays(m marker, q time.Duration) bool {
	return m.id == a.marker.id && m.q >= q && !m.follows() && (m.known() || m.renamed())
}

// knows reports whether the member remembers everything, by a reading of its marker under this
// standing. Only then it lends its counters.
func (a Standing) knows(m marker) bool {
	return m.id == a.marker.id && m.state != forgot && m.left == 0 && m.known()
}

// Verdict is what a member is good for, in the eyes of the guard.
type Verdict struct {
	Votes      bool
	Tag        string    // for Tagged calls: the marker's id, or NoHandOver
	Barred     error     // what a Tagged call gets while the member is up and does not vote
	Quarantine time.Time // when the quarantine ends; zero while the member votes or is down
}

// NoHandOver is the tag that tells a release to free the vote and not to serve a waiter's request.
const NoHandOver = "!"

// verdict of a member that is up or not. met: a majority knows of our MaxTTL, see Guard.met.
func (a Standing) verdict(name string, up, met bool, now time.Time) (v Verdict) {
	fit := a.mayVote(now)
	may := fit && met
	v.Votes, v.Tag = up && may, a.marker.id
	if !may {
		v.Tag = NoHandOver
	}
	if up && !may {
		v.Quarantine, v.Barred = a.barred(name, fit)
	}
	return v
}

// source is a member that knows, or a whole cluster.
type source struct {
	clk    bool
	q      time.Duration // the greatest MaxTTL that the member was told of
	memory string        // what it has, of all masters
	of     []*Seat       // of a cluster, all masters
}

// longestOf is the q that the quarantine of a member must have lasted for when it is restored (docs/protocol.md, "Restore"): the
// greatest that the client knows or that a source tells.
func longestOf(known time.Duration, sources []source) time.Duration {
	for _, s := range sources {
		known = max(known, s.q)
	}
	return known
}

// enoughSources is how many of the members that know meet every majority without the one that
// forgot.
func enoughSources(members int) int { return members - member.Majority(members) + 1 }
