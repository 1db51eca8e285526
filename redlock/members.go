package redlock

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/member"
)

// The states of a member, as Client.Members tells them.
const (
	MemberVoting      = "voting"      // up, and trusted to remember; of a cluster a part may not vote: MemberInfo.Silent
	MemberQuarantined = "quarantined" // up, and may have forgotten: does not vote until Until
	MemberRestoring   = "restoring"   // its quarantine has ended, its token counters are not restored yet
	MemberDown        = "down"        // not reachable, or of no use: MemberInfo.Err
)

var errUnmet = fmt.Errorf("it does not vote before this client has met a majority of the members: %w", member.ErrConnecting)

// MemberInfo is one member as this client sees it.
type MemberInfo struct {
	Name  string
	State string    // MemberVoting, MemberQuarantined, MemberRestoring or MemberDown
	Since time.Time // when this client saw it come into that state
	Until time.Time // MemberQuarantined: the end of the quarantine
	Err   error     // MemberDown: why. In any other state: why nobody can wait for a lock there, who may be told of it

	// Silent is the part of a Redis Cluster that does not vote. The cluster is MemberVoting if any of its masters
	// votes: locks in the slots of the others lack this vote meanwhile, and where it is the only member nobody
	// can take them. Zero while all vote, and always for a member that is one server.
	Silent member.Silence

	// ClockAhead is by how much its wall clock was ahead of this machine's when it was asked last, about a
	// PingInterval ago, and ClockWithin how wrong that may be: half a round trip. ClockWithin is 0 where
	// nothing is known. Leases rest on how fast clocks run and not on what they say.
	ClockAhead, ClockWithin time.Duration
}

// Members tells the state of every member, in the order they were given.
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
		case c.barred.Load()>>i&1 == 1:
			out[i].Err = ErrDuplicateMember
		default: // see node.Guard
			out[i].Err = errUnmet
		}
		if out[i].State == MemberQuarantined {
			out[i].Until = st.Quarantine
		}
		if m, ok := c.members[i].(member.Clocked); ok {
			out[i].ClockAhead, out[i].ClockWithin, _ = m.ClockOffset()
		}
		if m, ok := c.members[i].(member.Parted); ok {
			out[i].Silent = m.Silence()
		}
	}
	return out
}

func standingOf(st member.State) string {
	switch {
	case st.Votes:
		return MemberVoting
	case st.Quarantine.IsZero():
		return MemberDown
	case time.Now().Before(st.Quarantine):
		return MemberQuarantined
	}
	return MemberRestoring
}
