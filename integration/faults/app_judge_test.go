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

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/timeline"
)

// appJudge hears what all processes of the random application tell, knows what was done to them, and says what must
// never be. It keeps what is going on, and the last minute: its memory does not grow with a run.
type appJudge struct {
	members, need int
	began         int64
	report        func(finding) // of what must not be

	mu       sync.Mutex
	stream   judge.Stream
	names    map[string]*appName
	seats    []*appSeatView
	servers  []spell
	open     map[attemptID]*belief
	asks     map[attemptID]*asking
	forced   map[string]*forcing // by owner
	stalls   []stall
	log      timeline.Log // faults, the last ones
	debts    []*debt
	found    map[string]int
	grants   int
	keeping  map[lockOf]keptLock
	reused   int              // leases that were had of what a client kept
	handed   map[string]int64 // owners whose leases were handed over: another client may have them
	heirs    map[term]string  // of a lease that was handed over, and not adopted yet: its first owner
	firsts   map[string]string
	perSeat  map[int]int
	errors   map[string]int
	longest  map[string]time.Duration // gaps: of all, and beyond what a lease that is left explains
	lateness time.Duration
	forces   int
	adopted  int
	sorts    map[string]*tally
	greatest time.Duration // MaxTTL
	counts   counts
	leaders  leaders

	restarted   []int64          // the last of each member
	rested      int              // votes that were had again after one
	refused     []*refusedMember // the last refusal of each member
	wellSince   []int64          // of each server: the end of its last fault but one that is on
	plays       []*refusalPlay
	kinds       map[string]int // errors of requests
	judgedWords int
	kept        int // leases that were there before, and given back, after all members were full for longer than their TTL
}

type tally struct {
	asked, granted int
	patience       int           // calls that ended because others had the lock
	waited         time.Duration // of those granted, in all
}

func (x *tally) String() string {
	if x.asked == 0 {
		return fmt.Sprint(x.granted)
	}
	mean := x.waited / time.Duration(max(1, x.granted))
	return fmt.Sprintf("%d of %d (%d lost their patience; mean wait %v)", x.granted, x.asked, x.patience,
		mean.Round(time.Millisecond))
}

type finding struct {
	kind, text string
	page       *timeline.Log
}

// String leaves the page, and says where.
func (f finding) String() string { return f.text + "\n  " + judge.Leave(f.page) }

type attemptID struct {
	process int // the number of this very process
	attempt uint64
}

// spell is a fault of a server, of a path, or of a process: how many of them are on, and when the last ended.
type spell struct {
	on    int
	until int64
}

func (s spell) well(since int64) bool { return s.on == 0 && s.until < since }

type stall struct {
	at, long int64
	process  int // 0: the judge's own
}

type appName struct {
	free     int64     // since when nobody holds it
	clean    int64     // since when a majority has been well, for all that wait
	told     bool      // of this gap
	promised []int64   // until when a member may be bound to one that is gone
	hands    []stretch // in which a set that was waited for may have had it in hand
	entries  map[time.Duration]int64
	past     []string // what happened last
}

type appSeatView struct {
	process  int
	paths    []spell
	votes    uint32
	voting   []int64 // since when each member votes for it
	stopped  bool
	resumed  int64
	client   int
	opened   int64
	maxTTL   time.Duration
	clients  map[string]int64 // uuid -> first seen; the last few
	shutting int64            // when it began to close its client; 0: it did not
	closing  []int            // members that were well for it when it began to close its client
}

type belief struct {
	judge.Hold
	id     attemptID
	seat   int
	client int
	until  int64
	ttl    time.Duration // the longest that was asked for
	keep   time.Duration // its client may keep the lock for so long after its end
	anew   bool          // Lock has returned it, and nobody had it before
	asleep bool          // its process is stopped

	adopted bool // from another client
}

type asking struct {
	seat  int
	names []string // in their order; one but for a set
	at    int64
	ttl   time.Duration
	entry time.Duration
	try   bool
	sort  string
}

// bound is until when members may keep what a call asked them for.
func (a *asking) bound(now int64) int64 {
	if a.sort == setOfLocks { // it renews the leases that it has in hand
		return now + int64(max(a.ttl, a.entry))
	}
	return max(a.at+int64(a.ttl), now+int64(a.entry))
}

