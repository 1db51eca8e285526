package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/timeline"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// board is where everybody tells what happened. It has the one clock of a run: instants are taken
// under its mutex, so that the ledger hears of them in order.
type board struct {
	start time.Time

	limit int // how many desks there are

	mu            sync.Mutex // guards the fields below
	ledger        *ledger
	page          *ledger // of the lock with readers
	desks         *ledger // of the semaphore
	handoffs      handoffs
	readersAtOnce int // at most
	permitsAtOnce int // at most
	workers       []workerState
	members       []memberState
	holder        int            // who got the lock last and has not given it up; -1: nobody
	lease         *redlock.Lease // the holder's
	events        []event
	errors        int
	drawn         *drawn
}

// doing is what a worker does at the moment.
type doing uint8

const (
	waits doing = iota
	writes
	stalls
	pauses
	stopped
)

func (d doing) String() string {
	return [...]string{"waits for the lock", "holds the lock, writes", "STALLED, ignores its lease", "pauses", "stopped"}[d]
}

type workerState struct {
	doing  doing
	grants int
	token  uint64 // of its latest lease
	number int    // of its grant
}

type memberState struct {
	name   string
	upAt   []bool // by worker: whether its client has a connection
	downed bool   // was lost by every worker at least once
}

func (m memberState) up() int {
	n := 0
	for _, up := range m.upAt {
		if up {
			n++
		}
	}
	return n
}

type event struct {
	at   time.Duration
	text string
}

func newBoard(workers int, names []string) *board {
	b := &board{
		ledger: newLedger("lock"), page: newLedger("page"), desks: newLedger("desk"), limit: desks(workers),
		workers: make([]workerState, workers), holder: -1,
	}
	for _, name := range names {
		b.members = append(b.members, memberState{name: name, upAt: make([]bool, workers)})
	}
	b.drawn = newDrawn(b, names)
	b.start = time.Now()
	return b
}

// begin starts the clock.
func (b *board) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.start = time.Now()
}

func (b *board) say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sayLocked(time.Now(), format, args...)
}

func (b *board) sayLocked(now time.Time, format string, args ...any) {
	b.tellLocked(now, timeline.Mark{Text: fmt.Sprintf(format, args...)})
}

func (b *board) tellLocked(now time.Time, m timeline.Mark) {
	m.At, m.Bad = b.since(now), strings.HasPrefix(m.Text, "VIOLATION")
	b.events = append(b.events, event{m.At, m.Text})
	b.drawn.log.Mark(m)
}

// refused tells of the write that the store has refused.
func (b *board) refused(worker int, token, highest uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tellLocked(time.Now(), timeline.Mark{
		Lock: theLock, Who: nameOf("worker", worker), Refused: true, Text: fmt.Sprintf("the store refuses %d: it has accepted %d", token, highest),
	})
}

// failed tells of an error that a worker did not expect. Only the first few are shown.
func (b *board) failed(worker int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const shown = 5
	b.errors++
	switch {
	case b.errors <= shown:
		b.sayLocked(time.Now(), "worker %d: %v", worker+1, err)
	case b.errors == shown+1:
		b.sayLocked(time.Now(), "further errors are only counted")
	}
}

// does tells what a worker does now.
func (b *board) does(worker int, d doing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.workers[worker].doing = d
}

// granted tells that a worker, who asked at requested, has just been given a lease.
func (b *board) granted(worker int, lease *redlock.Lease, requested time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	number, _ := b.ledger.granted(worker, 0, false, lease.Token(), now, lease.ValidUntil)
	b.drawLocked(b.ledger, number, worker, false, lease, requested, now)
	if lease.ValidUntil().After(now) {
		b.handoffs.granted(requested, now)
	}
	w := &b.workers[worker]
	w.grants++
	w.token, w.doing, w.number = lease.Token(), writes, number
	b.holder, b.lease = worker, lease
}

// sharedGranted tells that a worker has just been given a lease of the lock with readers.
func (b *board) sharedGranted(worker int, write bool, lease *redlock.Lease, requested time.Time) (number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	number, atOnce := b.page.granted(worker, 0, !write, lease.Token(), now, lease.ValidUntil)
	b.drawLocked(b.page, number, worker, !write, lease, requested, now)
	if !write {
		b.readersAtOnce = max(b.readersAtOnce, atOnce)
	}
	return number
}

// sharedEnded tells that the lease with that number is about to be unlocked.
func (b *board) sharedEnded(number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(b.page, number, time.Now())
}

