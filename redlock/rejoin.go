package redlock

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// rejoined books the answer to a rejoin, by which the member may have taken the lease back, or keeps
// a wish for it.
func (h *hold) rejoined(r *quorum.Round, c *member.Call) {
	if c.Outcome == member.Answered && c.Reply.Int == 0 {
		h.mu.Lock()
		h.b.Wishes(c.Index, c.State.Gen, r.Sent)
		h.mu.Unlock()
	}
	h.took()
}

// takes books calls that may take a vote or a place. It reports false if the hold has ended: they must not go out then.
func (h *hold) takes(calls int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended.Load() {
		return false
	}
	h.taking += calls
	return true
}

// took books the end of one of them.
func (h *hold) took() {
	h.mu.Lock()
	h.taking--
	h.settledLocked()
	h.mu.Unlock()
}

// lacks reports whether the lease has no vote of a member, which is about to be asked for it then.
func (h *hold) lacks(i int, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	lacks := h.b.Lacks(i, now)
	if lacks {
		if h.b.Permits() == nil {
			h.b.Renewed(i, 0, false, time.Time{}) // others may have had it meanwhile, and nobody has told
		}
		h.b.Submitted(i)
	}
	return lacks
}

// regain asks members to give the lease back, outside of a renewal. A semaphore's free the owner's
// other slots and its place in line, and give it the slots of the lease if these are free. For those
// that are another's there, they keep a wish for that long; members of other locks do so for the TTL.
func (h *hold) regain(to memberset.Set, ttl, wish time.Duration) {
	if !h.c.inflight.enter() {
		return
	}
	defer h.c.inflight.leave() // not before what overtaken makes of it is submitted
	if !h.takes(to.Len()) {
		return
	}
	h.c.keeper.rejoins.Add(int64(to.Len()))
	h.rejoin(to, ttl, wish, regained{h})
	for i := range h.c.members {
		if to.Has(i) {
			h.overtaken(i)
		}
	}
}

// regained hears the answers to regain.
type regained struct{ h *hold }

// Judge implements quorum.Judge.
func (r regained) Judge(round *quorum.Round, c *member.Call) quorum.Vote {
	h, i := r.h, c.Index
	h.c.keeper.regained()
	took := c.Outcome == member.Answered && c.Reply.Int > 0
	yes := took && c.State.Gen == h.c.briefOf(i, h.wire.Slot()).Gen
	h.mu.Lock()
	switch {
	case yes:
		h.b.Renewed(i, c.State.Gen, true, round.Sent.Add(clock.Validity(round.TTL, h.c.cfg.Drift)))
	case c.Outcome == member.Answered && h.b.Permits() != nil:
		h.b.GaveUp(i)
	}
	h.mu.Unlock()
	h.c.requested(h.traced.of(round.Op), h.lock(), round, c)
	h.rejoined(round, c)
	return wait.VoteOf(c.Outcome, yes)
}

// asks notes the TTL of a request.
func (h *hold) asks(ttl time.Duration) {
	h.mu.Lock()
	h.longest = max(h.longest, ttl)
	h.mu.Unlock()
}