type forcing struct {
	at int64
	by int64 // done at a majority; 0: not (yet)
}

type lockOf struct{ name, owner string }

// keptLock is what a client may keep since the last lease of it has ended.
type keptLock struct {
	process, seat int
	ttl           time.Duration
	from, until   int64
}

// bind books what members may be bound to because clients keep it: a client that some of them do not reach cannot give it
// up there. dead is a process that is stopped, or was killed.
func (j *appJudge) bind(now int64, dead int) {
	for of, k := range j.keeping {
		if k.process == dead || now < k.until {
			j.promise(of.name, k.seat, now+int64(k.ttl), now, k.process == dead)
		}
		if k.process == dead || now > k.until {
			delete(j.keeping, of)
		}
	}
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
	shared      bool
	adopted     bool // from another client
}

// lateCall says whether a vote was given anew to a call of the client that handed the lease off. docs/protocol.md,
// "Hand-off", says why there may be such a vote, and that it ends one entry later at most.
func (d *debt) lateCall(token, ends int64) bool {
	return d.adopted && (d.shared || token > d.token) && ends <= d.back+int64(slices.Max(appEntries)+gapAllowance)
}

func TestVoteOfALateCallIsExcusedForOneEntry(t *testing.T) {
	entry := int64(slices.Max(appEntries))
	adopted := &debt{back: 1000, token: 7, adopted: true}
	require.True(t, adopted.lateCall(8, 1000+entry))
	require.False(t, adopted.lateCall(7, 1000+entry), "the vote of the lease was not released")
	require.False(t, adopted.lateCall(8, 1000+2*entry), "it lives longer than an entry")
	reader := &debt{back: 1000, token: 7, adopted: true, shared: true}
	require.True(t, reader.lateCall(0, 1000+entry), "members do not tell a reader's token")
	require.False(t, reader.lateCall(0, 1000+2*entry), "it lives longer than an entry")
	require.False(t, (&debt{back: 1000, token: 7}).lateCall(8, 1000+entry), "no other client had it")
}

func newAppJudge(members, seats int, report func(finding)) *appJudge {
	j := &appJudge{
		members: members, need: members/2 + 1, began: judge.Now(), report: report,
		names: map[string]*appName{}, keeping: map[lockOf]keptLock{}, servers: make([]spell, members), open: map[attemptID]*belief{},
		asks: map[attemptID]*asking{}, forced: map[string]*forcing{}, found: map[string]int{}, handed: map[string]int64{},
		heirs: map[term]string{}, firsts: map[string]string{},
		perSeat: map[int]int{}, errors: map[string]int{}, longest: map[string]time.Duration{}, sorts: map[string]*tally{},
		restarted: make([]int64, members), refused: make([]*refusedMember, members), wellSince: make([]int64, members), kinds: map[string]int{},
	}
	for _, sort := range appSorts {
		j.sorts[sort] = &tally{}
	}
	for range seats {
		j.seats = append(j.seats, &appSeatView{
			paths: make([]spell, members), voting: make([]int64, members), clients: map[string]int64{},
		})
	}
	j.stream.Keep = time.Minute
	j.stream.Excused = func(x, y judge.Hold) bool {
		for _, b := range []judge.Hold{x, y} {
			if f := j.forced[j.first(b.Owner)]; f != nil && b.To >= f.at {
				return true
			}
		}
		return false
	}
	return j
}

func (j *appJudge) since() time.Duration { return time.Duration(judge.Now() - j.began) }

func (j *appJudge) ms(at int64) string { return fmt.Sprintf("%.3f", float64(at-j.began)/1e9) }

