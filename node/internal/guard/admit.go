package guard

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/member"
)

// askMarker sends one of the guard's commands and reads the marker it returns.
func (s *Seat) askMarker(on Session, cmd []byte) (marker, error) {
	calls, err := s.askOn(on, cmd)
	if err == nil && calls[0].Outcome != member.Answered {
		err = calls[0].Err
	}
	if err != nil {
		return marker{}, fmt.Errorf("marker: %w", err)
	}
	return readMarker(&calls[0].Reply, calls[0].At)
}

// Admit reads the marker of the member on a new session, marks the member if it must be marked, and
// returns its standing. Admit runs before the session is published, and again when a generation has
// ended. While the client has not looked at the other members for the first time, Admit waits for
// them for up to Terms.Patience. Without a guard the standing is the zero value.
func (s *Seat) Admit(on Session, p Process) (Standing, error) {
	switch {
	case s.guard == nil:
		return Standing{}, nil
	case p.RunID == "":
		return Standing{}, errNameless
	}
	a, err := s.admit(on, p)
	if err == errReplica {
		err = errTakesNoWrites
	}
	return a, err
}

func (s *Seat) admit(on Session, p Process) (Standing, error) {
	g, runID, began := s.guard, p.RunID, time.Now()
	s.masterID = p.MasterID
	for {
		news := g.news()
		if err := s.settle(on); err != nil {
			return Standing{}, err
		}
		asked := time.Now()
		m, err := s.askMarker(on, s.place().look)
		if err != nil {
			return Standing{}, err
		}
		s.looked.Store(&asked)
		if err := s.demoted(m); err != nil {
			return Standing{}, err
		}
		if s.alone() && m.names(runID) && m.renamed() && m.repl == "" { // of a former version
			if m, err = s.rename(on, m); err != nil {
				return Standing{}, err
			}
		}
		s.finds(m)
		v := s.view()
		if s.early(m, runID, v, began) {
			if err := on.Pause(news, 100*time.Millisecond); err != nil {
				return Standing{}, err
			}
			continue
		}
		do, quarantine := decide(m, runID, v)
		if do == markLost && s.inherited(on, m) {
			do, quarantine, v.q = markNew, 0, g.longest()
		}
		if do != accept {
			return s.mark(on, m, runID, do, v.q, quarantine)
		}
		if !m.known() { // Off, and another process
			if m, err = s.rename(on, m); err != nil {
				return Standing{}, err
			}
		}
		a, err := s.admits(on, m)
		s.tellAccepted(a)
		return a, err
	}
}

// demoted is an error if the server is a replica: it gives no vote, and its memory is about to be replaced.
func (s *Seat) demoted(m marker) error {
	switch {
	case m.role == "":
		return errNoRole
	case m.follows():
		s.misplaced()
		return errReplica
	}
	return nil
}

// rename notes a replication id that changed without a promotion, or that a former version did not note.
func (s *Seat) rename(on Session, m marker) (marker, error) {
	now, err := s.askMarker(on, s.place().command(renameLua, m.id, m.now))
	if err == nil && (now.id != m.id || !now.known()) {
		err = errMarker
	}
	return now, err
}

// admits takes over a marker. If the member does not know how long our leases may be, admits
// raises its q. The member votes when all other clients have had the time to learn of it.
func (s *Seat) admits(on Session, m marker) (a Standing, err error) {
	if before := s.host.Now().Standing; before.marker.id == m.id {
		a = before // of one marking, whatever the connection
	}
	learn := s.terms.learn()
	if id, q := m.id, s.guard.cfg.MaxTTL; m.q < q {
		if m, err = s.askMarker(on, s.place().command(liftLua, id, millis(q))); err != nil {
			return Standing{}, err
		}
		if m.id != id {
			return Standing{}, errMarker
		}
		s.tellLifted(m, learn)
	}
	if r := m.raised; r >= 0 && r < learn { // by this client or another
		a = a.until(m.arrived.Add(learn - r))
	}
	s.tell()
	a.admitted = true
	return a.reads(m), nil
}

// mark writes a new marker. q is what the quarantine was decided with. If the client heard of a greater one
// meanwhile, the restoring must see that it is greater.
func (s *Seat) mark(on Session, old marker, runID string, do action, q, quarantine time.Duration) (Standing, error) {
	state := forgot
	if do == markNew {
		state = neverForgot
		s.guard.marks()
	}
	m, err := s.askMarker(on, s.place().markCommand(runID, old.now, q, quarantine, state))
	if err != nil {
		return Standing{}, err
	}
	if !m.of(runID) {
		return Standing{}, errMarker
	}
	if err := s.stampAll(on, m); err != nil {
		return Standing{}, err
	}
	s.finds(m)
	s.tellMarked(old, m)
	return s.admits(on, m) // another client may have marked it meanwhile, which does not know how long our leases may be
}

// lapse ends the generation of a session: what was voted, promised or pushed before counts for
// nothing.
func (s *Seat) lapse() {
	if !s.host.Now().Standing.admitted {
		return // by the look that found it
	}
	s.NewEra()
	s.host.Publish(func(gen *uint64, a *Standing) {
		*gen++
		a.admitted = false
	})
}

// readmit ends the generation of a session, and begins the next one.
func (s *Seat) readmit(on Session, p Process) error {
	s.lapse()
	next, err := s.admit(on, p)
	if err != nil {
		return err
	}
	s.host.Publish(func(_ *uint64, a *Standing) { *a = next })
	s.host.Recheck()
	return nil
}

// take publishes a newer reading of the same marker.
func (s *Seat) take(m marker) {
	s.finds(m)
	s.host.Publish(func(_ *uint64, a *Standing) { *a = a.takes(m) })
}
