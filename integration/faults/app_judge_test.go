//go:build linux || darwin

package faults

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/integration/history"
)

// appJudge hears what all processes of the random application tell, knows what was done to them, and says what must
// never be. It keeps what is going on, and the last minute: its memory does not grow with a run.
type appJudge struct {
	members, need int
	began         int64
	report        func(finding) // of what must not be

	mu       sync.Mutex
	stream   history.Stream
	names    map[string]*appName
	seats    []*appSeatView
	servers  []spell
	open     map[attemptID]*belief
	asks     map[attemptID]*asking
	forced   map[string]*forcing // by owner
	stalls   []stall
	faults   []string // the last ones
	debts    []*debt
	found    map[string]int
	grants   int
	handed   map[string]int64 // owners whose leases were handed over: another client may have them
	perSeat  map[int]int
	errors   map[string]int
	longest  map[string]time.Duration // gaps: of all, and beyond what a lease that is left explains
	lateness time.Duration
	forces   int
	adopted  int
	greatest time.Duration // MaxTTL
}

// finding is something that must not be.
type finding struct{ kind, text string }

type attemptID struct {
	process int // the number of this very process
	attempt uint64
}

// spell is a fault of a server, of a path, or of a process: how many of them are on, and when the last ended.
type spell struct {
	on    int
	until int64
}

// well says that nothing has been wrong since then.
func (s spell) well(since int64) bool { return s.on == 0 && s.until < since }

type stall struct {
	at, long int64
	process  int // 0: the judge's own
}

// appName is one lock.
type appName struct {
	free     int64   // since when nobody holds it
	clean    int64   // since when a majority has been well, for all that wait
	told     bool    // of this gap
	promised []int64 // until when a member may be bound to one that is gone
	entries  map[time.Duration]int64
	past     []string // what happened last
}

// appSeatView is a seat as the parent sees it.
type appSeatView struct {
	process  int
	paths    []spell
	votes    uint32
	voting   []int64 // since when each member votes for it
	stopped  bool
	resumed  int64
	client   int
	clients  map[string]int64 // uuid -> first seen; the last few
	shutting int64            // when it began to close its client; 0: it did not
	closing  []int            // members that were well for it when it began to close its client
}

// belief is a lease that somebody believes in.
type belief struct {
	history.Belief
	id     attemptID
	seat   int
	client int
	until  int64
	ttl    time.Duration // the longest that was asked for
	anew   bool          // Lock has returned it, and nobody had it before
	asleep bool          // its process is stopped

	adopted bool // from another client
}

// asking is a call of Lock that has not returned.
type asking struct {
	seat  int
	name  string
	at    int64
	ttl   time.Duration
	entry time.Duration
	try   bool
}

// forcing is a lease that somebody forces out.
type forcing struct {
	at int64
	by int64 // done at a majority; 0: not (yet)
}

// debt is a release that must come to every member.
type debt struct {
	name, owner string
	seat        int
	client      int
	process     int
	back, until int64
	settled     uint32
	token       int64 // of the lease
	adopted     bool  // from another client
}

// lateCall says whether a vote was given anew to a call of the client that handed the lease off. docs/protocol.md,
// "Hand-off", says why there may be such a vote, and that it ends one entry later at most.
func (d *debt) lateCall(token, ends int64) bool {
	return d.adopted && token > d.token && ends <= d.back+int64(slices.Max(appEntries)+gapAllowance)
}

func TestVoteOfALateCallIsExcusedForOneEntry(t *testing.T) {
	entry := int64(slices.Max(appEntries))
	adopted := &debt{back: 1000, token: 7, adopted: true}
	require.True(t, adopted.lateCall(8, 1000+entry))
	require.False(t, adopted.lateCall(7, 1000+entry), "the vote of the lease was not released")
	require.False(t, adopted.lateCall(8, 1000+2*entry), "it lives longer than an entry")
	own := &debt{back: 1000, token: 7}
	require.False(t, own.lateCall(8, 1000+entry), "no other client had it")
}

func newAppJudge(members, seats int, report func(finding)) *appJudge {
	j := &appJudge{
		members: members, need: members/2 + 1, began: history.Now(), report: report,
		names: map[string]*appName{}, servers: make([]spell, members), open: map[attemptID]*belief{},
		asks: map[attemptID]*asking{}, forced: map[string]*forcing{}, found: map[string]int{}, handed: map[string]int64{},
		perSeat: map[int]int{}, errors: map[string]int{}, longest: map[string]time.Duration{},
	}
	for range seats {
		j.seats = append(j.seats, &appSeatView{
			paths: make([]spell, members), voting: make([]int64, members), clients: map[string]int64{},
		})
	}
	j.stream.Excused = func(x, y history.Belief) bool {
		for _, b := range []history.Belief{x, y} {
			if f := j.forced[b.Owner]; f != nil && b.To >= f.at {
				return true
			}
		}
		return false
	}
	return j
}

