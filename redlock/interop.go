package redlock

import (
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// What Config.Interop adds: another dialect of the lock (package script), and listening to Redisson's channel while an
// attempt waits.

var listeningOf = keep[listening]()

// listening finds the holds whose attempts wait for the locks of a channel.
type listening struct {
	mu sync.Mutex // a leaf
	m  map[string]map[*hold]struct{}
}

// subscribe has the members that can tell a waiting attempt that its lock is free, and returns what ends it.
func (h *hold) subscribe() (stop func()) {
	theirs, ours, _ := h.wire.Channels()
	s := listeningOf.of(h.c)
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[string]map[*hold]struct{})
	}
	if s.m[theirs] == nil {
		s.m[theirs] = make(map[*hold]struct{})
	}
	s.m[theirs][h] = struct{}{}
	s.mu.Unlock()
	for _, m := range h.c.members {
		if m, ok := m.(ability.Subscriber); ok {
			m.Subscribe(theirs, ours)
		}
	}
	return func() {
		s.mu.Lock()
		if delete(s.m[theirs], h); len(s.m[theirs]) == 0 {
			delete(s.m, theirs)
		}
		s.mu.Unlock()
		for _, m := range h.c.members {
			if m, ok := m.(ability.Subscriber); ok {
				m.Unsubscribe(theirs, ours)
			}
		}
	}
}

// Channel implements ability.ChannelListener. What is heard here proves nothing: it only makes the
// attempt ask.
func (l *link) Channel(channel string, msg []byte, _ time.Time) {
	what := wait.Freed
	if msg == nil {
		what = wait.Confirmed
	}
	if name, ok := script.Beside(channel); ok {
		if channel = name; msg == nil {
			return // confirmed together with the other
		}
		what = wait.Turn
	}
	s := listeningOf.of(l.c)
	s.mu.Lock()
	all := make([]*hold, 0, 1)
	for h := range s.m[channel] {
		all = append(all, h)
	}
	s.mu.Unlock()
	for _, h := range all {
		h.mu.Lock()
		h.b.Overhears(l.i, what)
		wake := h.wake
		h.mu.Unlock()
		signal(wake)
	}
}