func (j *appJudge) name(name string) *appName {
	if j.names[name] == nil {
		j.names[name] = &appName{
			promised: make([]int64, j.members), entries: map[time.Duration]int64{},
		}
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
	fmt.Fprintf(&b, "after %s s: %s: ", j.ms(judge.Now()), kind)
	fmt.Fprintf(&b, format, args...)
	if n := j.names[name]; n != nil {
		fmt.Fprintf(&b, "\n  %s until then:\n    %s", name, strings.Join(n.past[max(0, len(n.past)-40):], "\n    "))
	}
	b.WriteString("\n  faults until then:")
	for _, m := range j.log.Marks[max(0, len(j.log.Marks)-25):] {
		fmt.Fprintf(&b, "\n    %.3f %s", m.At.Seconds(), m.Text)
	}
	var state []string
	for i, s := range j.servers {
		if !s.well(judge.Now() - int64(settled)) {
			state = append(state, fmt.Sprint("member ", i))
		}
	}
	for i, s := range j.seats {
		for m := range s.paths {
			if !j.well(i, m, judge.Now()) {
				state = append(state, fmt.Sprintf("seat %d to member %d", i, m))
			}
		}
	}
	fmt.Fprintf(&b, "\n  not well: %s", strings.Join(state, ", "))
	page := j.log
	page.Title, page.Length, page.Objections = "The random application: "+kind, j.since(), []string{b.String()}
	j.stream.Draw(&page, name, j.began)
	j.report(finding{kind, b.String(), page.Part(name, page.Length-10*time.Second)})
}

func (j *appJudge) fault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.log.Mark(timeline.Mark{At: j.since(), Text: fmt.Sprintf(format, args...)})
}

// server and path tell that a fault of a server, or of a path, begins or has ended.
func (j *appJudge) server(m int, begins bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	began := j.servers[m].until
	j.servers[m].turn(begins)
	if begins {
		j.broke(m)
	} else {
		j.wellSince[m] = judge.Now()
		j.log.Spell(timeline.Spell{Kind: timeline.Faulty, Who: fmt.Sprint("member ", m), From: time.Duration(began - j.began), To: j.since()})
	}
}

func (j *appJudge) path(seat, m int, begins bool) {
	rt.Locked(&j.mu, func() { j.seats[seat].paths[m].turn(begins) })
}

func (s *spell) turn(begins bool) {
	if begins {
		s.on++
	} else {
		s.on--
	}
	s.until = judge.Now()
}

// settled is for how long a fault must have been over before anything is expected of who felt it.
const settled = 1500 * time.Millisecond

// well says that a member, and the path from a seat, have been well for a while, and that it votes there.
func (j *appJudge) well(seat, m int, now int64) bool {
	s, since := j.seats[seat], now-int64(settled)
	return j.servers[m].well(since) && s.paths[m].well(since) && s.votes>>m&1 == 1 && s.voting[m] < now-int64(settled)/3 &&
		!s.stopped && s.resumed < since
}

// promise says that members may be bound until then by what a seat asked of them, and cannot take
// back there. What is left of a reader is bound to its own end, whoever read beside it.
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

func (j *appJudge) stall(at, long int64, process int) {
	j.stalls = append(j.stalls, stall{at, long, process})
	if len(j.stalls) > 8192 {
		j.stalls = slices.DeleteFunc(j.stalls, func(s stall) bool { return s.at < at-int64(time.Minute) })
	}
}

// waits says that a call waits, in a process that runs.
func (j *appJudge) waits(id attemptID, a *asking) bool {
	return !a.try && !j.seats[a.seat].stopped && id.process == j.seats[a.seat].process
}

// reach lists the names on which it depends whether a name is free: itself, and those that come
// behind it in a set for which somebody waits. Whoever waits for one of those may have the names
// before it in hand, and believe in none.
func (j *appJudge) reach(name string) []string {
	names := []string{name}
	for i := 0; i < len(names); i++ {
		for id, a := range j.asks {
			if len(a.names) == 1 || !j.waits(id, a) {
				continue
			}
			at := slices.Index(a.names, names[i])
			for k := at + 1; at >= 0 && k < len(a.names); k++ {
				if !slices.Contains(names, a.names[k]) {
					names = append(names, a.names[k])
				}
			}
		}
	}
	return names
}

