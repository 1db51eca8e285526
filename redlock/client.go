package redlock

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// Client takes locks from one set of members. It is safe for concurrent use. A process needs one
// Client per deployment, however many locks it takes. Call Close when you are done with it.
type Client struct {
	cfg     Config
	log     *slog.Logger
	trace   Tracer
	members []member.Member
	slotted []ability.Slotted // nil where a member is one server
	spread  []ability.Spread  // the same
	perSlot bool              // one of them is not
	briefed []ability.Briefed // nil where only the whole State is told
	links   []*link
	need    int
	naming

	rounds        quorum.Rounds
	holds         holds
	noQuorumSince noQuorumSince
	kept          []any // see keep
	keeper        keeper
	notifier      notifier
	inflight      inflight     // what Close waits for
	crowd         atomic.Int64 // callers that wait for room in our own lines

	changes struct { // a channel that is closed and replaced at each change of a member
		mu sync.Mutex
		ch chan struct{}
	}
	barring sync.Mutex
	barred  atomic.Uint32 // members that turned out to be one Redis with another: they do not vote
	// Written under barring: the connections of each member with whose processes barred was found.
	compared [quorum.MaxMembers]atomic.Pointer[[]uint64]
	closing  atomic.Bool
	closed   chan struct{} // Close has begun
	gone     chan struct{} // Close has ended
	told     chan struct{} // tellWho has ended
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// orClosed is the error of a call, or ErrClosed if the members could not be asked because the client is
// being closed.
func (c *Client) orClosed(op, key string, err error) error {
	if errors.Is(err, ErrNoQuorum) && c.isClosed() {
		return &keyError{op: op, key: key, err: ErrClosed}
	}
	return err
}

// round makes a round of all members.
func (c *Client) round() *quorum.Round { return c.rounds.New(c.members) }

// owns reports whether an owner is one of this client.
func (c *Client) owns(owner string) bool {
	return len(owner) > len(c.uuid) && owner[len(c.uuid)] == ':' && owner[:len(c.uuid)] == c.uuid
}

// changed returns a channel that is closed at the next change of a member.
func (c *Client) changed() <-chan struct{} {
	c.changes.mu.Lock()
	defer c.changes.mu.Unlock()
	return c.changes.ch
}

// holds finds a hold by the number in its owner's name: all that may hear of waiters or grants. It is sharded, because
// every acquisition passes here.
type holds [32]table[uint64, *hold]

func (s *holds) shard(n uint64) *table[uint64, *hold] { return &s[n%uint64(len(s))] }

// each calls f for all of them, under no lock.
func (s *holds) each(f func(h *hold)) {
	for i := range s {
		for _, h := range s[i].values() {
			f(h)
		}
	}
}

func (s *holds) remove(h *hold) {
	sh := s.shard(h.n)
	sh.mu.Lock()
	if sh.m[h.n] == h {
		delete(sh.m, h.n)
	}
	sh.mu.Unlock()
}

// noQuorumSince is since when fewer than a majority of the members could be asked, zero while they can: shared
// by the attempts of a client, so that callers in one line do not each wait out their patience after
// the one before. A majority that decides anything ends it: a lock that is had or held, a renewal.
type noQuorumSince struct{ since atomic.Pointer[time.Time] } // nil: zero

func (d *noQuorumSince) get() time.Time {
	if since := d.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

func (d *noQuorumSince) set(since time.Time) {
	switch {
	case !since.IsZero():
		kept := since // the parameter stays on the stack
		d.since.Store(&kept)
	case d.since.Load() != nil:
		d.since.Store(nil)
	}
}
