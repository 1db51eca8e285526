//go:build !race

package redlock

import (
	"crypto/sha1"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// slotsMember is one semaphore at one member, as the scripts keep it: sem_*.lua in Go, line by line, with
// a clock that the caller gives. The schedules of semaphores are played on it, and
// TestSemaphoreModelDoesWhatTheScriptsDo ties it to the scripts. It is a value: nothing that a slice of
// it has is changed in place, so that a copy is another member.
type slotsMember struct {
	records  []slotsRecord // by owner
	earliest int64         // ms: no record ends before it; 0: there are no records
	over     int64         // ms: the key does not end before it, as the member has noted
	end      int64         // ms: of the key, at the latest
	used     int           // slots taken

	counters [slotsMost]int64
	base     int64  // of counters that are not there, 0 none
	stored   int64  // limit, 0 none
	id       string // of the restart guard's marker

	queue   []slotsWaiter
	wishes  []slotsWish // by owner
	buried  modelBurials
	waitEnd int64 // ms: of the queue and the waiters
}

// slotsMost is how many slots the model has room for.
const slotsMost = 4

type slotsRecord struct {
	owner    string
	deadline int64       // ms
	has      permit.List // in the order in which they were given
}

type slotsWaiter struct {
	owner    string
	since    int64 // µs
	deadline int64 // ms
	ttl      int64 // ms
	n, want  int
	limit    int
}

// slotsWish is what an owner wishes for: slots that nobody else wishes for.
type slotsWish struct {
	owner    string
	deadline int64 // ms
	ttl      int64 // ms
	limit    int   // 0: of a lease
	slots    []int
}

const slotsLimit = "limit" // a call that stores a limit

// slotsRules are guards of the scripts that a case takes out. The zero value is the scripts as they are.
type slotsRules struct {
	movesVote    bool // a member gives an owner that asks again the slot that it asks for, in place of the one that it has
	sweepsAll    bool // a sweep drops the living as well
	endsEarly    bool // a record ends two ticks before its deadline
	extendAny    bool // a renewal does not ask which slots the owner has
	releaseAny   bool // a release serves each of its slots, whether it is free or not
	limitAtFirst bool // the limit bounds the slots that one is given, and not how many are taken
	noLimitKept  bool // a member does not keep the stored limit
	wishesStay   bool // a release leaves the wishes of its owner
}

// slotsServer executes calls at members.
type slotsServer struct {
	slotsRules
	hashes modelHashes
}

func newSlotsServer(rules slotsRules) *slotsServer {
	return &slotsServer{slotsRules: rules, hashes: modelHashes{}}
}

// rank is what serve compares.
func (s *slotsServer) rank(slot int, owner string) string {
	return s.hashes.of(strconv.Itoa(slot) + owner)
}

// slotsStep is one script call under way.
type slotsStep struct {
	*slotsServer
	*slotsMember
	now  int64 // µs
	ms   int64
	tag  string
	cap  int // limit in force in place of the caller's; -1 none
	told int64
	far  int64 // over, as the script knows it
	out  []script.Push
}

// call executes c at m when its clock reads now, in µs, and returns the reply and what is published to
// clients' inboxes, in order.
func (s *slotsServer) call(m *slotsMember, now int64, c scriptCall) (scriptReply, []script.Push) {
	m.expire(now)
	m.records, m.queue, m.wishes = slices.Clone(m.records), slices.Clone(m.queue), slices.Clone(m.wishes)
	x := &slotsStep{slotsServer: s, slotsMember: m, now: now, ms: now / 1000, tag: c.tag, cap: -1}
	r := x.run(c)
	m.normal()
	return r, x.out
}

// expire drops the keys that have ended.
func (m *slotsMember) expire(now int64) {
	if m.earliest > 0 && m.end <= now/1000 {
		m.records, m.earliest, m.over, m.end, m.used = nil, 0, 0, 0, 0
	}
	if m.waitEnd <= now/1000 {
		m.queue, m.wishes, m.buried, m.waitEnd = nil, nil, nil, 0
	}
}

// normal ends the time of keys that are not there any more.
func (m *slotsMember) normal() {
	if len(m.queue)+len(m.wishes)+len(m.buried) == 0 {
		m.queue, m.wishes, m.buried, m.waitEnd = nil, nil, nil, 0
	}
}

var slotsForgot = scriptReply{err: forgotMarker}

func (x *slotsStep) run(c scriptCall) scriptReply {
	switch c.op {
	case opAcquire:
		return x.acquire(c)
	case opWait:
		return x.wait(c)
	case opRelease:
		return x.release(c)
	case opClaim:
		return x.claim(c)
	case opExtend:
		return scriptReply{n: x.extend(c)}
	case opRaise:
		return scriptReply{n: x.raise(c)}
	case opRejoin:
		return x.rejoin(c)
	case slotsLimit:
		if x.tag != "" && x.id != x.tag {
			return slotsForgot
		}
		x.bound(c.stored)
		x.read("")
		if !x.admit() {
			return slotsForgot
		}
		return scriptReply{n: max(x.told, c.stored), server: x.now}
	case opForce:
		return x.force(c)
	}
	panic("no such script: " + c.op)
}

// bound is sem_cap.lua.
func (x *slotsStep) bound(known int64) {
	if x.stored == 0 && known == 0 {
		return
	}
	most := max(x.stored, known)
	if !x.noLimitKept {
		x.stored = most
	}
	if most > known {
		x.told = most
	}
	if x.cap = int(most % (1 << 13)); x.cap == script.NoLimit {
		x.cap = -1
	}
}

func (x *slotsStep) most(limit int) int {
	if x.cap >= 0 {
		return x.cap
	}
	return limit
}

func (m *slotsMember) find(owner string) int {
	return slices.IndexFunc(m.records, func(r slotsRecord) bool { return r.owner == owner })
}

// record is what an owner has, or nil.
func (m *slotsMember) record(owner string) *slotsRecord {
	if i := m.find(owner); i >= 0 {
		return &m.records[i]
	}
	return nil
}

// holder is who has a slot.
func (m *slotsMember) holder(slot int) string {
	for _, r := range m.records {
		if r.has.Token(slot) > 0 {
			return r.owner
		}
	}
	return ""
}

// clear removes the key where no slot is taken.
func (m *slotsMember) clear() {
	if len(m.records) > 0 {
		return
	}
	m.records, m.earliest, m.over, m.end, m.used = nil, 0, 0, 0, 0
}

func (m *slotsMember) set(r slotsRecord) {
	if i := m.find(r.owner); i >= 0 {
		m.records[i] = r
		return
	}
	m.records = append(m.records, r)
	slices.SortFunc(m.records, func(a, b slotsRecord) int { return strings.Compare(a.owner, b.owner) })
}

// read sweeps, and returns the owner's record.
func (x *slotsStep) read(owner string) *slotsRecord {
	if x.earliest == 0 {
		return nil
	}
	x.far = x.over
	if x.earliest < x.ms || x.endsEarly {
		low := int64(0)
		x.records = slices.DeleteFunc(x.records, func(r slotsRecord) bool {
			deadline := r.deadline
			if x.endsEarly {
				deadline -= 2 * schedTick.Milliseconds()
			}
			if gone := deadline < x.ms || x.sweepsAll; gone {
				x.used -= len(r.has)
				return true
			}
			if low == 0 || r.deadline < low {
				low = r.deadline
			}
			return false
		})
		if x.earliest = low; low == 0 {
			x.clear()
			return nil
		}
	}
	return x.record(owner)
}

func (x *slotsStep) refusal(none int64) int64 {
	if x.earliest > 0 {
		return -max(x.earliest-x.ms, 1)
	}
	return -max(none/3, 1)
}

// outlive lengthens the key.
func (x *slotsStep) outlive(deadline int64) {
	most := deadline - x.ms
	if x.end-x.ms <= most {
		x.end = x.ms + 2*most + 1
	}
	x.far = x.end - 1
}

func (x *slotsStep) keep(r slotsRecord, ttl int64) {
	r.deadline = max(r.deadline, x.ms+ttl)
	x.outlive(r.deadline)
	x.set(r)
}

// free returns n free slots below the limit.
func (x *slotsStep) free(want, limit, n int) []int {
	if !x.limitAtFirst && x.used+n > limit {
		return nil
	}
	var found []int
	for k := range limit {
		if slot := (want + k) % limit; x.holder(slot) == "" {
			if found = append(found, slot); len(found) == n {
				return found
			}
		}
	}
	return nil
}

// count is the next token of a slot, 0 if the member forgot.
func (x *slotsStep) count(slot int) int64 {
	c := &x.counters[slot]
	if *c == 0 {
		if x.tag != "" && x.id != x.tag {
			return 0
		}
		*c = x.begun()
		return *c
	}
	*c++
	return *c
}

// begun is the first token of a slot that has no counter.
func (x *slotsStep) begun() int64 {
	if x.base > 0 {
		return x.base + 1
	}
	return x.now
}

// write puts slots into an owner's record.
func (x *slotsStep) write(owner string, slots []int, tokens []int64, ttl int64) *slotsRecord {
	deadline := x.ms + ttl
	var has permit.List
	if r := x.record(owner); r != nil {
		deadline, has = max(deadline, r.deadline), slices.Clone(r.has)
	}
	for i, slot := range slots {
		has = append(has, permit.Permit{Slot: slot, Token: tokens[i]})
	}
	x.used += len(slots)
	switch {
	case x.earliest == 0:
		x.earliest, x.far, x.end = deadline, 2*deadline-x.ms, 2*deadline-x.ms+1
		x.over = x.far
	case x.far <= deadline:
		x.outlive(deadline)
		x.earliest, x.over = min(x.earliest, deadline), x.far
	case deadline < x.earliest:
		x.earliest, x.over = deadline, x.far
	}
	x.set(slotsRecord{owner, deadline, has})
	return x.record(owner)
}

// give grants slots that are free; nil: the member forgot.
func (x *slotsStep) give(owner string, slots []int, ttl int64) *slotsRecord {
	tokens := make([]int64, len(slots))
	for i, slot := range slots {
		if tokens[i] = x.count(slot); tokens[i] == 0 {
			return nil
		}
	}
	return x.write(owner, slots, tokens, ttl)
}

// take frees all slots of a record but those that are kept, and says which.
func (x *slotsStep) take(r slotsRecord, kept []int) (taken []int) {
	var left permit.List
	for _, p := range r.has {
		if slices.Contains(kept, p.Slot) {
			left = append(left, p)
		} else {
			taken = append(taken, p.Slot)
		}
	}
	if x.used -= len(taken); len(left) > 0 {
		x.set(slotsRecord{r.owner, r.deadline, left})
		return taken
	}
	i := x.find(r.owner)
	x.records = slices.Delete(x.records, i, i+1)
	return taken
}

// asked returns a waiter's entry, nil if that has run out.
func (x *slotsStep) asked(owner string) (w *slotsWaiter, ttl int64, missed bool) {
	i := x.place(owner)
	if i < 0 {
		return nil, 0, false
	}
	w = &x.queue[i]
	left := w.deadline - x.ms
	if left < 1 {
		return nil, 0, false
	}
	return w, min(w.ttl, left), 2*left < w.ttl
}

func (x *slotsStep) place(owner string) int {
	return slices.IndexFunc(x.queue, func(w slotsWaiter) bool { return w.owner == owner })
}

func (x *slotsStep) drop(owner string) {
	if i := x.place(owner); i >= 0 {
		x.queue = slices.Delete(x.queue, i, i+1)
		x.forgetLine()
	}
}

func (x *slotsStep) forgetLine() {
	if len(x.queue)+len(x.wishes)+len(x.buried) == 0 {
		x.waitEnd = 0
	}
}

func (x *slotsStep) unwish(owner string) {
	x.wishes = slices.DeleteFunc(x.wishes, func(w slotsWish) bool { return w.owner == owner })
	x.forgetLine()
}

func (x *slotsStep) leave(owner string) {
	x.unwish(owner)
	x.drop(owner)
}

func (x *slotsStep) head(others int) string {
	if others < len(x.queue) {
		return x.queue[others].owner
	}
	return "-"
}

// lane is the first in line that waits for one permit, and for this slot before others.
func (x *slotsStep) lane(slot int) string {
	for _, q := range x.queue[:min(32, len(x.queue))] {
		if w, _, missed := x.asked(q.owner); w != nil && w.n == 1 && w.want == slot && !missed {
			return q.owner
		}
	}
	return ""
}

func (x *slotsStep) successor(limit int, has permit.List) string {
	if limit == 0 {
		return "-"
	}
	if len(has) == 1 {
		if owner := x.lane(has[0].Slot); owner != "" {
			return owner
		}
	}
	return x.head(limit - 1)
}

func (x *slotsStep) stand(c *scriptCall, want int) {
	w := slotsWaiter{owner: c.owner, since: x.now, deadline: x.ms + c.entry, ttl: c.ttl, n: c.n, want: want, limit: c.limit}
	if i := x.place(c.owner); i >= 0 {
		w.since = x.queue[i].since
		x.queue[i] = w
	} else {
		x.queue = append(x.queue, w)
		slices.SortStableFunc(x.queue, func(a, b slotsWaiter) int {
			if a.since != b.since {
				return int(a.since - b.since)
			}
			return strings.Compare(a.owner, b.owner)
		})
	}
	if x.waitEnd-x.ms < c.entry*3/2 {
		x.waitEnd = x.ms + 2*c.entry + 1
	}
}

// wish is the one in sem_line.lua.
func (x *slotsStep) wish(owner string, slots []int, ttl, entry int64, limit int) {
	x.unwish(owner)
	var mine []int
	for _, slot := range slots {
		i := slices.IndexFunc(x.wishes, func(w slotsWish) bool { return slices.Contains(w.slots, slot) })
		if i >= 0 && x.wishes[i].deadline < x.ms {
			x.unwish(x.wishes[i].owner)
			i = -1
		}
		if i < 0 {
			mine = append(mine, slot)
		}
	}
	if len(mine) == 0 {
		return
	}
	x.wishes = append(x.wishes, slotsWish{owner, x.ms + entry, ttl, limit, mine})
	slices.SortFunc(x.wishes, func(a, b slotsWish) int { return strings.Compare(a.owner, b.owner) })
	if x.waitEnd-x.ms < entry {
		x.waitEnd = x.ms + 2*entry + 1
	}
}

// Whether a slot was given: to nobody, to somebody; or the member forgot.
const (
	slotsNobody = iota
	slotsGiven
	slotsFails
)

// hand gives slots to who waits, and tells it. wished: beside what it has.
func (x *slotsStep) hand(owner string, slots []int, ttl int64, limit int, wished bool) int {
	if !wished && x.record(owner) != nil {
		x.leave(owner)
		return slotsNobody
	}
	r := x.give(owner, slots, ttl)
	if r == nil {
		return slotsFails
	}
	has := slices.Clone(r.has)
	x.drop(owner)
	p := script.Push{Grant: true, Owner: owner, Server: x.now, Other: x.successor(limit, has), TTL: time.Duration(ttl) * time.Millisecond}
	p.Permits = slotsSorted(has)
	p.Token = p.Permits[0].Token
	x.out = published(x.out, p)
	return slotsGiven
}

func slotsSorted(l permit.List) permit.List {
	l = slices.Clone(l)
	slices.SortFunc(l, func(a, b permit.Permit) int { return a.Slot - b.Slot })
	return l
}

// grant gives a slot to who wishes for it.
func (x *slotsStep) grant(slot int) int {
	i := slices.IndexFunc(x.wishes, func(w slotsWish) bool { return slices.Contains(w.slots, slot) })
	if i < 0 {
		return slotsNobody
	}
	w := x.wishes[i]
	left := w.deadline - x.ms
	if left < 1 {
		x.unwish(w.owner)
		return slotsNobody
	}
	if w.limit > 0 {
		if w.limit = x.most(w.limit); slot >= w.limit || x.used >= w.limit && !x.limitAtFirst {
			return slotsNobody
		}
	}
	if x.hand(w.owner, []int{slot}, min(w.ttl, left), w.limit, true) == slotsFails {
		return slotsFails
	}
	rest := slices.DeleteFunc(slices.Clone(w.slots), func(s int) bool { return s == slot })
	if len(rest) > 0 {
		x.wish(w.owner, rest, w.ttl, left, w.limit)
	} else {
		x.leave(w.owner)
	}
	return slotsGiven
}

// serve gives a slot that is given up, and free.
func (x *slotsStep) serve(slot int, hint string) int {
	if done := x.grant(slot); done != slotsNobody {
		return done
	}
	if len(x.queue) == 0 {
		return slotsNobody
	}
	room := func(limit int) bool { return slot < limit && (x.used < limit || x.limitAtFirst) }
	if done := x.prefer(hint, slot, room); done != slotsNobody {
		return done
	}
	if len(x.queue) == 0 {
		return slotsNobody
	}
	if done := x.prefer(x.lane(slot), slot, room); done != slotsNobody {
		return done
	}
	line := slices.Clone(x.queue[:min(8, len(x.queue))])
	before, low := false, ""
	var pick, late string
	var pickTTL, lateTTL int64
	var pickLimit, lateLimit int
	for _, q := range line {
		w, ttl, missed := x.asked(q.owner)
		switch {
		case w == nil:
			x.leave(q.owner)
		case missed:
			if limit := x.most(w.limit); w.n == 1 && late == "" && room(limit) {
				late, lateTTL, lateLimit = q.owner, ttl, limit
			}
		case w.n > 1:
			if before {
				break
			}
			limit := x.most(w.limit)
			slots := x.free(slot, limit, w.n)
			if slots == nil {
				return slotsNobody
			}
			return x.hand(q.owner, slots, ttl, limit, false)
		default:
			before = true
			if limit := x.most(w.limit); room(limit) {
				if h := x.rank(slot, q.owner); low == "" || h < low {
					low, pick, pickTTL, pickLimit = h, q.owner, ttl, limit
				}
			}
		}
	}
	switch {
	case pick != "":
		return x.hand(pick, []int{slot}, pickTTL, pickLimit, false)
	case late != "":
		return x.hand(late, []int{slot}, lateTTL, lateLimit, false)
	}
	return slotsNobody
}

// prefer gives a slot to a waiter, or to the first in line if that has waited for so much longer.
func (x *slotsStep) prefer(pick string, slot int, room func(limit int) bool) int {
	i := x.place(pick)
	if pick == "" || i < 0 {
		return slotsNobody
	}
	first := x.queue[0]
	w, ttl, missed := x.asked(pick)
	f, firstTTL, late := x.asked(first.owner)
	if x.now-first.since > 3*(x.now-x.queue[i].since)+20_000 && !late {
		w, ttl, missed = f, firstTTL, false
	}
	if w != nil && w.n == 1 && !missed && room(x.most(w.limit)) && (f == nil || f.n == 1) {
		return x.hand(w.owner, []int{slot}, ttl, x.most(w.limit), false)
	}
	return slotsNobody
}

// hands serves slots that are given up, and then the line; false: the member forgot.
func (x *slotsStep) hands(slots []int, hint string) bool {
	all := len(slots) > 0
	for _, slot := range slots {
		if x.holder(slot) == "" || x.releaseAny {
			done := x.serve(slot, hint)
			if done == slotsFails {
				return false
			}
			all = all && done == slotsGiven
		}
	}
	return all || x.admit()
}

// admit gives what is free to those in line; false: the member forgot.
func (x *slotsStep) admit() bool {
	for place := 0; ; {
		owner := x.head(place)
		if owner == "-" {
			return true
		}
		w, ttl, missed := x.asked(owner)
		switch {
		case w == nil:
			x.leave(owner)
		case missed && place < 8 && x.head(place+1) != "-":
			place++
		default:
			limit := x.most(w.limit)
			slots := x.free(w.want, limit, w.n)
			if slots == nil {
				return true
			}
			if x.hand(owner, slots, ttl, limit, false) == slotsFails {
				return false
			}
		}
	}
}

func (x *slotsStep) acquire(c scriptCall) scriptReply {
	if x.usual(c) { // what has ended stays until another script sweeps
		x.counters[c.want]++
		x.used++
		x.set(slotsRecord{c.owner, x.ms + c.ttl, permit.List{{Slot: c.want, Token: x.counters[c.want]}}})
		return scriptReply{permits: slotsText(x.record(c.owner).has)}
	}
	x.bound(c.known)
	reply := func(r scriptReply) scriptReply {
		if x.told > 0 {
			r.server, r.next, r.limit = x.now, "-", x.told
		}
		return r
	}
	if r := x.read(c.owner); r != nil {
		x.keep(*r, c.ttl)
		return reply(scriptReply{permits: slotsText(r.has)})
	}
	for k := 1; k <= 4 && len(x.queue) > 0; k++ {
		first := x.head(0)
		if w, _, _ := x.asked(first); w != nil {
			return reply(scriptReply{n: x.refusal(1)})
		}
		if x.leave(first); k == 4 {
			return reply(scriptReply{n: -1})
		}
	}
	slots := x.free(c.want, x.most(c.limit), c.n)
	if slots == nil {
		return reply(scriptReply{n: x.refusal(1)})
	}
	r := x.give(c.owner, slots, c.ttl)
	if r == nil {
		return slotsForgot
	}
	return reply(scriptReply{permits: slotsText(r.has)})
}

// usual is the case that sem_acquire.lua has in fewer commands, beside permits of others.
func (x *slotsStep) usual(c scriptCall) bool {
	deadline := x.ms + c.ttl
	return c.n == 1 && len(x.queue) == 0 && x.record(c.owner) == nil && x.holder(c.want) == "" && c.want < c.limit && x.used < c.limit &&
		x.stored == 0 && c.known == 0 && x.earliest > 0 && x.earliest <= deadline && x.over > deadline && x.counters[c.want] > 0
}

// slotsText is the text of what a record has, in its order.
func slotsText(l permit.List) string { return string(l.Append(nil)) }

func (x *slotsStep) has(r *slotsRecord, limit int) scriptReply {
	return scriptReply{permits: slotsText(r.has), server: x.now, next: x.successor(limit, r.has), limit: x.told}
}

func (x *slotsStep) wait(c scriptCall) scriptReply {
	x.bound(c.known)
	limit := x.most(c.limit)
	if r := x.read(c.owner); r != nil {
		x.keep(*r, c.ttl)
		x.drop(c.owner)
		if x.movesVote && x.holder(c.want) == "" {
			freed := x.take(*x.record(c.owner), nil)
			x.give(c.owner, []int{c.want}, c.ttl)
			x.hands(freed, "")
		}
		return x.has(x.record(c.owner), limit)
	}
	x.unwish(c.owner)
	if first := x.head(0); first == "-" || first == c.owner {
		if slots := x.free(c.want, limit, c.n); slots != nil {
			r := x.give(c.owner, slots, c.ttl)
			if r == nil {
				return slotsForgot
			}
			x.drop(c.owner)
			return x.has(r, limit)
		}
	}
	x.stand(&c, c.want)
	if x.used < limit {
		if !x.admit() {
			return slotsForgot
		}
		if r := x.record(c.owner); r != nil {
			return x.has(r, limit)
		}
	}
	return scriptReply{n: x.refusal(c.entry), server: x.now, next: "-", limit: x.told}
}

func (x *slotsStep) claim(c scriptCall) scriptReply {
	x.bound(c.known)
	limit := x.most(c.limit)
	r := x.read(c.owner)
	if r != nil && !slices.Equal(slotsSorted(r.has), slotsSorted(c.had)) {
		x.keep(*r, c.ttl)
		x.drop(c.owner)
		if !x.admit() {
			return slotsForgot
		}
		return x.has(x.record(c.owner), limit)
	}
	x.leave(c.owner)
	var freed, missing []int
	if r != nil {
		freed = x.take(*r, c.slots)
		if r = x.record(c.owner); r != nil {
			x.keep(*r, c.ttl)
		}
	}
	for _, slot := range c.slots {
		if r := x.record(c.owner); r != nil && r.has.Token(slot) > 0 {
			continue
		}
		if x.holder(slot) != "" || slot >= limit || x.used >= limit {
			missing = append(missing, slot)
		} else if x.give(c.owner, []int{slot}, c.ttl) == nil {
			return slotsForgot
		}
	}
	done := x.hands(freed, "")
	if x.clear(); !done {
		return slotsForgot
	}
	if len(missing) > 0 {
		x.wish(c.owner, missing, c.ttl, c.entry, c.limit)
	}
	if r := x.record(c.owner); r != nil {
		return x.has(r, limit)
	}
	want := c.want
	if len(c.slots) > 0 {
		want = c.slots[0]
	}
	x.stand(&c, want)
	return scriptReply{n: x.refusal(c.entry), server: x.now, next: "-", limit: x.told}
}

// had reports whether a record has all slots of a lease.
func had(r *slotsRecord, lease permit.List) bool { return r != nil && r.has.Has(lease.Slots()) }

func (x *slotsStep) release(c scriptCall) scriptReply {
	var r *slotsRecord
	if i := x.find(c.owner); i >= 0 {
		copied := x.records[i]
		r = &copied
	}
	if x.waitEnd == 0 && (r == nil || len(r.has) == 1) {
		if r != nil {
			x.take(*r, nil)
			x.clear()
		}
		return scriptReply{n: one(had(r, c.had) && len(c.had) <= 1)}
	}
	x.bound(0)
	if r = nil; x.read(c.owner) != nil {
		copied := *x.record(c.owner)
		r = &copied
	}
	if x.wishesStay {
		x.drop(c.owner)
	} else {
		x.leave(c.owner)
	}
	var slots []int
	if r != nil {
		slots = x.take(*r, nil)
	}
	slots = append(slots, c.had.Slots()...)
	done := x.tag == "!" || x.hands(slots, c.hint)
	if x.clear(); !done {
		return slotsForgot
	}
	return scriptReply{n: one(had(r, c.had))}
}

func (x *slotsStep) extend(c scriptCall) int64 {
	r := x.record(c.owner)
	if r == nil || r.deadline < x.ms || !had(r, c.had) && !x.extendAny {
		return 0
	}
	n := *r
	n.deadline = max(n.deadline, x.ms+c.ttl)
	x.outlive(n.deadline)
	x.set(n)
	return 1
}

func (x *slotsStep) raise(c scriptCall) int64 {
	r := x.record(c.owner)
	if r == nil || r.deadline < x.ms {
		return 0
	}
	for _, p := range c.had {
		if has := r.has.Token(p.Slot); has == 0 || has > p.Token {
			return 0
		}
	}
	for _, p := range c.had {
		x.counters[p.Slot] = max(x.counters[p.Slot], p.Token)
	}
	return 1
}

func (x *slotsStep) rejoin(c scriptCall) scriptReply {
	x.bound(0)
	for _, p := range c.had {
		if x.counters[p.Slot] == 0 && x.tag != "" && x.id != x.tag {
			return slotsForgot
		}
		if x.counters[p.Slot] == 0 {
			x.counters[p.Slot] = x.begun() - 1
		}
		x.counters[p.Slot] = max(x.counters[p.Slot], p.Token)
	}
	r := x.read(c.owner)
	x.leave(c.owner)
	lost := x.buried.refuse(c.owner, x.now)
	var freed, free, missing []int
	var tokens []int64
	if r != nil {
		freed = x.take(*r, c.had.Slots())
		r = x.record(c.owner)
	}
	for _, p := range c.had {
		switch {
		case r != nil && r.has.Token(p.Slot) > 0:
		case lost || x.holder(p.Slot) != "":
			missing = append(missing, p.Slot)
		default:
			free, tokens = append(free, p.Slot), append(tokens, p.Token)
		}
	}
	if len(free) > 0 {
		x.write(c.owner, free, tokens, c.ttl)
	} else if r != nil {
		x.keep(*r, c.ttl)
	}
	done := x.hands(freed, "")
	if x.clear(); !done {
		return slotsForgot
	}
	if len(missing) > 0 && c.wish > 0 && !lost {
		x.wish(c.owner, missing, c.ttl, c.wish, 0)
	}
	return scriptReply{n: one(len(missing) == 0)}
}

func (x *slotsStep) force(c scriptCall) scriptReply {
	x.bound(0)
	x.read("")
	if c.owner != "" {
		x.drop(c.owner)
	}
	most := c.ttl
	if x.earliest > 0 {
		most = max(most, x.end-x.ms)
	}
	x.buried = x.buried.with(modelBurial{c.owner, x.ms + most + 1})
	x.waitEnd = max(x.waitEnd, x.ms+most+1)
	var slots []int
	for _, r := range slices.Clone(x.records) {
		if c.owner == "" || r.owner == c.owner {
			x.unwish(r.owner)
			slots = append(slots, x.take(r, nil)...)
		}
	}
	done := x.tag == "!" || x.hands(slots, "")
	if x.clear(); !done {
		return slotsForgot
	}
	return scriptReply{n: one(len(slots) > 0)}
}

// modelBurial: no re-join of an owner, "" of any, until a time in ms.
type modelBurial struct {
	owner string
	until int64
}

// modelBurials are one for each owner. They are never changed in place.
type modelBurials []modelBurial

func (l modelBurials) with(b modelBurial) modelBurials {
	if i := slices.IndexFunc(l, func(o modelBurial) bool { return o.owner == b.owner }); i >= 0 {
		b.until = max(b.until, l[i].until)
		l = slices.Concat(l[:i], l[i+1:])
	}
	return append(slices.Clip(l), b)
}

func (l modelBurials) refuse(owner string, now int64) bool {
	return slices.ContainsFunc(l, func(b modelBurial) bool {
		return (b.owner == "" || b.owner == owner) && b.until*1000 > now
	})
}

// modelHashes are those of texts that were compared by them.
type modelHashes map[string]string

func (h modelHashes) of(text string) string {
	if _, known := h[text]; !known {
		sum := sha1.Sum([]byte(text))
		h[text] = string(sum[:])
	}
	return h[text]
}

// published adds a push, if it can be sent: its owner is a client's.
func published(out []script.Push, p script.Push) []script.Push {
	if client, number, ok := strings.Cut(p.Owner, ":"); ok && client != "" {
		n, err := strconv.ParseUint(number, 10, 64)
		if err == nil {
			p.N = n
			return append(out, p)
		}
	}
	return out
}

const forgotMarker = "FORGOT marker"
