package redlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// refusal explains a round that was not won. One that was decided is not waited out: a member without an
// answer is not silent then, and where a majority could be asked it was the refusals that decided.
func (a *attempt) refusal(r *quorum.Round, early bool) error {
	votes := r.Votes(a.c.members)
	kind := reasonOf(votes, a.b.Need())
	if early && kind == ErrNoQuorum && len(votes)-failed(votes) >= a.b.Need() {
		kind = ErrHeld
	}
	e := a.quorumError(opAcquire, votes, kind, nil)
	if e.Early = early; !early {
		a.c.silent(votes)
	}
	return e
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

func (a *attempt) interrupted(op string, r *quorum.Round, cause error) error {
	votes := r.Votes(a.c.members)
	e := a.quorumError(op, votes, reasonOf(votes, a.b.Need()), cause)
	e.Early = true
	return e
}

func (a *attempt) quorumError(op string, votes []quorum.MemberVote, kind, cause error) *QuorumError {
	return &QuorumError{
		Failure: quorum.Failure{Op: op, Key: a.name(), Need: a.b.Need(), Votes: votes},
		kind:    kind, cause: cause,
	}
}

// failure explains why waiting ended, from what is known of each member.
func (a *attempt) failure(op string, kind, cause error) error {
	e := a.quorumError(op, a.standing(), kind, cause)
	e.Early = true // who was silent for too long is said to have been
	return e
}

// hopeless is why an attempt stops waiting for a majority that it can ask.
func (a *attempt) hopeless() error {
	if why := a.reason(); why == ErrTokensExhausted {
		return why
	}
	return ErrNoQuorum
}

func (a *attempt) reason() error { return reasonOf(a.standing(), a.b.Need()) }

// standing is each member's part in a wait, as votes.
func (a *attempt) standing() []quorum.MemberVote {
	states := a.c.statesOf(a.wire.Slot())
	out := make([]quorum.MemberVote, len(states))
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range out {
		part, err := a.b.Standing(i, now, states)
		if part == wait.Silent {
			err = &silentError{within: a.c.cfg.MemberTimeout}
		}
		out[i] = standing(a.c.members[i].Name(), &states[i], part, err)
	}
	return out
}

// standing is the part of a member in a wait, as a vote. err is why the last call to it failed.
func standing(name string, st *member.State, part wait.Standing, err error) quorum.MemberVote {
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

// silentError: a member has not answered a call in the time that the caller waits for any. It may
// have executed the call, and may answer yet.
type silentError struct{ within time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("no answer within %v (MemberTimeout)", e.within)
}