// ms shows a time of the run.
func (j *appJudge) ms(at int64) string { return fmt.Sprintf("%.3f", float64(at-j.began)/1e9) }

func (j *appJudge) name(name string) *appName {
	if j.names[name] == nil {
		j.names[name] = &appName{promised: make([]int64, j.members), entries: map[time.Duration]int64{}}
	}
	return j.names[name]
}

func (n *appName) note(text string) {
	n.past = append(n.past, text)
	if len(n.past) > 200 {
		n.past = slices.Delete(n.past, 0, 100)
	}
}

// wrong books a finding, with what happened to the name before, and to everything.
func (j *appJudge) wrong(kind, name, format string, args ...any) {
	j.found[kind]++
	if j.found[kind] > 5 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "after %s s: %s: ", j.ms(history.Now()), kind)
	fmt.Fprintf(&b, format, args...)
	if n := j.names[name]; n != nil {
		fmt.Fprintf(&b, "\n  %s until then:\n    %s", name, strings.Join(n.past[max(0, len(n.past)-40):], "\n    "))
	}
	fmt.Fprintf(&b, "\n  faults until then:\n    %s", strings.Join(j.faults[max(0, len(j.faults)-25):], "\n    "))
	var state []string
	for i, s := range j.servers {
		if !s.well(history.Now() - int64(settled)) {
			state = append(state, fmt.Sprint("member ", i))
		}
	}
	for i, s := range j.seats {
		for m := range s.paths {
			if !j.well(i, m, history.Now()) {
				state = append(state, fmt.Sprintf("seat %d to member %d", i, m))
			}
		}
	}
	fmt.Fprintf(&b, "\n  not well: %s", strings.Join(state, ", "))
	j.report(finding{kind, b.String()})
}

// fault notes what is done to the system.
func (j *appJudge) fault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, j.ms(history.Now())+" "+fmt.Sprintf(format, args...))
	if len(j.faults) > 200 {
		j.faults = slices.Delete(j.faults, 0, 100)
	}
}

// server and path tell that a fault of a server, or of a path, begins or has ended.
func (j *appJudge) server(m int, begins bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.servers[m].turn(begins)
}

func (j *appJudge) path(seat, m int, begins bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seats[seat].paths[m].turn(begins)
}

func (s *spell) turn(begins bool) {
	if begins {
		s.on++
	} else {
		s.on--
	}
	s.until = history.Now()
}

// settled is for how long a fault must have been over before anything is expected of who felt it.
const settled = 1500 * time.Millisecond

// well says that a member, and the path from a seat, have been well for a while, and that it votes there.
func (j *appJudge) well(seat, m int, now int64) bool {
	s, since := j.seats[seat], now-int64(settled)
	return j.servers[m].well(since) && s.paths[m].well(since) && s.votes>>m&1 == 1 && s.voting[m] < now-int64(settled)/3 &&
		!s.stopped && s.resumed < since
}

// promise says that members may be bound until then by what a seat asked of them, and cannot take back there.
func (j *appJudge) promise(name string, seat int, until, now int64, all bool) {
	n := j.name(name)
	for m := range n.promised {
		if all || !j.well(seat, m, now) {
			n.promised[m] = max(n.promised[m], until)
		}
	}
}

// stalledSince is for how long the machine did not do what it should have done, since then: in the process for which
// that was the longest.
func (j *appJudge) stalledSince(since int64) (most int64) {
	sums := map[int]int64{}
	for _, s := range j.stalls {
		if s.at >= since {
			sums[s.process] += s.long
			most = max(most, sums[s.process])
		}
	}
	return most
}

// stall books that something came late in a process.
func (j *appJudge) stall(at, long int64, process int) {
	j.stalls = append(j.stalls, stall{at, long, process})
	if len(j.stalls) > 8192 {
		j.stalls = slices.DeleteFunc(j.stalls, func(s stall) bool { return s.at < at-int64(time.Minute) })
	}
}

// waiting lists who waits for a name, in processes that run, and since when the first of them does.
func (j *appJudge) waiting(name string) (seats map[int]bool, since int64) {
	for id, a := range j.asks {
		if a.name != name || a.try || j.seats[a.seat].stopped || id.process != j.seats[a.seat].process {
			continue
		}
		if seats == nil {
			seats = map[int]bool{}
		}
		seats[a.seat] = true
		if since == 0 || a.at < since {
			since = a.at
		}
	}
	return seats, since
}

