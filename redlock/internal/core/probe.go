package core

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// Probe opens votes to the search of all schedules, which copies them, names their states, sets them back in time, and takes
// single guards out. Only the probe of an attempt uses it.
type Probe struct{ *Votes }

// CloneInto returns a copy that shares nothing with the original that either may change, with room for its voters.
func (p Probe) CloneInto(room []Voter) Votes {
	c := *p.Votes
	c.m, c.given = append(room[:0], p.m...), slices.Clone(p.given)
	for i := range c.given {
		c.given[i] = slices.Clone(c.given[i])
	}
	return c
}

// Voters is the memory of voters.
func (p Probe) Voters() []Voter { return p.m }

// Dates returns everything that has a date, by the local clock and by the members'.
func (p Probe) Dates() (local []*time.Time, servers []*int64) {
	local = append(local, &p.raise.sent)
	for i := range p.m {
		m := &p.m[i]
		local = append(local, &m.end, &m.anchor.Sent, &m.first)
		servers = append(servers, &m.server, &m.anchor.Server)
	}
	return local, servers
}

// AppendKey writes everything that can still matter, except what AppendVoter writes. It leaves out need and terms, which
// never change, and the raise, whose answers the attempt counts too.
func (p Probe) AppendKey(out []byte, raising bool) []byte {
	agreed := int64(0)
	if raising {
		agreed = p.agreed.token
	}
	out = binary.AppendVarint(binary.AppendVarint(out, agreed), p.token)
	return p.appendList(out, p.agreed.list)
}

// AppendVoter writes the same of member i, where its server's clock reads server, and its connection is epoch.
func (p Probe) AppendVoter(out []byte, i int, date func([]byte, time.Time) []byte, server int64, epoch uint64) []byte {
	m := &p.m[i]
	out = append(out, byte(m.has), bit(m.dating == stepped)|bit(m.wishes)<<1)
	out = binary.AppendVarint(out, m.given)
	out = p.appendList(binary.AppendVarint(out, m.token), m.list)
	if m.token > 0 {
		out = date(out, m.end)
		out = binary.AppendVarint(out, m.server-server)
	}
	if m.dating == undated {
		out = date(out, m.first)
	} else {
		out = date(out, m.anchor.Sent)
		out = binary.AppendVarint(out, m.anchor.Server-server)
		out = append(out, bit(m.anchor.Epoch == epoch))
	}
	if p.given == nil {
		return p.appendList(out, nil)
	}
	return p.appendList(out, p.given[i])
}

// appendList is AppendList where there are slots.
func (p Probe) appendList(out []byte, l permit.List) []byte {
	if p.terms.Slots == 0 {
		return out
	}
	return AppendList(out, l)
}

// AppendList writes a list of permits.
func AppendList(out []byte, l permit.List) []byte {
	out = append(out, byte(len(l)))
	for _, p := range l {
		out = binary.AppendVarint(append(out, byte(p.Slot)), p.Token)
	}
	return out
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Generation returns the generation of member i.
func (p Probe) Generation(i int) uint64 { return p.m[i].gen }

// Dating says whether pushes of member i can be dated: 0 if not, 1 if so, 2 if its clock has stepped.
func (p Probe) Dating(i int) int { return int(p.m[i].dating) }

// SetVote gives the vote of member i another token and end.
func (p Probe) SetVote(i int, token int64, end time.Time) { p.m[i].token, p.m[i].end = token, end }

// SetNeed changes how many votes decide.
func (p Probe) SetNeed(n int) { p.need = n }

// SetPart makes the votes believe for longer what is granted while waiting.
func (p Probe) SetPart(d time.Duration) { p.part = d }

// Win wins with what is agreed on, whoever has confirmed it.
func (p Probe) Win() { p.token = p.agreed.token }

// SetGivenUp sets the greatest token given up at member i.
func (p Probe) SetGivenUp(i int, token int64) { p.m[i].given = token }

// Believe counts a vote of member i whatever dates it.
func (p Probe) Believe(i int, token int64, end time.Time, server int64) {
	p.m[i].take(vote{token: token}, end, server)
}

// Drawn says whether the vote of member i is drawn, and whether none is any more.
func (p Probe) Drawn(i int) byte { return bit(p.m[i].drawn) | bit(p.m[i].refused)<<1 }

// ProbeRange opens a range to the same search.
type ProbeRange struct{ *Range }

// Dates returns everything that has a date.
func (p ProbeRange) Dates() []*time.Time { return []*time.Time{&p.sent, &p.end} }

// Confirmed returns the members that have confirmed the reservation.
func (p ProbeRange) Confirmed() memberset.Set { return p.yes }

// ProbeGrant is what an attempt is taken to have won.
func ProbeGrant(token int64, until time.Time, in memberset.Set, raised bool) Grant {
	return Grant{In: in, Raised: raised, token: token, until: until}
}

// Started returns votes that have won and begun what is granted, whoever has given them.
func (p Probe) Start(g Grant) Term {
	p.token, p.started = g.token, true
	return Term{until: g.until, drift: p.terms.Drift}
}

// ProbeTerm is a term as it is given.
func ProbeTerm(until, limit time.Time, drift float64) Term {
	return Term{until: until, limit: limit, drift: drift}
}

// ProbeCount is a count that has heard those members.
func ProbeCount(c Count, yes, refused memberset.Set, v quorum.Verdict) Count {
	c.yes, c.refused, c.won, c.lost = yes, refused, v == quorum.Won, v == quorum.Lost
	return c
}

// Heard returns the members that have said each, as ProbeCount takes them.
func (c *Count) Heard() (yes, refused memberset.Set) { return c.yes, c.refused }

// Restore sets member i back to what it was.
func (p Probe) Restore(i int, before *Votes) { p.m[i] = before.m[i] }

// Confirm takes the answer of member i to a raise for a yes.
func (p Probe) Confirm(i int) { p.raise.yes = p.raise.yes.With(i) }
