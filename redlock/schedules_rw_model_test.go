//go:build !race

package redlock

import (
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/script"
)

// What a member has of a lock with readers, and its scripts: rw*.lua in Go. See
// schedules_model_test.go.

// phaseOwner stands for the readers in the place of an owner: a script of the mutex sees somebody
// else.
const phaseOwner = "r"

// modelPhase is a read phase. Slices in it are never changed in place.
type modelPhase struct {
	drawn, told int64
	marking     string
	readers     []modelReader
}

type modelReader struct {
	owner string
	end   int64 // ms; the vote is over when that is reached
}

// whose is who asks for a lock with readers; "": a client of the mutex.
const (
	byWriter = "writer"
	byReader = "reader"
)

// modelReadRules are the guards of these scripts that a case takes out.
type modelReadRules struct {
	writerIgnoresReaders bool // a writer's wait does not ask whether there are readers
	lastIgnoresReaders   bool // nor does a reader's release
	extendKeyOnly        bool // readers are renewed as writers are
	phaseDrawsNothing    bool // a phase is told the last token, and not one of its own
	raiseAnyPhase        bool // a reader's raise does not ask whether the phase drew more
	rejoinedPhaseTakes   bool // a phase that begins with a rejoin takes the lease's token
}

func (p *modelPhase) find(owner string) int {
	return slices.IndexFunc(p.readers, func(r modelReader) bool { return r.owner == owner })
}

// join gives an owner a vote until end at least.
func (p *modelPhase) join(owner string, end int64) {
	if i := p.find(owner); i >= 0 {
		end = max(end, p.readers[i].end)
		p.leave(owner)
	}
	p.readers = append(slices.Clip(p.readers), modelReader{owner, end})
	slices.SortFunc(p.readers, func(a, b modelReader) int { return strings.Compare(a.owner, b.owner) })
}

func (p *modelPhase) leave(owner string) bool {
	i := p.find(owner)
	if i >= 0 {
		p.readers = slices.Concat(p.readers[:i], p.readers[i+1:])
	}
	return i >= 0
}

// over is the end of a reader's vote.
func (x *modelStep) over(ttl int64) int64 { return x.now/1000 + 1 + ttl }

// newcomers is the token that a newcomer is told, 0: nobody joins.
func (x *modelStep) newcomers() int64 {
	if x.owner != phaseOwner || x.phase.marking != x.tag {
		return 0
	}
	return x.phase.told
}

func (x *modelStep) begin(n, ttl int64) {
	if x.owner == "" {
		x.end = 0
	}
	x.modelMember.owner, x.token, x.phase = phaseOwner, 0, modelPhase{drawn: n, told: n, marking: x.tag}
	x.lengthen(ttl)
}

// draw is the token of a phase.
func (x *modelStep) draw() int64 {
	if x.phaseDrawsNothing && x.counter > 0 {
		return x.counter
	}
	return x.count()
}

func (x *modelStep) writer() string {
	for len(x.queue) > 0 && x.left(x.queue[0]) < 1 {
		x.drop(x.queue[0].owner)
	}
	return x.head()
}

// sweep removes readers whose time is over, and says until when the last one has its vote.
func (x *modelStep) sweep() (left int, last int64) {
	x.phase.readers = slices.DeleteFunc(slices.Clone(x.phase.readers), func(r modelReader) bool { return r.end <= x.now/1000 })
	for _, r := range x.phase.readers {
		last = max(last, r.end)
	}
	return len(x.phase.readers), last
}

// shorten has the key live no longer than the last reader that is left.
func (x *modelStep) shorten(last int64) { x.end = min(x.end, max(last, x.now/1000+1)) }

// readersStay takes a reader out of its phase, and reports whether there are others. alone: nobody
// waits, and only a reader for which the key lived looks whether they died.
func (x *modelStep) readersStay(owner string, alone bool) bool {
	till := x.phase.readers[x.phase.find(owner)].end
	x.phase.leave(owner)
	switch left := len(x.phase.readers); {
	case x.lastIgnoresReaders:
		return false
	case alone && left > 0 && till+5 < x.end:
		return true
	}
	left, last := x.sweep()
	if left > 0 {
		x.shorten(last)
	}
	return left > 0
}

// admit lets in who waits to read: -1, the member forgot.
func (x *modelStep) admit(fresh bool) int {
	var in []modelWaiter
	most := int64(0)
	for _, w := range x.reading {
		if left := w.deadline - x.now/1000; left >= 1 {
			w.ttl = min(w.ttl, left)
			most = max(most, w.ttl)
			in = append(in, w)
		}
	}
	if len(in) > 0 {
		switch {
		case fresh:
			n := x.draw()
			if n == 0 {
				return -1
			}
			x.begin(n, most)
		case x.newcomers() == 0:
			return 0
		}
		x.lengthen(most)
		for _, w := range in {
			x.phase.join(w.owner, x.over(w.ttl))
		}
	}
	x.reading = nil
	x.forgetQueue()
	next := "-"
	if len(in) > 0 {
		next = x.writer()
	}
	for _, w := range in {
		x.publish(script.Push{Grant: true, Owner: w.owner, Token: x.phase.told, Server: x.now, Other: next, TTL: time.Duration(w.ttl) * time.Millisecond})
	}
	return len(in)
}

