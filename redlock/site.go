package redlock

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// sites are what a client has and wants of each name: a line of its callers, and the holds that they
// have together. A kind of lock says how many of a line ask the members at a time: the width. A mutex
// has a width of 1, so that the members see one registered attempt per process and name besides the
// holder. Without lines, a process with many callers would crowd out the others, and a herd of its own
// callers would split the votes.
type sites struct {
	seed   maphash.Seed
	once   sync.Once
	marked atomic.Int64 // names that are contended
	kept   atomic.Int64 // tenures that are kept
	shards [32]siteShard
}

// siteShard guards its sites, and the places and the tenures there.
type siteShard struct {
	mu       sync.Mutex
	m        map[string]*site
	spare    *site         // one that is used again: a name that nobody else wants costs no memory
	recalled map[*kind]int // tenures that were, while they were kept
}

// site is that of one name.
type site struct {
	busy      int       // callers whose turn it is
	places    []*place  // of the callers behind those
	contended time.Time // when the lock was last seen to be another's
	met       time.Time // when a caller was last heard to wait behind another one of the client
	shut      time.Time // when members last had no tokens for a tenure
	open      []*tenure // that others of the client may join
	leaving   []*tenure // that were kept, and are being released
}

var sitesOf = keep[sites]()

// place is that of a caller who waits for others of its client: in the line, or until they have formed
// a tenure. A caller whose turn came at once has none.
type place struct {
	turn  chan struct{} // closed when the caller is to go on
	width int           // in a line that is when fewer callers than this have their turn, and nobody stands before it
	terms *terms        // nil: nothing can be passed to the caller
	ctx   context.Context
	done  <-chan struct{} // of ctx, whose methods may end a lease, and are not called under the mutex of a shard
	share *share          // of what others have formed; nil: it is the caller's turn
	kept  bool            // nobody else had it
}

// contendedFor is how long a name counts as contended after it was seen to be: the next caller then
// registers at once instead of asking first.
const contendedFor = time.Second

func (l *sites) shard(name string) *siteShard {
	l.once.Do(func() { l.seed = maphash.MakeSeed() })
	return &l.shards[maphash.String(l.seed, name)%uint64(len(l.shards))]
}

// enterNow is enter for a caller who does not stand in line. ok says whether its turn has come.
func (l *sites) enterNow(name string, width int) (ok bool) {
	sh := l.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.site(name)
	if ok = len(s.places) == 0 && s.busy < width; ok {
		s.busy++
	}
	return ok
}

// leave gives up a place, or the turn if it has come. Then the turn begins of those behind it that
// fit in. leave reports false if there is neither, because the caller has a share.
func (l *sites) leave(name string, p *place) bool {
	sh := l.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p != nil && p.share != nil {
		return false
	}
	s := sh.m[name]
	if !s.leaves(p) {
		s.busy--
	}
	s.advance()
	sh.forget(name, s)
	return true
}

// leaves takes a place out of the line, and reports whether it was there.
func (s *site) leaves(p *place) bool {
	i := slices.Index(s.places, p)
	if i >= 0 {
		s.places = slices.Delete(s.places, i, i+1)
	}
	return i >= 0
}

// advance begins the turn of the first in line while it fits in, unless a tenure may be passed to it.
// Nobody passes it. The mutex of the shard is held.
func (s *site) advance() {
	n := 0
	for ; n < len(s.places) && s.busy < s.places[n].width && s.passing(s.places[n].terms) == nil; n++ {
		s.busy++
		close(s.places[n].turn)
	}
	s.places = slices.Delete(s.places, 0, n)
}

// passing returns the tenure that may be passed to a caller with these terms, nil if there is none.
func (s *site) passing(t *terms) *tenure {
	if t == nil || len(s.open) == 0 {
		return nil
	}
	return s.tenure(t.kind, t.ttl)
}

// site returns that of a name, made if need be. mu is held.
func (sh *siteShard) site(name string) *site {
	s := sh.m[name]
	if s == nil {
		if sh.m == nil {
			sh.m = make(map[string]*site)
		}
		if s = sh.spare; s == nil {
			s = &site{}
		}
		sh.spare = nil
		sh.m[name] = s
	}
	return s
}

// forget drops a site of which there is nothing to say. mu is held.
func (sh *siteShard) forget(name string, s *site) {
	if s.busy > 0 || len(s.open)+len(s.leaving) > 0 || !s.contended.IsZero() {
		return
	}
	delete(sh.m, name)
	if s.shut = (time.Time{}); cap(s.places) <= keepPlaces {
		sh.spare = s
	}
}

// keepPlaces bounds the memory of a site that is kept to be used again.
const keepPlaces = 16

// contended notes that a name was seen to be another's, or one of the client itself to wait for it: own. A refusal says nothing if
// a caller has what the client passes on or keeps, so that the client refuses the name to itself. contended reports whether it is news.
func (l *sites) contended(name string, at time.Time, own, refusal bool) bool {
	sh := l.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.site(name)
	if refusal && slices.ContainsFunc(s.open, func(t *tenure) bool { return t.kind.passes && len(t.out) > 0 }) {
		return false
	}
	news := s.contended.IsZero()
	if s.contended = at; own {
		s.met = at
	}
	if news {
		l.marked.Add(1)
	}
	return news
}

// contended notes that a name was seen to be another's, and has the keeper forget it in time.
func (c *Client) contended(name string, at time.Time, own, refusal bool) {
	if sitesOf.of(c).contended(name, at, own, refusal) {
		c.keeper.awake()
	}
}

// wanders reports whether the name was another's a moment ago.
func (s *site) wanders(now time.Time) bool {
	return !s.contended.IsZero() && clock.Elapsed(s.contended, now) < contendedFor
}

// keepsOne counts one more tenure that is kept, unless there are enough.
func (l *sites) keepsOne(most int) bool {
	if l.kept.Add(1) > int64(most) && most >= 0 {
		l.kept.Add(-1)
		return false
	}
	return true
}

// empty reports whether there is nothing to sweep.
func (l *sites) empty() bool { return l.marked.Load() == 0 }

// sweep forgets names that are no longer contended.
func (l *sites) sweep(now time.Time) {
	if l.empty() {
		return
	}
	for i := range l.shards {
		sh := &l.shards[i]
		sh.mu.Lock()
		for name, s := range sh.m {
			if s.contended.IsZero() || clock.Elapsed(s.contended, now) < contendedFor {
				continue
			}
			s.contended, s.met = time.Time{}, time.Time{}
			l.marked.Add(-1)
			sh.forget(name, s)
		}
		sh.mu.Unlock()
	}
}