// cleanFor lists the members that are well for all these seats.
func (j *appJudge) cleanFor(seats map[int]bool, now int64) (members []int) {
	for m := range j.members {
		good := true
		for seat := range seats {
			good = good && j.well(seat, m, now)
		}
		if good {
			members = append(members, m)
		}
	}
	return members
}

// gapAllowance is what a busy machine may add to a gap.
const gapAllowance = 500 * time.Millisecond

// gap looks at a name for which somebody waits, and which nobody has.
func (j *appJudge) gap(name string, now int64) {
	n := j.name(name)
	held := false
	for _, b := range j.open {
		held = held || b.Key == name && !b.asleep
	}
	seats, waits := j.waiting(name)
	clean := j.cleanFor(seats, now)
	if held {
		n.free, n.told = now, false
	}
	if len(seats) == 0 || len(clean) < j.need {
		n.clean, n.told = now, false
	}
	if held || len(seats) == 0 || len(clean) < j.need {
		return
	}
	begin := max(n.free, n.clean, waits)
	entry := time.Duration(0)
	for e, at := range n.entries {
		if at > now-int64(20*time.Second) {
			entry = max(entry, e)
		}
	}
	var ends []int64
	for _, m := range clean {
		ends = append(ends, n.promised[m])
	}
	slices.Sort(ends)
	// By then so many of them are free. Whoever missed the push that told so asks at its next heartbeat, a third of its
	// Entry later. A second is the greatest of those here.
	bound := max(begin, ends[j.need-1]) + int64(min(entry, time.Second))
	long := time.Duration(now - begin)
	j.longest["all"] = max(j.longest["all"], long)
	if beyond := time.Duration(now - max(begin, ends[j.need-1])); beyond > 0 {
		j.longest["beyond what was left"] = max(j.longest["beyond what was left"], beyond)
	}
	late := now - bound - int64(gapAllowance)
	if late > 0 && late > 2*j.stalledSince(begin) && !n.told {
		n.told = true
		j.wrong("gap", name, "%s: nobody has had it for %v, though %d members were well all the time and a client waited; "+
			"bound by leases left %v, entries %v",
			name, long, len(clean), time.Duration(max(0, ends[j.need-1]-begin)), entry)
	}
}

// tick looks at all names.
func (j *appJudge) tick(late int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := history.Now()
	if late > int64(20*time.Millisecond) {
		j.stall(now, late, 0)
	}
	for _, name := range slices.Sorted(maps.Keys(j.names)) {
		j.gap(name, now)
	}
	for owner, f := range j.forced {
		if f.at < now-int64(2*time.Minute) {
			delete(j.forced, owner)
		}
	}
}

