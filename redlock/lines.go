package redlock

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// lines queue the callers of this process, one line per name, so that the members see one registered
// attempt per process and name besides the holder. Without it a process with many callers would crowd
// out the others, and a herd of its own callers would split the votes.
type lines struct {
	seed   maphash.Seed
	once   sync.Once
	marked atomic.Int64 // names that are contended
	shards [32]lineShard
}

type lineShard struct {
	mu sync.Mutex
	m  map[string]*line
}

// line is one name's. The first of its places is the one whose turn it is.
type line struct {
	places    []*place
	contended time.Time // when the lock was last seen to be another's
}

type place struct {
	turn chan struct{} // closed when it is this caller's turn
}

// contendedFor is how long a name counts as contended after it was seen to be: the next caller then
// registers at once instead of asking first.
const contendedFor = time.Second

func (l *lines) shard(name string) *lineShard {
	l.once.Do(func() { l.seed = maphash.MakeSeed() })
	return &l.shards[maphash.String(l.seed, name)%uint64(len(l.shards))]
}

// enter joins the line of a name and waits for the caller's turn, which lasts until leave. contended
// says whether others want the lock. An error is ctx's, or ErrClosed.
func (l *lines) enter(ctx context.Context, name string, closed <-chan struct{}) (p *place, contended bool, err error) {
	sh := l.shard(name)
	p = &place{}
	sh.mu.Lock()
	if sh.m == nil {
		sh.m = make(map[string]*line)
	}
	ln := sh.m[name]
	if ln == nil {
		ln = &line{}
		sh.m[name] = ln
	}
	first := len(ln.places) == 0
	if !first {
		p.turn = make(chan struct{})
	}
	ln.places = append(ln.places, p)
	contended = !first || !ln.contended.IsZero() && clock.Elapsed(ln.contended, time.Now()) < contendedFor
	sh.mu.Unlock()
	if first {
		return p, contended, nil
	}
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

// leave gives up a place. If it was the first, the next one's turn begins.
func (l *lines) leave(name string, p *place) {
	sh := l.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ln := sh.m[name]
	for i, q := range ln.places {
		if q != p {
			continue
		}
		ln.places = append(ln.places[:i], ln.places[i+1:]...)
		if i == 0 && len(ln.places) > 0 {
			close(ln.places[0].turn)
		}
		break
	}
	if len(ln.places) == 0 && ln.contended.IsZero() {
		delete(sh.m, name)
	}
}

// contended notes that a name was seen to be another's, and reports whether that is news.
func (l *lines) contended(name string, at time.Time) bool {
	sh := l.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ln := sh.m[name]
	if ln == nil {
		if sh.m == nil {
			sh.m = make(map[string]*line)
		}
		ln = &line{}
		sh.m[name] = ln
	}
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
			if len(ln.places) == 0 {
				delete(sh.m, name)
			}
		}
		sh.mu.Unlock()
	}
}
