package guard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// Shard makes a member one master of a Redis Cluster, which is one member together with the others.
// What a plain member keeps once, a master keeps per slot it serves, so that it moves with the
// slot:
//
//	member.TokensKey:{t}              the slot's counters, and `id`, the marker id it was stamped with
//	member.MarkerKey:{t}:<node id>    the master's marker, in one of its slots (its home)
//	redquorum:quarantine:{t}:<node id>
//
// t is slot.TagOf the slot. The memory of a master is that of its process and of its replication
// id: a promotion changes the latter.
type Shard struct {
	// Group is the member's, shared by its masters.
	Group *Group
	// Slots returns the slots that the master is known to serve, ascending. It returns nil while
	// that is not known.
	Slots func() []uint16
	// Unknown is called when the guard cannot tell what the master is good for: Slots knows nothing
	// of it, or the server disagrees. It must not block.
	Unknown func()
}

func (s *Shard) group() *Group {
	if s == nil {
		return nil
	}
	return s.Group
}

// Group is what the masters of one Redis Cluster share.
type Group struct {
	era    atomic.Uint64 // generation of the member: grows before any master of it begins a new one
	epochs atomic.Uint64 // connections, so that no two masters have the same epoch
	// Changed is called when the era has grown: inboxes of earlier ones count for nothing.
	Changed func()
	// Masters is how many masters serve slots, 0 while that is not known.
	Masters func() int

	mu      sync.Mutex       // a leaf
	covered [slot.Count]bool // slots of masters that had a marker
	lonely  time.Time        // since when too few members tell how long a slot must rest; zero: enough did
	last    time.Time        // when that was found last
}

// Era is the generation of the member.
func (g *Group) Era() uint64 { return g.era.Load() }

// patient reports whether other members are still waited for: for a ping, as at a restore.
func (g *Group) patient(ping time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lonely.IsZero() || time.Since(g.last) > 10*ping {
		g.lonely = time.Now()
	}
	g.last = time.Now()
	return time.Since(g.lonely) < ping
}

// asked books that other members were asked, and whether enough of them told.
func (g *Group) asked(enough bool) {
	if enough {
		g.mu.Lock()
		g.lonely = time.Time{}
		g.mu.Unlock()
	}
}

// cover notes that the master of these slots has a marker.
func (g *Group) cover(slots []uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range slots {
		g.covered[s] = true
	}
}

// covers reports whether a master of one of these slots had a marker: if there is none now, it
// forgot.
func (g *Group) covers(slots []uint16) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(slots, func(s uint16) bool { return g.covered[s] })
}

// Leave gives the seat of a master back that is no longer one of its cluster, once. The host's
// goroutines have ended. Any other member keeps its seat.
func (s *Seat) Leave() {
	if s.terms.Shard == nil {
		return
	}
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seats = slices.DeleteFunc(g.seats, func(o *Seat) bool { return o == s })
}

// Fell is told that the member is down. A majority of the others may have been met without it.
func (s *Seat) Fell() {
	if s.guard != nil {
		s.guard.meet()
	}
}

// heard adopts a greater q that was read elsewhere.
func (g *Guard) heard(q time.Duration) {
	g.mu.Lock()
	g.q = max(g.q, q)
	g.mu.Unlock()
}

// masters are the seats of a cluster.
func (g *Guard) masters(of *Group) (out []*Seat) {
	for _, s := range g.others() {
		if s.terms.Shard.group() == of && !s.host.Closing() {
			out = append(out, s)
		}
	}
	return out
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
	var sources []source
	all := 0
	s.eachOther(func(of []*Seat, masters int) {
		knows, waits := heard(of, masters)
		if knows {
			src, err := s.know(ctx, &restoring{}, of)
			if knows = err == nil; knows {
				sources = append(sources, src)
			}
		}
		if knows || waits {
			all++
		}
	})
	few := len(sources) < enoughSources(g.cfg.Members)
	if few && (g.cfg.Mode == Strict || all < g.cfg.Members-1 && t.Shard.Group.patient(t.Ping)) {
		return 0, forgotten("slot: it came from a master that forgot, and too few members tell for how long")
	}
	t.Shard.Group.asked(!few)
	return send(longestOf(g.longest(), sources), true)
}

// Epoch numbers the connection behind the one with the number old.
func (s *Seat) Epoch(old uint64) uint64 {
	if group := s.terms.Shard.group(); group != nil {
		return group.epochs.Add(1)
	}
	return old + 1
}

// NewEra is called before a new generation of the member is published.
func (s *Seat) NewEra() {
	if group := s.terms.Shard.group(); group != nil {
		group.era.Add(1)
		group.Changed()
	}
}

