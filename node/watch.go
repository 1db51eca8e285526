package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// guardWatch is the guard's part of serve, for one session: the look at the marker every PingInterval,
// the end of a quarantine, the restoring of counters. Without a guard it does nothing. It is the
// supervisor's; the only other goroutine is that of a restore, which stop waits for.
type guardWatch struct {
	n *Node
	s *session

	look  member.Call
	looks chan *member.Call // capacity 1: the look is done
	next  time.Time         // of the next look
	busy  bool              // a look is in line
	lost  int               // looks in a row that were sent elsewhere
	calm  time.Time         // not before is a suspicion followed up again
	sent  time.Time         // when the look was

	ctx       context.Context
	cancel    context.CancelFunc
	work      sync.WaitGroup
	restored  chan struct{} // capacity 1: a restore has ended
	restoring bool
	retry     time.Time // of the next restore
	slow      int       // restores that took longer than they were given
	since     time.Time // of the first restore that did not succeed

	seeking, seekMore bool
	sought            chan bool // capacity 1: whether this is still the master, by its Sentinels
}

// watch begins to guard s.
func (n *Node) watch(s *session) *guardWatch {
	w := &guardWatch{n: n, s: s, looks: make(chan *member.Call, 1), restored: make(chan struct{}, 1), sought: make(chan bool, 1)}
	w.ctx, w.cancel = context.WithCancel(n.ctx)
	w.next = time.Now().Add(n.cfg.PingInterval)
	return w
}

func (w *guardWatch) stop() {
	w.cancel()
	w.work.Wait()
}

// Done implements member.Sink for the look.
func (w *guardWatch) Done(c *member.Call) {
	w.n.toldTime(c, w.sent)
	w.looks <- c
}

// tick does what is due and returns the time until more is.
func (w *guardWatch) tick(now time.Time) time.Duration {
	n := w.n
	if n.cfg.Guard == nil {
		return time.Hour
	}
	wait := n.cfg.PingInterval
	if until := clock.Until(w.next, now); until > 0 {
		wait = min(wait, until)
	} else if !w.busy {
		w.busy, w.sent = true, time.Now()
		w.look = *ownCall(n.lookCommand(), w)
		if w.s.submit(&w.look, true) != nil {
			return wait // broken: serve ends by that
		}
	}
	p := n.published.Load()
	if !p.admitted || p.state.Votes {
		return wait
	}
	n.cfg.Guard.tell(n.seat)               // of a cluster, masters may have been found to be down since
	left := p.admission.votesFrom.Sub(now) // on the monotonic clock: see mayVote
	switch {
	case left > 0:
		w.since = time.Time{}
		return min(wait, left)
	case p.admission.marker.state != forgot && p.admission.marker.left > 0:
		// The quarantine is over by our count. The member must say so, too: q may have been raised since.
		if !w.busy && w.sent.Before(p.admission.votesFrom) {
			w.next = now
			return 0
		}
		return wait
	case p.admission.marker.state != forgot:
		n.change(func(*published) {}) // the quarantine is over: Votes is computed anew
		return wait
	case w.restoring:
		return wait
	}
	if until := clock.Until(w.retry, now); until > 0 {
		return min(wait, until)
	}
	w.restore(p.admission.marker.id, now)
	return wait
}

// seek asks the Sentinels whether this is still the master: one question at a time, and once more if they
// had something new to say meanwhile.
func (w *guardWatch) seek() {
	if w.seeking {
		w.seekMore = true
		return
	}
	w.seeking = true
	w.work.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, w.n.cfg.DialTimeout)
		defer cancel()
		w.sought <- w.n.stillMaster(ctx, w.s)
	})
}

// found takes the answer.
func (w *guardWatch) found(still bool) error {
	w.seeking = false
	if !still {
		return errSwitched
	}
	if w.seekMore {
		w.seekMore = false
		w.seek()
	}
	return nil
}

