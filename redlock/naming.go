package redlock

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// A member that sees one owner twice takes two attempts for one. So each has a name of its own.

// naming names the owners of a client.
type naming struct {
	uuid   string // this client, at the members: never logged
	seq    atomic.Uint64
	number func() uint64 // of the next attempt
	adopters
}

func (n *naming) init() { n.uuid, n.number = rand.Text(), n.nextNumber }

// newOwner is the name of an owner that there has never been, and the number in it.
func (n *naming) newOwner() (owner string, number uint64) {
	number = n.number()
	return script.OwnerOf(n.uuid, number), number
}

// nextNumber is one that no other attempt of this client has, and none of a copy of this process either: a snapshot of
// a machine that runs twice has the client's name and its counter twice, and members would take both for one owner. So a
// part of it is drawn from the system at that moment, which draws anew after a snapshot where it can tell.
func (n *naming) nextNumber() uint64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return n.seq.Add(1)<<24 | uint64(binary.BigEndian.Uint32(b[:])>>8)
}

// adopters are the owners that hand-offs have got in this client, by the former owner, where no majority said that they have
// the lease, or have not: members may know them, so who tries again goes on as the same.
type adopters struct {
	mu sync.Mutex // a leaf
	m  map[string]adopter
}

type adopter struct {
	owner string
	until time.Time // no member has the lease for longer
}

// adopter returns an owner for whom nobody else acts.
func (n *naming) adopter(former string) (owner string) {
	a := &n.adopters
	a.mu.Lock()
	defer a.mu.Unlock()
	if tried, ok := a.m[former]; ok {
		delete(a.m, former)
		return tried.owner
	}
	owner, _ = n.newOwner()
	return owner
}

// tried notes an owner who may have a part of the lease until then.
func (a *adopters) tried(former, owner string, until, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.m, func(_ string, t adopter) bool { return clock.Until(t.until, now) <= 0 })
	if a.m == nil {
		a.m = map[string]adopter{}
	}
	a.m[former] = adopter{owner, until}
}
