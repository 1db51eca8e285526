package wait

import (
	"slices"

	"github.com/redquorum/redquorum/internal/memberset"
)

// Fair are the rules of the exclusive lock that serves strictly in the order of agreed tickets. A
// split yields as that of Exclusive. The scripts give every vote to the smallest ticket, so no
// holder names a successor.
var Fair = Rules{split: (*Ballot).splitUp, hint: (*Ballot).nobody}

func (b *Ballot) nobody() string { return "" }

// tickets are the places of a waiting attempt in the queues of members, by which they order their
// waiters. The members count by themselves, so a majority agrees on one ticket: the greatest of
// their first places. From then on each member has the attempt at exactly that place, and a further
// attempt of the same caller too.
type tickets struct {
	agreed int64         // 0: not yet
	places []int64       // by member, as last answered; 0: it has not
	wrong  memberset.Set // members that have another place than the ticket, and have not been asked since
}

func newTickets(members int, agreed int64) *tickets {
	return &tickets{agreed: agreed, places: make([]int64, members)}
}

// placeTold books the place that member i has given to the attempt. Where it is not the agreed one,
// the attempt asks again at once, with that.
func (b *Ballot) placeTold(i int, n int64) {
	if b.more().tickets == nil {
		b.tickets = newTickets(len(b.m), 0)
	}
	t := b.tickets
	t.places[i] = n
	if t.agreed > 0 {
		b.checkPlace(i)
		return
	}
	known, most := 0, int64(0)
	for _, n := range t.places {
		if n > 0 {
			known, most = known+1, max(most, n)
		}
	}
	if known < b.need {
		return
	}
	t.agreed = most
	for k := range t.places {
		b.checkPlace(k)
	}
}

// checkPlace has member i asked again if the attempt has another place there than its ticket.
func (b *Ballot) checkPlace(i int) {
	if t := b.tickets; t.places[i] > 0 && t.places[i] != t.agreed {
		t.wrong = t.wrong.With(i)
	}
}

// ticket is what a wait asks for: the agreed one, 0 before there is one. Of a semaphore it says how
// often the attempt has given up everything.
func (b *Ballot) ticket() int64 {
	if b.permits != nil {
		return b.permits.anew
	}
	if b.besides == nil || b.tickets == nil {
		return 0
	}
	return b.tickets.agreed
}

// wrongPlaces takes the members that have another place for the attempt than its ticket.
func (b *Ballot) wrongPlaces() (to memberset.Set) {
	if b.tickets != nil {
		to, b.tickets.wrong = b.tickets.wrong, 0
	}
	return to
}

// ticketAt is where the attempt stands if it yields at member i: at its ticket, or before one is
// agreed, at the place that the member gave it.
func (b *Ballot) ticketAt(i int) int64 {
	switch {
	case b.tickets == nil:
		return 0
	case b.tickets.agreed > 0:
		return b.tickets.agreed
	}
	return b.tickets.places[i]
}

// clone returns a copy that shares nothing with the original.
func (t *tickets) clone() *tickets {
	if t == nil {
		return nil
	}
	return &tickets{t.agreed, slices.Clone(t.places), t.wrong}
}
