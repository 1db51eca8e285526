package script

import (
	"strings"

	"github.com/redquorum/redquorum/slot"
)

// The dialect of the exclusive lock that Redisson shares: scripts of its own, Redisson's names for the lock's companions,
// and its channel. Redisson looks only at its own field of the lock's hash and we look only at ours, so exclusion needs
// nothing of this. Its calls travel alone.
var redisson = dialect{
	acquire:   call{script: &RedissonAcquire, shared: 2, reach: withBeside, args: 2},
	wait:      call{script: &RedissonWait, shared: 2, reach: withBeside, args: 3, fixed: "0"},
	waitFreed: call{script: &RedissonWait, shared: 2, reach: withBeside, args: 3, fixed: "1"},
	release:   call{script: &RedissonRelease, shared: 2, reach: withBeside, args: 2},
	yield:     call{script: &RedissonYield, shared: 2, reach: withBeside, args: 4},
	raise:     call{script: &RedissonRaise, shared: 2, reach: withBeside, args: 2},
	rejoin:    call{script: &RedissonRejoin, shared: 2, reach: withBeside, args: 3},
	peek:      call{script: &Peek, shared: 2, reach: withQueue, args: 1},
	force:     call{script: &RedissonForce, shared: 2, reach: withBeside, args: 2},
	adopt:     adopting,
	extend:    &Extend,
}

// beside is what a lock has besides where Redisson shares it.
type beside struct {
	keys     [2]string // counter, from which Redisson's fenced lock draws; turn, which exists while the lock is left to Redisson's waiters
	channels [2]string // where Redisson tells that the lock is free; and ours, which our waiters always subscribe together with that one
}

const (
	oursPrefix   = "redquorum:ours"
	theirsPrefix = "redisson_lock__channel"
)

// ExclusiveWithRedisson returns the lock of Exclusive in the dialect that Redisson shares.
func ExclusiveWithRedisson(name string) Lock {
	l := Exclusive(name)
	l.how = &redisson
	l.beside = &beside{
		keys: [2]string{slot.Compatible("redisson_lock_token", name), slot.Sibling("redquorum:turn", name)},
		// By the same rule, under which "a" and "{a}" share a channel: the two are compared.
		channels: [2]string{slot.Compatible(theirsPrefix, name), slot.Compatible(oursPrefix, name)},
	}
	return l
}

// Channels returns the channels that tell a waiting attempt about the lock: Redisson's, and ours
// beside it. If Redisson does not share the lock, ok is false.
func (l *Lock) Channels() (theirs, ours string, ok bool) {
	if l.beside == nil {
		return "", "", false
	}
	return l.beside.channels[0], l.beside.channels[1], true
}

// Beside returns Redisson's channel that belongs to one of our channels. If the channel is not
// ours, ok is false.
func Beside(channel string) (theirs string, ok bool) {
	rest, ok := strings.CutPrefix(channel, oursPrefix+":")
	if !ok {
		return "", false
	}
	return theirsPrefix + ":" + rest, true
}