// hear takes an event of a process.
func (j *appJudge) hear(process int, e appEvent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id := attemptID{process, e.Attempt}
	if e.Name != "" && e.Kind != "valid" && e.Kind != "ending" {
		n := j.name(e.Name)
		n.note(fmt.Sprintf("%s seat %d (process %d) %d %s %s %s%s", j.ms(cmp.Or(e.At, e.Since)), e.Seat, process, e.Attempt,
			e.Kind, e.Text, e.Error, details(e)))
		if e.Entry > 0 {
			n.entries[e.Entry] = e.At
		}
	}
	switch e.Kind {
	case "open":
		j.seats[e.Seat].client, j.seats[e.Seat].process, j.seats[e.Seat].shutting = e.Client, process, 0
		j.greatest = max(j.greatest, e.TTL)
	case "closing":
		s := j.seats[e.Seat]
		s.closing, s.shutting = nil, e.At
		for m := range j.members {
			if j.well(e.Seat, m, e.At) {
				s.closing = append(s.closing, m)
			}
		}
	case "votes":
		s := j.seats[e.Seat]
		for m := range s.voting {
			if e.Votes>>m&1 == 1 && s.votes>>m&1 == 0 {
				s.voting[m] = e.At
			}
		}
		s.votes = e.Votes
	case "stall":
		if s := j.ofProcess(process); s == nil || !s.stopped && s.resumed < e.Since {
			j.stall(e.At, e.Number, process)
		}
	case "ask":
		j.asks[id] = &asking{e.Seat, e.Name, e.At, e.TTL, e.Entry, e.Try}
	case "fail":
		if a := j.asks[id]; a != nil {
			j.gap(e.Name, e.At)
			delete(j.asks, id)
			j.promise(e.Name, e.Seat, max(a.at+int64(a.ttl), e.At+int64(a.entry)), e.At, false)
		}
		j.errors[e.Error]++
		if strings.HasPrefix(e.Error, "unknown") || e.Error == "input" {
			j.wrong("error", e.Name, "Lock: %s", e.Error)
		}
	case "grant":
		j.gap(e.Name, e.At)
		delete(j.asks, id)
		j.grants++
		j.perSeat[e.Seat]++
		if e.Text == "adopted" {
			j.adopted++
		}
		n := j.name(e.Name)
		n.free, n.told = e.At, false
		b := &belief{id: id, seat: e.Seat, client: e.Client, until: e.Until, ttl: e.TTL, anew: e.Text == "" || e.Text == "do", adopted: e.Text == "adopted", Belief: history.Belief{
			Key: e.Name, Owner: e.Owner, Token: e.Token, From: e.At,
			Who: fmt.Sprintf("seat %d (process %d, attempt %d)", e.Seat, process, e.Attempt),
		}}
		j.open[id] = b
		j.stream.Begin(e.Name, fmt.Sprint(id), e.At)
	case "valid":
		if b := j.open[id]; b != nil {
			b.until = max(b.until, e.Until)
		}
	case "extend":
		if b := j.open[id]; b != nil {
			b.ttl = max(b.ttl, e.TTL)
		}
	case "ending":
		if b := j.open[id]; b != nil {
			b.To = e.At
		}
	case "end":
		j.ended(id, e)
	case "late":
		j.late(process, e)
	case "adopting", "not adopted":
		j.promise(e.Name, e.Seat, e.At+int64(e.TTL)+int64(time.Second), e.At, true)
	case "forcing":
		for _, owner := range strings.Fields(e.Text) {
			j.forced[owner] = &forcing{at: e.At}
		}
	case "forced":
		j.forces++
		for _, owner := range strings.Fields(e.Text) {
			if f := j.forced[owner]; f != nil && int(e.Number) >= j.need && owner == e.Owner {
				f.by = e.At
			}
		}
	case "wrong":
		j.wrong("re-entry", e.Name, "%s", e.Text)
	}
}

func details(e appEvent) (s string) {
	if e.Token > 0 {
		s += fmt.Sprintf(" token %d", e.Token)
	}
	if e.Owner != "" {
		s += " owner " + e.Owner
	}
	if e.TTL > 0 {
		s += fmt.Sprintf(" ttl %v", e.TTL.Round(time.Millisecond))
	}
	if e.Entry > 0 {
		s += fmt.Sprintf(" entry %v", e.Entry)
	}
	if e.Number > 0 {
		s += fmt.Sprintf(" number %d", e.Number)
	}
	return s
}

// ofProcess is a seat of a process.
func (j *appJudge) ofProcess(process int) *appSeatView {
	for _, s := range j.seats {
		if s.process == process {
			return s
		}
	}
	return nil
}

// ended takes the end of a belief.
func (j *appJudge) ended(id attemptID, e appEvent) {
	b := j.open[id]
	if b == nil {
		return
	}
	delete(j.open, id)
	b.until = max(b.until, e.Until)
	j.over(b, e.At)
	now := max(e.Back, e.At)
	n := j.name(b.Key)
	n.free = max(n.free, now)
	switch {
	case e.Text == "handoff":
		j.promise(b.Key, b.seat, e.Back+int64(b.ttl)+int64(time.Second), now, true)
		return
	case e.Text == "lost", e.Error == "in doubt":
		j.promise(b.Key, b.seat, e.Back+int64(b.ttl), now, true)
	default:
		j.promise(b.Key, b.seat, e.Back+int64(b.ttl), now, false)
	}
	if strings.HasPrefix(e.Error, "unknown") {
		j.wrong("error", b.Key, "Unlock: %s", e.Error)
	}
	if e.Back > 0 && b.ttl > settled && len(j.debts) < 64 {
		for m := range j.members {
			lately := now - int64(50*time.Millisecond)
			if !j.servers[m].well(lately) || !j.seats[b.seat].paths[m].well(lately) {
				j.debts = append(j.debts, &debt{
					name: b.Key, owner: b.Owner, seat: b.seat, client: b.client, process: id.process,
					back: now, until: e.Back + int64(b.ttl), token: int64(b.Token), adopted: b.adopted,
				})
				break
			}
		}
	}
}

