package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// admission is the standing of a member with the restart guard, as published. The zero value is that of
// a node without a guard.
type admission struct {
	marker    marker
	votesFrom time.Time // quarantined until then, by our monotonic clock: see reads
	lifted    time.Time // until then other clients may not know our MaxTTL
}

// unknownRun stands for a run_id that the server does not tell: restarts with memory are not seen then.
const unknownRun = "?"

// admit reads the marker of the member behind s, marks it where it must be, and returns its standing.
// It runs on the supervisor, before the session is published, and again when a generation has ended.
// While other members have not been looked at for the first time it waits for them, for as long as a
// dial may take.
func (n *Node) admit(s *session, runID string, uptime time.Duration) (admission, error) {
	g := n.cfg.Guard
	if runID == "" {
		runID = unknownRun
	}
	began := time.Now()
	searched := false
	for {
		news := g.news()
		if n.cfg.Shard != nil {
			switch err := n.settle(); {
			case err == nil:
			case clock.Elapsed(began, time.Now()) >= n.cfg.DialTimeout:
				return admission{}, err
			default: // a topology that names it is about to come
				if err := n.pauseFor(s, news, 5*time.Millisecond); err != nil {
					return admission{}, err
				}
				continue
			}
		}
		m, err := n.askMarker(n.ctx, s, n.lookCommand())
		if err != nil {
			return admission{}, err
		}
		if n.replicated() && m.role != "master" {
			if n.cfg.Shard != nil {
				n.cfg.Shard.Unknown()
			}
			return admission{}, errReplica
		}
		if n.cfg.Shard != nil && m.id == "" && runID != unknownRun && !searched {
			searched = true
			carried, err := n.stray(s, runID)
			if err != nil {
				return admission{}, err
			}
			if carried.id != "" {
				m = carried
			}
		}
		g.found(n.seat, m)
		waited := clock.Elapsed(began, time.Now())
		// Of what the clocks say the server's age gets the least: a wall clock set forward makes nothing older.
		v := g.view(n.seat, uptime+time.Since(began), waited, n.cfg.DialTimeout)
		if n.replicated() {
			v.lag = max(0, n.cfg.FailoverLag)
		}
		// Its slot was marked for this process: somebody is about to carry the marker here.
		v.young = v.young || m.id == "" && strings.HasPrefix(m.stamp, runID+" ")
		do, quarantine := decide(m, runID, v)
		if do == markLost && n.cfg.Shard != nil && m.id == "" && !m.promoted() && n.inherited(s) {
			do, quarantine, v.q = markNew, 0, g.longest()
		}
		if do == markLost || quarantine > 0 && m.promoted() {
			quarantine += n.cfg.FailoverLag
		}
		switch do {
		case accept:
			if !m.known() { // GuardOff, and another process
				if m, err = n.askMarker(n.ctx, s, n.guardCommand(renameLua, m.id, m.now)); err != nil {
					return admission{}, err
				}
			}
			return n.accepted(s, m)
		case markNew, markLost:
			return n.mark(s, m, runID, do, v.q, quarantine)
		}
		if err := n.pauseFor(s, news, 100*time.Millisecond); err != nil {
			return admission{}, err
		}
	}
}

// pauseFor waits for news, or for d, or for the end of the session or the node.
func (n *Node) pauseFor(s *session, news <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-s.broken:
		return s.cause()
	case <-n.accepting.Done():
		return n.errClosed
	}
	return nil
}

// accepted takes over a standing, and raises the q of a member that does not know how long our leases
// may be. The member votes when all others have had a ping's time to learn of it.
func (n *Node) accepted(s *session, m marker) (admission, error) {
	g := n.cfg.Guard
	var a admission
	if before := n.published.Load().admission; before.marker.id == m.id {
		a = before // of one marking, whatever the connection
	}
	if m.q < g.cfg.MaxTTL {
		lifted, err := n.askMarker(n.ctx, s, n.guardCommand(liftLua, m.id, millis(g.cfg.MaxTTL)))
		if err != nil {
			return admission{}, err
		}
		if lifted.id != m.id {
			return admission{}, errMarker
		}
		m = lifted
		n.cfg.Logger.Info("member learns of longer leases and votes after one ping", "member", n.name, "max_ttl", g.cfg.MaxTTL)
		g.event(n.name, "lifted", lifted.arrived.Add(n.cfg.PingInterval))
	}
	if r := m.raised; r >= 0 && r < n.cfg.PingInterval { // by this client or another
		a.lifted = m.arrived.Add(n.cfg.PingInterval - r)
	}
	a = a.reads(m)
	g.tell(n.seat)
	switch {
	case a.marker.state == forgot:
		n.cfg.Logger.Info("member may have forgotten, and does not vote yet", "member", n.name, "for", a.marker.left)
		g.event(n.name, "quarantined", a.votesFrom)
	case a.marker.left > 0:
		n.cfg.Logger.Info("member is used for the first time, and does not vote yet", "member", n.name, "for", a.marker.left)
		g.event(n.name, "quarantined", a.votesFrom)
	}
	return a, nil
}

