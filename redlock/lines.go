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

// lines queue the callers of this process, one line per name. A kind of lock says how many of them
// ask the members at a time: the width. A mutex has a width of 1, so that the members see one
// registered attempt per process and name besides the holder. Without lines, a process with many
// callers would crowd out the others, and a herd of its own callers would split the votes.
type lines struct {
	seed   maphash.Seed
	once   sync.Once
	marked atomic.Int64 // names that are contended
	shards [32]lineShard
}

type lineShard struct {
	mu    sync.Mutex
	m     map[string]*line
	spare *line // one that is used again: a name that nobody else wants costs no memory
}

// line is the line of one name.
type line struct {
	busy      int       // callers whose turn it is
	places    []*place  // of the callers behind those
	contended time.Time // when the lock was last seen to be another's
}

// place is that of a caller who had to stand in line. A caller whose turn came at once has none.
type place struct {
	turn  chan struct{} // closed when it is this caller's turn
	width int           // that is when fewer callers than this have theirs, and nobody stands before it
}

// contendedFor is how long a name counts as contended after it was seen to be: the next caller then
// registers at once instead of asking first.
const contendedFor = time.Second

func (l *lines) shard(name string) *lineShard {
	l.once.Do(func() { l.seed = maphash.MakeSeed() })
	return &l.shards[maphash.String(l.seed, name)%uint64(len(l.shards))]
}

// enter joins the line of a name and waits for the caller's turn, which lasts until leave. It begins
// when nobody stands before the caller and fewer than width callers have their turn. A caller with a
// greater width may join later. contended says whether others want the lock. An error is
// ctx's, or ErrClosed.
func (l *lines) enter(ctx context.Context, name string, width int, closed <-chan struct{}) (p *place, contended bool, err error) {
	sh := l.shard(name)
	sh.mu.Lock()
	ln := sh.line(name)
	if len(ln.places) == 0 && ln.busy < width {
		ln.busy++
		contended = !ln.contended.IsZero() && clock.Elapsed(ln.contended, time.Now()) < contendedFor
		sh.mu.Unlock()
		return nil, contended, nil
	}
	p = &place{turn: make(chan struct{}), width: width}
	ln.places = append(ln.places, p)
	sh.mu.Unlock()
	select {
	case <-p.turn:
		return p, true, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-closed:
		err = ErrClosed
	}
	l.leave(name, p)
	return nil, true, err
}

// enterNow is enter for a caller who does not stand in line. ok says whether its turn has come.
func (l *lines) enterNow(name string, width int) (ok bool) {
	sh := l.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ln := sh.line(name)
	if ok = len(ln.places) == 0 && ln.busy < width; ok {
		ln.busy++
	}
	return ok
}

// leave gives up a place, or the turn if it has come. Then the turn begins of those behind it that
// fit in.
func (l *lines) leave(name string, p *place) {
	sh := l.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ln := sh.m[name]
	if i := slices.Index(ln.places, p); i >= 0 {
		ln.places = slices.Delete(ln.places, i, i+1)
	} else {
		ln.busy--
	}
	ln.advance()
	if ln.busy == 0 && ln.contended.IsZero() {
		sh.forget(name, ln)
	}
}

// advance begins the turn of the first in line while it fits in. Nobody passes it. The mutex of the
// shard is held.
func (ln *line) advance() {
	n := 0
	for ; n < len(ln.places) && ln.busy < ln.places[n].width; n++ {
		ln.busy++
		close(ln.places[n].turn)
	}
	ln.places = slices.Delete(ln.places, 0, n)
}

// line returns that of a name, made if need be. mu is held.
func (sh *lineShard) line(name string) *line {
	ln := sh.m[name]
	if ln == nil {
		if sh.m == nil {
			sh.m = make(map[string]*line)
		}
		if ln = sh.spare; ln == nil {
			ln = &line{}
		}
		sh.spare = nil
		sh.m[name] = ln
	}
	return ln
}

// forget drops a line in which nobody stands. mu is held.
func (sh *lineShard) forget(name string, ln *line) {
	delete(sh.m, name)
	if cap(ln.places) <= keepPlaces {
		sh.spare = ln
	}
}

// keepPlaces bounds the memory of a line that is kept to be used again.
const keepPlaces = 16

// contended notes that a name was seen to be another's, and reports whether that is news.
func (l *lines) contended(name string, at time.Time) bool {
	sh := l.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ln := sh.line(name)
	news := ln.contended.IsZero()
	ln.contended = at
	if news {
		l.marked.Add(1)
	}
	return news
}

// empty reports whether there is nothing to sweep.
func (l *lines) empty() bool { return l.marked.Load() == 0 }

// sweep forgets names that are no longer contended.
func (l *lines) sweep(now time.Time) {
	if l.empty() {
		return
	}
	for i := range l.shards {
		sh := &l.shards[i]
		sh.mu.Lock()
		for name, ln := range sh.m {
			if ln.contended.IsZero() || clock.Elapsed(ln.contended, now) < contendedFor {
				continue
			}
			ln.contended = time.Time{}
			l.marked.Add(-1)
			if ln.busy == 0 {
				sh.forget(name, ln)
			}
		}
		sh.mu.Unlock()
	}
}
