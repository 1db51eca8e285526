package redlock

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// What tests of package redlock_test know of the inside, beside the harness (harness_test.go).
const (
	CloseWithin = closeWithin
	CutWithin   = cutWithin
	HushWithin  = hushWithin
	PerCall     = perCall
	Gatherings  = gatherings
)

// OwnerOf is the name under which members know the holder of a lease.
func OwnerOf(l *Lease) string { return l.hold.owner }

// UUID begins the names of all owners of a client.
func UUID(c *Client) string { return c.uuid }

// NumberOwners gives the owners of a client another beginning, and all of them the same number.
func NumberOwners(c *Client, uuid string, n uint64) {
	c.uuid, c.number = uuid, func() uint64 { return n }
}

// MemberAt is a member as the client talks to it.
func MemberAt(c *Client, i int) member.Member { return c.members[i] }

// SetOf makes a set of leases, as Multi does when it has them all.
func SetOf(leases ...*Lease) *Leases { return newLeases(context.Background(), leases) }

// LateVote tells the hold of a lease that ended of a call that was submitted behind its end, and gives it the vote of member i.
func LateVote(l *Lease, i int) { l.hold.overtaken(i) }

// DefaultConfig is what a Config without values stands for.
func DefaultConfig() Config { return Config{}.withDefaults() }

// KeeperLooks is when the keeper of a client looks again; zero: when it is woken.
func KeeperLooks(c *Client) time.Time {
	c.keeper.mu.Lock()
	defer c.keeper.mu.Unlock()
	return c.keeper.armed
}

// KeeperDone is closed when the keeper of a client has ended.
func KeeperDone(c *Client) <-chan struct{} { return c.keeper.done }

// HearLimits has a client hear of limits of a semaphore, one right after the other. The version of the first is 1.
func HearLimits(c *Client, name string, limits ...int) {
	for i, limit := range limits {
		c.limits.put(name, script.StoredLimit(int64(i+1), limit))
	}
}