// over judges a belief.
func (j *appJudge) over(b *belief, to int64) {
	b.To = to
	// Whoever was forced out before it knew that it has the lock goes on waiting, and may be granted it anew.
	if f := j.forced[b.Owner]; f != nil && f.by > 0 && (!b.anew || b.From < f.by) {
		// A renewal that was on its way may have counted.
		if beyond := b.To - f.by - int64(b.ttl) - int64(100*time.Millisecond) - j.stalledSince(f.at); beyond > 0 {
			j.wrong("force undone", b.Key, "%v: was forced out at a majority %v before its end, and its TTL is %v",
				b.Belief, time.Duration(b.To-f.by), b.ttl)
		}
	}
	overlaps, regressions := j.stream.End(fmt.Sprint(b.id), b.Belief)
	for _, x := range overlaps {
		j.wrong("two holders", b.Key, "%s", x)
	}
	for _, x := range regressions {
		j.wrong("tokens", b.Key, "%s", x)
	}
}

// late takes word of a context that ended after its validity.
func (j *appJudge) late(process int, e appEvent) {
	if s := j.seats[e.Seat]; s.process != process || s.stopped || s.resumed > e.Until-int64(time.Second) {
		return // its process was stopped
	}
	if beyond := e.Number - e.Since - 2*j.stalledSince(e.Until) - int64(100*time.Millisecond); beyond > 0 {
		j.wrong("late end", e.Name, "seat %d: its context %s %v after its validity and its slack; TTL %v",
			e.Seat, e.Text, time.Duration(e.Number), e.TTL)
	} else {
		j.lateness = max(j.lateness, time.Duration(e.Number))
	}
}

// stopped tells that a process is about to be stopped, or that it was killed at a time, or later, and all that it
// told has been heard: whatever it asked for or holds stays at the members for a while.
func (j *appJudge) stopped(process int, killed int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := history.Now()
	for _, s := range j.seats {
		if s.process == process {
			s.stopped = true
		}
	}
	for id, a := range j.asks {
		if id.process != process {
			continue
		}
		j.promise(a.name, a.seat, max(a.at+int64(a.ttl), now+int64(a.entry)), now, true)
		if killed > 0 {
			j.name(a.name).note(fmt.Sprintf("%s the process of attempt %d of seat %d is killed", j.ms(now), id.attempt, a.seat))
			delete(j.asks, id)
		}
	}
	for id, b := range j.open {
		if id.process != process {
			continue
		}
		n := j.name(b.Key)
		n.free = max(n.free, now)
		j.promise(b.Key, b.seat, max(now+int64(b.ttl), b.until), now, true)
		b.asleep = true
		if killed > 0 {
			n.note(fmt.Sprintf("%s the process of attempt %d, which holds, is killed", j.ms(now), id.attempt))
			delete(j.open, id)
			to := min(killed, b.until)
			if b.To > 0 { // it was about to unlock
				to = min(to, b.To)
			}
			if at := j.seats[b.seat].shutting; at > 0 && j.seats[b.seat].client == b.client {
				to = min(to, at) // Close unlocks what is held
			}
			j.over(b, to)
		}
	}
}

// resumed tells that a process runs again.
func (j *appJudge) resumed(process int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := history.Now()
	for _, s := range j.seats {
		if s.process == process {
			s.stopped, s.resumed = false, now
		}
	}
	for id, a := range j.asks {
		if id.process == process {
			j.promise(a.name, a.seat, now+int64(max(a.ttl, a.entry)), now, true)
		}
	}
	for id, b := range j.open {
		if id.process == process {
			b.asleep = false
		}
	}
}

// fresh tells that a new process sits at these seats.
func (j *appJudge) fresh(process int, seats []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, i := range seats {
		s := j.seats[i]
		s.process, s.stopped, s.votes, s.resumed, s.client, s.shutting = process, false, 0, 0, 0, 0
	}
}

// seen books the uuid of a client, which it shows when it subscribes.
func (j *appJudge) seen(seat int, uuid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.seats[seat]
	if _, there := s.clients[uuid]; !there {
		s.clients[uuid] = history.Now()
	}
	for id, at := range s.clients {
		if at < history.Now()-int64(2*time.Minute) && len(s.clients) > 4 {
			delete(s.clients, id)
		}
	}
}

// summary tells the figures of a run.
func (j *appJudge) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	seconds := float64(history.Now()-j.began) / 1e9
	return fmt.Sprintf("%d grants in %.0f s (%.0f a second), %d leases adopted, %d forced out; "+
		"longest time without a holder while a majority was well: %v, %v beyond what was left of leases; "+
		"latest end of a context after its slack %v; %d beliefs in memory; errors of Lock %v; found %v",
		j.grants, seconds, float64(j.grants)/seconds, j.adopted, j.forces, j.longest["all"].Round(time.Millisecond),
		j.longest["beyond what was left"].Round(time.Millisecond), j.lateness, j.stream.Kept(), j.errors, j.found)
}
