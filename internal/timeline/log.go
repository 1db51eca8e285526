// Package timeline draws what locks did as one page: who held them and when, who waited and for whom, and what became of
// the members. Holders, members and judges tell a Log of it, and Log.HTML makes the page. It needs no network, follows the
// reader's choice of dark or light, and has each fact of the picture in a table, too.
//
// The package is pure: it reads no clock and opens no file. All times are since the beginning of the log. log.go has what is
// told, figures.go what is counted, layout.go where it is drawn, and page.html how it is written.
package timeline

import (
	"slices"
	"time"
)

// Log is what happened. The zero value is ready. A Log is not safe for concurrent use.
type Log struct {
	Title      string
	Start      time.Time     // the wall clock at the beginning; the zero value: the page counts from 0
	From       time.Duration // where the page begins
	Length     time.Duration // of all that is told, from 0 on
	Looks      time.Duration // what is told was seen in looks so far apart; 0: holders and members told it themselves
	Locks      []Lock        // in the order of the page; others that are told of come behind
	Clients    []string      // in the order of their lanes; others come behind
	Members    []string
	Holds      []Hold
	Spells     []Spell
	Marks      []Mark
	Objections []string // what a judge has found, in its words
	Notes      []string // what a reader must know of how this was seen
	CloseUps   []View

	left int // how much was forgotten
}

// Lock is a group of lanes.
type Lock struct {
	Name string
	Rule string // what the lock promises, as "one holder at a time"
}

// Hold is one lease, as its holder believed in it. Of each slot of a lock, holds exclude each other, unless both are shared.
type Hold struct {
	Lock, Who string // Who is the client, and names the lane
	Slot      int
	Shared    bool
	Token     uint64
	Asked     time.Duration // when Who asked for it; From: it did not wait, or nobody knows
	From, To  time.Duration // To: the call of unlock, or the end of the validity if that came first
	Past      time.Duration // until when Who went on although its lease had ended; 0: it did not
	Open      bool          // it goes on: To is the end of the log
	Forced    bool          // somebody took the lock from Who, so that others may hold it beside
	Renewed   []time.Duration
	Text      string // what else is known of it
}

// Spell is a time in which something was the case for a client or a member.
type Spell struct {
	Kind     Kind
	Lock     string // "" of a member
	Who      string // the client, or the member
	From, To time.Duration
	Text     string
}

// Kind is what a spell is.
type Kind uint8

// The kinds of spells.
const (
	Waits  Kind = iota // a client waited, and did not get the lock
	Dead               // a member was down
	Rests              // a member did not vote, because it may have forgotten
	Silent             // a member did not answer
	Faulty             // something else was done to a member
	Votes              // a member had given its vote
)

// Mark is what happened at one instant.
type Mark struct {
	At        time.Duration
	Lock, Who string // whose lane it belongs to; "": no one's
	Bad       bool   // it should not have been
	Refused   bool   // a write that the storage refused, as it should
	Text      string
}

// Part is what a log tells of one lock, or of all with "", and of members, from an instant on.
func (l *Log) Part(lock string, from time.Duration) *Log {
	part := *l
	part.From, part.Holds, part.Spells, part.Marks, part.left = max(0, from), nil, nil, nil, 0
	shows := func(of string, to time.Duration) bool {
		return (lock == "" || of == "" || of == lock) && to >= part.From
	}
	for _, h := range l.Holds {
		if shows(h.Lock, max(h.To, h.Past)) {
			part.Hold(h)
		}
	}
	for _, s := range l.Spells {
		if shows(s.Lock, s.To) {
			part.Spell(s)
		}
	}
	for _, m := range l.Marks {
		if shows(m.Lock, m.At) {
			part.Mark(m)
		}
	}
	return &part
}

// Around is a stretch of time with something before and after it, within the log.
func (l *Log) Around(title string, from, to, margin time.Duration) View {
	return View{title, max(l.From, from-margin), min(l.Length, to+margin)}
}

// EnlargeOverlaps draws the first times larger in which two held at once.
func (l *Log) EnlargeOverlaps() {
	for i, o := range l.count().overlaps {
		if i == mostOverlaps {
			break
		}
		margin := max(2*(o.to-o.from), time.Millisecond)
		l.CloseUps = append(l.CloseUps, l.Around("Two at once: "+o.x.Who+" and "+o.y.Who, o.from, o.to, margin))
	}
}

// mostOverlaps is how many overlaps have words and a picture of their own.
const mostOverlaps = 5

// View is a part of the time, drawn larger.
type View struct {
	Title    string
	From, To time.Duration
}

// These bound what a log keeps, so that a watch of weeks fits into memory, and its page into a browser.
const (
	mostHolds  = 20_000
	mostSpells = 5_000
	mostMarks  = 400
)

// Hold tells of a lease. If there are very many, the log forgets the first ones, and its page says so. So it does with spells
// and marks.
func (l *Log) Hold(h Hold) { l.Holds = latest(l.Holds, h, mostHolds, &l.left) }

// Spell tells of a stretch of time.
func (l *Log) Spell(s Spell) { l.Spells = latest(l.Spells, s, mostSpells, &l.left) }

// Mark tells of an instant.
func (l *Log) Mark(m Mark) { l.Marks = latest(l.Marks, m, mostMarks, &l.left) }

func latest[T any](all []T, x T, most int, left *int) []T {
	if len(all) >= most {
		*left += most / 4
		all = slices.Delete(all, 0, most/4)
	}
	return append(all, x)
}
