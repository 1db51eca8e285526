package script

import (
	"time"

	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/member"
)

// line reads what a member says of the line behind a number and its time: the head of the queue, "-", or the lifetime
// of the entry; the ticket; and a stored limit.
func (a *Answer) line(e []member.Reply) {
	if len(e) > 0 {
		if e[0].Kind == ':' {
			a.Lives = duration.FromMillis(e[0].Int)
		} else if len(e[0].Str) > 1 {
			a.Next = string(e[0].Str)
		}
	}
	if len(e) > 1 {
		a.Place = e[1].Int
	}
	if len(e) > 2 {
		a.Limit = e[2].Int
	}
}

// LongestLife is the greatest lifetime that a member gives an entry for which one was asked: pace.lua.
func LongestLife(entry time.Duration) time.Duration { return 4 * entry }
