package script

import (
	"time"

	"github.com/redquorum/redquorum/member"
)

// rwRelease serves readers, too. An owner of any kind may give up its vote by it.
var rwRelease = call{script: &RWRelease, shared: 2, reach: withQueue, args: 2}

// The lock with readers is the lock of the same name: its writers ask by the acquire of the
// exclusive one. What differs for a writer is what it finds, or leaves, where there are readers.
var writing = dialect{
	acquire:   exclusive.acquire,
	wait:      call{script: &RWWait, shared: 2, reach: withQueue, args: 3},
	waitFreed: call{script: &RWWait, shared: 2, reach: withQueue, args: 3},
	release:   rwRelease,
	yield:     exclusive.yield,
	raise:     exclusive.raise,
	rejoin:    exclusive.rejoin,
	peek:      call{script: &RWPeek, shared: 2, reach: withQueue, args: 1},
	force:     call{script: &RWForce, shared: 2, reach: withQueue, args: 2},
	adopt:     adopting,
	extend:    &Extend,
}

// A reader never yields: its table has the yield that nobody calls.
var reading = dialect{
	acquire:   call{script: &RWRead, shared: 2, reach: withQueue, args: 2},
	wait:      call{script: &RWAwait, shared: 2, reach: withQueue, args: 3},
	waitFreed: call{script: &RWAwait, shared: 2, reach: withQueue, args: 3},
	release:   writing.release,
	yield:     exclusive.yield,
	raise:     call{script: &RWRaise, shared: 1, args: 2},
	rejoin:    call{script: &RWRejoin, shared: 2, reach: withQueue, args: 3},
	peek:      writing.peek,
	force:     writing.force,
	adopt:     call{script: &RWAdopt, shared: 2, reach: withRecord, args: 3},
	downgrade: call{script: &RWDowngrade, shared: 2, reach: withQueue, args: 2},
	extend:    &RWExtend,
	watched:   true,
}

// Writing returns the lock of a name as its writers ask for it. Exclusive of the same name excludes
// it, and its readers.
func Writing(name string) Lock {
	l := Exclusive(name)
	l.how = &writing
	return l
}

// Reading returns the same lock as its readers ask for it. Its tokens are those of read phases, and
// many owners may have the vote of a member.
func Reading(name string) Lock {
	l := Exclusive(name)
	l.how = &reading
	return l
}

// Downgrade makes the owner's vote a reader's. The reply is an Answer, of which N is 0 if the
// member has no vote of the owner.
func (l *Lock) Downgrade(buf *[]byte, owner string, ttl time.Duration) member.Command {
	f := l.begin(buf, &l.how.downgrade)
	f.text(owner)
	f.millis(ttl)
	return l.end(&f, &l.how.downgrade)
}

// ReadersFirst is the hint of a writer that gives up what it held: the members serve the readers
// that wait before they serve this writer, or any other.
func ReadersFirst(writer string) string { return readersFirst + writer }

const readersFirst = "+" // no owner begins so

// These are the words of a Renewal by RWExtend. Each is a yes to a reader.
const (
	// NobodyWaits says no more: the member has no queue, so no writer waits there, and others may join.
	NobodyWaits = 1
	// Closed says that nobody joins the read phase of the member: it has a queue of writers, or another master, to which the
	// slot came, began no such phase. Those whom the member refuses get in when the phase has ended.
	Closed = 2
	// NotDowngraded says that the vote is a writer's still: the downgrade has not come to the member.
	NotDowngraded = 3
)
