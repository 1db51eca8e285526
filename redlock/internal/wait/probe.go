package wait

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Probe opens a ballot to the search of all schedules (redlock/schedules_test.go). The search
// copies ballots, names their states, sets them back in time, and takes single guards out. Nothing
// else uses Probe.
type Probe struct{ *Ballot }

// Clone returns a copy that shares nothing with the original.
func (p Probe) Clone() Ballot { return p.CloneInto(Room{}) }

// CloneInto does so with room for its members, which nobody else uses.
func (p Probe) CloneInto(room Room) Ballot {
	b := *p.Ballot
	b.core, b.m = core.Probe{Votes: &b.core}.CloneInto(room.Votes), append(room.Voters[:0], b.m...)
	b.permits = b.permits.clone()
	if o := p.besides; o != nil {
		b.besides = room.besides
		again := append(b.more().again[:0], o.again...)
		*b.besides = *o
		b.again, b.next, b.heard, b.tickets = again, slices.Clone(o.next), slices.Clone(o.heard), o.tickets.clone()
	}
	return b
}

// Room is the memory of the members.
func (p Probe) Room() Room { return Room{p.votes().Voters(), p.m, p.besides} }

var nothing = besides{again: make([]again, 32)} // a Set has no more

// knows is what the ballot knows besides, perhaps nothing.
func (p Probe) knows() *besides {
	if p.besides == nil {
		return &nothing
	}
	return p.besides
}

func (p Probe) votes() core.Probe { return core.Probe{Votes: &p.core} }

// Drawn is that of the votes.
func (p Probe) Drawn(i int) byte { return p.votes().Drawn(i) }

// Start begins the term of what the attempt is taken to have won.
func (p Probe) Start(g Grant) core.Term { return p.votes().Start(g) }

// Next is Ballot.Next.
func (p Probe) Next(now time.Time, states []member.State) (s Step) {
	p.Ballot.Next(&s, now, states)
	return s
}

