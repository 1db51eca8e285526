package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/member"
)

// How a member that forgot is made whole again: docs/protocol.md, "Restore".

// restore makes a member that forgot whole again. One client at a time does it: the one whose claim
// the member has. It copies the counters of enough members that know, page by page, and then declares the
// member whole. Whoever comes after it goes on where it stopped. If the sources know of longer leases than
// the client that marked the member, restore prolongs the quarantine instead. It runs on a goroutine of
// Watch.
func (s *Seat) restore(ctx context.Context, w *restoring, id string) (marker, error) {
	g, t := s.guard, &s.terms
	enough := enoughSources(g.cfg.Members)
	if w.began.IsZero() {
		w.began = time.Now()
	}
	lenders, heard := s.lenders()
	few := fmt.Errorf("%d members know the counters, %d are needed", len(lenders), enough)
	patience := time.Duration(0)
	if len(lenders) < enough && (heard != all || g.cfg.Mode == Strict) {
		if g.cfg.Mode == Strict || time.Now().Before(w.few) || heard == some && time.Since(w.began) < t.Ping {
			return marker{}, few
		}
		patience = t.Ping
	}
	c, err := s.claim(ctx, w, id, patience)
	switch {
	case err != nil: // it may have been made
		s.unclaim(w, id)
		return marker{}, err
	case !c.waits:
		return s.ours(c.marker)
	case c.why == "claimed":
		w.left = c.left
		return marker{}, errClaimed
	case c.why != "":
		w.few = time.Now().Add(c.left)
		return marker{}, few
	}
	m, p, err := s.copyFrom(ctx, w, c, best(lenders, c.from)[:min(len(lenders), enough)])
	if err == nil {
		m, err = s.ours(m)
	}
	if err != nil || m.id != id || m.state != whole {
		s.unclaim(w, id)
		return m, err
	}
	s.tellRestored(p, w.written)
	return m, nil
}

// ours returns what the member answered, unless that is of another memory than its marker: a look comes first then.
func (s *Seat) ours(m marker) (marker, error) {
	if !m.own() {
		s.host.Suspect()
		return marker{}, errOvertaken
	}
	return m, nil
}

// copyFrom carries a claim out: it copies what the lenders know, and declares the member whole.
func (s *Seat) copyFrom(ctx context.Context, w *restoring, c claim, lenders [][]*Seat) (marker, plan, error) {
	g := s.guard
	var sources []source
	for _, l := range lenders {
		src, err := s.know(ctx, w, l)
		if err != nil {
			return marker{}, plan{}, fmt.Errorf("%s: %w", l[0].host.Name(), err)
		}
		sources = append(sources, src)
	}
	p := planOf(sources, enoughSources(g.cfg.Members), max(g.longest(), c.marker.q))
	if p.q == c.marker.q { // else nothing is restored yet
		for i := range sources {
			if err := s.copyOf(ctx, w, c, &p, &sources[i]); err != nil {
				return marker{}, p, err
			}
		}
		for i, l := range lenders { // what forgot in between may lack what it had
			if src, err := s.know(ctx, w, l); err != nil || src.from != sources[i].from {
				return marker{}, p, fmt.Errorf("%s: %w", l[0].host.Name(), cmp.Or(err, errOvertaken))
			}
		}
	}
	r, err := s.ask(ctx, w, s, s.place().command(restoreLua, c.marker.id, flag(p.byClock), millis(p.q)))
	if err != nil {
		return marker{}, p, err
	}
	m, err := readMarker(&r, time.Now())
	if err == nil && m.id == c.marker.id && m.left > 0 && p.q > c.marker.q {
		s.terms.Logger.Warn("member stays silent for longer: leases may run that are longer than was known when it was marked",
			"member", s.host.Name(), "max_ttl", m.q, "for", m.left)
		s.event("quarantined", m.arrived.Add(m.left))
	}
	return m, p, err
}

// hearing is what a client has heard of the other members.
type hearing uint8

const (
	some  hearing = iota // it has not tried all of them
	tried                // it has, and some cannot be reached
	all                  // each of them knows, or waits to be restored: no other client can know of more
)

// lenders are the other members that know, as far as the client has heard: for each its seats.
func (s *Seat) lenders() (lenders [][]*Seat, heard hearing) {
	known, failed := 0, 0
	ask := func(of []*Seat, all int) {
		votes, forgetful, down := 0, false, 0
		for _, o := range of {
			switch now := o.host.Now(); {
			case now.State.Votes:
				votes++
			case now.State.Up && now.Standing.admitted:
				forgetful = forgetful || now.Standing.marker.state == forgot
				down++
			case !now.State.Up && !errors.Is(now.State.Err, member.ErrConnecting):
				down++
			}
		}
		switch {
		case votes == all && votes == len(of):
			lenders = append(lenders, of)
			known++
		case forgetful:
			known++
		case votes+down == len(of):
			failed++
		}
	}
	for _, o := range s.guard.others() {
		if o != s && o.alone() && !o.host.Closing() {
			ask([]*Seat{o}, 1)
		}
	}
	s.askGroups(ask)
	switch want := s.guard.cfg.Members - 1; {
	case known == want:
		return lenders, all
	case known+failed == want:
		return lenders, tried
	}
	return lenders, some
}

// know asks a member, by all its seats, whether it knows: it is a master, its marker names the running
// process and its replication id, and it is in no quarantine. If it has one memory before and behind a page, the page is of
// that: docs/protocol.md, "Pages".
func (s *Seat) know(ctx context.Context, w *restoring, of []*Seat) (src source, err error) {
	src.of = of
	var memories []string
	for _, o := range of {
		at := o.host.Now()
		r, err := s.ask(ctx, w, o, o.place().look)
		if err != nil {
			return source{}, err
		}
		m, err := readMarker(&r, time.Now())
		if err != nil {
			return source{}, err
		}
		if err := o.demoted(m); err != nil {
			return source{}, err
		}
		if !at.State.Votes || !at.Standing.knows(m) {
			return source{}, errOvertaken
		}
		src.clk, src.q = src.clk || m.clk, max(src.q, m.q)
		memories = append(memories, m.memory())
	}
	src.from = fromField(memories)
	return src, nil
}