// waiting lists who waits for one of these names, and since when the first of them waits for the
// first name. A set waits for that if it is the first name of the set, too: it waits for it or for
// others of these.
func (j *appJudge) waiting(names []string) (seats map[int]bool, since int64) {
	seats = map[int]bool{}
	for id, a := range j.asks {
		if !j.waits(id, a) || !slices.ContainsFunc(a.names, func(x string) bool { return slices.Contains(names, x) }) {
			continue
		}
		seats[a.seat] = true
		if a.names[0] == names[0] && (since == 0 || a.at < since) {
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

// gap looks at a name for which somebody waits, and which nobody has. If sets are waited for, it
// looks at all names in reach: while nobody has one of those, either, somebody must get on.
func (j *appJudge) gap(name string, now int64) {
	n, names := j.name(name), j.reach(name)
	held := false
	for _, b := range j.open {
		held = held || !b.asleep && slices.Contains(names, b.Key)
	}
	seats, waits := j.waiting(names)
	clean := j.cleanFor(seats, now)
	if held {
		n.free, n.told = now, false
	}
	if waits == 0 || len(clean) < j.need {
		n.clean, n.told = now, false
	}
	if held || waits == 0 || len(clean) < j.need {
		return
	}
	begin, entry := max(n.clean, waits), time.Duration(0)
	promised := make([]int64, j.members)
	var hands []stretch
	for _, x := range names {
		hands = append(hands, j.name(x).hands...)
		begin = max(begin, j.name(x).free)
		for e, at := range j.name(x).entries {
			if at > now-int64(20*time.Second) {
				entry = max(entry, e)
			}
		}
		for m, until := range j.name(x).promised {
			promised[m] = max(promised[m], until)
		}
	}
	begin += covered(hands, begin, now)
	var ends []int64
	for _, m := range clean {
		ends = append(ends, promised[m])
	}
	slices.Sort(ends)
	// By then so many of them are free. Whoever missed the push that told so asks at its next
	// heartbeat, a third of its Entry later. A second is the greatest of those here. With a set on
	// the way, one name after the other comes to that.
	beats := min(len(names), 2)
	bound := max(begin, ends[j.need-1]) + int64(beats)*int64(min(entry, time.Second))
	long := time.Duration(now - begin)
	how := [2]string{"", " with a set"}[beats-1]
	j.longest["all"+how] = max(j.longest["all"+how], long)
	if beyond := time.Duration(now - max(begin, ends[j.need-1])); beyond > 0 {
		j.longest["beyond"+how] = max(j.longest["beyond"+how], beyond)
	}
	late := now - bound - int64(gapAllowance)
	if late > 0 && late > 2*j.stalledSince(begin) && !n.told {
		n.told = true
		j.wrong("gap", name, "%v: nobody has had one of them for %v, though %d members were well all the time and a client "+
			"waited for the first; bound by leases left %v, entries %v",
			names, long, len(clean), time.Duration(max(0, ends[j.need-1]-begin)), entry)
	}
}

func (j *appJudge) tick(late int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := judge.Now()
	if late > int64(20*time.Millisecond) {
		j.stall(now, late, 0)
	}
	j.bind(now, 0)
	for _, name := range slices.Sorted(maps.Keys(j.names)) {
		j.gap(name, now)
	}
	j.openings(now, false)
	j.limited(now, false)
	j.forgetLeaders(now)
	for owner, f := range j.forced {
		if f.at < now-int64(2*time.Minute) {
			delete(j.forced, owner)
		}
	}
}

func (j *appJudge) hear(process int, e appEvent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id := attemptID{process, e.Attempt}
	names := e.Names
	if e.Name != "" && e.Kind != "valid" && e.Kind != "ending" {
		names = []string{e.Name}
	}
	for _, name := range names {
		n := j.name(name)
		if e.Kind == "observed" { // told with what is wrong with it
			continue
		}
		n.note(fmt.Sprintf("%s seat %d (process %d) %d %s %s %s %s%s", j.ms(cmp.Or(e.At, e.Since)), e.Seat, process,
			e.Attempt, e.Sort, e.Kind, e.Text, e.Error, details(e)))
		if e.Entry > 0 {
			n.entries[e.Entry] = e.At
		}
	}
	switch e.Kind {
	case "open":
		s := j.seats[e.Seat]
		s.client, s.process, s.shutting, s.opened, s.maxTTL = e.Client, process, 0, e.Since, e.TTL
		j.greatest = max(j.greatest, e.TTL)
	case "closing":
		s := j.seats[e.Seat]
		s.closing, s.shutting, s.opened = nil, e.At, e.At
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
				j.votesAgain(e, m, s)
			}
		}
		s.votes = e.Votes
	case "stall":
		if s := j.ofProcess(process); s == nil || !s.stopped && s.resumed < e.Since {
			j.stall(e.At, e.Number, process)
		}
	case "ask":
		j.asks[id] = &asking{e.Seat, slices.Sorted(slices.Values(names)), e.At, e.TTL, e.Entry, e.Try, e.Sort}
		j.tally(e.Sort).asked++
	case "fail":
		if a := j.asks[id]; a != nil {
			j.words(a, e)
			j.answered(id, e.At)
			for _, name := range a.names {
				j.promise(name, e.Seat, a.bound(e.At), e.At, false)
			}
		}
		j.errors[e.Error]++
		if e.Error == "held" {
			j.tally(e.Sort).patience++
		}
		if strings.HasPrefix(e.Error, "unknown") || slices.Contains([]string{"input", "order", "upgrade"}, e.Error) {
			j.wrong("error", names[0], "Lock of sort %s: %s", e.Sort, e.Error)
		}
	case "all": // after the grants of its names
		j.got(id, e.At)
		j.answered(id, e.At)
	case "grant":
		j.permitted(e)
		j.led(e)
		j.gap(e.Name, e.At)
		j.got(id, e.At)
		j.grants++
		j.perSeat[e.Seat]++
		if e.Text == "adopted" {
			j.adopted++
			j.inherit(e)
		}
		j.begin(id, e)
		delete(j.asks, id)
	case "downgraded":
		was := j.open[attemptID{process, e.Was}]
		if was == nil {
			break // it was killed, and this is the last that it told
		}
		if e.Token != was.Token || e.Owner != was.Owner || !e.Shared || was.Shared {
			j.wrong("downgrade", e.Name, "%v became a lease with owner %s and token %d (shared: %v)",
				was.Hold, e.Owner, e.Token, e.Shared)
		}
		j.tally(e.Sort).granted++
		delete(j.open, was.id)
		j.over(was, e.At)
		j.begin(id, e)
		b := j.open[id]
		b.ttl, b.adopted = max(b.ttl, was.ttl), was.adopted
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
			j.forced[j.first(owner)] = &forcing{at: e.At}
		}
	case "forced":
		j.forces++
		for _, owner := range strings.Fields(e.Text) {
			if f := j.forced[j.first(owner)]; f != nil && int(e.Number) >= j.need && owner == e.Owner {
				f.by = e.At
			}
		}
	case "limiting", "limited", "arriving", "deleting", "opened", "shut":
		j.counted(id, e)
	case "observed":
		j.observed(id, e)
	case "refused":
		j.feels(e)
	case "wrong":
		j.wrong("re-entry", e.Name, "%s", e.Text)
	}
}