// Shift moves everything that has a date.
func (p Probe) Shift(d time.Duration) {
	b, o := p.Ballot, p.knows()
	all := []*time.Time{&b.poll.sent, &o.asked, &o.heartbeat, &o.split, &o.noQuorumSince, &o.minoritySince}
	local, servers := p.votes().Dates()
	all = append(all, local...)
	for i := range b.m {
		m := &b.m[i]
		all = append(all, &m.since, &o.again[i].retry)
	}
	for _, n := range servers {
		if *n != 0 {
			*n += d.Microseconds()
		}
	}
	for _, t := range all {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
	if t := o.tickets; t != nil { // a new one is not below the present second
		shift := func(n *int64) {
			if *n != 0 {
				*n += d.Microseconds()
			}
		}
		shift(&t.agreed)
		for i := range t.places {
			shift(&t.places[i])
		}
	}
}

// Clocks write dates as a state has them: relative to now.
type Clocks struct {
	Time   func(b []byte, t time.Time) []byte
	Server int64  // what the servers' clocks read, µs
	Epoch  uint64 // of the member's connection
	Recent time.Time
}

// AppendKey writes everything that can still matter, except what AppendVoter writes. It leaves out:
//
//   - rtt, which moves by parts of what a search calls a moment.
//   - need, terms and part, which never change.
//   - notBefore, doubt, unheard, noQuorumSince and tried, because no attempt of the search has any.
//   - off and woken, which AppendMemory writes if members forget.
//   - shared, and every, which changes in long lines only.
func (p Probe) AppendKey(out []byte, c Clocks) []byte {
	b, o := p.Ballot, p.knows()
	out = append(out, byte(b.phase), byte(b.start), bit(b.poll.again)|bit(b.readers)<<1)
	for _, t := range []time.Time{b.poll.sent, o.heartbeat, o.split, o.minoritySince} {
		out = c.Time(out, t)
	}
	if !o.asked.Before(c.Recent) {
		out = c.Time(out, o.asked)
	}
	out = p.votes().AppendKey(out, b.phase == raising)
	if p := b.permits; p != nil {
		out = append(out, byte(len(p.followed)), byte(p.rounds), byte(p.anew))
		for _, slot := range p.followed {
			out = append(out, byte(slot))
		}
	}
	for _, list := range [][]named{o.next, o.heard} {
		out = append(out, byte(len(list)))
		for _, n := range list {
			out = append(append(out, byte(len(n.owner))), n.owner...)
		}
	}
	return out
}

// AppendVoter writes the same of member i. It leaves out err and word, which only explain; left,
// which only a release looks at; crowded and ear, which only real members have; and lives, which
// only long lines have.
func (p Probe) AppendVoter(out []byte, i int, c Clocks) []byte {
	b := p.Ballot
	if len(b.m) == 0 {
		return out
	}
	m, o := &b.m[i], p.knows()
	out = append(out, bit(b.poll.to.Has(i))|bit(b.poll.open.Has(i))<<1|bit(b.poll.yes.Has(i))<<2|bit(b.poll.past.Has(i))<<3,
		byte(m.yield), bit(m.sent > 0)|bit(o.again[i].wished)<<1, byte(m.pending))
	if m.pending > 0 || m.yield == yielding {
		out = c.Time(out, m.since)
	}
	out = c.Time(out, o.again[i].retry)
	out = p.votes().AppendVoter(out, i, c.Time, c.Server, c.Epoch)
	for _, list := range [][]named{o.next, o.heard} {
		for _, n := range list {
			out = append(out, bit(n.by.Has(i)))
		}
	}
	if b.permits != nil {
		s := b.permits.at[i]
		out = core.AppendList(out, s.stillTold)
		out = append(append(out, byte(len(s.next))), s.next...)
	}
	if t := o.tickets; t != nil {
		out = append(out, bit(t.wrong.Has(i)))
		out = binary.AppendVarint(out, b.ticket()-c.Server)
		out = binary.AppendVarint(out, t.places[i]-c.Server)
	}
	return out
}

// Ticket returns the agreed ticket, 0 before there is one.
func (p Probe) Ticket() int64 { return p.ticket() }

// AppendMemory writes what belongs to generations of member i.
func (p Probe) AppendMemory(out []byte, i int) []byte {
	if len(p.m) == 0 {
		return out
	}
	o := p.knows()
	return append(out, byte(p.votes().Generation(i)), bit(o.notListening.Has(i)), bit(o.listenAgain.Has(i)))
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Combination reports whether the states of member i go together, by the table in doc.go, and else names
// them.
func (p Probe) Combination(i int) (name string, exists bool) {
	if len(p.m) == 0 {
		return "", true
	}
	m := &p.m[i]
	has, token := p.core.Has(i), p.core.Token(i)
	if together[has][m.yield] && (has == core.Expired || token > 0 == (has == core.Held)) {
		return "", true
	}
	return fmt.Sprintf("%v and %v, token %d", has, m.yield, token), false
}

var together = [...][4]bool{
	core.None:    {noYield: true, yielding: true, yieldedBack: true, yieldLost: true},
	core.Held:    {noYield: true, yielding: true, yieldedBack: true},
	core.Expired: {noYield: true, yielding: true},
	core.Lost:    {noYield: true, yielding: true, yieldedBack: true},
}

func (y yield) String() string {
	return [...]string{"none given", "yielding", "yielded back", "yield lost"}[y]
}

// Vote is the vote of a member as it is: its token, and until when it counts.
type Vote struct {
	Token int64
	Until time.Time
}

// Vote returns the vote of member i.
func (p Probe) Vote(i int) Vote { return Vote{p.core.Token(i), p.core.End(i)} }

// SetVote gives the vote of member i another token and end.
func (p Probe) SetVote(i int, v Vote) { p.votes().SetVote(i, v.Token, v.Until) }

// Dated reports whether a member has answered a wait.
func (p Probe) Dated() bool {
	for i := range p.m {
		if p.votes().Dating(i) != 0 {
			return true
		}
	}
	return false
}

// Named counts the waiters that the ballot remembers.
func (p Probe) Named() int { return len(p.knows().next) + len(p.knows().heard) }

// SetNeed changes how many votes decide.
func (p Probe) SetNeed(n int) {
	p.need = n
	p.votes().SetNeed(n)
}

// SetPart makes the ballot believe for longer what is granted while waiting.
func (p Probe) SetPart(d time.Duration) {
	p.part = d
	p.votes().SetPart(d)
}

// Forget makes member i forget every vote of ours that was yielded. It returns what to pass to
// Yielded afterwards.
func (p Probe) Forget(i int) (yielded int64) {
	yielded = p.core.GivenUp(i)
	p.votes().SetGivenUp(i, 0)
	return yielded
}

// Yielded sets the greatest token given up at member i.
func (p Probe) Yielded(i int, token int64) { p.votes().SetGivenUp(i, token) }

// Believe counts a vote of member i whatever dates it.
func (p Probe) Believe(i int, v Vote, server int64) {
	p.votes().Believe(i, v.Token, v.Until, server)
	p.m[i].found()
}

// Keep takes back the order to yield at member i: it restores what before had there, as kept.
func (p Probe) Keep(i int, before *Ballot) {
	p.votes().Restore(i, &before.core)
	p.m[i] = before.m[i]
	p.again[i] = before.again[i]
	p.m[i].yield = yieldedBack
}

// RaiseEverywhere asks every member to confirm, and takes any answer for a yes.
func (p Probe) RaiseEverywhere() {
	p.poll.to = memberset.All(len(p.m))
	p.poll.open = p.poll.to
}

// Confirm takes the answer of member i for a yes.
func (p Probe) Confirm(i int) {
	p.poll.yes = p.poll.yes.With(i)
	p.votes().Confirm(i)
}

// Unraised wins with the votes in hand and the token to raise to, whoever confirmed it. It returns
// false if nothing counts any more.
func (p Probe) Unraised(now time.Time, states []member.State) (Step, bool) {
	in, _, _, until := p.core.Tally(now, states)
	if in.Len() < p.need {
		return Step{}, false
	}
	p.votes().Win()
	s := Step{Grant: core.ProbeGrant(p.core.Agreed(), until, in, true)}
	p.win(&s)
	return s, true
}

// Raising reports whether a raise is out, and how it stands.
func (p Probe) Raising() (quorum.Verdict, bool) { return p.poll.verdict(p.need), p.phase == raising }

// String shows the votes.
func (p Probe) String() string {
	var out []int64
	for i := range p.m {
		out = append(out, p.core.Token(i))
	}
	return fmt.Sprint(out)
}