// forgetQueue ends the time of a queue that is not there any more.
func (x *modelStep) forgetQueue() {
	if len(x.queue)+len(x.reading)+len(x.buried) == 0 && x.last == 0 {
		x.waitEnd = 0
	}
}

// spend removes the last ticket where nobody holds the lock or waits with one.
func (x *modelStep) spend() {
	if x.owner == "" && len(x.queue) == 0 {
		x.last = 0
		x.forgetQueue()
	}
}

// leaveLine takes an owner out of the queue, and out of those that wait to read.
func (x *modelStep) leaveLine(owner string) (waited bool) {
	waited = x.drop(owner)
	x.reading = slices.DeleteFunc(slices.Clone(x.reading), func(w modelWaiter) bool { return w.owner == owner })
	if len(x.reading) == 0 {
		x.reading = nil
	}
	x.forgetQueue()
	return waited
}

// serve hands the vote to a writer: 1 done, 0 nobody waits, -1 the member forgot.
func (x *modelStep) serve(hint string) int {
	heir, ttl := x.successor(hint)
	switch {
	case heir == "":
		return 0
	case !x.hand(heir, ttl):
		return -1
	}
	x.phase = modelPhase{}
	return 1
}

// lastOf is what a lock is given up for: whoever is served.
func (x *modelStep) lastOf(hint string) modelReply {
	hint, wrote := strings.CutPrefix(hint, script.ReadersFirst(""))
	if len(x.queue) > 0 && x.queue[0].fair {
		hint = ""
	}
	x.free()
	x.phase = modelPhase{}
	served := 0
	if x.tag != "!" {
		if wrote {
			served = x.admit(true)
		}
		if served == 0 {
			if served = x.serve(hint); served == 0 {
				served = x.admit(true)
			}
		}
	}
	if served < 0 {
		return modelReply{err: forgotMarker}
	}
	return modelReply{n: 1}
}

func (x *modelStep) readWrite(c modelCall) modelReply {
	refused := modelReply{n: -max(x.end-x.now/1000, 1)}
	switch c.op {
	case opAcquire:
		if x.owner == "" {
			if len(x.queue)+len(x.reading) > 0 {
				return modelReply{n: -1}
			}
			n := x.draw()
			if n == 0 {
				return modelReply{err: forgotMarker}
			}
			x.begin(n, c.ttl)
		} else if x.newcomers() == 0 || x.phase.find(c.owner) < 0 && len(x.queue) > 0 {
			return refused
		}
		x.phase.join(c.owner, x.over(c.ttl))
		x.lengthen(c.ttl)
		return modelReply{n: x.phase.told}
	case opWait:
		if c.by == byWriter {
			return x.writerWaits(c)
		}
		return x.readerWaits(c)
	case opRelease:
		defer x.spend()
		alone := len(x.queue)+len(x.reading)+len(x.buried) == 0 && x.last == 0
		had := x.owner == c.owner || x.owner == phaseOwner && x.phase.find(c.owner) >= 0
		waited := x.leaveLine(c.owner)
		switch {
		case !had:
			switch {
			case x.owner == phaseOwner && waited && c.tag != "!" && x.writer() == "-":
				x.admit(false)
			case x.owner != phaseOwner && waited && c.tag != "!" && x.owner != "":
				x.publish(script.Push{Gone: true, Owner: x.owner, Other: c.owner})
			}
			return modelReply{n: 0}
		case x.owner == phaseOwner && x.readersStay(c.owner, alone):
			return modelReply{n: 1}
		}
		return x.lastOf(c.hint)
	case opExtend:
		i := x.phase.find(c.owner)
		switch {
		case x.owner == phaseOwner && i >= 0:
			if !x.extendKeyOnly {
				x.phase.join(c.owner, x.over(c.ttl))
			}
			x.lengthen(c.ttl)
			if len(x.queue) > 0 {
				return modelReply{n: script.WriterWaits}
			}
			return modelReply{n: script.NobodyWaits}
		case x.owner == c.owner:
			x.lengthen(c.ttl)
			return modelReply{n: script.NotDowngraded}
		}
		return modelReply{n: 0}
	case opRaise:
		if x.owner != phaseOwner || x.phase.find(c.owner) < 0 || x.phase.drawn > c.token && !x.raiseAnyPhase {
			return modelReply{n: 0}
		}
		x.counter, x.phase.told = max(x.counter, c.token), max(x.phase.told, c.token)
		return modelReply{n: 1}
	case opRejoin:
		return x.readerRejoins(c)
	case opDowngrade:
		x.drop(c.owner)
		switch {
		case x.owner == phaseOwner && x.phase.find(c.owner) >= 0:
			return modelReply{n: max(x.newcomers(), 1), server: x.now, next: x.writer()}
		case x.owner != c.owner:
			return modelReply{n: 0, server: x.now, next: "-"}
		}
		n := x.count()
		if n == 0 {
			return modelReply{err: forgotMarker}
		}
		end := max(x.over(c.ttl), x.end+1)
		x.begin(n, c.ttl)
		x.phase.join(c.owner, end)
		if c.tag != "!" {
			x.admit(false)
		}
		return modelReply{n: n, server: x.now, next: x.writer()}
	case opForce:
		x.bury(c)
		x.reading = slices.DeleteFunc(slices.Clone(x.reading), func(w modelWaiter) bool { return c.owner != "" && w.owner == c.owner })
		switch {
		case x.owner == phaseOwner && c.owner != "":
			if !x.phase.leave(c.owner) {
				return modelReply{n: 0}
			}
			if left, last := x.sweep(); left > 0 {
				x.shorten(last)
				return modelReply{n: 1}
			}
		case x.owner == "" || c.owner != "" && c.owner != x.owner:
			return modelReply{n: 0}
		}
		return x.lastOf(script.ReadersFirst(""))
	}
	panic("no such script: " + c.op)
}