// reads takes a newer reading of the marker. What is left of a quarantine runs on our monotonic clock. A later
// reading of the same marking may prolong it, by as much as its answer took or by what q was raised, and never
// shortens it: a server whose clock was set forward ends the key early, and what it says then ends nothing here.
func (a admission) reads(m marker) admission {
	if until := m.arrived.Add(m.left); m.left > 0 && until.After(a.votesFrom) {
		a.votesFrom = until
	}
	if a.lifted.After(a.votesFrom) {
		a.votesFrom = a.lifted
	}
	a.marker = m
	return a
}

// mark writes a new marker. q is what the quarantine was decided with: a greater one that was heard of meanwhile
// must be seen to be greater when the member is restored.
func (n *Node) mark(s *session, old marker, runID string, do action, q, quarantine time.Duration) (admission, error) {
	g := n.cfg.Guard
	state := forgot
	if do == markNew {
		state = neverForgot
		g.marking()
	}
	m, err := n.askMarker(n.ctx, s, n.markCommand(runID, old.now, q, quarantine, state))
	if err != nil {
		return admission{}, err
	}
	if !m.of(runID) {
		return admission{}, errMarker
	}
	if n.cfg.Shard != nil {
		if err := n.stampAll(s, m); err != nil {
			return admission{}, err
		}
	}
	g.found(n.seat, m)
	if m.q < g.cfg.MaxTTL { // marked meanwhile, by a client that does not know how long our leases may be
		return n.accepted(s, m)
	}
	g.tell(n.seat)
	a := admission{}.reads(m)
	until := time.Now().Add(m.left).Round(time.Second).Format(time.TimeOnly)
	why := "it is younger than the longest lease, so it may be one that lost everything"
	if old.promoted() {
		why = "it was a replica, so it may have taken over before what was granted had reached it"
	}
	switch {
	case m.state == forgot && old.id == "":
		n.cfg.Logger.Warn("member has no memory of its locks and does not vote yet", "member", n.name,
			"why", "it has no marker: it was emptied, or is new while not all members could be asked", "for", m.left, "until", until)
		g.event(n.name, "forgot", a.votesFrom)
	case m.state == forgot:
		n.cfg.Logger.Warn("member has restarted and does not vote yet", "member", n.name,
			"why", "it may have forgotten leases that still run", "for", m.left, "until", until)
		g.event(n.name, "forgot", a.votesFrom)
	case m.left > 0:
		n.cfg.Logger.Warn("member is used for the first time and does not vote yet", "member", n.name,
			"why", why, "for", m.left, "until", until,
			"skip", "WithFreshMembers, if nothing was ever held at these members")
		g.event(n.name, "marked", a.votesFrom)
	default:
		g.event(n.name, "marked", a.votesFrom)
	}
	return a, nil
}

// readmit ends the generation of a session: what was voted, promised or pushed before counts for
// nothing. Then it begins the next one.
func (n *Node) readmit(s *session, runID string, uptime time.Duration) error {
	n.newEra()
	n.change(func(p *published) {
		p.state.Gen++
		p.admitted = false
	})
	a, err := n.admit(s, runID, uptime)
	if err != nil {
		return err
	}
	n.change(func(p *published) { p.admission, p.admitted = a, true })
	n.signalRecheck()
	return nil
}

// looked takes what a health look found, on the supervisor. again: the generation has ended.
func (n *Node) looked(c *member.Call) (again bool) {
	p := n.published.Load()
	if c.Outcome != member.Answered {
		return c.Outcome == member.Refused
	}
	m, err := readMarker(&c.Reply, c.At)
	if err != nil || m.id != p.admission.marker.id {
		return true
	}
	if m.q < n.cfg.Guard.cfg.MaxTTL { // carried by a client that had not learnt of it
		return true
	}
	if n.replicated() && (!m.known() || m.role != "master") {
		return true
	}
	n.take(m)
	return false
}

// take publishes a newer reading of the same marker.
func (n *Node) take(m marker) {
	n.cfg.Guard.found(n.seat, m)
	n.change(func(p *published) {
		old := p.admission.marker
		// A look that was answered before the restoring may be taken after it: nothing of one id goes
		// back from whole.
		if p.admitted && old.id == m.id && !(old.state == whole && m.state == forgot) {
			p.admission = p.admission.reads(m)
		}
	})
}

