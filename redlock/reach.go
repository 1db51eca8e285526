package redlock

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// reach tells when too few members have been within reach for too long: those that vote and do not refuse, or will vote after
// a quarantine.
type reach struct {
	lost time.Time // since when fewer than a majority are; zero: enough are
}

// left is for how long that is still tolerated, and whether it is over. errs are of the last answers; nil: nobody was asked.
func (r *reach) left(c *Client, states []member.State, errs []error, now time.Time) (time.Duration, bool) {
	n := 0
	for i := range states {
		if states[i].Votes && (errs == nil || errs[i] == nil) || !states[i].Quarantine.IsZero() {
			n++
		}
	}
	switch {
	case n >= c.need || c.cfg.NoQuorumAfter < 0:
		r.lost = time.Time{}
		return time.Hour, false
	case r.lost.IsZero():
		r.lost = now
	}
	left := c.cfg.NoQuorumAfter - clock.Elapsed(r.lost, now)
	return left, left <= 0
}