func (x *modelStep) writerWaits(c modelCall) modelReply {
	if x.owner != phaseOwner {
		c.by = ""
		return x.run(c)
	}
	left, last := x.sweep()
	if left == 0 || x.writerIgnoresReaders {
		n := x.count()
		if n == 0 {
			return modelReply{err: forgotMarker}
		}
		x.modelMember.owner, x.token, x.end, x.phase = c.owner, n, x.now/1000+c.ttl, modelPhase{}
		x.drop(c.owner)
		return modelReply{n: n, server: x.now, next: x.writer()}
	}
	before := x.writer()
	if x.register(c.owner, c.ttl, c.entry) && before == "-" {
		for _, r := range x.phase.readers {
			x.publish(script.Push{Owner: r.owner, Other: c.owner})
		}
	}
	return modelReply{n: -max(last-1-x.now/1000, 1), server: x.now, next: "-"}
}

func (x *modelStep) readerWaits(c modelCall) modelReply {
	next := x.writer()
	switch mine := x.owner == phaseOwner && x.phase.find(c.owner) >= 0; {
	case x.owner == "" && next != "-":
		if x.serve("") < 0 {
			return modelReply{err: forgotMarker}
		}
		next = x.writer()
	case x.owner == "" || x.newcomers() > 0 && (mine || next == "-"):
		if x.owner == "" {
			n := x.draw()
			if n == 0 {
				return modelReply{err: forgotMarker}
			}
			x.begin(n, c.ttl)
		}
		x.phase.join(c.owner, x.over(c.ttl))
		x.lengthen(c.ttl)
		x.leaveLine(c.owner)
		if next == "-" {
			x.admit(false)
		}
		return modelReply{n: x.phase.told, server: x.now, next: next}
	}
	w := modelWaiter{owner: c.owner, deadline: x.now/1000 + c.entry, ttl: c.ttl}
	x.reading = slices.DeleteFunc(slices.Clone(x.reading), func(o modelWaiter) bool { return o.owner == c.owner })
	x.reading = append(x.reading, w)
	slices.SortFunc(x.reading, func(a, b modelWaiter) int { return strings.Compare(a.owner, b.owner) })
	if x.waitEnd-x.now/1000 < c.entry*3/2 {
		x.waitEnd = x.now/1000 + 2*c.entry
	}
	if x.owner != phaseOwner {
		x.publish(script.Push{Owner: x.owner, Readers: true})
		if next != "-" {
			x.publish(script.Push{Owner: next, Readers: true})
		}
	}
	return modelReply{n: -max(x.end-x.now/1000, 1), server: x.now, next: next}
}

func (x *modelStep) readerRejoins(c modelCall) modelReply {
	if x.counter == 0 && c.tag != "" && x.id != c.tag {
		return modelReply{err: forgotMarker}
	}
	x.rejoins(c.token)
	mine := x.owner == phaseOwner && x.phase.find(c.owner) >= 0
	switch {
	case x.owner == c.owner:
		x.lengthen(c.ttl)
		return modelReply{n: 1}
	case x.owner != "" && x.newcomers() == 0:
		return modelReply{n: 0}
	case !mine && x.buried.refuse(c.owner, x.now):
		return modelReply{n: 0}
	case x.owner == "":
		n := c.token
		if !x.rejoinedPhaseTakes {
			n = x.count()
		}
		if n == 0 {
			return modelReply{err: forgotMarker}
		}
		x.begin(n, c.ttl)
	}
	x.phase.join(c.owner, x.over(c.ttl))
	x.lengthen(c.ttl)
	x.leaveLine(c.owner)
	return modelReply{n: 1}
}
