package guard

import (
	"strings"
	"time"
)

// Event is one step of the restart guard at one member.
type Event struct {
	Member string
	Step   string // "marked", "forgot", "quarantined", "lifted", "restored", "tokens_by_clock"
	Until  time.Time
}

// tellMarked logs what a marking means for the member.
func (s *Seat) tellMarked(old, m marker, votesFrom time.Time) {
	log, name := s.terms.Logger, s.host.Name()
	process, _, _ := strings.Cut(m.id, " ")
	until := time.Now().Add(m.left).Round(time.Second).Format(time.TimeOnly)
	why := "it is younger than the longest lease, so it may be one that lost everything"
	if old.promoted() {
		why = "it was a replica, so it may have taken over before what was granted had reached it"
	}
	switch {
	case m.state == forgot && old.id == "":
		log.Warn("member has no memory of its locks and does not vote yet", "member", name,
			"why", "it has no marker: it was emptied, or is new while not all members could be asked", "for", m.left, "until", until)
		s.event("forgot", votesFrom)
	case m.state == forgot && old.names(process):
		log.Warn("member was a replica and does not vote yet", "member", name,
			"why", "what it has may be a copy without leases that still run", "for", m.left, "until", until)
		s.event("forgot", votesFrom)
	case m.state == forgot:
		log.Warn("member has restarted and does not vote yet", "member", name,
			"why", "it may have forgotten leases that still run", "for", m.left, "until", until)
		s.event("forgot", votesFrom)
	case m.left > 0:
		log.Warn("member is used for the first time and does not vote yet", "member", name,
			"why", why, "for", m.left, "until", until,
			"skip", "Config.FreshMembers, if nothing was ever held at these members")
		s.event("marked", votesFrom)
	default:
		s.event("marked", votesFrom)
	}
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

// event tells Config.Event of a step.
func (s *Seat) event(step string, until time.Time) {
	if g := s.guard; g.cfg.Event != nil {
		g.cfg.Event(Event{Member: s.host.Name(), Step: step, Until: until})
	}
}
