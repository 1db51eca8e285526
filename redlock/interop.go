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

// listening finds the attempts that wait for the locks of a channel.
type listening struct {
	mu sync.Mutex // a leaf
	m  map[string]map[*attempt]struct{}
}

// subscribe has the members that can tell a waiting attempt that its lock is free, and returns what ends it.
func (a *attempt) subscribe() (stop func()) {
	theirs, ours, _ := a.wire.Channels()
	s := listeningOf.of(a.c)
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[string]map[*attempt]struct{})
	}
	if s.m[theirs] == nil {
		s.m[theirs] = make(map[*attempt]struct{})
	}
	s.m[theirs][a] = struct{}{}
	s.mu.Unlock()
	for _, m := range a.c.members {
		if m, ok := m.(ability.Subscriber); ok {
			m.Subscribe(theirs, ours)
		}
	}
	return func() {
		s.mu.Lock()
		if delete(s.m[theirs], a); len(s.m[theirs]) == 0 {
			delete(s.m, theirs)
		}
		s.mu.Unlock()
		for _, m := range a.c.members {
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
	all := make([]*attempt, 0, 1)
	for a := range s.m[channel] {
		all = append(all, a)
	}
	s.mu.Unlock()
	for _, a := range all {
		a.mu.Lock()
		a.b.Overhears(l.i, what)
		wake := a.wake
		a.mu.Unlock()
		signal(wake)
	}
}
