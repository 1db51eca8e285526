package guard

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

var (
	//go:embed script/claim.lua
	claimOnlyLua string
	//go:embed script/count.lua
	countLua string
	//go:embed script/fill.lua
	fillOnlyLua string

	claimLua = waitsLua + claimOnlyLua
	fillLua  = countLua + waitsLua + fillOnlyLua
)

// page is how many counters are read and written in one step. A source spends about a millisecond
// on them.
const page = 1000

var (
	// errClaimed: another client restores the member.
	errClaimed = errors.New("another client restores it")
	// errOvertaken: the member was marked or restored meanwhile, or q was raised, or the claim has ended.
	// errFew: too few members know the counters, as far as the client has heard.
	errFew       = errors.New("too few other members know the counters")
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

// askOn puts one command to a member on a session. Behind an answer that did not come in time it waits twice as long for the
// next one, up to four times Terms.Patience: a member that answers thousands of clients would otherwise never admit one.
func (s *Seat) askOn(on Session, cmd []byte) ([]member.Call, error) {
	slow := s.slow.Load()
	ctx, cancel := context.WithTimeout(s.host.Context(), s.terms.Patience<<slow)
	defer cancel()
	calls, err := on.Ask(ctx, [][]byte{cmd})
	if errors.Is(err, context.DeadlineExceeded) {
		s.slow.Store(min(slow+1, 2))
	} else {
		s.slow.Store(0)
	}
	return calls, err
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

// restore makes a member that forgot whole again. One client at a time does it: the one whose claim
// the member has. Whoever comes after it goes on where it stopped. It runs on a goroutine of Watch.
func (s *Seat) restore(ctx context.Context, w *restoring, id string) (marker, error) {
	g, ping := s.guard, s.terms.Ping
	if w.began.IsZero() {
		w.began = time.Now()
	}
	known, count, tried := 0, 0, true
	s.eachOther(func(of []*Seat, masters int) {
		knows, waits := heard(of, masters)
		if knows {
			known++
		}
		if knows || waits {
			count++
		}
		tried = tried && !slices.ContainsFunc(of, untried)
	})
	patience, all := time.Duration(0), count == g.cfg.Members-1
	if !g.enough(known, all, false) {
		if !g.enough(known, all, true) || time.Now().Before(w.few) || !tried && time.Since(w.began) < ping {
			return marker{}, errFew
		}
		patience = ping
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
		return marker{}, errFew
	}
	m, p, err := s.makeWhole(ctx, w, c)
	if err != nil || m.id != id || m.state != whole {
		s.unclaim(w, id)
		s.tellProlonged(c.marker, m)
		return m, err
	}
	s.tellRestored(p, w.written)
	return m, nil
}

// untried reports whether the client is about to learn what a server knows.
func untried(o *Seat) bool {
	now := o.host.Now()
	return now.State.Up && !now.Standing.admitted || !now.State.Up && errors.Is(now.State.Err, member.ErrConnecting)
}

// claim is what a member answers to who wants to restore it.
type claim struct {
	marker marker
	waits  bool   // it waits to be restored; else nothing of what follows is told
	why    string // why the claim is not the caller's; "" it is
	few    bool   // too few members have known for a while
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
	c.few = patience > 0
	c.why, c.left = string(told[0].Str), duration.FromMillis(told[1].Int)
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

// best puts those first whose order does not rest on the clocks, and of these the ones that are copied in
// part already.
func best(sources []source, from map[string]string) {
	rank := func(s source) (rank int) {
		if s.clk {
			rank = 2
		}
		if from[s.from] == "" {
			rank++
		}
		return rank
	}
	slices.SortStableFunc(sources, func(a, b source) int { return cmp.Compare(rank(a), rank(b)) })
}

// memory names what the server has in its memory: a marking, and the replication id that it was found with.
func (m marker) memory() string { return strings.TrimSuffix(m.id+" "+m.now, " ") }

// fromField is the field of a marker that says how far the pages of a source came, whose masters have these memories.
func fromField(memories []string) string {
	slices.Sort(memories)
	return "from " + strings.Join(memories, ",")
}

// ended is how far the last page came.
const ended = "end"

// plan is how a member is restored: to the maximum of each counter that the sources have, page by page.
// Where order rests on the clocks, no counter is restored to less
// than the member's time: a source that goes on from the clocks may lack a bucket that others have had
// smaller counters of than the one that everybody has lost. If too few sources know, stored limits alone
// are restored, which need no number of sources.
type plan struct {
	known   bool // enough sources know
	byClock bool
	q       time.Duration // see longestOf
}

// planOf makes a plan of what sources tell. enough is how many must know, longest the greatest MaxTTL
// that the client knows itself.
func planOf(sources []source, enough int, longest time.Duration) plan {
	p := plan{known: len(sources) >= enough, byClock: len(sources) < enough, q: longestOf(longest, sources)}
	for _, s := range sources {
		p.byClock = p.byClock || s.clk
	}
	return p
}

// copyAll copies what the sources know, for the client that has the claim.
func (s *Seat) copyAll(ctx context.Context, w *restoring, c claim, sources []source) (plan, error) {
	enough := enoughSources(s.guard.cfg.Members)
	best(sources, c.from)
	sources = sources[:min(len(sources), enough)]
	p := planOf(sources, enough, c.marker.q)
	for i := range sources {
		if err := s.copyOf(ctx, w, c, &p, &sources[i]); err != nil {
			return p, err
		}
	}
	for _, was := range sources { // what forgot in between may lack what it had
		if src, err := s.know(ctx, w, was.of); err != nil || src.from != was.from {
			return p, fmt.Errorf("%s: %w", was.of[0].host.Name(), cmp.Or(err, errOvertaken))
		}
	}
	return p, nil
}

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
			if len(r.Elems) <= 10 { // no more than a look
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

// takes reports whether a field of a source is restored.
func (p *plan) takes(field string) bool {
	_, counter := slotOf(field)
	return counter && (p.known || isLimit(field))
}

// label is what pages that were written by one plan have in common, as fill.lua notes it.
func (p *plan) label() string {
	return fmt.Sprintf("%s/%s%s", millis(p.q), flag(p.byClock), flag(p.known))
}

// A field of a member's counters is the bucket of the locks of a slot, "7629"; the counter of one of
// a semaphore's slots, "7629.3"; or the stored limit of a semaphore: "limit:" and the key of its
// permits. All of them only rise.
const limitPrefix = "limit:"

// isLimit reports whether a field has a stored limit. Without it no clock says what was stored, so
// the greatest one that any source knows is as good as any.
func isLimit(field string) bool { return strings.HasPrefix(field, limitPrefix) }

// slotOf returns the hash slot that a field belongs to. If ok is false, it is no counter.
func slotOf(field string) (s uint16, ok bool) {
	if key, limit := strings.CutPrefix(field, limitPrefix); limit {
		return slot.Of(key), true
	}
	number, _, _ := strings.Cut(field, ".")
	n, err := strconv.ParseUint(number, 10, 16)
	return uint16(n), err == nil && n < slot.Count
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