func (j *appJudge) reborn(m int) { rt.Locked(&j.mu, func() { j.restarted[m] = judge.Now() }) }

// votesAgain looks at a vote that a client has again: a member that was restarted is silent for the longest lease that its
// former process may have voted for, and so for those of this client.
func (j *appJudge) votesAgain(e appEvent, m int, s *appSeatView) {
	rest := time.Duration(e.At - j.restarted[m])
	if rest < 0 || s.opened > j.restarted[m] {
		return
	}
	if j.rested++; rest < s.maxTTL {
		j.wrong("early vote", "", "seat %d, MaxTTL %v: member %d votes %v after its restart", e.Seat, s.maxTTL, m, rest)
	}
}

// first is the first owner of a lease that was adopted: an adopter takes it under an owner of its own.
func (j *appJudge) first(owner string) string { return cmp.Or(j.firsts[owner], owner) }

// inherit takes the grant of a lease that was handed over. Who else adopts it later has another lease with its token.
func (j *appJudge) inherit(e appEvent) {
	x := term{e.Name, e.Token}
	if first := j.heirs[x]; first != "" {
		j.firsts[e.Owner] = first
		delete(j.heirs, x)
	}
}

func (j *appJudge) tally(sort string) *tally {
	if j.sorts[sort] == nil {
		j.sorts[sort] = &tally{}
	}
	return j.sorts[sort]
}