// permitGranted tells that a worker has just been given a slot of the semaphore.
func (b *board) permitGranted(worker int, lease *redlock.Lease, requested time.Time) (number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if slot := lease.Slot(); slot < 0 || slot >= b.limit {
		b.desks.overlaps++
		b.sayLocked(now, "VIOLATION: worker %d was granted desk %d of %d", worker+1, slot, b.limit)
	}
	number, atOnce := b.desks.granted(worker, lease.Slot(), false, lease.Token(), now, lease.ValidUntil)
	b.drawLocked(b.desks, number, worker, false, lease, requested, now)
	b.permitsAtOnce = max(b.permitsAtOnce, atOnce)
	return number
}

// permitEnded tells that the lease with that number is about to be unlocked.
func (b *board) permitEnded(number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(b.desks, number, time.Now())
}

// endLocked ends a belief, and tells what was wrong with it.
func (b *board) endLocked(l *ledger, number int, now time.Time) (valid bool) {
	b.drawnLocked(l, number, now)
	valid, wrong := l.ended(number, now)
	for _, w := range wrong {
		b.sayLocked(now, "VIOLATION: %s", w)
	}
	return valid
}

// ended tells that a worker is about to unlock, and believes nothing from now on.
func (b *board) ended(worker int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.endLocked(b.ledger, b.workers[worker].number, now) {
		b.handoffs.ended(now)
	}
	b.workers[worker].doing = pauses
	if b.holder == worker {
		b.holder, b.lease = -1, nil
	}
}

// member tells that a worker's client got or lost its connection to a member.
func (b *board) member(worker int, name string, up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.members, func(m memberState) bool { return m.name == name })
	if i < 0 {
		return
	}
	m := &b.members[i]
	m.upAt[worker] = up
	switch n := m.up(); {
	case n == 0 && !up:
		m.downed = true
	case n == len(m.upAt) && m.downed:
		m.downed = false
		b.sayLocked(time.Now(), "member %d is connected to every worker again", i+1)
	}
}

// snapshot is the state of a run at one instant, for drawing.
type snapshot struct {
	at        time.Duration
	workers   []workerState
	up        []int // by member: how many workers have a connection
	holder    int   // -1: nobody
	token     uint64
	trusted   time.Duration // how long the holder's lease is valid still
	votes     int
	grants    int
	handoff50 time.Duration // of the latest hand-offs
	handoff99 time.Duration
	overlaps  int
	falling   int
	reads     int // of the page
	rewrites  int
	atOnce    int // readers of it
	beside    int // readers and writers of it beside a writer
	events    []event
}

// recent is how many hand-offs the running display looks back at.
const recent = 2000

func (b *board) snapshot() snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	q := b.handoffs.quantiles(recent, 0.5, 0.99)
	s := snapshot{
		at: now.Sub(b.start), workers: slices.Clone(b.workers), holder: b.holder,
		grants: b.ledger.grants, handoff50: q[0], handoff99: q[1],
		overlaps: b.ledger.overlaps, falling: b.ledger.disorder, events: slices.Clone(b.events),
		reads: b.page.reads, rewrites: b.page.grants - b.page.reads, atOnce: b.readersAtOnce, beside: b.page.overlaps,
	}
	for _, m := range b.members {
		s.up = append(s.up, m.up())
	}
	if b.lease != nil {
		s.token, s.trusted, s.votes = b.lease.Token(), b.lease.ValidUntil().Sub(now), b.lease.Votes()
	}
	return s
}

// observer tells the board which members a worker's client has lost and found.
type observer struct {
	board  *board
	worker int
}

func (o observer) tracer() redlock.Tracer {
	return redlock.Tracer{
		Guard:  o.guard,
		Member: func(name string, up bool, _ error) { o.board.member(o.worker, name, up) },
		RenewalEnd: func(_ context.Context, e redlock.RenewalEnd) {
			for lock, renewed := range e.Each {
				if renewed {
					o.board.renewed(o.worker, lock.Key)
				}
			}
		},
	}
}

// guard tells of a member that may have forgotten, in the words of the first worker: all see the same.
func (o observer) guard(name, step string, until time.Time) {
	if o.worker != 0 {
		return
	}
	i := 1 + slices.IndexFunc(o.board.members, func(m memberState) bool { return m.name == name })
	switch step {
	case "lifted":
		o.board.ends(timeline.Rests, i-1, until)
	case "forgot", "quarantined":
		o.board.begins(timeline.Rests, i-1, until)
		o.board.say("member %d does not vote for %v, because leases that it granted may still run", i, time.Until(until).Round(100*time.Millisecond))
	case "restored":
		o.board.say("member %d votes again, with its token counters from the others", i)
	case "tokens_by_clock":
		o.board.say("member %d votes again, and its token counters continue from its clock", i)
	}
}

// need is how many members make a majority.
func (s snapshot) need() int { return member.Majority(len(s.up)) }
