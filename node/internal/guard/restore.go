package guard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// How a member that forgot is made whole again: docs/protocol.md, "Restore".

// page is how many counters are read and written in one step. A source spends about a millisecond
// on them.
const page = 1000

var (
	// errClaimed: another client restores the member.
	errClaimed = errors.New("another client restores it")
	// errOvertaken: the member was marked or restored meanwhile, or q was raised, or the claim has ended.
	errOvertaken = errors.New("it is not what it was when the restoring began")
)

// restoring is what a Watch keeps between its attempts to restore a member.
type restoring struct {
	on      Session       // that the Watch looks after
	word    string        // of its claims
	began   time.Time     // when the first attempt was; zero: there was none
	few     time.Time     // not before may order go on from the clocks because too few members know
	slow    int           // calls that took longer than they were given
	beaten  int           // attempts in a row that found another client's claim
	left    time.Duration // of that claim
	written int           // counters that this client has written
}

// pause is how long the Watch leaves the member alone after an attempt that ended with err.
func (w *restoring) pause(err error, ping time.Duration) time.Duration {
	pause := max(ping/10, time.Millisecond)
	if !errors.Is(err, errClaimed) {
		w.beaten = 0
		return pause
	}
	w.beaten = min(w.beaten+1, 4)
	pause = max(min(pause<<w.beaten, ping), 2)
	return min(pause/2+mrand.N(pause/2), w.left+time.Millisecond)
}

// restore makes a member that forgot whole again. One client at a time does it: the one whose claim
// the member has. It copies the counters of enough members that know, page by page, and then declares the
// member whole. Whoever comes after it goes on where it stopped. If the sources know of longer leases than
// the client that marked the member, restore prolongs the quarantine instead. It runs on a goroutine of
// Watch.
func (s *Seat) restore(ctx context.Context, w *restoring, id string) (marker, error) {
	g, t := s.guard, &s.terms
	enough := g.enough()
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
	p := planOf(sources, g.enough(), max(g.longest(), c.marker.q))
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

// tellRestored logs that this client has made the member whole. written is how many counters it wrote.
func (s *Seat) tellRestored(p plan, written int) {
	log, name := s.terms.Logger, s.host.Name()
	if !p.byClock {
		log.Info("member votes again, its token counters are restored", "member", name, "buckets", written)
		s.event("restored", time.Time{})
		return
	}
	why := "too few other members knew them"
	if p.known {
		why = "a member that it is restored from once found too few that knew them: counters continue from the clock here, too"
	}
	log.Warn("member votes again, its token counters continue from the clocks", "member", name,
		"why", why, "buckets", written, "tokens_by_clock", true)
	s.event("tokens_by_clock", time.Time{})
}

// ask puts one command to a member. It is given twice the time after each answer that did not come in
// time, up to 32 times Terms.Patience.
func (s *Seat) ask(ctx context.Context, w *restoring, of *Seat, cmd []byte) (member.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.terms.Patience<<w.slow)
	defer cancel()
	r, err := of.host.Ask(ctx, cmd)
	if err != nil && w.slow < 5 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		w.slow++
	}
	return r, err
}

// claim is what a member answers to who wants to restore it.
type claim struct {
	marker marker
	waits  bool   // it waits to be restored; else nothing of what follows is told
	why    string // why the claim is not the caller's; "" it is
	left   time.Duration
	from   map[string]string // how far pages came
}

// longestClaim is below what claim.lua takes for the word of a clock that was set back.
const longestClaim = 30 * time.Second

// claims is for how long a claim lasts behind each page: a page is read and written in that time, or its
// calls have ended. Otherwise two slow clients would take the claim from each other for ever.
func (s *Seat) claims(w *restoring) string {
	return millis(min(2*s.terms.Patience<<w.slow, longestClaim))
}

// claim asks for the claim of a member.
func (s *Seat) claim(ctx context.Context, w *restoring, id string, patience time.Duration) (c claim, err error) {
	r, err := s.ask(ctx, w, s, s.place().command(claimLua, id, w.word, s.claims(w), millis(patience)))
	if err != nil {
		return c, err
	}
	if c.marker, err = readMarker(&r, time.Now()); err != nil {
		return claim{}, err
	}
	told := r.Elems[len(r.Elems)-1].Elems
	if c.waits = len(told) >= 2; !c.waits {
		return c, nil
	}
	c.why, c.left = string(told[0].Str), member.FromMillis(told[1].Int)
	c.from = make(map[string]string)
	for told = told[2:]; len(told) >= 2; told = told[2:] {
		c.from[string(told[0].Str)] = string(told[1].Str)
	}
	return c, nil
}

// unclaim gives a claim up, so that another client need not wait until it ends. The client may be closing,
// so it does not wait for long.
func (s *Seat) unclaim(w *restoring, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), min(s.terms.Patience, 100*time.Millisecond))
	defer cancel()
	_, _ = w.on.Ask(ctx, [][]byte{s.place().command(claimLua, id, w.word, "0", "0")})
}

// hearing is what a client has heard of the other members.
type hearing uint8

const (
	some  hearing = iota // it has not tried all of them
	tried                // it has, and some cannot be reached
	all                  // each of them knows, or waits to be restored: no other client can know of more
)