// Era is that of the cluster, and 0 for any other member.
func (s *Seat) Era() uint64 {
	if group := s.terms.Shard.group(); group != nil {
		return group.Era()
	}
	return 0
}

// HomeSlot is the slot of a master's marker. ok is false at any other member, and before the marker
// was looked for.
func (s *Seat) HomeSlot() (slot uint16, ok bool) {
	if h := s.home.Load(); h != nil {
		return h.slot, true
	}
	return 0, false
}

// choose is the home that a master should have by the slots it serves now: the one it has, or another.
func (s *Seat) choose() (*home, error) {
	slots := s.terms.Shard.Slots()
	if len(slots) == 0 {
		s.terms.Shard.Unknown()
		return nil, errSlots
	}
	at, h := homeOf(slots), s.home.Load()
	if h == nil || h.slot != at {
		h = slotHome(at, s.masterID)
	}
	return h, nil
}

// settle chooses the home of a master, before its marker is read. It waits for the topology.
func (s *Seat) settle(on Session) error {
	for began := time.Now(); !s.alone(); {
		h, err := s.choose()
		if err == nil {
			s.home.Store(h)
			return nil
		}
		if clock.Elapsed(began, time.Now()) >= s.terms.Patience {
			return err
		}
		if err := on.Pause(s.guard.news(), 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// misplaced tells the cluster that the topology does not fit this server.
func (s *Seat) misplaced() {
	if !s.alone() {
		s.terms.Shard.Unknown()
	}
}

// inherited reports whether a master without a marker has all that it has from masters that remember.
func (s *Seat) inherited(on Session, m marker) bool {
	return !s.alone() && m.id == "" && !m.promoted() && s.inherits(on)
}

// cover notes that the slots of a master were those of one with a marker, and covered reports whether one of them was.
func (s *Seat) cover() {
	if !s.alone() {
		s.terms.Shard.Group.cover(s.terms.Shard.Slots())
	}
}

func (s *Seat) covered() bool {
	return !s.alone() && s.terms.Shard.Group.covers(s.terms.Shard.Slots())
}

// followed follows up a look at a master: one that was sent elsewhere, and one after which the marker must be carried along. If
// done is true, nothing is left to do.
func (s *Seat) followed(w *Watch, c *member.Call) (done bool, err error) {
	switch {
	case s.alone():
	case c.Outcome == member.Refused:
		return s.refused(w, c)
	case c.Outcome == member.Answered:
		w.lost = 0
		return s.moved(w.session)
	}
	return false, nil
}

func (s *Seat) refused(w *Watch, c *member.Call) (done bool, err error) {
	if e, ok := c.Err.(*member.ReplyError); !ok || e.Kind != member.KindCluster {
		return s.moved(w.session)
	}
	s.terms.Shard.Unknown() // the marker's slot is elsewhere, or nowhere for a moment
	if done, err := s.moved(w.session); done || len(s.terms.Shard.Slots()) == 0 {
		return done, err
	}
	w.soon = time.Now().Add(min(s.terms.Ping, 20*time.Millisecond))
	if w.lost++; w.lost < 50 {
		return true, nil
	}
	return true, errSlots
}

// moved carries the marker along if the slots that the master serves ask for another home.
func (s *Seat) moved(on Session) (done bool, err error) {
	if slots := s.terms.Shard.Slots(); len(slots) == 0 || homeOf(slots) == s.home.Load().slot {
		return false, nil
	}
	return true, s.rehome(on)
}

// errSlots: a topology that names this master must come first.
var errSlots = fmt.Errorf("%w: the server is not known to serve any slot", member.ErrConnecting)

// groupsUnmarkedLocked counts the clusters whose masters' first looks all found no marker.
func (g *Guard) groupsUnmarkedLocked() (count int) {
	masters := make(map[*Group]int)
	for _, s := range g.seats {
		switch group := s.terms.Shard.group(); {
		case group != nil && s.contact == unmarked && masters[group] >= 0:
			masters[group]++
		case group != nil && s.contact == marked:
			masters[group] = -1
		}
	}
	for group, n := range masters {
		if want := group.Masters(); want > 0 && n >= want {
			count++
		}
	}
	return count
}

// groupsToldLocked counts the clusters that know of our MaxTTL: all masters do that serve slots and can be reached.
func (g *Guard) groupsToldLocked() (count int) {
	clusters := make(map[*Group]bool)
	for _, s := range g.seats {
		group := s.terms.Shard.group()
		switch all, met := clusters[group]; {
		case group == nil || s.host.Closing():
		case s.told:
			clusters[group] = all || !met
		case len(s.terms.Shard.Slots()) > 0 && errors.Is(s.host.Now().State.Err, member.ErrConnecting):
			clusters[group] = false
		}
	}
	for _, all := range clusters {
		if all {
			count++
		}
	}
	return count
}

// eachGroup calls each for each cluster but the seat's own, with the seats of its masters, and how many serve slots.
func (s *Seat) eachGroup(each func(of []*Seat, masters int)) {
	own := s.terms.Shard.group()
	var clusters []*Group
	masters := make(map[*Group][]*Seat)
	for _, o := range s.guard.others() {
		group := o.terms.Shard.group()
		if group == nil || group == own || o.host.Closing() {
			continue
		}
		if masters[group] == nil {
			clusters = append(clusters, group)
		}
		masters[group] = append(masters[group], o)
	}
	for _, group := range clusters {
		each(masters[group], group.Masters())
	}
}

// rehome carries the marker along when the slot that it is in was given away. Others look for the marker at its
// old place until it is at the new one: a Stamp that found none would say that the master forgot.
func (s *Seat) rehome(on Session) error {
	to, err := s.choose()
	if err != nil || to == s.home.Load() {
		return err
	}
	a := s.host.Now().Standing
	if !a.admitted {
		s.home.Store(to)
		return nil
	}
	m := a.marker
	m.raised = 0                                                          // we looked a ping ago
	left := max(0, m.left-time.Since(m.arrived), time.Until(a.votesFrom)) // of the quarantine
	word, err := s.announce(on, to.slot)
	if err != nil {
		return err
	}
	switch found, err := s.remembers(on, m.id); {
	case err != nil:
		return err
	case !found:
		return errMarker
	}
	now, err := s.askMarker(on, to.carryCommand(m, left, word))
	if err != nil {
		return err
	}
	if now.id != m.id {
		return errMarker
	}
	s.home.Store(to)
	s.take(now)
	s.host.Recheck() // the sharded inbox goes along
	return nil
}

// stampAll writes the marker's id into every slot of the master, so that a grant which meets a new
// bucket there finds it. If the master forgot, stampAll deletes the slots' counters, because they
// are not to be trusted. While the master does not vote, no master that gets one of the slots may
// use it: see Stamp.
//
// A stamp says that the master was not emptied since it was marked. Nobody can see that in the step
// that stamps, since the marker is in another slot. So each stamp is announced in its slot, then the
// marker is looked at, and a slot is stamped only if the announcement is still there. A slot that
// another client has announced since stays without a stamp, and Stamp puts it right.
func (s *Seat) stampAll(on Session, m marker) error {
	if s.alone() {
		return nil
	}
	slots, word := s.terms.Shard.Slots(), rand.Text()
	announced, sealed := make([][]byte, len(slots)), make([][]byte, len(slots))
	for i, sl := range slots {
		announced[i] = resp.Command("HSET", tokensOf(sl), "pending", word)
		sealed[i] = sealCommand(sl, m, word)
	}
	if err := s.bulk(s.host.Context(), on, "announced stamps", announced, func(*member.Call) {}); err != nil {
		return err
	}
	now, err := s.askMarker(on, s.place().look)
	if err != nil {
		return err
	}
	if now.id != m.id || !now.known() {
		return errMarker
	}
	return s.bulk(s.host.Context(), on, "stamps of its slots", sealed, func(*member.Call) {})
}

// announce announces that a marker will be carried to a slot, and returns the word to do that with.
// The master must be seen to remember after that: then it was not emptied before the announcement,
// and if the announcement is still there when the marker is carried, it was not emptied since.
func (s *Seat) announce(on Session, to uint16) (word string, err error) {
	err = s.bulk(s.host.Context(), on, "an announced marker", [][]byte{announceCommand(to, rand.Text())}, func(c *member.Call) {
		if c.Outcome == member.Answered {
			word = string(c.Reply.Str)
		}
	})
	return word, err
}

// remembers reports whether a slot of the master has the stamp of the marking id.
func (s *Seat) remembers(on Session, id string) (found bool, err error) {
	var cmds [][]byte
	for _, sl := range s.terms.Shard.Slots() {
		cmds = append(cmds, stampIn(sl))
	}
	err = s.bulk(s.host.Context(), on, "a look at its stamps", cmds, func(c *member.Call) {
		found = found || c.Outcome == member.Answered && string(c.Reply.Str) == id
	})
	return found, err
}

// bulk puts many small commands to the server, some at a time: what they are, an error says. Each command may be refused by
// itself.
func (s *Seat) bulk(ctx context.Context, on Session, what string, cmds [][]byte, each func(c *member.Call)) error {
	for len(cmds) > 0 {
		part := cmds[:min(len(cmds), 1024)]
		cmds = cmds[len(part):]
		ctx, cancel := resp.Within(ctx, s.terms.Patience, what)
		calls, err := on.Ask(ctx, part)
		cancel()
		if err != nil {
			return err
		}
		for i := range calls {
			each(&calls[i])
		}
	}
	return nil
}

// inherits reports whether a master without a marker has all its slots from masters that remember,
// by the stamps in them: it is new in the cluster, and forgot nothing. inherits looks at those
// masters once more, so that its q is no less than theirs: leases came with the slots. A replica
// that took over has the stamps of a master that is none any more, perhaps without our knowing: see
// promoted.
func (s *Seat) inherits(on Session) bool {
	good := make(map[string]bool)
	for _, o := range s.guard.masters(s.terms.Shard.Group) {
		at := o.host.Now()
		if o == s || !at.State.Votes || !at.Standing.admitted {
			continue
		}
		ctx, cancel := resp.Within(s.host.Context(), s.terms.Patience, "a look at its marker")
		r, err := o.host.Ask(ctx, o.place().look)
		cancel()
		if err != nil {
			continue
		}
		if m, err := readMarker(&r, time.Now()); err == nil && m.id == at.Standing.marker.id {
			s.guard.heard(m.q)
			good[m.id] = true
		}
	}
	var cmds [][]byte
	for _, sl := range s.terms.Shard.Slots() {
		cmds = append(cmds, stampIn(sl))
	}
	all := len(cmds) > 0 && len(good) > 0
	err := s.bulk(s.host.Context(), on, "a look at its stamps", cmds, func(c *member.Call) {
		all = all && c.Outcome == member.Answered && good[string(c.Reply.Str)]
	})
	return err == nil && all
}

// slotPage is how many slots of a cluster are read in one step. Each of them has few counters.
const slotPage = 512

// readSlots is readPage for a cluster: the counters of a range of slots, from all its masters.
func (s *Seat) readSlots(ctx context.Context, p *plan, src *source, cursor string, all map[string]int64) (next string, err error) {
	from, err := strconv.Atoi(cursor)
	if err != nil {
		return "", errMarker
	}
	to := min(from+slotPage, slot.Count)
	slots := func() [][]uint16 {
		of := make([][]uint16, len(src.of))
		for i, o := range src.of {
			for _, sl := range o.terms.Shard.Slots() {
				if int(sl) >= from && int(sl) < to {
					of[i] = append(of[i], sl)
				}
			}
		}
		return of
	}
	of := slots()
	for i, again := range slots() {
		if !slices.Equal(of[i], again) { // a slot has moved, and may be in neither list
			return "", errSlots
		}
	}
	for i, o := range src.of {
		if err := o.slotCounters(ctx, p, of[i], all); err != nil {
			return "", fmt.Errorf("%s: %w", o.host.Name(), err)
		}
	}
	if to == slot.Count {
		return ended, nil
	}
	return strconv.Itoa(to), nil
}

// slotCounters reads the counters of slots of the master.
func (s *Seat) slotCounters(ctx context.Context, p *plan, slots []uint16, all map[string]int64) error {
	at := s.host.Now()
	if !at.State.Votes {
		return member.ErrDown
	}
	cmds := make([][]byte, len(slots))
	for i, sl := range slots {
		cmds[i] = resp.Command("HGETALL", tokensOf(sl))
	}
	var bad error
	i := -1
	err := s.bulk(ctx, at.Session, "a read of its counters", cmds, func(c *member.Call) {
		i++
		if c.Outcome != member.Answered {
			bad = c.Err
			return
		}
		for flat := c.Reply.Elems; len(flat) > 1; flat = flat[2:] {
			if of, _ := slotOf(string(flat[0].Str)); of == slots[i] {
				bad = cmp.Or(bad, p.take(all, flat[:2]))
			}
		}
	})
	return cmp.Or(err, bad)
}

// refill raises the counters of a master's slots, each slot only while it has the stamp of the marking
// that they were read for.
func (s *Seat) refill(ctx context.Context, id string, p *plan, all map[string]int64) error {
	var cmds [][]byte
	of := make(map[uint16][]string)
	for field, n := range all {
		sl, _ := slotOf(field)
		of[sl] = append(of[sl], field, strconv.FormatInt(n, 10))
	}
	for _, sl := range s.terms.Shard.Slots() {
		if fields := of[sl]; fields != nil {
			cmds = append(cmds, refillCommand(sl, id, p, fields))
		}
	}
	on := s.host.Now().Session
	if on == nil {
		return member.ErrDown
	}
	var bad error
	err := s.bulk(ctx, on, "counters to restore", cmds, func(c *member.Call) {
		if c.Outcome != member.Answered {
			bad = c.Err
		} else if c.Reply.Int != 1 {
			bad = errMarker
		}
	})
	return cmp.Or(err, bad)
}
