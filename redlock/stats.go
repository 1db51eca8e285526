package redlock

import (
	"slices"
	"time"
)

// Stats describes what a client has of one kind of lock, at one moment.
type Stats struct {
	Held     int       // leases that are held, perhaps without those whose renewal has just begun
	Oldest   time.Time // when the oldest of them was granted; zero if there is none
	Kept     int       // locks that are kept without a lease: see Keep
	Recalled int       // kept locks that were given up since Open because another client waited
	Waiting  int       // callers of Lock that were refused and are waiting
}

// Stats counts all leases and waiters of this client, by kind of lock. It looks at every lease, so
// call it every few seconds, as metrics do. Every kind of lock has an entry, even if the client has
// no lock of it.
func (c *Client) Stats() map[Kind]Stats {
	all := make(map[Kind]Stats, len(kinds))
	for _, k := range kinds {
		all[k.name] = Stats{}
	}
	c.keeper.mu.Lock()
	leases := slices.Clone(c.keeper.leases)
	c.keeper.mu.Unlock()
	for _, due := range leases {
		n, oldest := due.l.bound().held(due.l)
		k := due.l.hold.terms.kind.name
		s := all[k]
		if s.Held += n; n > 0 && (s.Oldest.IsZero() || oldest.Before(s.Oldest)) {
			s.Oldest = oldest
		}
		if t, ok := due.l.bound().(*tenure); ok && t.isKept() {
			s.Kept++
		}
		all[k] = s
	}
	shards := &sitesOf.of(c).shards
	for i := range shards {
		sh := &shards[i]
		sh.mu.Lock()
		for k, n := range sh.recalled {
			s := all[k.name]
			s.Recalled += n
			all[k.name] = s
		}
		sh.mu.Unlock()
	}
	for _, a := range waitingOf.of(c).values() {
		s := all[a.terms.kind.name]
		s.Waiting++
		all[a.terms.kind.name] = s
	}
	return all
}
