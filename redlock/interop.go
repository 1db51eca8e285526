package redlock

import (
	"strconv"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/slot"
)

// What Config.Interop adds: scripts of its own, the reference system's names for a lock's companions,
// and listening to its channel while an attempt waits. Redisson looks only at its own field of the
// lock's hash and we look only at ours, so exclusion needs nothing of this.

var (
	interopAcquire = newScript("interop_acquire.lua")
	interopWait    = newScript("interop_wait.lua")
	interopRelease = newScript("interop_release.lua")
	interopYield   = newScript("interop_yield.lua")
	interopRaise   = newScript("interop_raise.lua")
	interopRejoin  = newScript("interop_rejoin.lua")
	interopForce   = newScript("interop_force.lua")
)

func interopScripts() []script {
	return []script{interopAcquire, interopWait, interopRelease, interopYield, interopRaise, interopRejoin, interopForce}
}

// sharedKeys are the further names of a lock that is shared with the reference system.
type sharedKeys struct {
	counter string // string: its fenced lock draws from it
	turn    string // string: exists while the lock is left to its waiters
	channel string // where it tells that the lock is free
	ours    string // channel that only our waiters subscribe, always together with that one
}

// keysOf are the names that this configuration uses.
func (c *Config) keysOf(name string) keys {
	k := keysOf(name)
	if c.Interop {
		channel := slot.Compatible("redisson_lock__channel", name)
		k.shared = &sharedKeys{
			counter: slot.Compatible("redisson_lock_token", name),
			turn:    slot.Sibling("redquorum:turn", name),
			channel: channel,
			// By the same rule, under which "a" and "{a}" share a channel: the two are compared.
			ours: slot.Compatible("redquorum:ours", name),
		}
	}
	return k
}

// evalShared encodes a script of this file: seven keys, the bucket, its own arguments, both channels; the
// member adds the marker id.
func (k *keys) evalShared(b []byte, s script, args ...string) []byte {
	b = appendEval(b, s, 7, 1+len(args)+2)
	for _, key := range [...]string{k.name, tokensKey, markerKey, k.queue(), k.waiters(), k.shared.counter, k.shared.turn} {
		b = resp.AppendBulk(b, key)
	}
	b = resp.AppendInt(b, k.bucket)
	for _, a := range args {
		b = resp.AppendBulk(b, a)
	}
	return resp.AppendBulk(resp.AppendBulk(b, k.shared.channel), k.shared.ours)
}

// waitShared is wait. freed: the reference system has freed the lock.
func (k *keys) waitShared(b []byte, owner string, ttl, entry time.Duration, freed bool) []byte {
	flag := "0"
	if freed {
		flag = "1"
	}
	return k.evalShared(b, interopWait, owner, decimal(millis(ttl)), decimal(millis(entry)), flag)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// listening finds the attempts that wait for the locks of a channel.
type listening struct {
	mu sync.Mutex // a leaf
	m  map[string]map[*attempt]struct{}
}

// subscribe has the members that can tell a waiting attempt that its lock is free, and returns what ends it.
func (a *attempt) subscribe() (stop func()) {
	k, s := a.keys.shared, &a.c.listening
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[string]map[*attempt]struct{})
	}
	if s.m[k.channel] == nil {
		s.m[k.channel] = make(map[*attempt]struct{})
	}
	s.m[k.channel][a] = struct{}{}
	s.mu.Unlock()
	for _, m := range a.c.members {
		if m, ok := m.(member.Subscriber); ok {
			m.Subscribe(k.channel, k.ours)
		}
	}
	return func() {
		s.mu.Lock()
		if delete(s.m[k.channel], a); len(s.m[k.channel]) == 0 {
			delete(s.m, k.channel)
		}
		s.mu.Unlock()
		for _, m := range a.c.members {
			if m, ok := m.(member.Subscriber); ok {
				m.Unsubscribe(k.channel, k.ours)
			}
		}
	}
}

// Channel implements member.ChannelListener. What is heard here proves nothing: it only makes the
// attempt ask.
func (l *link) Channel(channel string, msg []byte, _ time.Time) {
	what := ballot.Freed
	if msg == nil {
		what = ballot.Confirmed
	}
	if name, ok := cutOurs(channel); ok {
		if channel = name; msg == nil {
			return // confirmed together with the other
		}
		what = ballot.Turn
	}
	s := &l.c.listening
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

// cutOurs returns the reference system's channel beside one of ours.
func cutOurs(channel string) (string, bool) {
	const ours, theirs = "redquorum:ours:", "redisson_lock__channel:"
	if len(channel) < len(ours) || channel[:len(ours)] != ours {
		return "", false
	}
	return theirs + channel[len(ours):], true
}