// lenders are the other members that know, as far as the client has heard: for each its seat, and for a
// cluster the seats of all its masters.
func (s *Seat) lenders() (lenders [][]*Seat, heard hearing) {
	own := s.terms.Shard.group()
	var clusters []*Group
	masters := make(map[*Group][]*Seat)
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
		switch group := o.terms.Shard.group(); {
		case o == s || o.host.Closing() || group != nil && group == own:
		case group == nil:
			ask([]*Seat{o}, 1)
		default:
			if masters[group] == nil {
				clusters = append(clusters, group)
			}
			masters[group] = append(masters[group], o)
		}
	}
	for _, group := range clusters {
		ask(masters[group], group.Masters())
	}
	switch want := s.guard.cfg.Members - 1; {
	case known == want:
		return lenders, all
	case known+failed == want:
		return lenders, tried
	}
	return lenders, some
}

// best puts those first whose order does not rest on the clocks, and of these the ones that are copied in
// part already.
func best(lenders [][]*Seat, from map[string]string) [][]*Seat {
	rank := func(of []*Seat) (rank int) {
		var memories []string
		for _, o := range of {
			m := o.host.Now().Standing.marker
			if memories = append(memories, m.memory()); m.clk {
				rank = 2
			}
		}
		if from[fromField(memories)] == "" {
			rank++
		}
		return rank
	}
	slices.SortStableFunc(lenders, func(a, b []*Seat) int { return cmp.Compare(rank(a), rank(b)) })
	return lenders
}

// fromField is the field of a marker that says how far the pages of a source came, whose masters have these memories.
func fromField(memories []string) string {
	slices.Sort(memories)
	return "from " + strings.Join(memories, ",")
}

// know asks a member, or all masters of a cluster, whether it knows: it is a master, its marker names the running
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

// ended is how far the last page came.
const ended = "end"

// copyOf copies the counters of one source, from where the last page of it came.
func (s *Seat) copyOf(ctx context.Context, w *restoring, c claim, p *plan, src *source) error {
	label, cursor := p.label(), "0"
	if before, at, ok := strings.Cut(c.from[src.from], " "); ok && before == label {
		cursor = at
	}
	for cursor != ended {
		fields, next, err := s.readPage(ctx, w, p, src, cursor)
		if err != nil {
			return err
		}
		if s.terms.Shard != nil {
			if err := s.refill(ctx, c.marker.id, p, fields); err != nil {
				return err
			}
			w.written, fields = w.written+len(fields)/2, nil
		}
		for first := true; first || len(fields) > 0; first = false { // a small hash comes as a whole, whatever page says
			part := fields[:min(len(fields), 2*page)]
			fields = fields[len(part):]
			at := cursor
			if len(fields) == 0 {
				at = next
			}
			args := append([]string{c.marker.id, w.word, s.claims(w), millis(p.q), flag(p.byClock), src.from, label + " " + at}, part...)
			r, err := s.ask(ctx, w, s, s.place().command(fillLua, args...))
			if err != nil {
				return err
			}
			if n := len(r.Elems); n == 0 || n == 7 || n == 10 { // no more than a look
				return errOvertaken
			}
			w.written += len(part) / 2
		}
		cursor = next
	}
	return nil
}

// readPage reads a page of a source: fields and counters that the plan takes, and where the next page
// begins.
//
// A page is no snapshot, and need not be: docs/protocol.md, "Pages".
func (s *Seat) readPage(ctx context.Context, w *restoring, p *plan, src *source, cursor string) (fields []string, next string, err error) {
	if src.of[0].terms.Shard != nil {
		return s.readSlots(ctx, p, src, cursor)
	}
	o := src.of[0]
	r, err := s.ask(ctx, w, o, resp.Command("HSCAN", o.place().tokens, cursor, "COUNT", strconv.Itoa(page)))
	if err != nil {
		return nil, "", err
	}
	if r.Kind != '*' || len(r.Elems) != 2 || len(r.Elems[0].Str) == 0 {
		return nil, "", errMarker
	}
	if next = string(r.Elems[0].Str); next == "0" {
		next = ended
	}
	fields, err = p.appendFields(nil, r.Elems[1].Elems)
	return fields, next, err
}

// appendFields appends what the plan takes of a flat list of fields and counters.
func (p *plan) appendFields(out []string, flat []member.Reply) ([]string, error) {
	for ; len(flat) > 1; flat = flat[2:] {
		field, token := string(flat[0].Str), string(flat[1].Str)
		if !p.takes(field) {
			continue
		}
		if _, err := strconv.ParseInt(token, 10, 64); err != nil {
			return nil, errMarker
		}
		out = append(out, field, token)
	}
	return out, nil
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
	lenders, heard := s.lenders()
	var sources []source
	for _, l := range lenders {
		if src, err := s.know(ctx, &restoring{}, l); err == nil {
			sources = append(sources, src)
		}
	}
	few := len(sources) < g.enough()
	if few && (g.cfg.Mode == Strict || !(heard == all && len(sources) == len(lenders)) && t.Shard.Group.patient(t.Ping)) {
		return 0, forgotten("slot: it came from a master that forgot, and too few members tell for how long")
	}
	t.Shard.Group.asked(!few)
	return send(longestOf(g.longest(), sources), true)
}