// restore starts one attempt to restore the counters.
func (w *guardWatch) restore(id string, now time.Time) {
	n := w.n
	if w.since.IsZero() {
		w.since = now
	}
	patient := now.Sub(w.since) < n.cfg.PingInterval // on the monotonic clock: a step of the other is no patience
	// Whole tables are read and written. Where they are long and all is slow, an attempt is given twice the
	// time of the one before, up to 32 times the first; otherwise none would ever succeed.
	limit := n.cfg.DialTimeout << w.slow
	w.restoring, w.retry = true, now.Add(max(n.cfg.PingInterval/10, time.Millisecond))
	w.work.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, limit)
		defer cancel()
		m, err := n.restore(ctx, id, patient)
		if w.slow < 5 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			w.slow++ // serve reads it only when restored has told it
		}
		if err == nil && m.id == id {
			n.take(m)
		} else if err != nil {
			n.cfg.Logger.Debug("counters are not restored yet", "member", n.name, "err", err)
		}
		w.restored <- struct{}{}
	})
}

// looked takes the result of a look.
func (w *guardWatch) looked(c *member.Call) error {
	w.busy = false
	w.next = time.Now().Add(w.n.cfg.PingInterval)
	if w.n.replicated() {
		if again, err := w.shardLooked(c); again || err != nil {
			return err
		}
	}
	if w.n.looked(c) {
		return w.begin()
	}
	if w.n.published.Load().admission.marker.state != forgot {
		w.since = time.Time{}
	}
	return nil
}

// suspected follows up a reply which says that the member may not be what it was.
func (w *guardWatch) suspected() error {
	if w.n.cfg.Guard == nil {
		return nil
	}
	if left := clock.Until(w.calm, time.Now()); left > 0 {
		w.next = w.calm // a moment ago we looked: look once more then
		return nil
	}
	return w.begin()
}

// begin ends the generation and begins the next one on the same session. An error ends the session.
func (w *guardWatch) begin() error {
	w.calm = time.Now().Add(50 * time.Millisecond)
	w.since = time.Time{}
	return w.n.readmit(w.s, w.s.runID, w.s.uptime+time.Since(w.s.introduced))
}

// shardLooked takes what is particular to a look at a master that a replica may replace. again: it was looked at anew.
func (w *guardWatch) shardLooked(c *member.Call) (again bool, _ error) {
	n := w.n
	if e, ok := c.Err.(*member.ReplyError); ok && e.Kind == member.KindCluster && n.cfg.Shard != nil {
		n.cfg.Shard.Unknown() // the marker's slot is elsewhere, or nowhere for a moment
		if slots := n.cfg.Shard.Slots(); len(slots) > 0 && homeOf(slots) == n.home.Load().slot {
			w.next = time.Now().Add(min(n.cfg.PingInterval, 20*time.Millisecond))
			if w.lost++; w.lost < 50 {
				return true, nil
			}
			return true, errSlots
		}
	} else if c.Outcome == member.Answered {
		w.lost = 0
		m, err := readMarker(&c.Reply, c.At)
		if err == nil && m.role != "master" {
			if n.cfg.Shard != nil {
				n.cfg.Shard.Unknown()
			}
			return true, errReplica
		}
		if old := n.published.Load().admission.marker; err == nil && m.id == old.id && m.now != old.now && m.renamed() {
			return true, w.rename(m)
		}
	}
	if n.cfg.Shard == nil {
		return false, nil
	}
	if slots := n.cfg.Shard.Slots(); len(slots) == 0 || homeOf(slots) == n.home.Load().slot {
		return false, nil
	}
	return true, n.rehome(w.s)
}

// rename notes a replication id that changed without a promotion.
func (w *guardWatch) rename(m marker) error {
	now, err := w.n.askMarker(w.ctx, w.s, w.n.guardCommand(renameLua, m.id, m.now))
	if err == nil && (now.id != m.id || !now.known()) {
		err = errMarker
	}
	if err == nil {
		w.n.take(now)
	}
	return err
}
