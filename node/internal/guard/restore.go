package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// When a member that forgot is whole again: docs/protocol.md, "Restore". copy.go says which client makes it so, and copies
// counters.

// makeWhole declares a member whole, for the client that has its claim, when its quarantine has lasted for as long as any lease
// that enough members know of. If they know of longer leases than the client that marked it, makeWhole prolongs the quarantine
// instead. If too few members know, what they know is all, unless the mode is Strict.
func (s *Seat) makeWhole(ctx context.Context, w *restoring, c claim) (m marker, p plan, err error) {
	sources, all, err := s.sources(ctx, w)
	if err != nil {
		return m, p, err
	}
	if !s.guard.enough(len(sources), all, c.few) {
		return m, p, errFew
	}
	q := longestOf(max(s.guard.longest(), c.marker.q), sources)
	cmd := s.place().command(liftLua, c.marker.id, millis(q)) // what it adds to the quarantine may be over when it arrives
	if q == c.marker.q {                                      // else nothing is restored yet
		var last []string
		if p, last, err = s.copyAll(ctx, w, c, sources); err != nil {
			return m, p, err
		}
		cmd = s.place().command(restoreLua, append([]string{c.marker.id, flag(p.byClock), millis(q), "1"}, last...)...)
	}
	if m, err = s.reads(ctx, w, s, cmd); err == nil {
		m, err = s.ours(m)
	}
	return m, p, err
}

// reads reads the marker of a member, as it is behind a command.
func (s *Seat) reads(ctx context.Context, w *restoring, of *Seat, cmd []byte) (m marker, err error) {
	r, err := s.ask(ctx, w, of, cmd)
	if err == nil {
		m, err = readMarker(&r, time.Now())
	}
	return m, err
}

// enough reports whether a member may be restored when so many others know. all and few: see sources and claim.
func (g *Guard) enough(known int, all, few bool) bool {
	return known >= enoughSources(g.cfg.Members) || g.cfg.Mode != Strict && (all || few)
}

// ours returns what the member answered, unless that is of another memory than its marker: a look comes first then.
func (s *Seat) ours(m marker) (marker, error) {
	if !m.own() {
		s.host.Suspect()
		return marker{}, errOvertaken
	}
	return m, nil
}

// heard is what the client has heard of a member that has these seats, and so many masters: it votes, so it knows; or it is to be
// restored itself.
func heard(of []*Seat, masters int) (knows, waits bool) {
	votes := 0
	for _, o := range of {
		switch now := o.host.Now(); {
		case now.State.Votes:
			votes++
		case now.State.Up && now.Standing.admitted && now.Standing.marker.state == forgot:
			waits = true
		}
	}
	return votes == masters && votes == len(of), waits
}

// eachOther calls each for each other member, with its seats and how many masters it has.
func (s *Seat) eachOther(each func(of []*Seat, masters int)) {
	for _, o := range s.guard.others() {
		if o != s && o.alone() && !o.host.Closing() {
			each([]*Seat{o}, 1)
		}
	}
	s.eachGroup(each)
}

// sources are the other members that know. all says that each of the others knows, or waits to be restored: no other client can
// know of more.
func (s *Seat) sources(ctx context.Context, w *restoring) (sources []source, all bool, err error) {
	count := 0
	s.eachOther(func(of []*Seat, masters int) {
		knows, waits := heard(of, masters)
		if knows || waits {
			count++
		}
		if !knows || err != nil {
			return
		}
		var src source
		if src, err = s.know(ctx, w, of); err != nil {
			err = fmt.Errorf("%s: %w", of[0].host.Name(), err)
		}
		sources = append(sources, src)
	})
	return sources, count == s.guard.cfg.Members-1, err
}

// know asks a member, by all its seats, whether it knows: it is a master, its marker names the running
// process and its replication id, and it is in no quarantine. If it has one memory before and behind what is read, that is of
// this memory: docs/protocol.md, "Pages".
func (s *Seat) know(ctx context.Context, w *restoring, of []*Seat) (src source, err error) {
	src.of = of
	var memories []string
	for _, o := range of {
		at := o.host.Now()
		m, err := s.reads(ctx, w, o, o.place().look)
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
	slices.Sort(memories)
	src.memory = strings.Join(memories, ",")
	return src, nil
}
