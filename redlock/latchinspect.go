package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/latch"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// LatchInspection is what the members say of one latch. Each member is asked at a moment of its own,
// so use it to look and never to decide.
type LatchInspection struct {
	Key       string
	Known     bool   // a member has the latch
	Round     uint64 // the latest that a member has
	Count     int    // of that round; 0: nobody has told it
	Remaining int    // by what the members have together; 1 if nobody has told the count
	Open      bool
	Members   []LatchView
}

// LatchView is what one member says of a latch.
type LatchView struct {
	Member  string
	Err     error  // why there is no view; set alone
	State   string // as in MemberInfo
	Known   bool   // the member has the latch: what follows is 0 otherwise
	Round   uint64
	Count   int // 0: it was not told
	Arrived int
	Open    bool
	Waiting int           // clients in Await
	Life    time.Duration // until the latch ends, if nobody touches it
}

// InspectLatch asks every member what it knows of a latch, and changes nothing. If no member has one, it
// asks for the barrier of the name: Count is the number of its parties, and Arrived says how many have
// come; of a process that died, an arrival may be counted here until the next party comes. If a member
// fails, its LatchView says why. It waits at most Config.MemberTimeout for each answer, and for a page
// of arrivals. Errors: ErrClosed, ErrInput.
func (c *Client) InspectLatch(ctx context.Context, name string) (*LatchInspection, error) {
	l := c.Latch(name, 0)
	if err := l.check(ctx, opInspectLatch); err != nil {
		return nil, err
	}
	r := c.latches.use(l)
	defer c.latches.leave(r)
	out := &LatchInspection{Key: name, Members: make([]LatchView, len(c.members))}
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
		v := LatchView{Member: infos[i].Name, State: standingOf(c.stateOf(i, r.wire.Slot())), Err: p.err}
		if v.Known = p.err == nil && p.state.Round >= 0; v.Known {
			last = max(last, p.state.Round)
			v.Round, v.Count, v.Arrived = uint64(p.state.Round), int(p.state.Count), int(p.state.Sum)
			v.Open, v.Waiting, v.Life = p.state.Open, p.watches, p.life
		}
		out.Members[i] = v
	}
	if out.Known = last >= 0; !out.Known {
		return out, nil
	}
	seen := latch.New(len(pages), latch.Terms{Round: last, Need: c.need})
	for i, p := range pages {
		if p.err == nil {
			seen.Join(p.state, p.arrivals)
			out.Count = max(out.Count, map[bool]int{true: out.Members[i].Count}[p.state.Round == last])
		}
	}
	out.Round, out.Open, out.Remaining = uint64(last), seen.Open(), int(min(seen.Remaining(), mostCount))
	return out, nil
}
