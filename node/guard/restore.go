package guard

import (
	"context"
	"crypto/rand"
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
// Whoever finds the stamp believes that the master was not emptied since it was marked, so Stamp
// goes the way of stampAll: it announces the stamp, looks at the marker, and stamps if the
// announcement is still there.
func (s *Seat) Stamp(ctx context.Context, slot uint16) error {
	at := s.host.Now()
	if at.Session == nil || !at.Standing.admitted || !at.State.Votes {
		return fmt.Errorf("%s: %w", s.host.Name(), member.ErrDown)
	}
	ask := func(cmds ...[]byte) ([]member.Call, error) {
		calls, err := at.Session.Ask(ctx, cmds)
		for i := 0; err == nil && i < len(calls); i++ {
			if calls[i].Outcome != member.Answered {
				err = calls[i].Err
			}
		}
		return calls, err
	}
	for range stampTries {
		calls, err := ask(announceCommand(slot, rand.Text()), s.place().look)
		if err != nil {
			return err
		}
		m, err := readMarker(&calls[1].Reply, calls[1].At)
		if err != nil || m.id != at.Standing.marker.id || !m.known() {
			s.host.Suspect()
			return forgotten("marker")
		}
		done, err := s.stamp(ctx, ask, slot, m.id, string(calls[0].Reply.Str))
		switch {
		case err != nil:
			return err
		case done == 1:
			return nil
		case done == 0:
			return forgotten("slot: it came from a master that forgot a moment ago")
		}
	}
	return forgotten("slot: others announce a stamp of it all the time")
}

// stampTries is how often Stamp tries again when another client, which stamps all slots of the
// master, has announced over it.
const stampTries = 5

func forgotten(what string) error {
	return &member.ReplyError{Kind: member.KindForgot, Text: "FORGOT " + what}
}

// stamp returns what script/stamp.lua does, but -1.
func (s *Seat) stamp(ctx context.Context, ask func(...[]byte) ([]member.Call, error), slot uint16, id, word string) (int64, error) {
	g, t := s.guard, &s.terms
	send := func(longest time.Duration, told bool) (int64, error) {
		calls, err := ask(stampCommand(slot, id, longest+t.Lag+time.Second, told, word))
		if err != nil {
			return 0, err
		}
		return calls[0].Reply.Int, nil
	}
	done, err := send(g.longest(), false)
	if err != nil || done != -1 {
		return done, err
	}
	// As at a restore: the master that the slot came from was marked by somebody who may not have
	// known.
	sources := s.sources(ctx)
	if len(sources) < g.enough() && (g.cfg.Mode == Strict || t.Shard.Group.patient(t.Ping)) {
		return 0, forgotten("slot: it came from a master that forgot, and too few members tell for how long")
	}
	t.Shard.Group.asked(len(sources) >= g.enough())
	return send(longestOf(g.longest(), sources), true)
}
