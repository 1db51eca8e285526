package script

import (
	"strings"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// The dialect of the exclusive lock that Redisson shares: scripts of its own, Redisson's names for the lock's companions,
// and its channel. Redisson looks only at its own field of the lock's hash and we look only at ours, so exclusion needs
// nothing of this. Its calls travel alone.
var redisson = dialect{
	acquire:   asking(&RedissonAcquire, shareable, argOwner, argTTL, argTheirs, argOurs),
	wait:      asking(&RedissonWait, shareable, argOwner, argTTL, argEntry, argNotFreed, argTheirs, argOurs),
	waitFreed: asking(&RedissonWait, shareable, argOwner, argTTL, argEntry, argFreed, argTheirs, argOurs),
	release:   asking(&RedissonRelease, shareable, argOwner, argOther, argTheirs, argOurs),
	yield:     asking(&RedissonYield, shareable, argOwner, argToken, argTTL, argEntry, argTheirs, argOurs),
	raise:     asking(&RedissonRaise, shareable, argOwner, argToken, argTheirs, argOurs),
	rejoin:    asking(&RedissonRejoin, shareable, argOwner, argTTL, argToken, argTheirs, argOurs),
	adopt:     exclusive.adopt,
	peek:      exclusive.peek,
	force:     asking(&RedissonForce, shareable, argOwner, argTTL, argTheirs, argOurs),
	extend:    exclusive.extend,
}

// shareable are those of any lock, the counter from which Redisson's fenced lock draws, and turn, which exists while the lock
// is left to Redisson's waiters.
var shareable = append(queued[:3:3], redissonPrefix, "redquorum:turn")

// beside is what a lock has besides where Redisson shares it.
type beside struct {
	channels [2]string // where Redisson tells that the lock is free; and ours, which our waiters always subscribe together with that one
}

const (
	redissonPrefix = "redisson_lock_token"
	oursPrefix     = "redquorum:ours"
	theirsPrefix   = "redisson_lock__channel"
)

// ExclusiveWithRedisson returns the lock of Exclusive in the dialect that Redisson shares.
func ExclusiveWithRedisson(name string) Lock {
	l := Exclusive(name)
	l.how = &redisson
	l.beside = &beside{
		// By the same rule, under which "a" and "{a}" share a channel: the two are compared.
		channels: [2]string{slot.Compatible(theirsPrefix, name), slot.Compatible(oursPrefix, name)},
	}
	return l
}

// WaitFreed is Wait after Redisson has said that the lock is free. See Channels.
func (l *Lock) WaitFreed(buf *[]byte, owner string, ttl, entry time.Duration, ticket int64) member.Command {
	if l.beside == nil {
		return l.Wait(buf, owner, ttl, entry, ticket)
	}
	return l.say(buf, &l.how.waitFreed, &said{owner: owner, ttl: ttl, entry: entry, ticket: ticket})
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
