package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// reasonOf says why a majority was not to be had: refusals, keys that are no locks, members that may have forgotten, or
// members that could not be asked. If a majority answered, and the refusals among them were in the way, it is the refusals,
// whatever the others do. Silence is never reported as "held".
func reasonOf(votes []quorum.MemberVote, need int) error {
	agreed, refused, foreign, spentOut, resting, failed := 0, 0, 0, 0, 0, 0
	for _, v := range votes {
		switch {
		case wait.KindOf(v.Err) == member.KindExhausted:
			spentOut++
		case wait.KindOf(v.Err) == member.KindForeign:
			foreign++
		case v.Vote == quorum.No && v.Err == nil:
			refused++
		case errors.Is(v.Err, ErrQuarantined):
			resting++
		case v.Vote != quorum.Yes:
			failed++
		default:
			agreed++
		}
	}
	switch n := len(votes); {
	case n-foreign < need:
		return ErrForeignKey
	case n-spentOut < need:
		return ErrTokensExhausted
	case n-foreign-refused < need || refused > 0 && agreed+refused >= need:
		return ErrHeld
	case resting > 0 && n-foreign-refused-failed >= need:
		return ErrQuarantined
	}
	return ErrNoQuorum
}

// standing is the part of a member in a wait, as a vote. err is why the last call to it failed.
func memberVote(name string, st *member.State, part wait.Status, err error) quorum.MemberVote {
	v := quorum.MemberVote{Member: name, Vote: quorum.No, Err: err}
	switch {
	case part == wait.Votes:
		v.Vote = quorum.Yes
	case !st.Quarantine.IsZero():
		v.Err = &member.QuarantineError{Until: st.Quarantine}
	case !st.Up:
		v.Err = st.Err
		if v.Err == nil {
			v.Err = member.ErrDown
		}
	case part != wait.Fails && !st.Inbox && st.Deaf != nil:
		v.Err = st.Deaf
	case part == wait.Undecided || part == wait.Silent:
		v.Vote = quorum.Open
	case part == wait.Unasked:
		v.Vote = quorum.NotAsked
	}
	return v
}

// silent says of the members that a round has waited out how long that was.
func (c *Client) silent(votes []quorum.MemberVote) {
	for i := range votes {
		if v := &votes[i]; v.Vote == quorum.Open && v.Err == nil {
			v.Err = &silentError{within: c.cfg.MemberTimeout}
		}
	}
}

// waited books how the wait for a round ended: by the answers, by a context, or because the members were silent for too
// long.
func (c *Client) waited(f *quorum.Failure, v quorum.Verdict, cause error) {
	if f.Early = v != quorum.Undecided || cause != nil; !f.Early {
		c.silent(f.Votes)
	}
}

// failed counts the members that could not be asked, or did not say.
func failed(votes []quorum.MemberVote) (n int) {
	for _, v := range votes {
		if v.Vote == quorum.Unsure || v.Vote == quorum.No && v.Err != nil {
			n++
		}
	}
	return n
}

// silentError: a member has not answered a call in the time that the caller waits for any. It may
// have executed the call, and may answer yet.
type silentError struct{ within time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("no answer within %v (MemberTimeout)", e.within)
}

// votesOf is what each member is good for, as votes: yes for one that votes and whose last answer
// was no error.
func (c *Client) votesOf(states []member.State, errs []error) []quorum.MemberVote {
	out := make([]quorum.MemberVote, len(states))
	for i, st := range states {
		v := quorum.MemberVote{Member: c.members[i].Name(), Vote: quorum.No}
		switch {
		case !st.Quarantine.IsZero():
			v.Err = &member.QuarantineError{Until: st.Quarantine}
		case !st.Votes:
			if v.Err = st.Err; v.Err == nil {
				v.Err = member.ErrDown
			}
		case errs[i] != nil:
			v.Err = errs[i]
		default:
			v.Vote = quorum.Yes
		}
		out[i] = v
	}
	return out
}

// hopeless reports whether so many members refuse for good that no majority is left: the key is of
// another type, or the command is not permitted.
func (c *Client) hopeless(errs []error) bool {
	n := 0
	for _, err := range errs {
		if kind := wait.KindOf(err); kind == member.KindForeign || kind == member.KindAuth {
			n++
		}
	}
	return len(c.members)-n < c.need
}

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

// statesOf is what every member is good for in a slot now.
func (c *Client) statesOf(slot uint16) []member.State { return c.appendStatesOf(nil, slot) }

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
