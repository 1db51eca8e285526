package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// Wait returns when the round is decided. It returns Undecided with a nil error timeout after the moment since, and
// Undecided with ctx's error if ctx ends first. A decision wins over both. A timeout of 0 means none. If this process
// did not run while it waited, Wait waits once more, for at most the timeout, so that answers can still be read.
//
// A member is silent since its last answer to any call of its line, because it answers them in their order. So Wait waits longer
// for those that are merely busy, if they can decide the round, Patience timeouts in all. What Question.TTL says is over by then
// is not waited for.
func (r *Round) Wait(ctx context.Context, since time.Time, timeout time.Duration) (Verdict, error) {
	if v := r.result(); v != Undecided {
		return v, nil
	}
	if timeout > 0 {
		r.rounds.alarms.set(r, since.Add(timeout), timeout)
		defer r.rounds.alarms.stop(r)
	}
	for {
		if ended := ctx.Done(); ended == nil {
			<-r.wake
		} else {
			select {
			case <-r.wake:
			case <-ended:
			}
		}
		if v := r.result(); v != Undecided {
			return v, nil
		}
		if err := ctx.Err(); err != nil {
			return Undecided, err
		}
		if timeout > 0 && r.rounds.alarms.over(r) {
			until := r.silentAt(since, timeout)
			if !until.After(time.Now()) {
				return Undecided, nil
			}
			r.rounds.alarms.set(r, until, timeout)
		}
	}
}

// Patience is how many timeouts a member is waited for that goes on answering other calls.
const Patience = 4

// silentAt is when too few of the members whose answers are open will not have been silent for a timeout: those cannot decide
// the round then. Zero: nobody can tell.
func (r *Round) silentAt(since time.Time, timeout time.Duration) (at time.Time) {
	r.mu.Lock()
	open, few := memberset.Set(0), max(1, min(r.Need-r.yes, r.yes+r.open-r.Need+1)) // so many decide
	for i, v := range r.votes {
		if v == Open {
			open = open.With(i)
		}
	}
	r.mu.Unlock()
	var buf [MaxMembers]time.Time
	lasts := buf[:0]
	for i, m := range r.members {
		if p, ok := m.(ability.Paced); ok && open.Has(i) {
			if last, waits := p.Waiting(r.Slot); waits {
				lasts = append(lasts, last)
			}
		}
	}
	if len(lasts) < few {
		return time.Time{}
	}
	slices.SortFunc(lasts, time.Time.Compare)
	at = lasts[len(lasts)-few].Add(timeout)
	most := since.Add(Patience * timeout)
	if ends := r.Sent.Add(r.TTL); r.TTL > 0 && ends.Before(most) {
		most = ends
	}
	if at.After(most) {
		return most
	}
	return at
}

// decideLocked takes the decision, and reports whether it has just come about.
func (r *Round) decideLocked() bool {
	if r.verdict != Undecided {
		return false
	}
	if r.verdict = Decide(r.yes, r.open, r.Need); r.verdict == Lost {
		r.verdict = decideDenied(r.yes, r.no, r.open, r.Need, int(r.Deny))
	}
	return r.verdict != Undecided
}

// look wakes the Wait of the round, if there is one.
func (r *Round) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Verdict returns the decision as it stands now.
func (r *Round) Verdict() Verdict { return r.result() }

func (r *Round) result() Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict
}

// Votes returns the votes and their causes as they stand now, in member order.
func (r *Round) Votes(members []member.Member) []MemberVote {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]MemberVote, len(r.votes))
	for i, v := range r.votes {
		out[i] = MemberVote{Member: members[i].Name(), Vote: v, Err: r.errs[i]}
	}
	return out
}