// got counts a call that got what it asked for.
func (j *appJudge) got(id attemptID, now int64) {
	if a := j.asks[id]; a != nil {
		x := j.tally(a.sort)
		x.granted++
		x.waited += time.Duration(now - a.at)
	}
}

func (j *appJudge) begin(id attemptID, e appEvent) {
	n := j.name(e.Name)
	n.free, n.told = max(n.free, e.At), false
	j.open[id] = &belief{
		id: id, seat: e.Seat, client: e.Client, until: e.Until, ttl: e.TTL, anew: e.Text == "" || e.Text == "do",
		adopted: e.Text == "adopted", keep: e.Keep, Hold: judge.Hold{
			Client: e.Seat, Key: e.Name, Owner: e.Owner, Token: e.Token, From: e.At, Shared: e.Shared,
			Who: fmt.Sprintf("seat %d (process %d, attempt %d, %s)", e.Seat, id.process, e.Attempt, e.Sort),
		}}
	if a := j.asks[id]; a != nil {
		j.open[id].Asked = a.at
		if k, kept := j.keeping[lockOf{e.Name, e.Owner}]; kept && k.from < a.at {
			j.reused++
		}
	}
	delete(j.keeping, lockOf{e.Name, e.Owner})
	j.stream.Begin(e.Name, fmt.Sprint(id), e.At)
}

// answered books that a call has returned. The time during which a set may have had names in hand
// is no time during which nobody had them.
func (j *appJudge) answered(id attemptID, now int64) {
	a := j.asks[id]
	if a == nil {
		return
	}
	for _, name := range a.names {
		j.gap(name, now)
	}
	delete(j.asks, id)
	for _, name := range a.names[:len(a.names)-1] {
		n := j.name(name)
		n.hands = slices.DeleteFunc(n.hands, func(x stretch) bool {
			return x.to <= max(n.free, now-int64(time.Minute))
		})
		n.hands = append(n.hands, stretch{a.at, now})
	}
}

type stretch struct{ from, to int64 }

// covered is how much of the time from begin to end lies in these stretches.
func covered(all []stretch, begin, end int64) (sum int64) {
	slices.SortFunc(all, func(x, y stretch) int { return cmp.Compare(x.from, y.from) })
	for _, x := range all {
		if from, to := max(x.from, begin), min(x.to, end); to > from {
			sum += to - from
			begin = to
		}
	}
	return sum
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

func (j *appJudge) ofProcess(process int) *appSeatView {
	for _, s := range j.seats {
		if s.process == process {
			return s
		}
	}
	return nil
}

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
		j.heirs[term{b.Key, b.Token}] = j.first(b.Owner)
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
	switch {
	case e.Fixed:
	case e.Text == "lost":
		j.served(b, b.until)
	case e.Error == "":
		j.keeps(b, e.At)
	}
	if b.keep > 0 && e.Text != "lost" {
		j.keeping[lockOf{b.Key, b.Owner}] = keptLock{id.process, b.seat, b.ttl, e.At, now + int64(b.keep+200*time.Millisecond)}
	}
	j.debts = slices.DeleteFunc(j.debts, func(d *debt) bool { return d.name == b.Key && d.owner == b.Owner }) // it had the lock again
	if e.Back > 0 && b.ttl > settled && len(j.debts) < 64 {
		for m := range j.members {
			lately := now - int64(50*time.Millisecond)
			if !j.servers[m].well(lately) || !j.seats[b.seat].paths[m].well(lately) {
				j.debts = append(j.debts, &debt{
					name: b.Key, owner: b.Owner, seat: b.seat, client: b.client, process: id.process,
					back: now + int64(b.keep), until: e.Back + int64(b.ttl+b.keep), token: int64(b.Token), shared: b.Shared,
					adopted: b.adopted,
				})
				break
			}
		}
	}
}

