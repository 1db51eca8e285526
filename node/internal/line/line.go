// Package line keeps the calls of one connection in their order. The server gets them in the order of their submission,
// each answer goes to the call that it answers, and no call of an attempt is queued behind the release of that attempt.
//
// The package is pure, and its fields cannot be written from outside. So whoever decides when to write, and how much, cannot
// break the order: what Take returns is the next part of it, and there is no other part before Give. encode.go has the bytes.
package line

import (
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
)

// keepBuffer is the largest write buffer that is kept for the next write.
const keepBuffer = 1 << 20

// Entry is one call in line.
type Entry struct {
	Call *member.Call
	Size int // about how many bytes
	// Together is how many calls, from this one on, are one command: their answers come as one. It is known when they are
	// encoded, and 0 for all others.
	Together int32
	Note     uint8 // the owner's
	Repaired bool  // Again has put it in line as an EVAL
}

// Line is the calls of one connection. Any number of callers add to it under its mutex, one of them at a time writes what
// Take returns, and one reader uses First, Pop and Abandon, which need no mutex.
type Line struct {
	sync.Mutex // guards what the owner decides together with the line, too; never held during I/O

	Sharded bool // to a master of a Redis Cluster; set before the first call

	queue       []Entry // behind the reader's batch
	buf, spare  []byte
	items       []*member.Call // the last ones of the line, behind buf: they may still become one command
	tag         string         // theirs
	taken       bool           // somebody writes
	queued      uint64         // calls that entered the line
	queuedBytes int64
	sent        uint64 // calls of queued whose bytes were taken for writing

	answered      atomic.Uint64 // calls that left the line; written by the reader
	answeredBytes atomic.Int64

	// the reader's
	batch []Entry
	next  int
}

// Empty reports whether there is nothing to take: nothing waits to be written, or somebody writes, who looks again.
func (l *Line) Empty() bool { return l.taken || len(l.buf) == 0 && len(l.items) == 0 }

// Add puts a call in line, behind all that are there. of is the member by which its answer is judged, and tag that of the
// same moment. If the call may be part of a command with its neighbours, its encoding waits until it is known what stands
// behind it.
func (l *Line) Add(e Entry, of member.Brief, tag string, joins bool) {
	c := e.Call
	c.Outcome, c.Err, c.State = member.Unanswered, nil, of
	if joins {
		e.Size = Size(c, tag)
		l.addItem(c, tag)
	} else {
		l.join()
		before := len(l.buf)
		l.buf = l.appendTagged(l.buf, c, tag)
		e.Size = len(l.buf) - before
	}
	l.enqueue(e)
}

// AddGroup puts the calls of a group in line as one command of their own. No other call is in it, because a chained one looks
// at the answer to the one before it.
func (l *Line) AddGroup(calls []*member.Call, of member.Brief, tag string) {
	l.join()
	first := len(l.queue)
	for _, c := range calls {
		c.Outcome, c.Err, c.State = member.Unanswered, nil, of
		l.enqueue(Entry{Call: c, Size: Size(c, tag)})
	}
	l.queue[first].Together = int32(len(calls))
	l.buf = appendJoined(l.buf, calls, tag, l.Sharded, true)
}

// Again puts a call in line once more, which Pop has returned and which was not executed: behind calls of its owner's, and as
// an EVAL if source is not empty: then it is the text of its script. It reports false if the call must not be executed any
// more, or source is of another script.
//
// That the attempt has not begun its release is checked in the critical section that queues: the attempt sets Ended before it
// submits the release, so either the release sees the repeated call before it in line, or this sees Ended. Otherwise the call
// would execute behind its own release and leave a key that nobody owns.
func (l *Line) Again(e Entry, gen uint64, tag, source string, before ...*member.Call) bool {
	c := e.Call
	if ability.Over(&c.Delivery) || c.Tagged && !c.Always && c.State.Gen != gen || source != "" && !isOf(c, source) {
		return false
	}
	l.join() // what waits in line is written before
	for _, b := range before {
		l.buf = append(l.buf, b.Cmd...)
		l.enqueue(Entry{Call: b, Size: len(b.Cmd)})
	}
	start := len(l.buf)
	if source != "" {
		l.buf = l.appendEval(l.buf, c, tag, source)
	} else {
		l.buf = l.appendTagged(l.buf, c, tag)
	}
	e.Size, e.Together = len(l.buf)-start, 0
	l.enqueue(e)
	return true
}

func (l *Line) enqueue(e Entry) {
	l.queue = append(l.queue, e)
	l.queued++
	l.queuedBytes += int64(e.Size)
}

// joinFew is how many calls become one command at least. Fewer travel alone.
const joinFew = 3

// addItem queues a call whose encoding waits until it is known what stands behind it.
func (l *Line) addItem(c *member.Call, tag string) {
	if n := len(l.items); n > 0 && (n == Most || tag != l.tag || c.Item.Batch != l.items[0].Item.Batch) {
		l.join()
	}
	l.tag = tag
	l.items = append(l.items, c)
}

// join encodes what addItem has queued. The calls are not done yet: whoever ends them needs the mutex before.
func (l *Line) join() {
	switch {
	case len(l.items) == 0:
		return
	case len(l.items) < joinFew:
		for _, c := range l.items {
			l.buf = l.appendTagged(l.buf, c, l.tag)
		}
	default:
		l.queue[len(l.queue)-len(l.items)].Together = int32(len(l.items))
		l.buf = appendJoined(l.buf, l.items, l.tag, l.Sharded, false)
	}
	clear(l.items)
	l.items = l.items[:0]
}

// Take returns what is to be written next, and nil as long as somebody writes. From here on its calls count as sent. The
// caller writes all of it, without the mutex, or ends the connection, and then gives it back.
func (l *Line) Take() []byte {
	if l.Empty() {
		return nil
	}
	l.join()
	buf := l.buf
	l.buf, l.spare = l.spare[:0], nil
	l.sent, l.taken = l.queued, true
	return buf
}

// Give gives back what Take returned. Somebody else's is not given back by nil.
func (l *Line) Give(buf []byte) {
	if buf == nil {
		return
	}
	l.taken = false
	if cap(buf) <= keepBuffer {
		l.spare = buf[:0]
	}
}

// Shrink gives back the write buffers that are larger than most.
func (l *Line) Shrink(most int) {
	if cap(l.spare) > most {
		l.spare = nil
	}
	if len(l.buf) == 0 && cap(l.buf) > most {
		l.buf = nil
	}
}

// First is the first call in line, whose answer is the next, and nil if there is none. The reader fills in its Reply, and
// then removes it by Pop.
func (l *Line) First() *Entry {
	if l.next == len(l.batch) && !l.refill() {
		return nil
	}
	return &l.batch[l.next]
}

// Pop removes the first call, which has been answered.
func (l *Line) Pop() Entry {
	e := l.batch[l.next]
	l.batch[l.next] = Entry{}
	l.next++
	l.leave(e)
	return e
}

func (l *Line) leave(e Entry) {
	l.answeredBytes.Add(int64(e.Size))
	l.answered.Add(1)
}

// refill takes the line over from the callers, and reports whether there is one. Items stay theirs: nobody answers what is
// not encoded yet, and join counts them in the queue.
func (l *Line) refill() bool {
	l.Lock()
	defer l.Unlock()
	encoded := len(l.queue) - len(l.items)
	items := l.queue[encoded:]
	l.batch, l.queue = l.queue[:encoded], append(l.batch[:0], items...)
	clear(items)
	l.next = 0
	return len(l.batch) > 0
}
