package redlock

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// A hold that is open gives leases tokens of its own: docs/protocol/leases.md, "Tokens of an open hold".

// openness is what an open hold has besides. The hold's mutex guards it.
type openness struct {
	core.Range          // of its tokens
	to         reserver // is told what reservations bring
	given      int64    // tokens since a reservation was submitted last
	asked      reservation
}

// reservation is what is known of the last one.
type reservation struct {
	sent, end             time.Time
	most                  int64 // what it asks for
	heard, alone, refused memberset.Set
}

// reserver is told what the answers to reservations bring, on the goroutine that has read one. No mutex is held then.
type reserver interface{ reserved(reserved) }

// reserved is what an answer brings: each of the first three once.
type reserved struct {
	more  bool // there are further tokens
	alone bool // a majority say that nobody waits
	lost  bool // a majority do not have the lease
	waits bool // somebody may wait
	sent  time.Time
}

// mostTokens is the last token of the range, 0 if there is none.
func (o *openness) mostTokens() int64 {
	if o == nil {
		return 0
	}
	return o.Most()
}

// next takes the next token, if there is one.
func (o *openness) next() (token int64, ok bool) {
	if token, ok = o.Next(); ok {
		o.given++
	}
	return token, ok
}

// asking reports whether a reservation at so many members is under way.
func (o *openness) asking(now time.Time, members int) bool {
	return o.asked.most > o.Most() && o.asked.heard != memberset.All(members) && clock.Until(o.asked.end, now) > 0
}

// A reservation is for twice as many tokens as were given since the last one, within these bounds.
const fewTokens, manyTokens = 256, 65536

// reserve begins a reservation, which is over after a time and with the term as it is known now. It returns the token to lift to.
func (o *openness) reserve(t *core.Term, now time.Time, within time.Duration) int64 {
	within = min(within, clock.Until(t.Until(), now))
	most := o.Reserve(t, min(max(fewTokens, 2*o.given), manyTokens), now, within)
	o.given, o.asked = 0, reservation{sent: now, end: now.Add(within), most: most}
	return most
}

// count counts what member i answers to a reservation, besides the tokens, where need decide.
func (o *openness) count(said *reserved, i int, a *wait.Answer, need int) {
	counts := a.Outcome == member.Answered && !a.Idle()
	said.sent, said.waits = a.Sent, counts && a.N == 2
	if !a.Sent.Equal(o.asked.sent) {
		return // of an earlier one
	}
	o.asked.heard = o.asked.heard.With(i)
	switch {
	case !counts:
	case a.N == 0:
		o.asked.refused = o.asked.refused.With(i)
		said.lost = o.asked.refused.Len() == need
	case a.N == 1 && clock.Until(o.asked.end, a.At) > 0:
		o.asked.alone = o.asked.alone.With(i)
		said.alone = o.asked.alone.Len() == need
	}
}
