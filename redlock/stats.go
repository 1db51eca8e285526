package redlock

import "time"

// Stats describes what a client has of one kind of lock, at one moment.
type Stats struct {
	Held    int       // leases that are held, perhaps without those whose renewal has just begun
	Oldest  time.Time // when the oldest of them was granted; zero if there is none
	Waiting int       // callers of Lock that were refused and are waiting
}

// Stats counts all leases and waiters of this client, by kind of lock. It looks at every lease, so
// call it every few seconds, as metrics do. Every kind of lock has an entry, even if the client has
// no lock of it.
func (c *Client) Stats() map[Kind]Stats {
	all := make(map[Kind]Stats, len(kinds))
	for _, k := range kinds {
		all[k.name] = Stats{}
	}
	held := func(k *kind, n int, oldest time.Time) {
		s := all[k.name]
		if s.Held += n; n > 0 && (s.Oldest.IsZero() || oldest.Before(s.Oldest)) {
			s.Oldest = oldest
		}
		all[k.name] = s
	}
	var shared []*Lease
	c.keeper.mu.Lock()
	for _, due := range c.keeper.leases {
		if t := &due.l.hold.terms; t.reads == nil {
			held(t.kind, 1, due.l.granted)
		} else {
			shared = append(shared, due.l)
		}
	}
	c.keeper.mu.Unlock()
	for _, l := range shared {
		if l.share() == nil { // not the share of one, but what all share
			n, oldest := l.hold.terms.reads.users()
			held(l.hold.terms.kind, n, oldest)
		}
	}
	c.waiting.mu.Lock()
	for a := range c.waiting.m {
		s := all[a.terms.kind.name]
		s.Waiting++
		all[a.terms.kind.name] = s
	}
	c.waiting.mu.Unlock()
	return all
}
