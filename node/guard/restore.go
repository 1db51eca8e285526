package guard

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/member"
)

// restore makes a member that forgot whole again: it collects the counters of enough members that
// know, and writes the maximum of each bucket. If they know of longer leases than the client that
// marked the member, restore prolongs the quarantine instead. It runs on a goroutine of Watch.
// patient says that another attempt follows, so that too few sources are no reason yet to go on
// from the clocks.
func (s *Seat) restore(ctx context.Context, id string, patient bool) (marker, error) {
	g, t := s.guard, &s.terms
	sources := s.sources(ctx)
	enough := g.enough()
	if len(sources) < enough && (patient || g.cfg.Mode == Strict) {
		return marker{}, fmt.Errorf("%d members know the counters, %d are needed", len(sources), enough)
	}
	table, byClock := merge(sources, enough)
	q := longestOf(g.longest(), sources)
	args := []string{id, flag(byClock), millis(q), ""}
	if t.Shard != nil {
		if err := s.refill(ctx, id, table); err != nil {
			return marker{}, err
		}
	} else {
		args[3] = strconv.FormatInt(baseOf(sources), 10)
		for bucket, token := range table {
			args = append(args, bucket, strconv.FormatInt(token, 10))
		}
	}
	known := s.host.Now().Standing.marker.q
	r, err := s.host.Ask(ctx, s.place().command(restoreLua, args...))
	if err != nil {
		return marker{}, err
	}
	m, err := readMarker(&r, time.Now())
	if err == nil && m.id == id && m.left > 0 && m.q > known { // else its clock only runs behind ours
		t.Logger.Warn("member stays silent for longer: leases may run that are longer than was known when it was marked",
			"member", s.host.Name(), "max_ttl", m.q, "for", m.left)
		s.event("quarantined", m.arrived.Add(m.left))
	}
	if err != nil || m.id != id || m.state != whole {
		return m, err
	}
	if byClock {
		why := "too few other members knew them"
		if len(sources) >= enough {
			why = "a member that it is restored from once found too few that knew them: counters that one lacks continue from the clock here, too"
		}
		t.Logger.Warn("member votes again, its token counters continue from the clocks", "member", s.host.Name(),
			"why", why, "buckets", len(table), "tokens_by_clock", true)
		s.event("tokens_by_clock", time.Time{})
	} else {
		t.Logger.Info("member votes again, its token counters are restored", "member", s.host.Name(), "buckets", len(table))
		s.event("restored", time.Time{})
	}
	return m, nil
}

// sources are the tables of those of the other members that know.
func (s *Seat) sources(ctx context.Context) (out []source) {
	own := s.terms.Shard.group()
	clusters := make(map[*Group][]*Seat)
	for _, o := range s.guard.others() {
		switch group := o.terms.Shard.group(); {
		case o == s || o.host.Closing() || group != nil && group == own:
		case group != nil:
			clusters[group] = append(clusters[group], o)
		default:
			if src, ok := o.counters(ctx); ok {
				out = append(out, src)
			}
		}
	}
	for _, masters := range clusters {
		if src, ok := clusterCounters(ctx, masters); ok {
			out = append(out, src)
		}
	}
	return out
}

// counters reads the table of a member, if it knows: its marker names the running process, and it
// is in no quarantine. Marker and counters come in one step. The session proves the process.
func (s *Seat) counters(ctx context.Context) (source, bool) {
	at := s.host.Now()
	if !at.State.Votes {
		return source{}, false
	}
	r, err := s.host.Ask(ctx, s.place().command(tableLua))
	if err != nil {
		return source{}, false
	}
	m, src, err := readTable(&r, time.Now())
	if err != nil || !at.Standing.knows(m) {
		return source{}, false
	}
	return src, true
}

// clusterCounters are the counters of a whole cluster, if all its masters know. The marker is read
// before and after: what one of them forgot in between may be missing.
func clusterCounters(ctx context.Context, masters []*Seat) (source, bool) {
	src := source{counters: make(map[string]int64)}
	if len(masters) == 0 || len(masters) != masters[0].terms.Shard.Group.Masters() {
		return source{}, false
	}
	for _, s := range masters {
		before := s.host.Now().Standing
		if err := s.slotCounters(ctx, src.counters); err != nil {
			return source{}, false
		}
		r, err := s.host.Ask(ctx, s.place().look)
		if err != nil {
			return source{}, false
		}
		m, err := readMarker(&r, time.Now())
		if err != nil || !before.knows(m) {
			return source{}, false
		}
		src.clk, src.q = src.clk || m.clk, max(src.q, m.q)
	}
	return src, true
}

// Stamp puts a slot that a grant found without the marker's id under this master's marker: one that
// came from another master and was not used before. It returns nil if the slot may be used now.
// Stamp looks at the marker again after the stamp, because whatever empties the master empties
// both.
func (s *Seat) Stamp(ctx context.Context, slot uint16) error {
	g, t := s.guard, &s.terms
	at := s.host.Now()
	if at.Session == nil || !at.Standing.admitted || !at.State.Votes {
		return fmt.Errorf("%s: %w", s.host.Name(), member.ErrDown)
	}
	id := at.Standing.marker.id
	stamp := func(longest time.Duration, told bool) ([]member.Call, error) {
		cmd := stampCommand(slot, id, longest+t.Lag+time.Second, told)
		return at.Session.Ask(ctx, [][]byte{cmd, s.place().look})
	}
	calls, err := stamp(g.longest(), false)
	if err == nil && calls[0].Outcome == member.Answered && calls[0].Reply.Int < 0 {
		// As at a restore: the master that the slot came from was marked by somebody who may not
		// have known.
		sources := s.sources(ctx)
		if len(sources) < g.enough() && (g.cfg.Mode == Strict || t.Shard.Group.patient(t.Ping)) {
			return &member.ReplyError{Kind: member.KindForgot, Text: "FORGOT slot: it came from a master that forgot, and too few members tell for how long"}
		}
		t.Shard.Group.asked(len(sources) >= g.enough())
		calls, err = stamp(longestOf(g.longest(), sources), true)
	}
	if err != nil {
		return err
	}
	for i := range calls {
		if calls[i].Outcome != member.Answered {
			return calls[i].Err
		}
	}
	m, err := readMarker(&calls[1].Reply, calls[1].At)
	if err != nil || m.id != id || !m.known() {
		s.host.Suspect()
		return &member.ReplyError{Kind: member.KindForgot, Text: "FORGOT marker"}
	}
	if calls[0].Reply.Int != 1 {
		return &member.ReplyError{Kind: member.KindForgot, Text: "FORGOT slot: it came from a master that forgot a moment ago"}
	}
	return nil
}
