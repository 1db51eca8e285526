// Package election has the state machine of an election: who leads, by what the members have said, and what an observer
// is told of it.
package election

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Leader is who leads an election, as the members say.
type Leader struct {
	Value []byte // what the leader has proclaimed; not nil unless None
	Token uint64 // of its lease: its term
	None  bool   // nobody leads
}

// State is what the members of an election have said, each with its last word. It asks nobody
// and reads no clock.
type State struct {
	need int
	said []said // by member
}

// said is the last word of one member.
type said struct {
	script.ElectionAnswer
	heard bool      // false: the member is silent
	sent  time.Time // when it was asked
	until time.Time // when the vote is over unless the member has lengthened it; with an Owner
}

// New returns the state before anything was heard. A majority are so many as need.
func New(members, need int) State {
	return State{need: need, said: make([]said, members)}
}

// Heard books what member i said: it was asked at sent, and the answer arrived at that time.
func (s *State) Heard(i int, w script.ElectionAnswer, sent, at time.Time) {
	s.said[i] = said{ElectionAnswer: w, heard: true, sent: sent, until: at.Add(w.TTL)}
}

// Silent forgets what member i said: it does not hold any more, or nothing is heard.
func (s *State) Silent(i int) { s.said[i] = said{} }

// holds reports whether the last word of a member is still one: a vote that should have ended may
// have been lengthened, or not.
func (w *said) holds(now time.Time) bool {
	return w.heard && (w.Owner == "" || clock.Until(w.until, now) > 0)
}

// term is a leader, with what orders all that leaders have proclaimed.
type term struct {
	Leader
	owner string // its Hash
	seq   int64
}

// after reports whether t was proclaimed after u.
func (t *term) after(u *term) bool {
	return t.Token > u.Token || t.Token == u.Token && t.seq > u.seq
}

// names counts the members that name an owner, and those that may: they are silent, or they named
// somebody else when they were asked before since.
func (s *State) names(owner string, since, now time.Time) (named, may int) {
	for i := range s.said {
		w := &s.said[i]
		switch {
		case !w.holds(now):
			may++
		case owner != "" && w.Owner == owner && !w.resigned(owner):
			named++
		case w.sent.Before(since):
			may++
		}
	}
	return named, may
}

// resigned reports whether the owner has said its last word there.
func (w *said) resigned(owner string) bool { return w.By == owner && w.Value == nil }

// proclaimed finds the last that an owner has proclaimed; ok is false if no member knows a value.
func (s *State) proclaimed(owner string) (t term, ok bool) {
	t.owner = owner
	for i := range s.said {
		if w := &s.said[i]; w.heard && w.By == owner && w.Seq > t.seq {
			t.Leader, t.seq = Leader{Value: w.Value, Token: uint64(w.Token)}, w.Seq
		}
	}
	return t, t.Value != nil
}

// leader finds the owner that a majority name and that has proclaimed a value.
func (s *State) leader(now time.Time) (t term, ok bool) {
	for i := range s.said {
		owner := s.said[i].Owner
		if owner == "" {
			continue
		}
		if named, _ := s.names(owner, time.Time{}, now); named >= s.need {
			return s.proclaimed(owner)
		}
	}
	return term{}, false
}

// Leader is that owner's last word; ok is false if there is none.
func (s *State) Leader(now time.Time) (l Leader, ok bool) {
	t, ok := s.leader(now)
	return t.Leader, ok
}

// Vacant reports whether nobody leads, whatever the silent members would say.
func (s *State) Vacant(now time.Time) bool {
	if s.leads("", time.Time{}, now) {
		return false
	}
	for i := range s.said {
		owner := s.said[i].Owner
		if owner == "" || !s.leads(owner, time.Time{}, now) {
			continue
		}
		named, _ := s.names(owner, time.Time{}, now)
		if _, ok := s.proclaimed(owner); ok || named < s.need {
			return false
		}
	}
	return true
}

// Decided reports whether no majority can name an owner, whatever the silent members would say.
func (s *State) Decided(now time.Time) bool {
	for i := range s.said {
		if owner := s.said[i].Owner; owner != "" && s.leads(owner, time.Time{}, now) {
			return false
		}
	}
	return !s.leads("", time.Time{}, now)
}

// leads reports whether a majority may name an owner that they named at since. "" is one that nobody
// has heard of.
func (s *State) leads(owner string, since, now time.Time) bool {
	named, may := s.names(owner, since, now)
	return named+may >= s.need
}

// Outlook is what an observer is told: leaders in the order in which they proclaimed, and once that
// nobody leads.
type Outlook struct {
	State
	last term      // that the observer was told; zero: none yet
	at   time.Time // when
	none bool      // it was told since that nobody leads
}

// Next is what the observer is to be told now, if anything. A leader whom the observer knew comes
// again if nobody led in between, by the members' word. A lease that they had forgotten and have
// taken back looks like that.
func (o *Outlook) Next(now time.Time) (l Leader, ok bool) {
	t, led := o.leader(now)
	if led && o.last.owner != "" && t.Token == o.last.Token && t.seq == o.last.seq && t.owner != o.last.owner {
		o.last.owner, o.at = t.owner, now // the lease was handed off
	}
	switch {
	case led && (t.after(&o.last) || o.none && t.owner == o.last.owner && t.seq == o.last.seq):
		o.last, o.at, o.none = t, now, false
		return t.Leader, true
	case o.none:
	case o.last.owner == "" && !led && o.Vacant(now), o.last.owner != "" && !o.leads(o.last.owner, o.at, now):
		o.none = true
		return Leader{None: true}, true
	}
	return Leader{}, false
}
