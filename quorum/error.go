package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/internal/printable"
)

// MemberVote is one member's part in a round.
type MemberVote struct {
	Member string // name of the member
	Vote   Vote
	Err    error // why it did not vote yes; nil for a plain yes or no
}

// Failure reports an operation that too few members confirmed. errors.Is and errors.As reach every
// member's own cause. The text has the operation, key, counts and causes, and never the name of an
// owner.
type Failure struct {
	Op, Key string
	Need    int
	Votes   []MemberVote // in member order
	// Early means that the round did not wait for members whose vote is Open: the other members
	// decided, or a context ended. Their silence proves nothing.
	Early bool
}

// Counts returns how many members said yes, how many said no, and how many failed or left it open.
// Members that were not asked count as none of these.
func (e *Failure) Counts() (yes, no, unsure int) {
	for _, v := range e.Votes {
		switch {
		case v.Vote == Yes:
			yes++
		case v.Vote == No && v.Err == nil:
			no++
		case v.Vote == NotAsked:
		default:
			unsure++
		}
	}
	return
}

func (e *Failure) Error() string {
	yes, no, failed := e.Counts()
	var b strings.Builder
	name := ""
	if e.Key != "" {
		name = " " + printable.Quote(e.Key)
	}
	early := 0
	for _, v := range e.Votes {
		if e.Early && v.Vote == Open && v.Err == nil {
			early++
		}
	}
	late := ""
	if yes >= e.Need {
		late = " too late" // or nothing would have failed
	}
	fmt.Fprintf(&b, "%s%s: %d of %d members agreed%s, need %d (%d refused, %d failed or silent",
		e.Op, name, yes, len(e.Votes), late, e.Need, no, failed-early)
	if early > 0 {
		fmt.Fprintf(&b, ", %d not waited for", early)
	}
	if rest := len(e.Votes) - yes - no - failed; rest > 0 {
		fmt.Fprintf(&b, ", %d not asked", rest)
	}
	b.WriteByte(')')
	for _, v := range e.Votes {
		switch {
		case v.Err != nil:
			b.WriteString("; " + v.cause().Error())
		case v.Vote == Open && e.Early: // counted above; it is no cause
		case v.Vote == Open:
			fmt.Fprintf(&b, "; %s: no answer", v.Member)
		case v.Vote == Unsure:
			fmt.Fprintf(&b, "; %s: no answer that counts", v.Member)
		}
	}
	return b.String()
}

// Unwrap returns the members' causes together, or nil if no member gave one.
func (e *Failure) Unwrap() error {
	var all *multierror.Error
	for _, v := range e.Votes {
		if v.Err != nil {
			all = multierror.Append(all, apart{v.cause()})
		}
	}
	return all.ErrorOrNil()
}

// apart is the cause of a member. It matches no error of a context: what was bounded there is what the member was asked, and
// not the call. A call whose own context has ended says so besides.
type apart struct{ err error }

func (e apart) Error() string { return e.err.Error() }

// Is implements errors.Is.
func (e apart) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.err, target)
}

// As implements errors.As.
func (e apart) As(target any) bool { return errors.As(e.err, target) }

// cause names the member, unless the cause does.
func (v MemberVote) cause() error {
	if strings.HasPrefix(v.Err.Error(), v.Member+":") {
		return v.Err
	}
	return fmt.Errorf("%s: %w", v.Member, v.Err)
}
