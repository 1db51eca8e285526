package core

import (
	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// A vote stops counting before its give-up is submitted, and never counts again: a reply or a push of it may be on its way
// still. Only a later grant does, whose token is greater.

// Given is a vote that was given up. Only GiveUp makes one: whoever submits a give-up has a vote that does not count any more.
type Given struct {
	member int
	token  int64
	list   permit.List
}

// Member is that which had given it.
func (g Given) Member() int { return g.member }

// Token is that of the vote, if it has no slots.
func (g Given) Token() int64 { return g.token }

// List is what is given up, nil if nothing is known of it.
func (g Given) List() permit.List { return g.list }

// GiveUp gives up the vote of member i, but not those of its slots that the attempt keeps. told is what the member has told
// last, where we have no vote of it. Without either, it is the vote that was given up before.
func (v *Votes) GiveUp(i int, told permit.List, keep []int) Given {
	m := &v.m[i]
	if m.token > 0 {
		told = m.list
	}
	if told == nil && m.token > 0 {
		m.given = m.token
	}
	if told != nil && v.given == nil {
		v.given = make([]permit.List, len(v.m))
	}
	if told != nil {
		v.given[i] = withGivenUp(v.given[i], told, keep)
	}
	m.drop()
	return Given{i, m.given, told}
}

// wasGivenUp reports whether a vote of member i was given up, or a slot of it.
func (v *Votes) wasGivenUp(i int, x *vote) bool {
	return x.token <= v.m[i].given || x.list != nil && v.given != nil && anyGivenUp(x.list, v.given[i])
}

// GivenBack books the answer to a give-up that the member has served to ourselves again: with a greater token. It reports
// whether it has.
func (v *Votes) GivenBack(i int, a *Answer) bool {
	m, x := &v.m[i], v.vote(a.N, a.Permits)
	if !m.hears(a) || a.TTL <= 0 || a.N <= m.given || a.N <= m.token {
		return false
	}
	m.take(x, a.Sent.Add(clock.Validity(a.TTL, v.terms.Drift)), a.Server)
	return true
}
