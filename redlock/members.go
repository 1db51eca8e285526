package redlock

import (
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
)

var errUnmet = fmt.Errorf("member does not vote until this client has reached a majority of the members: %w", member.ErrConnecting)

// MemberInfo describes one member as this client sees it.
type MemberInfo struct {
	Name  string
	State string    // MemberVoting, MemberQuarantined, MemberRestoring or MemberDown
	Since time.Time // when this client saw the member enter that state
	Until time.Time // the end of the quarantine that it is in, or a part of it: see Silent
	// Err is why the member is down, if State is MemberDown. In any other state it is why a part of it
	// does not vote (Silent), or why it cannot tell waiters about a grant, or nil.
	Err error

	// Silent is in how many of its 16,384 slots a Redis Cluster does not vote. A cluster counts as
	// MemberVoting if any of its masters votes. Locks in the silent slots lack this vote, and Err and
	// Until say why and until when. If the cluster is the only member, nobody can take those locks.
	// Silent is zero while all masters vote, and always for a single server.
	Silent int

	// ClockAhead is how far the member's wall clock was ahead of this machine's at the last look,
	// about a PingInterval ago, or up to ten while the client was idle. ClockWithin is its uncertainty,
	// half a round trip, and 0 if nothing is known. Leases rest on the rates of clocks and not on their readings.
	ClockAhead, ClockWithin time.Duration
}

// Members returns the state of every member, in the order in which they were given.
func (c *Client) Members() []MemberInfo {
	out := make([]MemberInfo, len(c.members))
	for i, st := range c.states() {
		l := c.links[i]
		l.mu.Lock()
		out[i] = MemberInfo{Name: c.members[i].Name(), State: standingOf(st), Since: l.since, Err: st.Err}
		l.mu.Unlock()
		switch {
		case !st.Up:
		case out[i].State != MemberDown:
			out[i].Err = st.Deaf
		case c.isBarred(i):
			out[i].Err = c.duplicate(i)
		default: // see node.Guard
			out[i].Err = errUnmet
		}
		if out[i].State == MemberQuarantined {
			out[i].Until = st.Quarantine
		}
		if m, ok := c.members[i].(ability.Clocked); ok {
			out[i].ClockAhead, out[i].ClockWithin, _ = m.ClockOffset()
		}
		if m, ok := c.members[i].(ability.Parted); ok {
			part := m.Silence()
			if out[i].Silent = part.Slots; part.Slots > 0 && out[i].State == MemberVoting {
				out[i].Err, out[i].Until = part.Err, part.Until
			}
		}
	}
	return out
}

// duplicate says which earlier member is one Redis with member i, if both have the same process.
func (c *Client) duplicate(i int) error {
	mine := c.processesOf(i)
	for j := range i {
		for _, p := range c.processesOf(j) {
			if p.RunID != "" && slices.ContainsFunc(mine, func(q ability.Process) bool { return p.RunID == q.RunID }) {
				return fmt.Errorf("%w: it is that of %s, so list one of the two", ErrDuplicateMember, c.members[j].Name())
			}
		}
	}
	return ErrDuplicateMember
}
