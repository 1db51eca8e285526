package redlock

import (
	"sync"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// link hears one member.
type link struct {
	c *Client
	i int
	// up as it was last told, so that the tracer hears of each change once.
	mu    sync.Mutex
	up    bool
	state string    // as Members tells it
	since time.Time // of state
}

// Push implements member.Listener.
func (l *link) Push(msg []byte, st member.State, at time.Time) {
	p, ok := pushOf(msg, st)
	if !ok {
		for _, kept := range l.c.kept {
			if kept, ok := kept.(hearing); ok {
				kept.hear(l.i, msg, st, at)
			}
		}
		return
	}
	if h := l.c.holds.shard(p.N).get(p.N); h != nil {
		h.hear(l.i, p, st, at)
	}
}

// pushOf reads a push of a member. A grant that no replica has acknowledged has no date: the attempt asks for it, and the
// member answers behind a WAIT.
func pushOf(msg []byte, st member.State) (script.Push, bool) {
	p, ok := script.ParsePush(string(msg))
	if st.Acks {
		p.Server = 0
	}
	return p, ok
}

// Changed implements member.Listener.
func (l *link) Changed(st member.State) {
	l.mu.Lock()
	told := l.up == st.Up
	l.up = st.Up
	again := st.Votes && (l.state != MemberVoting || l.c.slotted[l.i] != nil) // of several servers, any
	if s := standingOf(st); s != l.state {
		l.state, l.since = s, time.Now()
	}
	l.mu.Unlock()
	if !told && l.c.trace.Member != nil {
		l.c.trace.Member(l.c.members[l.i].Name(), st.Up, st.Err)
	}
	if st.RunID != "" || l.c.spread[l.i] != nil {
		l.c.barDuplicates()
	}
	l.c.changes.mu.Lock()
	close(l.c.changes.ch)
	l.c.changes.ch = make(chan struct{})
	l.c.changes.mu.Unlock()
	up := 0
	for _, st := range l.c.states() {
		if st.Votes {
			up++
		}
	}
	if up >= l.c.need {
		l.c.noQuorumSince.set(time.Time{})
	}
	if again {
		l.c.keeper.votesAgain(l.i)
	}
	for _, kept := range l.c.kept {
		if kept, ok := kept.(changing); ok {
			kept.memberChanged()
		}
	}
}

// These are the states of a member that Client.Members reports.
const (
	// The member is up and votes. Of a Redis Cluster, a part may not vote: see MemberInfo.Silent.
	MemberVoting = "voting"
	// The member is up and may have forgotten. It does not vote until MemberInfo.Until.
	MemberQuarantined = "quarantined"
	// The quarantine has ended, and the token counters are not restored yet.
	MemberRestoring = "restoring"
	// The member cannot be reached or used: see MemberInfo.Err.
	MemberDown = "down"
)

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

// states is what every member is good for now.
func (c *Client) states() []member.State {
	out := make([]member.State, len(c.members))
	for i := range out {
		out[i] = c.state(i)
	}
	return out
}
