package script

import (
	"time"

	"github.com/redquorum/redquorum/member"
)

// rwRelease serves readers, too. An owner of any kind may give up its vote by it.
var rwRelease = asking(&RWRelease, queued, argOwner, argOther)

// The lock with readers is the lock of the same name: its writers ask by the acquire of the
// exclusive one. What differs for a writer is what it finds, or leaves, where there are readers.
var writing = dialect{
	acquire: exclusive.acquire,
	wait:    asking(&RWWait, queued, argOwner, argTTL, argEntry),
	release: rwRelease,
	yield:   exclusive.yield,
	raise:   exclusive.raise,
	reserve: exclusive.reserve,
	rejoin:  exclusive.rejoin,
	adopt:   exclusive.adopt,
	peek:    asking(&RWPeek, queued, argOther),
	force:   asking(&RWForce, queued, argOwner, argTTL),
	extend:  exclusive.extend,
}

// A reader never yields: its table has the yield that nobody calls.
var reading = dialect{
	acquire:   asking(&RWRead, queued, argOwner, argTTL),
	wait:      asking(&RWAwait, queued, argOwner, argTTL, argEntry),
	release:   writing.release,
	yield:     exclusive.yield,
	raise:     call{script: &RWRaise, shared: 1, keys: alone, args: []word{argOwner, argToken}},
	rejoin:    asking(&RWRejoin, queued, argOwner, argTTL, argToken),
	adopt:     asking(&RWAdopt, recorded, argOwner, argTTL, argOther),
	peek:      writing.peek,
	force:     writing.force,
	downgrade: asking(&RWDowngrade, queued, argOwner, argTTL),
	extend:    asking(&RWExtend, []string{"", queuePrefix}, argOwner, argTTL),
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
	return l.say(buf, &l.how.downgrade, &said{owner: owner, ttl: ttl})
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
