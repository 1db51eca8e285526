package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// retry is when a call began, and whether it was made once more.
type retry struct {
	began time.Time
	made  bool
}

// comesBack reports whether a call that does not wait for the lock is worth making once more: it found connections that had
// ended, and the members that had them are there again. It waits for those whose connections have just ended, for
// Config.MemberTimeout since the call began. A member that was dialled in vain is not waited for. Connections end while all
// members are well: a process that was frozen, or a proxy with a bound for idle connections. A member that was found to be
// empty may vote at once, too: see GuardOff. What the first call may have
// left at a member is released ahead of the second one, which has another owner. A call that took longer than
// Config.MemberTimeout is made once more at most: members may go on to answer what they answered.
func (c *Client) comesBack(ctx context.Context, at uint16, err error, m *retry) bool {
	end := m.began.Add(c.cfg.MemberTimeout)
	if m.made && clock.Until(end, time.Now()) <= 0 {
		return false
	}
	m.made = true
	var e *QuorumError
	if !errors.As(err, &e) || e.kind != ErrNoQuorum && e.kind != ErrQuarantined {
		return false
	}
	lost, had := memberset.Set(0), 0
	for i, v := range e.Votes {
		switch {
		case v.Vote == quorum.Yes:
			had++
		case errors.Is(v.Err, member.ErrDown), errors.Is(v.Err, member.ErrBroken), errors.Is(v.Err, member.ErrStalled),
			wait.KindOf(v.Err) == member.KindForgot:
			lost = lost.With(i)
		}
	}
	if lost == 0 {
		return false
	}
	c.pause(ctx, min(settling, clock.Until(end, time.Now())))
	timer := time.NewTimer(max(0, clock.Until(end, time.Now())))
	defer timer.Stop()
	for {
		changed := c.changed() // before the look, so that no change between the two is missed
		back, soon := had, had
		for i, st := range c.statesOf(at) {
			switch {
			case !lost.Has(i):
			case st.Votes:
				back, soon = back+1, soon+1
			case st.Up && st.Quarantine.IsZero(), !st.Up && (errors.Is(st.Err, member.ErrBroken) || errors.Is(st.Err, member.ErrStalled)):
				soon++
			}
		}
		switch {
		case back >= c.need:
			return true
		case soon < c.need:
			return false
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		case <-c.closed:
			return false
		}
	}
}

// settling is how long a connection that has just ended may still be told to be there.
const settling = time.Millisecond

// pause waits for d, or until ctx has ended or the client is closed.
func (c *Client) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.closed:
	}
}

// rest leaves the members alone for a moment, before a caller goes on.
func (c *Client) rest(ctx context.Context) { c.pause(ctx, c.cfg.Entry/3) }
