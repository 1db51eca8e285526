// Package latch is what one client knows of one round of a countdown latch, and what it tells the
// members of it.
//
// The question "have so many arrived?" is monotone: once the answer is yes, it stays so. So what a
// member says is evidence however old it is, and however often it is said. What a member knows is
// ordered by the round, then by each id's number of arrivals, and by open. Two members' knowledge is
// joined by taking the greater of each. Nothing is taken back, so members may forget and come back
// with an old state, and messages may be lost, repeated and overtaken. A majority is needed only so
// that evidence is not lost.
//
// A Latch has three parts: what its own client has arrived with and which members have that; what it
// has heard, which may reach the count where no member does; and who knows that the latch is open.
// The package does no I/O and reads no clock.
package latch

import (
	"slices"
	"sort"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// Terms are what a Latch is to know.
type Terms struct {
	Round int64
	Count int64         // 0: another client tells it
	Need  int           // a majority
	Most  int           // arrivals in one call
	Retry time.Duration // pause after a call that failed
}

// State is what a member says of a latch.
type State struct {
	Round       int64
	Count       int64 // 0: not told
	Sum, Digest int64 // of all arrivals: members that say the same have the same ones
	Open        bool
}

// Arrival is how often an id has arrived.
type Arrival struct {
	ID string
	N  int64
}

// Latch is safe for use by one goroutine at a time.
type Latch struct {
	terms  Terms
	log    []entry        // own arrivals that are kept, each id once, in the order of their versions
	latest map[string]int // id -> the version of its entry
	newest int            // the version of the last arrival
	union  map[string]int64
	sum    int64 // of union
	count  int64 // 0: nobody has told it
	open   bool
	passed bool
	at     []place
	life   int // how often it was forgotten

	refused map[string]struct{} // ids that were told of and refused, and whose callers may not know yet
}

// entry is an arrival of this client. It replaces the one of its id with a smaller version.
type entry struct {
	Arrival
	version int
}

// place is what is known of one member.
type place struct {
	gen, epoch uint64 // of the member, for all that follows
	met        bool   // gen is set
	pending    bool   // a call of Due is under way
	failed     bool   // the last one did
	due        time.Time
	here       bool  // it has said something of the round
	has        int   // the version up to which the member has the own arrivals
	knows      bool  // that the latch is open
	differs    bool  // it has been told another count
	other      int64 // that one
	later      bool  // it has been told a later round
	said       bool  // what follows was said
	steady     bool  // and before it the same
	sum        int64
	digest     int64
}

// New returns what a client knows at first.
func New(members int, t Terms) *Latch {
	return &Latch{terms: t, count: t.Count, latest: map[string]int{}, union: map[string]int64{}, at: make([]place, members)}
}

// Arrive books that an id has arrived n times by now, and returns the version by which Stored tells
// whether members have that.
func (l *Latch) Arrive(id string, n int64) (version int) {
	if v, ok := l.latest[id]; ok && l.log[l.find(v)].N >= n {
		return v
	}
	l.drop(id)
	delete(l.refused, id)
	l.newest++
	l.log = append(l.log, entry{Arrival{id, n}, l.newest})
	l.latest[id] = l.newest
	l.add(id, n) // and no more: members open the latch, so that they have its arrivals
	for i := range l.at {
		l.at[i].differs = false // the caller has asked anew
	}
	return l.newest
}

// find is the index of the first entry with at least that version.
func (l *Latch) find(version int) int {
	return sort.Search(len(l.log), func(i int) bool { return l.log[i].version >= version })
}

// drop forgets the entry of an id.
func (l *Latch) drop(id string) {
	if v, ok := l.latest[id]; ok {
		i := l.find(v)
		l.log = slices.Delete(l.log, i, i+1)
		delete(l.latest, id)
	}
}

// Refuse forgets all arrivals of an id that members have refused: they are not told again, and do not
// count.
func (l *Latch) Refuse(id string) {
	l.drop(id)
	l.sum -= l.union[id]
	delete(l.union, id)
	if l.refused == nil {
		l.refused = map[string]struct{}{}
	}
	l.refused[id] = struct{}{}
}

// Refused reports whether an id was refused since it arrived last. Then Stored says nothing of it.
func (l *Latch) Refused(id string) bool {
	_, ok := l.refused[id]
	return ok
}

// Idle forgets what only callers want to know, when there are none: of others' arrivals nothing is kept
// then, and of a latch that is open nothing but that.
func (l *Latch) Idle(states []member.State) {
	clear(l.refused)
	if l.open {
		l.Trim(0, states, false)
	}
	switch {
	case len(l.log) == 0:
		l.log, l.latest, l.union, l.sum = nil, map[string]int{}, map[string]int64{}, 0
	case len(l.union) > len(l.log):
		l.union, l.sum = make(map[string]int64, len(l.log)), 0
		for _, e := range l.log {
			l.add(e.ID, e.N)
		}
	}
}

// Arrived reports whether this client has ever arrived.
func (l *Latch) Arrived() bool { return l.newest > 0 }

// Life tells apart what is asked before and after a Forget.
func (l *Latch) Life() int { return l.life }

// Trim forgets arrivals that a majority has, oldest first, until at most that many are kept. They
// are not told to members that forget them, but by somebody who awaits: heard keeps them for that.
func (l *Latch) Trim(most int, states []member.State, heard bool) {
	for len(l.log) > most && l.Stored(l.log[0].version, states) {
		id := l.log[0].ID
		if l.drop(id); !heard {
			l.sum -= l.union[id]
			delete(l.union, id)
		}
	}
}

// Forget begins anew where the latch is deleted: what was heard is forgotten, and the arrivals that a
// majority has are not told again. The others are, because their callers still wait. An answer to a
// call of Due from before counts for nothing.
func (l *Latch) Forget(states []member.State) {
	l.Trim(0, states, false)
	has := l.newest
	if len(l.log) > 0 {
		has = l.log[0].version - 1
	}
	l.life++
	l.union, l.sum, l.count, l.open, l.passed = map[string]int64{}, 0, l.terms.Count, false, false
	for _, e := range l.log {
		l.add(e.ID, e.N)
	}
	for i := range l.at {
		p := &l.at[i]
		*p = place{gen: p.gen, epoch: p.epoch, met: p.met, pending: p.pending, failed: p.failed, due: p.due, has: has}
	}
}

// Kept is how many arrivals are told to a member that has forgotten.
func (l *Latch) Kept() int { return len(l.log) }

// add takes evidence that an id has arrived n times.
func (l *Latch) add(id string, n int64) {
	if old := l.union[id]; n > old {
		l.union[id] = n
		l.sum += n - old
	}
}

// reached opens the latch if what was heard in all reaches the count.
func (l *Latch) reached() { l.open = l.open || l.count > 0 && l.sum >= l.count }

// Batch is one call: the arrivals to tell, or that the latch is open.
type Batch struct {
	To       memberset.Set
	Open     bool
	Known    bool // with Open: these members have had the round, so one that has none has had it deleted
	Arrivals []Arrival
	upto     int
	life     int
}

// Due returns the next call that some members need, and books it as under way there. They all need
// the same. ok is false if nobody needs any, and then wake is when to ask Due again; zero: not before
// something is heard. silent withholds that the latch is open from members that have not said so.
func (l *Latch) Due(now time.Time, states []member.State, silent bool) (b Batch, wake time.Time, ok bool) {
	from := 0
	for i := range l.at {
		p, st := &l.at[i], &states[i]
		if !st.Votes {
			continue
		}
		l.meet(p, st.Brief)
		switch {
		case p.pending, l.passed, l.open && (p.knows || silent), !l.open && (p.differs || p.has >= l.newest):
			continue
		case p.failed && p.epoch == st.Epoch && clock.Until(p.due, now) > 0:
			if wake.IsZero() || p.due.Before(wake) {
				wake = p.due
			}
			continue
		case b.To == 0:
			b.Open, b.Known, from = l.open, l.open && p.here, p.has
		case !l.open && p.has != from, l.open && p.here != b.Known:
			continue // it needs others
		}
		p.pending, p.epoch = true, st.Epoch
		b.To = b.To.With(i)
	}
	if b.To == 0 {
		return Batch{}, wake, false
	}
	b.life = l.life
	if b.upto = l.newest; !b.Open {
		rest := l.log[l.find(from+1):]
		if len(rest) > l.terms.Most {
			rest = rest[:l.terms.Most]
			b.upto = rest[len(rest)-1].version
		}
		for _, e := range rest {
			b.Arrivals = append(b.Arrivals, e.Arrival)
		}
	}
	return b, time.Time{}, true
}

// meet forgets what was known of a member that may have forgotten it.
func (l *Latch) meet(p *place, st member.Brief) {
	if !p.met || p.gen != st.Gen {
		*p = place{met: true, gen: st.Gen, epoch: st.Epoch, pending: p.pending}
	}
}

// Told books what member i answered to a call of Due. from is the member when the call was
// submitted.
func (l *Latch) Told(i int, b *Batch, s State, from member.Brief) {
	p := &l.at[i]
	p.pending, p.failed = false, false
	if b.life != l.life {
		return
	}
	if p.gen != from.Gen { // of another memory than what is known
		l.hear(s)
		return
	}
	l.heard(p, s)
	switch {
	case b.Known && p.here && s.Round < 0: // whoever deleted it wants no more of it
		p.knows = true
	case s.Round != l.terms.Round || p.differs:
	case b.Open:
		p.knows = true
	default:
		p.has = max(p.has, b.upto)
	}
}

// Failed books that a call of Due was not answered.
func (l *Latch) Failed(i int, now time.Time) {
	p := &l.at[i]
	p.pending, p.failed, p.due = false, true, now.Add(l.terms.Retry)
}

// Heard books what member i said to somebody who awaits the latch. life is that of the question: if
// the latch was forgotten since, the answer counts for nothing.
func (l *Latch) Heard(i int, s State, from member.Brief, life int) {
	if life != l.life {
		return
	}
	p := &l.at[i]
	l.meet(p, from)
	l.heard(p, s)
	p.steady = p.said && p.sum == s.Sum && p.digest == s.Digest
	p.said, p.sum, p.digest = true, s.Sum, s.Digest
}

// heard books what a member said in the generation that is known.
func (l *Latch) heard(p *place, s State) {
	l.hear(s)
	if p.later = s.Round > l.terms.Round; s.Round != l.terms.Round {
		return
	}
	p.here = true
	if p.differs = l.terms.Count > 0 && s.Count > 0 && s.Count != l.terms.Count; p.differs {
		p.other = s.Count
	}
	p.knows = p.knows || s.Open
}

// hear takes what any member said at any time.
func (l *Latch) hear(s State) {
	switch {
	case s.Round > l.terms.Round:
		l.passed = true
	case s.Round == l.terms.Round:
		if l.open = l.open || s.Open; l.terms.Count == 0 {
			l.count = max(l.count, s.Count)
			l.reached()
		}
	}
}

// Pushed books a push of member i: a latch of that round is open.
func (l *Latch) Pushed(i int, round int64, from member.State) {
	switch {
	case round > l.terms.Round:
		l.passed = true
	case round == l.terms.Round:
		l.open = true
		if p := &l.at[i]; p.met && p.gen == from.Gen {
			p.knows = true
		}
	}
}

// Unequal returns the members whose arrivals are to be read and joined: those that vote, if two of
// them lack what the other has, and nothing new came between their last two answers. A member that
// is behind only because arrivals are under way catches up by itself.
func (l *Latch) Unequal(states []member.State) (out memberset.Set) {
	first, unequal := -1, false
	for i := range l.at {
		p := &l.at[i]
		if !states[i].Votes || !p.met || p.gen != states[i].Gen || !p.said {
			continue
		}
		if !p.steady {
			return 0
		}
		if out = out.With(i); first < 0 {
			first = i
		} else if f := &l.at[first]; f.sum != p.sum || f.digest != p.digest {
			unequal = true
		}
	}
	if !unequal || l.open {
		return 0
	}
	return out
}

// Repaired books that the members that were Unequal have been read. Whether they differ still is told
// by two further answers of each.
func (l *Latch) Repaired() {
	for i := range l.at {
		l.at[i].said = false
	}
}

// Join takes what a member has of the round as evidence.
func (l *Latch) Join(s State, has map[string]int64) {
	l.hear(s)
	if s.Round == l.terms.Round {
		for id, n := range has {
			l.add(id, n)
		}
		l.reached()
	}
}

// Lacking returns what a member with these arrivals lacks of all that was heard, in the order of the
// ids.
func (l *Latch) Lacking(has map[string]int64) (out []Arrival) {
	for id, n := range l.union {
		if has[id] < n {
			out = append(out, Arrival{id, n})
		}
	}
	slices.SortFunc(out, func(a, b Arrival) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}

// Stored reports whether a majority has the arrival of a version, or knows that the latch is open.
func (l *Latch) Stored(version int, states []member.State) bool {
	return l.counts(states, func(p *place) bool { return p.has >= version || p.knows })
}

// Has reports whether member i had the arrival of a version, or knew that the latch is open, in the
// generation in which it was told last.
func (l *Latch) Has(i, version int) bool { return l.at[i].has >= version || l.at[i].knows }

// Refuses reports whether member i has said that it counts nothing of these terms: it has another
// count, or a later round.
func (l *Latch) Refuses(i int) bool { return l.at[i].differs || l.at[i].later }

// Known reports whether a majority knows that the latch is open. Then whoever asks a majority later
// hears it.
func (l *Latch) Known(states []member.State) bool {
	return l.open && l.counts(states, func(p *place) bool { return p.knows })
}

func (l *Latch) counts(states []member.State, is func(p *place) bool) bool {
	n := 0
	for i := range l.at {
		if p := &l.at[i]; p.met && p.gen == states[i].Gen && is(p) {
			n++
		}
	}
	return n >= l.terms.Need
}

// Open reports whether the latch is known to be open.
func (l *Latch) Open() bool { return l.open }

// Passed reports whether a later round has begun.
func (l *Latch) Passed() bool { return l.passed }

// Conflict reports whether so many members have another count that no majority has this one.
func (l *Latch) Conflict() bool {
	n := 0
	for i := range l.at {
		if l.at[i].differs {
			n++
		}
	}
	return len(l.at)-n < l.terms.Need
}

// Other is another count that members have been told; 0: none has.
func (l *Latch) Other() (count int64) {
	for i := range l.at {
		count = max(count, l.at[i].other)
	}
	return count
}

// Remaining is how many arrivals are missing by all that was heard; at least 1 if nobody has told
// the count.
func (l *Latch) Remaining() int64 {
	switch {
	case l.open:
		return 0
	case l.count == 0:
		return 1
	}
	return max(0, l.count-l.sum)
}
