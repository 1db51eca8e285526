package redlock

import (
	"context"
	"slices"

	"github.com/redquorum/redquorum/redlock/internal/kinds/latch"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// InspectLatch asks every member what it knows of a latch, and changes nothing. If no member has one, it
// asks for the barrier of the name: Arrived says how many parties have come; of a process that died, an
// arrival may be counted here until the next party comes. If a member fails, its MemberView says why. It waits at most Config.MemberTimeout for each answer, and for a page
// of arrivals. Errors: ErrClosed, ErrInput.
func (c *Client) InspectLatch(ctx context.Context, name string) (*Inspection, error) {
	l := c.Latch(name, 0)
	if err := l.check(ctx, opInspectLatch); err != nil {
		return nil, err
	}
	r := latchesOf.of(c).use(c, roundName{name: name}, l.terms.life)
	defer latchesOf.of(c).leave(r)
	out := &Inspection{Key: name, key: r.wire.Name, Kind: KindLatch, Members: make([]MemberView, len(c.members))}
	infos := c.Members()
	pages := make([]latchPages, len(c.members))
	each(len(pages), func(i int) { pages[i] = r.readOne(ctx, i, r.wire.Read) })
	last := int64(-1)
	if !slices.ContainsFunc(pages, func(p latchPages) bool { return p.err == nil && p.state.Round >= 0 }) {
		barrier := script.BarrierOf(r.wire.Name)
		each(len(pages), func(i int) {
			if p := &pages[i]; p.err == nil {
				*p = r.readOne(ctx, i, barrier.Read)
				p.state.Sum, p.watches = int64(len(p.arrivals)), len(p.arrivals)
				if p.state.Open {
					p.watches = 0
				}
			}
		})
	}
	for i, p := range pages {
		v := MemberView{Member: infos[i].Name, State: standingOf(c.stateOf(i, r.wire.Slot())), Err: p.err}
		if p.err == nil && p.state.Round >= 0 {
			last = max(last, p.state.Round)
			v.Latch = &LatchState{
				Round: uint64(p.state.Round), Count: int(p.state.Count), Arrived: int(p.state.Sum), Open: p.state.Open, Waiting: p.watches, Life: p.life,
			}
			v.Latch.Remaining = missing(p.state.Open, v.Latch.Count, v.Latch.Arrived)
		}
		out.Members[i] = v
	}
	if last < 0 {
		return out, nil
	}
	seen, all := latch.New(len(pages), latch.Terms{Round: last, Need: c.need}), &LatchState{Round: uint64(last)}
	for i, p := range pages {
		if p.err == nil {
			seen.Join(p.state, p.arrivals)
		}
		if one := out.Members[i].Latch; one != nil && one.Round == all.Round {
			all.Count, all.Arrived = max(all.Count, one.Count), max(all.Arrived, one.Arrived)
			all.Waiting, all.Life = max(all.Waiting, one.Waiting), max(all.Life, one.Life)
		}
	}
	all.Open, all.Remaining = seen.Open(), int(min(seen.Remaining(), mostCount))
	all.Arrived = max(all.Arrived, all.Count-all.Remaining)
	out.Latch = all
	return out, nil
}

// missing is how many arrivals one member lacks.
func missing(open bool, count, arrived int) int {
	switch {
	case open:
		return 0
	case count == 0:
		return 1
	}
	return max(0, count-arrived)
}