// mayVote is whether the guard lets the member vote at now. Two must have ended the quarantine: the member, which
// others may have told of longer leases, and our own count of it. That count is on the monotonic clock alone,
// which leaves the most: after a suspend the member waits longer than it had to.
func (p *published) mayVote(now time.Time) bool {
	m := p.admission.marker
	return p.admitted && m.state != forgot && m.left == 0 && now.Sub(p.admission.votesFrom) >= 0
}

// lastMarker is the last reading of the member's marker, and when it was made.
func (n *Node) lastMarker() (marker, time.Time) {
	m := n.published.Load().admission.marker
	return m, m.arrived
}

// suspects reports whether a refusal means that the member may be another than it was.
func (n *Node) suspects(e *member.ReplyError) bool {
	if n.cfg.Shard != nil && e.Kind == member.KindForgot {
		return false // perhaps the slot alone: see Stamp
	}
	return e.Kind == member.KindForgot || e.Kind == member.KindLoading || strings.HasPrefix(e.Text, "READONLY")
}

// restore makes a member that forgot whole again: it collects the counters of enough members that know
// and writes the maximum of each bucket. Where they know of longer leases than whoever marked it, it prolongs the
// quarantine instead. It runs on a goroutine of serve, which waits for it. patient:
// another attempt will be made, so that too few sources are no reason yet to go on from the clocks.
func (n *Node) restore(ctx context.Context, id string, patient bool) (marker, error) {
	g := n.cfg.Guard
	sources := g.sources(ctx, n.seat)
	enough := g.enough()
	if len(sources) < enough && (patient || g.cfg.Mode == GuardStrict) {
		return marker{}, fmt.Errorf("%d members know the counters, %d are needed", len(sources), enough)
	}
	table, byClock := merge(sources, enough)
	clk := "0"
	if byClock {
		clk = "1"
	}
	q := longestOf(g.longest(), sources)
	args := []string{id, clk, millis(q)}
	if n.cfg.Shard != nil {
		if err := n.refill(ctx, id, table); err != nil {
			return marker{}, err
		}
	} else {
		for bucket, token := range table {
			args = append(args, bucket, strconv.FormatInt(token, 10))
		}
	}
	known := n.published.Load().admission.marker.q
	r, err := member.Ask(ctx, n, member.Command{Cmd: n.guardCommand(restoreLua, args...)})
	if err != nil {
		return marker{}, err
	}
	m, err := readMarker(&r, time.Now())
	if err == nil && m.id == id && m.left > 0 && m.q > known { // else its clock only runs behind ours
		n.cfg.Logger.Warn("member stays silent for longer: leases may run that are longer than was known when it was marked",
			"member", n.name, "max_ttl", m.q, "for", m.left)
		g.event(n.name, "quarantined", m.arrived.Add(m.left))
	}
	if err != nil || m.id != id || m.state != whole {
		return m, err
	}
	if byClock {
		why := "too few other members knew them"
		if len(sources) >= enough {
			why = "a member that it is restored from once found too few that knew them: counters that one lacks continue from the clock here, too"
		}
		n.cfg.Logger.Warn("member votes again, its token counters continue from the clocks", "member", n.name,
			"why", why, "buckets", len(table), "tokens_by_clock", true)
		g.event(n.name, "tokens_by_clock", time.Time{})
	} else {
		n.cfg.Logger.Info("member votes again, its token counters are restored", "member", n.name, "buckets", len(table))
		g.event(n.name, "restored", time.Time{})
	}
	return m, nil
}

// counters reads the table of a member, if it knows: its marker names the running process and it is in
// no quarantine. Marker and counters come in one step; the session proves the process.
func (n *Node) counters(ctx context.Context) (source, bool) {
	p := n.published.Load()
	if !p.state.Votes {
		return source{}, false
	}
	r, err := member.Ask(ctx, n, member.Command{Cmd: n.guardCommand(tableLua)})
	if err != nil || r.Kind != '*' || len(r.Elems) < 8 {
		return source{}, false
	}
	m, err := readMarker(&r, time.Now())
	if err != nil || m.id != p.admission.marker.id || m.state == forgot || m.left > 0 || !m.known() {
		return source{}, false
	}
	src := source{clk: m.clk, q: m.q, counters: make(map[string]int64)}
	flat := r.Elems[len(r.Elems)-1].Elems
	for i := 0; i+1 < len(flat); i += 2 {
		token, err := strconv.ParseInt(string(flat[i+1].Str), 10, 64)
		if err != nil {
			return source{}, false
		}
		src.counters[string(flat[i].Str)] = token
	}
	return src, true
}
