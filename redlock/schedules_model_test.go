//go:build !race

package redlock

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// modelMember is one lock at one member, as the scripts keep it: script/*.lua in Go, line by line, with
// a clock that the caller gives. The schedules are played on it, and TestSchedulesModelDoesWhatTheScriptsDo
// ties it to the scripts. It is a value: the queue is never changed in place, so that a copy is another
// member.
type modelMember struct {
	owner   string // of the vote, "" none
	token   int64  // of the vote
	end     int64  // of the vote, ms
	counter int64  // 0: the bucket has none
	base    int64  // of counters that are not there, 0 none
	id      string // of the restart guard's marker
	queue   []modelWaiter
	buried  modelBurials // of the lock, by force
	last    int64        // the greatest ticket of a fair lock, 0 none
	waitEnd int64        // of queue and waiters, ms

	phase   modelPhase    // with owner phaseOwner: schedules_rw_model_test.go
	reading []modelWaiter // who waits to read
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

type modelWaiter struct {
	owner    string
	since    int64 // µs; of one that has a ticket, that
	fair     bool  // it has one
	deadline int64 // ms
	ttl      int64 // ms
}

// modelCall is a call of a script: times in ms.
type modelCall struct {
	op         string
	owner      string
	hint       string
	ttl, entry int64
	token      int64
	tag        string
	by         string // whose script: byWriter, byReader; "": the mutex's
	fair       bool   // of a fair lock
	ticket     int64

	// Of a semaphore.
	want     int // the slot to try first
	limit, n int
	known    int64
	had      permit.List // that a claim gives up; that the lease of a release, raise, rejoin, extend has
	slots    []int       // that a claim asks for; nil: none
	wish     int64       // of a rejoin
	stored   int64       // of a limit
}

const opForce = "force"

func (c modelCall) String() string {
	s := c.op + " " + c.owner
	add := func(is bool, format string, args ...any) {
		if is {
			s += fmt.Sprintf(format, args...)
		}
	}
	add(c.hint != "", " hint %s", c.hint)
	add(c.token != 0, " token %d", c.token)
	add(c.n > 0, " %d of %d, slot %d first", c.n, c.limit, c.want)
	add(c.had != nil, " (%v)", c.had)
	add(c.slots != nil, " for %v", c.slots)
	add(c.wish > 0, " wish %d", c.wish)
	add(c.stored > 0, " store %d", c.stored)
	add(c.ttl > 0, " ttl %d", c.ttl)
	add(c.fair, " fair, ticket %d", c.ticket)
	add(c.tag != "" && c.tag != twinTag, " tag %s", c.tag)
	return s
}

// modelReply is a reply: n, or the permits as the script writes them, and, where the script tells them, the server's time,
// the head of the queue or the successor, the place, and the stored limit.
type modelReply struct {
	err     string
	n       int64
	permits string
	server  int64
	next    string
	place   int64
	limit   int64
}

func (r modelReply) String() string {
	switch {
	case r.err != "":
		return r.err
	case r.permits != "":
		return strings.TrimSpace(r.permits + " " + r.next)
	}
	return strings.TrimSpace(fmt.Sprint(r.n, " ", r.next))
}

// modelRules are the scripts' guards that a case takes out. The zero value is the scripts as they are.
type modelRules struct {
	raiseAnyone    bool // raise does not ask whose the vote is
	raiseAnyVote   bool // raise does not ask which vote the owner has
	extendShortens bool
	forceForgets   bool // force does not refuse re-joins
	modelReadRules
	newPlace    bool // who yields a fair lock goes to the end
	lowestHash  bool // and gives it to the lowest hash
	barges      bool // who asks a member that is free has its vote, whoever waits there
	lastInQueue bool // a ticket follows the last in the queue, and not all that were given out
}

// modelServer executes calls at members.
type modelServer struct {
	modelRules
	hashes modelHashes
}

func newModelServer(rules modelRules) *modelServer {
	return &modelServer{modelRules: rules, hashes: modelHashes{}}
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

// rank is what a yield compares.
func (s *modelServer) rank(owner string) string { return s.hashes.of(owner) }

// modelStep is one script call under way.
type modelStep struct {
	*modelServer
	*modelMember
	now int64 // µs
	tag string
	out []script.Push
}

const forgotMarker = "FORGOT marker"

// call executes c at m when its clock reads now, in µs, and returns the reply and what is published to
// clients' inboxes, in order.
func (s *modelServer) call(m *modelMember, now int64, c modelCall) (modelReply, []script.Push) {
	m.expire(now)
	x := &modelStep{modelServer: s, modelMember: m, now: now, tag: c.tag}
	r := x.run(c)
	return r, x.out
}

func (m *modelMember) expire(now int64) {
	if m.owner != "" && m.end <= now/1000 {
		m.owner, m.token, m.end, m.phase = "", 0, 0, modelPhase{}
	}
	if m.waitEnd <= now/1000 {
		m.queue, m.buried, m.reading, m.last, m.waitEnd = nil, nil, nil, 0, 0
	}
}

func (x *modelStep) run(c modelCall) modelReply {
	if c.by != "" {
		return x.readWrite(c)
	}
	if c.fair {
		if r, own := x.runFair(c); own {
			return r
		}
	}
	switch c.op {
	case opAcquire:
		switch x.owner {
		case "":
			n := x.grant(c.owner, c.ttl)
			if n == 0 {
				return modelReply{err: forgotMarker}
			}
			return modelReply{n: n}
		case c.owner:
			x.lengthen(c.ttl)
			return modelReply{n: x.token}
		}
		return modelReply{n: -max(x.end-x.now/1000, 1)}
	case opWait:
		if c.tag != "" && c.tag != "!" && x.id != c.tag {
			return modelReply{err: forgotMarker}
		}
		switch x.owner {
		case "":
			n := x.grant(c.owner, c.ttl)
			if n == 0 {
				return modelReply{err: forgotMarker}
			}
			x.drop(c.owner)
			return modelReply{n: n, server: x.now, next: x.head()}
		case c.owner:
			x.lengthen(c.ttl)
			x.drop(c.owner)
			return modelReply{n: x.token, server: x.now, next: x.head()}
		}
		if x.register(c.owner, c.ttl, c.entry) {
			x.publish(script.Push{Owner: x.owner, Other: c.owner})
		}
		if len(x.queue) > 8 {
			panic("the model has no long queues")
		}
		return modelReply{n: -max(x.end-x.now/1000, 1), server: x.now, next: "-"}
	case opRelease:
		had := x.owner == c.owner
		if had {
			x.free()
		}
		if len(x.queue) == 0 {
			return modelReply{n: one(had)}
		}
		if x.drop(c.owner) && !had && c.tag != "!" && x.owner != "" {
			x.publish(script.Push{Gone: true, Owner: x.owner, Other: c.owner})
		}
		if !had || c.tag == "!" {
			return modelReply{n: one(had)}
		}
		return x.pass(c.hint)
	case opForce:
		x.bury(c)
		if x.owner == "" || c.owner != "" && c.owner != x.owner {
			return modelReply{n: 0}
		}
		x.free()
		if c.tag == "!" {
			return modelReply{n: 1}
		}
		return x.pass("")
	case opYield:
		return x.yield(c)
	case opExtend:
		if x.owner != c.owner {
			return modelReply{n: 0}
		}
		if x.extendShortens {
			x.end = x.now/1000 + c.ttl
		}
		x.lengthen(c.ttl)
		return modelReply{n: 1}
	case opRaise:
		if x.owner != c.owner && !x.raiseAnyone {
			return modelReply{n: 0}
		}
		if x.token > c.token && !x.raiseAnyVote && !x.raiseAnyone {
			return modelReply{n: 0}
		}
		x.counter = max(x.counter, c.token)
		return modelReply{n: 1}
	case opRejoin:
		if x.counter == 0 && c.tag != "" && x.id != c.tag {
			return modelReply{err: forgotMarker}
		}
		x.rejoins(c.token)
		switch x.owner {
		case "":
			if x.buried.refuse(c.owner, x.now) {
				return modelReply{n: 0}
			}
			x.modelMember.owner, x.modelMember.token, x.end = c.owner, c.token, x.now/1000+c.ttl
			x.drop(c.owner)
			return modelReply{n: 1}
		case c.owner:
			x.lengthen(c.ttl)
			return modelReply{n: 1}
		}
		return modelReply{n: 0}
	}
	panic("no such script: " + c.op)
}

func (x *modelStep) yield(c modelCall) modelReply {
	if x.owner != c.owner || x.token != c.token {
		return modelReply{n: 0, server: x.now}
	}
	heir, lowest, ttl := c.owner, x.rank(c.owner), int64(0)
	for _, w := range x.queue {
		if h := x.rank(w.owner); h < lowest {
			switch left := x.left(w); {
			case left < 1:
				x.drop(w.owner)
			case !x.missed(w):
				heir, lowest, ttl = w.owner, h, x.granted(w)
			}
		}
	}
	if heir == c.owner {
		n := x.count()
		if n == 0 {
			return modelReply{err: forgotMarker}
		}
		x.token = n
		x.lengthen(c.ttl)
		return modelReply{n: n, server: x.now}
	}
	x.free()
	x.register(c.owner, c.ttl, c.entry)
	if !x.hand(heir, ttl) {
		return modelReply{err: forgotMarker}
	}
	return modelReply{n: 0, server: x.now}
}

// pass hands a freed vote to the successor; the caller's reply is 1.
func (x *modelStep) pass(hint string) modelReply {
	heir, ttl := x.successor(hint)
	if heir != "" && !x.hand(heir, ttl) {
		return modelReply{err: forgotMarker}
	}
	return modelReply{n: 1}
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (x *modelStep) free() { x.owner, x.token, x.end = "", 0, 0 }

func (x *modelStep) lengthen(ttl int64) { x.end = max(x.end, x.now/1000+ttl) }

func (x *modelStep) count() int64 {
	if x.counter == 0 {
		if x.tag != "" && x.id != x.tag {
			return 0
		}
		x.counter = x.begun()
		return x.counter
	}
	x.counter++
	return x.counter
}

// begun is the first token of a bucket that has no counter.
func (x *modelStep) begun() int64 {
	if x.base > 0 {
		return x.base + 1
	}
	return x.now
}

// rejoins lifts the counter to the token of a lease that gets a vote.
func (x *modelStep) rejoins(token int64) {
	if x.counter == 0 {
		x.counter = x.begun() - 1
	}
	x.counter = max(x.counter, token)
}

func (x *modelStep) grant(owner string, ttl int64) int64 {
	n := x.count()
	if n > 0 {
		x.owner, x.token, x.end = owner, n, x.now/1000+ttl
	}
	return n
}

func (x *modelStep) find(owner string) int {
	return slices.IndexFunc(x.queue, func(w modelWaiter) bool { return w.owner == owner })
}

func (x *modelStep) drop(owner string) bool {
	i := x.find(owner)
	if i < 0 {
		return false
	}
	x.queue = slices.Concat(x.queue[:i], x.queue[i+1:])
	if len(x.queue) == 0 {
		x.queue = nil
		x.forgetQueue()
	}
	return true
}

func (x *modelStep) bury(c modelCall) {
	if x.forceForgets {
		return
	}
	if c.owner != "" {
		x.drop(c.owner)
	}
	most := c.ttl
	if x.owner != "" {
		most = max(most, x.end-x.now/1000)
	}
	x.buried = x.buried.with(modelBurial{c.owner, x.now/1000 + most + 1})
	x.waitEnd = max(x.waitEnd, x.now/1000+most+1)
}

// left is what remains of an entry, ms.
func (x *modelStep) left(w modelWaiter) int64 { return w.deadline - x.now/1000 }

// granted is what a waiter is granted, ms.
func (x *modelStep) granted(w modelWaiter) int64 { return min(w.ttl, x.left(w)) }

// missed reports whether a waiter has missed a heartbeat.
func (x *modelStep) missed(w modelWaiter) bool { return 2*x.left(w) < w.ttl }

func (x *modelStep) head() string {
	if len(x.queue) == 0 {
		return "-"
	}
	return x.queue[0].owner
}

func (x *modelStep) publish(p script.Push) { x.out = published(x.out, p) }

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

func (x *modelStep) hand(owner string, ttl int64) bool {
	n := x.count()
	if n == 0 {
		return false
	}
	x.give(owner, n, ttl)
	return true
}

// give grants with a token that was drawn.
func (x *modelStep) give(owner string, n, ttl int64) {
	x.owner, x.token, x.end = owner, n, x.now/1000+ttl
	x.drop(owner)
	x.publish(script.Push{Grant: true, Owner: owner, Token: n, Server: x.now, Other: x.head(), TTL: time.Duration(ttl) * time.Millisecond})
}

func (x *modelStep) successor(hint string) (string, int64) {
	if i := x.find(hint); hint != "" && i >= 0 {
		switch w := x.queue[i]; {
		case x.left(w) < 1:
			x.drop(hint)
		case !x.missed(w):
			return w.owner, x.granted(w)
		}
	}
	late, lateTTL := "", int64(0)
	for i := 0; i < len(x.queue); {
		switch w := x.queue[i]; {
		case x.left(w) < 1:
			x.drop(w.owner)
		case !x.missed(w):
			return w.owner, x.granted(w)
		default:
			if late == "" {
				late, lateTTL = w.owner, x.granted(w)
			}
			i++
		}
	}
	return late, lateTTL
}

func (x *modelStep) register(owner string, ttl, entry int64) bool {
	w := modelWaiter{owner: owner, since: x.now, deadline: x.now/1000 + entry, ttl: ttl}
	i := x.find(owner)
	x.queue = slices.Clone(x.queue)
	if i >= 0 {
		w.since, w.fair = x.queue[i].since, x.queue[i].fair
		x.queue[i] = w
	} else {
		x.queue = append(x.queue, w)
		slices.SortStableFunc(x.queue, inOrder)
	}
	x.lasting(entry)
	return i < 0
}

// inOrder compares places in a queue.
func inOrder(a, b modelWaiter) int {
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(one(a.fair), one(b.fair)), cmp.Compare(a.owner, b.owner))
}

// runFair does what the scripts of a fair lock do. own: there is one for the call.
func (x *modelStep) runFair(c modelCall) (r modelReply, own bool) {
	forgot := modelReply{err: forgotMarker}
	switch c.op {
	case opAcquire:
		if x.owner == "" && !x.barges {
			if heir, _ := x.successor(""); heir != "" {
				return modelReply{n: -1}, true
			}
		}
		return modelReply{}, false
	case opWait:
		switch x.owner {
		case "":
			n := x.count()
			if n == 0 {
				return forgot, true
			}
			place, _ := x.stand(c)
			heir, ttl := x.successor("")
			if heir == c.owner || x.barges {
				x.owner, x.token, x.end = c.owner, n, x.now/1000+c.ttl
				x.drop(c.owner)
				return modelReply{n: n, server: x.now, next: x.head(), place: place}, true
			}
			x.give(heir, n, ttl)
			x.publish(script.Push{Owner: heir, Other: c.owner})
			return modelReply{n: -max(x.end-x.now/1000, 1), server: x.now, next: "-", place: place}, true
		case c.owner:
			x.lengthen(c.ttl)
			place := x.ticket(c)
			x.lasting(c.entry)
			x.drop(c.owner)
			return modelReply{n: x.token, server: x.now, next: x.head(), place: place}, true
		}
		place, ahead := x.stand(c)
		if ahead {
			x.publish(script.Push{Owner: x.owner, Other: c.owner})
		}
		return modelReply{n: -max(x.end-x.now/1000, 1), server: x.now, next: "-", place: place}, true
	case opRelease:
		if x.waitEnd == 0 {
			return modelReply{}, false
		}
		c.fair, c.hint = false, ""
		r = x.run(c)
		x.spend()
		return r, true
	case opYield:
		return x.yieldFair(c), true
	}
	return modelReply{}, false
}

func (x *modelStep) yieldFair(c modelCall) modelReply {
	if x.owner != c.owner || x.token != c.token {
		return modelReply{n: 0, server: x.now}
	}
	if x.newPlace {
		c.ticket = 0
	}
	x.stand(c)
	heir, ttl := x.successor("")
	if x.lowestHash || slices.ContainsFunc(x.queue, func(w modelWaiter) bool { return !w.fair }) {
		heir = c.owner
		lowest := x.rank(c.owner)
		for _, w := range x.queue {
			if h := x.rank(w.owner); h < lowest && x.left(w) >= 1 && !x.missed(w) {
				heir, lowest, ttl = w.owner, h, x.granted(w)
			}
		}
	}
	n := x.count()
	if heir == c.owner {
		x.drop(c.owner)
		if n == 0 {
			return modelReply{err: forgotMarker}
		}
		x.token = n
		x.lengthen(c.ttl)
		return modelReply{n: n, server: x.now}
	}
	x.free()
	if n == 0 {
		return modelReply{err: forgotMarker}
	}
	x.give(heir, n, ttl)
	return modelReply{n: 0, server: x.now}
}

// ticket is the owner's ticket here.
func (x *modelStep) ticket(c modelCall) int64 {
	n, last := c.ticket, x.last
	if x.lastInQueue {
		if last = 0; len(x.queue) > 0 {
			last = x.queue[len(x.queue)-1].since
		}
	}
	if i := x.find(c.owner); n == 0 && i >= 0 {
		n = x.queue[i].since
	} else if n == 0 {
		n = max(last+1, x.now-x.now%1_000_000)
	}
	x.last = max(x.last, n)
	return n
}

// stand puts an owner at its ticket. ahead: before others that it did not stand before.
func (x *modelStep) stand(c modelCall) (place int64, ahead bool) {
	w := modelWaiter{owner: c.owner, since: x.ticket(c), fair: true, deadline: x.now/1000 + c.entry, ttl: c.ttl}
	x.queue = slices.Clone(x.queue)
	i := x.find(c.owner)
	if ahead = i < 0 || w.since < x.queue[i].since; i < 0 {
		x.queue = append(x.queue, w)
	} else {
		x.queue[i] = w
	}
	slices.SortStableFunc(x.queue, inOrder)
	x.lasting(c.entry)
	return w.since, ahead
}

func (x *modelStep) lasting(entry int64) {
	if x.waitEnd-x.now/1000 < entry*3/2 {
		x.waitEnd = x.now/1000 + 2*entry
	}
}
