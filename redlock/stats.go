package redlock

import "time"

// Stats is what a client has in hand of one kind of lock, at one moment.
type Stats struct {
	Held    int       // leases that are held; one that is just being renewed may be missing
	Oldest  time.Time // when the oldest of them was granted; zero: there is none
	Waiting int       // callers of Lock that were refused and wait
}

// Stats looks at all leases of this client: for metrics, every few seconds. Each kind of lock has an entry, also
// while the client has nothing of it.
func (c *Client) Stats() map[Kind]Stats {
	all := map[Kind]Stats{KindMutex: {}}
	c.keeper.mu.Lock()
	for _, due := range c.keeper.leases {
		kind := due.l.a.terms.kind
		s := all[kind]
		if s.Held++; s.Oldest.IsZero() || due.l.granted.Before(s.Oldest) {
			s.Oldest = due.l.granted
		}
		all[kind] = s
	}
	c.keeper.mu.Unlock()
	c.waiting.mu.Lock()
	for a := range c.waiting.m {
		s := all[a.terms.kind]
		s.Waiting++
		all[a.terms.kind] = s
	}
	c.waiting.mu.Unlock()
	return all
}
