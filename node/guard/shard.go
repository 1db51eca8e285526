package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

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

// settle chooses the home of a master, before its marker is read.
func (s *Seat) settle() error {
	h, err := s.choose()
	if err == nil {
		s.home.Store(h)
	}
	return err
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
	now, err := s.askMarker(s.host.Context(), on, to.carryCommand(m, left, word))
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

// stray carries the marker of this process home from where resharding left it: in another slot of
// the master, because no client was there to carry it when the home became another one. If a slot
// bears the stamp of a later marking whose marker is gone, stray does not believe what it finds.
// The zero marker says that there is none.
func (s *Seat) stray(on Session, runID string) (marker, error) {
	word, err := s.announce(on, s.place().slot)
	if err != nil {
		return marker{}, err
	}
	slots := s.terms.Shard.Slots()
	cmds := make([][]byte, 0, 2*len(slots))
	for _, sl := range slots {
		cmds = append(cmds, resp.Command("HGET", slotHome(sl, s.masterID).marker, "id"), stampIn(sl))
	}
	var id string
	var at uint16
	var made, stamped int64
	i := -1
	err = s.bulk(s.host.Context(), on, cmds, func(c *member.Call) {
		i++
		found, micros := strings.CutPrefix(string(c.Reply.Str), runID+" ")
		if c.Outcome != member.Answered || !micros {
			return
		}
		when, err := strconv.ParseInt(found, 10, 64)
		switch {
		case err != nil:
		case i%2 == 1:
			stamped = max(stamped, when)
		case when > made:
			id, at, made = string(c.Reply.Str), slots[i/2], when
		}
	})
	if err != nil || id == "" || stamped > made {
		return marker{}, err
	}
	m, err := s.askMarker(s.host.Context(), on, slotHome(at, s.masterID).look)
	if err != nil || m.id != id || !m.of(runID) {
		return marker{}, err
	}
	m, err = s.askMarker(s.host.Context(), on, s.place().carryCommand(m, m.left, word))
	if err == nil && m.id != id {
		return marker{}, errMarker
	}
	if err == nil {
		s.terms.Logger.Info("marker is carried along: a slot range grew or shrank while no client was there", "member", s.host.Name(), "from", at)
	}
	return m, err
}

// stampAll writes the marker's id into every slot of the master, so that a grant which meets a new
// bucket there finds it. If the master forgot, stampAll deletes the slots' counters, because they
// are not to be trusted. While the master does not vote, no master that gets one of the slots may
// use it: see Stamp. base is that of the slots in a first deployment, else 0.
//
// A stamp says that the master was not emptied since it was marked. Nobody can see that in the step
// that stamps, since the marker is in another slot. So each stamp is announced in its slot, then the
// marker is looked at, and a slot is stamped only if the announcement is still there. A slot that
// another client has announced since stays without a stamp, and Stamp puts it right.
func (s *Seat) stampAll(on Session, m marker, base int64) error {
	slots, word := s.terms.Shard.Slots(), rand.Text()
	announced, sealed := make([][]byte, len(slots)), make([][]byte, len(slots))
	for i, sl := range slots {
		announced[i] = resp.Command("HSET", tokensOf(sl), "pending", word)
		sealed[i] = sealCommand(sl, m, word, base)
	}
	if err := s.bulk(s.host.Context(), on, announced, func(*member.Call) {}); err != nil {
		return err
	}
	now, err := s.askMarker(s.host.Context(), on, s.place().look)
	if err != nil {
		return err
	}
	if now.id != m.id || !now.known() {
		return errMarker
	}
	return s.bulk(s.host.Context(), on, sealed, func(*member.Call) {})
}

// unbase takes the bases of all slots of the master away: what the slots lack begins at the server's time.
func (s *Seat) unbase(on Session) error {
	slots := s.terms.Shard.Slots()
	cmds := make([][]byte, len(slots))
	for i, sl := range slots {
		cmds[i] = resp.Command("HDEL", tokensOf(sl), baseField)
	}
	var bad error
	err := s.bulk(s.host.Context(), on, cmds, func(c *member.Call) {
		var refused *member.ReplyError
		if c.Outcome != member.Answered && !(errors.As(c.Err, &refused) && refused.Kind == member.KindCluster) { // that slot is another master's
			bad = c.Err
		}
	})
	if err == nil {
		err = bad
	}
	return err
}

// announce announces that a marker will be carried to a slot, and returns the word to do that with.
// The master must be seen to remember after that: then it was not emptied before the announcement,
// and if the announcement is still there when the marker is carried, it was not emptied since.
func (s *Seat) announce(on Session, to uint16) (word string, err error) {
	err = s.bulk(s.host.Context(), on, [][]byte{announceCommand(to, rand.Text())}, func(c *member.Call) {
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
	err = s.bulk(s.host.Context(), on, cmds, func(c *member.Call) {
		found = found || c.Outcome == member.Answered && string(c.Reply.Str) == id
	})
	return found, err
}

// bulk puts many small commands to the server, some at a time. Each command may be refused by
// itself.
func (s *Seat) bulk(ctx context.Context, on Session, cmds [][]byte, each func(c *member.Call)) error {
	for len(cmds) > 0 {
		part := cmds[:min(len(cmds), 1024)]
		cmds = cmds[len(part):]
		ctx, cancel := context.WithTimeout(ctx, s.terms.Patience)
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

// inherited reports whether a master without a marker has all its slots from masters that remember,
// by the stamps in them: it is new in the cluster, and forgot nothing. inherited looks at those
// masters once more, so that its q is no less than theirs: leases came with the slots. A replica
// that took over has the stamps of a master that is none any more, perhaps without our knowing: see
// promoted.
func (s *Seat) inherited(on Session) bool {
	good := make(map[string]bool)
	for _, o := range s.guard.masters(s.terms.Shard.Group) {
		at := o.host.Now()
		if o == s || !at.State.Votes || !at.Standing.admitted {
			continue
		}
		ctx, cancel := context.WithTimeout(s.host.Context(), s.terms.Patience)
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
	err := s.bulk(s.host.Context(), on, cmds, func(c *member.Call) {
		all = all && c.Outcome == member.Answered && good[string(c.Reply.Str)]
	})
	return err == nil && all
}

// slotCounters reads the counters of every slot of the master.
func (s *Seat) slotCounters(ctx context.Context, into map[string]int64) error {
	at := s.host.Now()
	if !at.State.Votes {
		return member.ErrDown
	}
	slots := s.terms.Shard.Slots()
	cmds := make([][]byte, len(slots))
	for i, sl := range slots {
		cmds[i] = resp.Command("HGETALL", tokensOf(sl))
	}
	var bad error
	i := -1
	err := s.bulk(ctx, at.Session, cmds, func(c *member.Call) {
		i++
		switch {
		case c.Outcome != member.Answered:
			bad = c.Err
		default:
			for e := c.Reply.Elems; len(e) > 1; e = e[2:] {
				field := string(e[0].Str)
				if of, ok := slotOf(field); !ok || of != slots[i] { // the stamp
					continue
				}
				token, err := strconv.ParseInt(string(e[1].Str), 10, 64)
				if err != nil {
					bad = errMarker
				}
				into[field] = token
			}
		}
	})
	if err == nil {
		err = bad
	}
	return err
}

// refill raises the counters of a master's slots to a table, each slot only while it has the stamp
// of the marking that the table was made for.
func (s *Seat) refill(ctx context.Context, id string, table map[string]int64) error {
	var cmds [][]byte
	of := make(map[uint16][]string)
	for field, token := range table {
		if sl, ok := slotOf(field); ok {
			of[sl] = append(of[sl], field, strconv.FormatInt(token, 10))
		}
	}
	for _, sl := range s.terms.Shard.Slots() {
		if fields := of[sl]; fields != nil {
			cmds = append(cmds, refillCommand(sl, id, fields))
		}
	}
	on := s.host.Now().Session
	if on == nil {
		return member.ErrDown
	}
	var bad error
	err := s.bulk(ctx, on, cmds, func(c *member.Call) {
		if c.Outcome != member.Answered {
			bad = c.Err
		} else if c.Reply.Int != 1 {
			bad = errMarker
		}
	})
	if err == nil {
		err = bad
	}
	return err
}
