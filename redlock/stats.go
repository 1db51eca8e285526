package redlock

import "time"

// Stats is what a client has in hand at one moment.
type Stats struct {
	Held    int       // leases that are held; one that is just being renewed may be missing
	Oldest  time.Time // when the oldest of them was granted; zero: there is none
	Waiting int       // callers of Lock that were refused and wait
}

// Stats looks at all leases of this client: for metrics, every few seconds.
func (c *Client) Stats() Stats {
	var s Stats
	c.keeper.mu.Lock()
	s.Held = len(c.keeper.leases)
	for _, due := range c.keeper.leases {
		if s.Oldest.IsZero() || due.l.granted.Before(s.Oldest) {
			s.Oldest = due.l.granted
		}
	}
	c.keeper.mu.Unlock()
	c.waiting.mu.Lock()
	s.Waiting = len(c.waiting.m)
	c.waiting.mu.Unlock()
	return s
}