func (j *appJudge) over(b *belief, to int64) {
	b.To = to
	// Whoever was forced out before it knew that it has the lock goes on waiting, and may be granted it anew.
	if f := j.forced[j.first(b.Owner)]; f != nil && f.by > 0 && (!b.anew || b.From < f.by) {
		// A renewal that was on its way may have counted.
		if beyond := b.To - f.by - int64(b.ttl) - int64(100*time.Millisecond) - j.stalledSince(f.at); beyond > 0 {
			j.wrong("force undone", b.Key, "%v: was forced out at a majority %v before its end, and its TTL is %v",
				b.Hold, time.Duration(b.To-f.by), b.ttl)
		}
	}
	hold := b.Hold
	hold.Owner = j.first(b.Owner) // of one lease, for the stream
	overlaps, regressions := j.stream.End(fmt.Sprint(b.id), hold)
	for _, x := range overlaps {
		j.wrong("two holders", b.Key, "%s", x)
	}
	for _, x := range regressions {
		j.wrong("tokens", b.Key, "%s", x)
	}
}

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

// believed says that somebody believes in a lease of this owner: users of one client may share it.
func (j *appJudge) believed(name, owner string) bool {
	for _, b := range j.open {
		if b.Key == name && b.Owner == owner {
			return true
		}
	}
	return false
}

// stopped tells that a process is about to be stopped, or that it was killed at a time, or later, and all that it
// told has been heard: whatever it asked for or holds stays at the members for a while.
func (j *appJudge) stopped(process int, killed int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := judge.Now()
	j.bind(now, process)
	for _, s := range j.seats {
		if s.process == process {
			s.stopped = true
		}
	}
	for id, a := range j.asks {
		if id.process != process {
			continue
		}
		for _, name := range a.names {
			j.promise(name, a.seat, a.bound(now), now, true)
			if killed > 0 {
				j.name(name).note(fmt.Sprintf("%s the process of attempt %d of seat %d is killed", j.ms(now), id.attempt, a.seat))
			}
		}
		if killed > 0 {
			j.answered(id, now)
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

func (j *appJudge) resumed(process int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := judge.Now()
	for _, s := range j.seats {
		if s.process == process {
			s.stopped, s.resumed = false, now
		}
	}
	for id, a := range j.asks {
		if id.process == process {
			for _, name := range a.names {
				j.promise(name, a.seat, now+int64(max(a.ttl, a.entry)), now, true)
			}
		}
	}
	for id, b := range j.open {
		if id.process == process {
			b.asleep = false
		}
	}
}

func (j *appJudge) fresh(process int, seats []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, i := range seats {
		s := j.seats[i]
		s.process, s.stopped, s.votes, s.resumed, s.client, s.shutting, s.opened = process, false, 0, 0, 0, 0, judge.Now()
	}
}

// seen books the uuid of a client, which it shows when it subscribes.
func (j *appJudge) seen(seat int, uuid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.seats[seat]
	if _, there := s.clients[uuid]; !there {
		s.clients[uuid] = judge.Now()
	}
	for id, at := range s.clients {
		if at < judge.Now()-int64(2*time.Minute) && len(s.clients) > 4 {
			delete(s.clients, id)
		}
	}
}

func (j *appJudge) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	seconds := float64(judge.Now()-j.began) / 1e9
	var sorts []string
	for _, sort := range appSorts {
		sorts = append(sorts, fmt.Sprintf("%s %v", sort, j.sorts[sort]))
	}
	return fmt.Sprintf("%d grants in %.0f s (%.0f a second): %s; %d leases adopted, %d forced out; "+
		"longest time without a holder while a majority was well: %v, %v beyond what was left of leases, "+
		"with a set on the way %v and %v; "+
		"latest end of a context after its slack %v; %d times a member that was restarted voted again; %d leases of what a client kept; %d beliefs in memory; errors of Lock %v; found %v",
		j.grants, seconds, float64(j.grants)/seconds, strings.Join(sorts, ", "), j.adopted, j.forces,
		j.longest["all"].Round(time.Millisecond), j.longest["beyond"].Round(time.Millisecond),
		j.longest["all with a set"].Round(time.Millisecond), j.longest["beyond with a set"].Round(time.Millisecond),
		j.lateness, j.rested, j.reused, j.stream.Kept(), j.errors, j.found)
}
