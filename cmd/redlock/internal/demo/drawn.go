package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/timeline"
	"github.com/redquorum/redquorum/redlock"
)

// drawn is what the board tells of a run for its timeline. Guarded by board.mu.
type drawn struct {
	log   timeline.Log
	open  map[*ledger]map[int]*drawnHold // by number of the grant
	since map[spellOf]time.Time          // what goes on at a member
	until map[spellOf]time.Time          // when it ends, if that is known
}

// spellOf is what can go on at a member.
type spellOf struct {
	kind   timeline.Kind
	member int
}

// drawnHold is a lease that is held, and how long it is valid.
type drawnHold struct {
	timeline.Hold
	worker int
	until  func() time.Time
}

// The locks as the timeline names them.
const (
	theLock = "the lock"
	thePage = "the page"
	theRoom = "the room"
)

func newDrawn(b *board, names []string) *drawn {
	d := &drawn{open: map[*ledger]map[int]*drawnHold{}, since: map[spellOf]time.Time{}, until: map[spellOf]time.Time{}}
	for _, l := range []*ledger{b.ledger, b.page, b.desks} {
		d.open[l] = map[int]*drawnHold{}
	}
	d.log.Title = "redlock demo"
	d.log.Locks = []timeline.Lock{
		{Name: theLock, Rule: "one holder at a time"}, {Name: thePage, Rule: "readers together, a writer alone"}, {Name: theRoom, Rule: "each desk for one"},
	}
	for i := range b.workers {
		d.log.Clients = append(d.log.Clients, nameOf("worker", i))
	}
	for i := range names {
		d.log.Members = append(d.log.Members, nameOf("member", i))
	}
	return d
}

func nameOf(what string, i int) string { return fmt.Sprint(what, " ", i+1) }

// drawLocked begins to draw a lease that was just granted.
func (b *board) drawLocked(l *ledger, number, worker int, shared bool, lease *redlock.Lease, requested, now time.Time) {
	name := map[*ledger]string{b.ledger: theLock, b.page: thePage, b.desks: theRoom}[l]
	h := &drawnHold{worker: worker, until: lease.ValidUntil, Hold: timeline.Hold{
		Lock: name, Who: nameOf("worker", worker), Slot: max(0, lease.Slot()), Shared: shared, Token: lease.Token(),
		Asked: b.since(requested), From: b.since(now),
	}}
	if l == b.desks {
		h.Text = fmt.Sprint("Desk ", lease.Slot())
	}
	b.drawn.open[l][number] = h
}

// drawnLocked draws a lease that is about to be unlocked.
func (b *board) drawnLocked(l *ledger, number int, now time.Time) {
	h := b.drawn.open[l][number]
	delete(b.drawn.open[l], number)
	if h == nil {
		return
	}
	if h.To = b.since(now); h.until().Before(now) {
		h.To, h.Past = max(h.From, b.since(h.until())), b.since(now)
	}
	b.drawn.log.Hold(h.Hold)
}

// renewed draws a renewal of what a worker holds.
func (b *board) renewed(worker int, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.ledger
	if strings.HasSuffix(key, ":page") {
		l = b.page
	} else if strings.HasSuffix(key, ":room") {
		l = b.desks
	}
	for _, h := range b.drawn.open[l] {
		if h.worker == worker {
			h.Renewed = append(h.Renewed, b.since(time.Now()))
		}
	}
}

// since is an instant as the timeline tells it.
func (b *board) since(t time.Time) time.Duration { return max(0, t.Sub(b.start)) }

// begins and ends draw what goes on at a member. Until it has come back, a dead one is nothing else.
func (b *board) begins(kind timeline.Kind, member int, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drawn.until[spellOf{kind, member}] = until
	_, dead := b.drawn.since[spellOf{timeline.Dead, member}]
	if _, there := b.drawn.since[spellOf{kind, member}]; !there && !dead {
		b.drawn.since[spellOf{kind, member}] = time.Now()
	}
}

func (b *board) ends(kind timeline.Kind, member int, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endsLocked(spellOf{kind, member}, at)
}

func (b *board) endsLocked(s spellOf, at time.Time) {
	if from, there := b.drawn.since[s]; there {
		delete(b.drawn.since, s)
		b.drawn.log.Spell(timeline.Spell{Kind: s.kind, Who: nameOf("member", s.member), From: b.since(from), To: b.since(at)})
	}
}

// timelineLocked is that of the run until now. What goes on is drawn to its end.
func (b *board) timelineLocked(broken string) *timeline.Log {
	now, log := time.Now(), &b.drawn.log
	log.Length = b.since(now)
	for s := range b.drawn.since {
		at := now
		if until := b.drawn.until[s]; !until.IsZero() && until.Before(now) {
			at = until
		}
		b.endsLocked(s, at)
	}
	if broken != "" {
		log.Objections = []string{broken}
	}
	if log.Length > 2*closeUp {
		log.CloseUps = append([]timeline.View{log.Around("A moment of it, larger", log.Length/10, log.Length/10, closeUp/2)}, log.CloseUps...)
	}
	return log
}

// closeUp is how much time a picture shows in which leases of milliseconds can be told from each other.
const closeUp = 150 * time.Millisecond

// larger has a picture of its own for what happened since then.
func (b *board) larger(title string, from time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := &b.drawn.log
	log.Length = b.since(time.Now()) + closeUp
	log.CloseUps = append(log.CloseUps, log.Around(title, b.since(from), b.since(time.Now()), closeUp/2))
}
