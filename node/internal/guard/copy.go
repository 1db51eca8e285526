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

	claimLua = waitsLua + claimOnlyLua
)

// page is how many counters are read in one step, on which a source spends about a millisecond. part is how many are
// written in one, on which the member spends some 5 ms: 150 kB, which must be there within StallTimeout also on a slow network.
const (
	page = 1000
	part = 4096
)

var (
	// errClaimed: another client restores the member.
	errClaimed = errors.New("another client restores it")
	// errOvertaken: the member or a source was marked or restored meanwhile, or follows another.
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
	ctx, cancel := resp.Within(s.host.Context(), s.terms.Patience<<slow, resp.Name(cmd))
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
	ctx, cancel := resp.Within(ctx, s.terms.Patience<<w.slow, resp.Name(cmd))
	defer cancel()
	r, err := of.host.Ask(ctx, cmd)
	if err != nil && w.slow < 5 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		w.slow++
	}
	return r, err
}

// restore makes a member that forgot whole again. One client at a time does it: the one whose claim
// the member has. It runs on a goroutine of Watch.
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
}

// longestClaim is below what claim.lua takes for the word of a clock that was set back.
const longestClaim = 30 * time.Second

// claims is for how long a claim lasts. If restoring takes longer, another client may begin, too.
func (s *Seat) claims(w *restoring) string {
	return millis(min(2*s.terms.Patience<<w.slow, longestClaim))
}

// claim asks for the claim of a member.
func (s *Seat) claim(ctx context.Context, w *restoring, id string, patience time.Duration) (c claim, err error) {
	r, err := s.ask(ctx, w, s, s.place().command(claimLua, id, w.word, s.claims(w), millis(patience)))
	if err != nil {
		return c, fmt.Errorf("claim: %w", err)
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
	return c, nil
}

// unclaim gives a claim up, so that another client need not wait until it ends. The client may be closing,
// so it does not wait for long.
func (s *Seat) unclaim(w *restoring, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), min(s.terms.Patience, 100*time.Millisecond))
	defer cancel()
	_, _ = w.on.Ask(ctx, [][]byte{s.place().command(claimLua, id, w.word, "0", "0")})
}

// memory names what the server has in its memory: a marking, and the replication id that it was found with.
func (m marker) memory() string { return strings.TrimSuffix(m.id+" "+m.now, " ") }

// ended is the cursor behind the last page.
const ended = "end"

// plan is how a member is restored: to the maximum of each counter that the sources have. Where order rests on the clocks, no
// counter is restored to less than the member's time: a source that goes on from the clocks may lack a bucket that others have
// had smaller counters of than the one that everybody has lost. If too few sources know, stored limits alone are restored,
// which need no number of sources.
type plan struct {
	known   bool // enough sources know
	byClock bool
}

// planOf makes a plan of what sources tell. enough is how many must know.
func planOf(sources []source, enough int) plan {
	p := plan{known: len(sources) >= enough, byClock: len(sources) < enough}
	for _, s := range sources {
		p.byClock = p.byClock || s.clk
	}
	return p
}

// copyAll copies the counters of enough sources, those first whose order does not rest on the clocks. It returns the last part
// of them, each behind its field, which is to be written still.
func (s *Seat) copyAll(ctx context.Context, w *restoring, c claim, sources []source) (p plan, flat []string, err error) {
	enough := enoughSources(s.guard.cfg.Members)
	slices.SortStableFunc(sources, func(a, b source) int { return cmp.Compare(flag(a.clk), flag(b.clk)) })
	sources = sources[:min(len(sources), enough)]
	p = planOf(sources, enough)
	all := make(map[string]int64)
	for i := range sources {
		for cursor := "0"; cursor != ended; {
			if cursor, err = s.readPage(ctx, w, &p, &sources[i], cursor, all); err != nil {
				return p, nil, err
			}
		}
	}
	for _, was := range sources { // what forgot in between may lack what it had
		if src, err := s.know(ctx, w, was.of); err != nil || src.memory != was.memory {
			return p, nil, fmt.Errorf("%s: %w", was.of[0].host.Name(), cmp.Or(err, errOvertaken))
		}
	}
	w.written = len(all)
	if s.terms.Shard != nil {
		return p, nil, s.refill(ctx, c.marker.id, &p, all)
	}
	for field, n := range all {
		flat = append(flat, field, strconv.FormatInt(n, 10))
	}
	for ; len(flat) > 2*part; flat = flat[2*part:] {
		args := append([]string{c.marker.id, flag(p.byClock), millis(c.marker.q), "0"}, flat[:2*part]...)
		m, err := s.reads(ctx, w, s, s.place().command(restoreLua, args...))
		if err == nil && (m.id != c.marker.id || m.left > 0 || m.q != c.marker.q || !m.own()) { // it was not written
			err = errOvertaken
		}
		if err != nil {
			return p, nil, err
		}
	}
	return p, flat, nil
}

// readPage reads a page of a source: counters that the plan takes, into all, and where the next page begins. A page is no
// snapshot, and need not be: docs/protocol.md, "Pages".
func (s *Seat) readPage(ctx context.Context, w *restoring, p *plan, src *source, cursor string, all map[string]int64) (next string, err error) {
	if src.of[0].terms.Shard != nil {
		return s.readSlots(ctx, p, src, cursor, all)
	}
	o := src.of[0]
	r, err := s.ask(ctx, w, o, resp.Command("HSCAN", o.place().tokens, cursor, "COUNT", strconv.Itoa(page)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.host.Name(), err)
	}
	if r.Kind != '*' || len(r.Elems) != 2 || len(r.Elems[0].Str) == 0 {
		return "", errMarker
	}
	if next = string(r.Elems[0].Str); next == "0" {
		next = ended
	}
	return next, p.take(all, r.Elems[1].Elems)
}

// takes reports whether a field of a source is restored.
func (p *plan) takes(field string) bool {
	_, counter := slotOf(field)
	return counter && (p.known || isLimit(field))
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

// take takes what the plan restores of a flat list of fields and counters: of each the greatest.
func (p *plan) take(all map[string]int64, flat []member.Reply) error {
	for ; len(flat) > 1; flat = flat[2:] {
		field := string(flat[0].Str)
		if !p.takes(field) {
			continue
		}
		n, err := strconv.ParseInt(string(flat[1].Str), 10, 64)
		if err != nil {
			return errMarker
		}
		all[field] = max(all[field], n)
	}
	return nil
}
