package guard

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/member"
)

var (
	// errReplica: the server became a replica, or was one all along.
	errReplica = errors.New("the server is a replica")
	// errTakesNoWrites is the same of a session that had no calls: nothing was executed.
	errTakesNoWrites = fmt.Errorf("%w: %w", errReplica, &member.ReplyError{Kind: member.KindReadOnly, Text: "READONLY it takes no writes"})
	// errNameless and errNoRole: nobody would see that it restarted, or that other data have replaced its own.
	errNameless = errors.New("the server does not say which process it is: INFO server")
	errNoRole   = errors.New("the server does not say whether it is a master: INFO replication")
)

// barred says why a member gives no vote that is up, and until when. fit: its quarantine is over.
func (a Standing) barred(name string, fit bool) (until time.Time, err error) {
	if fit {
		return time.Time{}, fmt.Errorf("%s: it does not vote before a majority of the members was met: %w", name, member.ErrConnecting)
	}
	return a.votesFrom, fmt.Errorf("%s: %w", name, &member.QuarantineError{Until: a.votesFrom, Restoring: a.marker.state == forgot})
}

// Event is one step of the restart guard at one member.
type Event struct {
	Member string
	Step   string // "marked", "forgot", "quarantined", "lifted", "restored", "tokens_by_clock"
	Until  time.Time
}

// tellMarked logs what a marking means for the member.
func (s *Seat) tellMarked(old, m marker) {
	var votesFrom time.Time
	if m.left > 0 {
		votesFrom = m.arrived.Add(m.left)
	}
	log, name := s.terms.Logger, s.host.Name()
	process, _, _ := strings.Cut(m.id, " ")
	until := time.Now().Add(m.left).Round(time.Second).Format(time.TimeOnly)
	why := "no member has a marker, so it may be one that lost everything"
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
			"next_time", "redlock init --fresh, or Config.FreshMembers, before any other client, if nothing was ever held there")
		s.event("marked", votesFrom)
	default:
		s.event("marked", votesFrom)
	}
}

// tellLifted logs that the member was told of longer leases, which others learn of in that time.
func (s *Seat) tellLifted(m marker, learn time.Duration) {
	s.terms.Logger.Info("member learns of longer leases, and votes when other clients have", "member", s.host.Name(), "max_ttl", m.q, "for", learn)
	s.event("lifted", m.arrived.Add(learn))
}

// tellAccepted logs why a member that was marked before does not vote yet.
func (s *Seat) tellAccepted(a Standing) {
	log, name := s.terms.Logger, s.host.Name()
	switch {
	case a.marker.state == forgot:
		log.Info("member may have forgotten, and does not vote yet", "member", name, "for", a.marker.left)
	case a.marker.left > 0:
		log.Info("member is used for the first time, and does not vote yet", "member", name, "for", a.marker.left)
	default:
		return
	}
	s.event("quarantined", a.votesFrom)
}

// tellProlonged logs that a restore found a longer quarantine than that of the marking old.
func (s *Seat) tellProlonged(old, m marker) {
	if m.id == old.id && m.left > 0 && m.q > old.q {
		s.terms.Logger.Warn("member stays silent for longer: leases may run that are longer than was known when it was marked",
			"member", s.host.Name(), "max_ttl", m.q, "for", m.left)
		s.event("quarantined", m.arrived.Add(m.left))
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
