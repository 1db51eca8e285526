package redlock

import (
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/quorum"
)

// release frees every vote and every place in line, at all members that a write may have reached,
// in order behind that write: docs/protocol.md, "Lost". It belongs to the client and not to any
// caller, so no context ends it. late says that the goroutine must not write to a socket. The
// caller frees the round.
func (h *hold) release(late bool) *quorum.Round {
	to := h.owed()
	h.terms.kind.ending(h, to, late)
	r := h.submitRelease(to, late)
	h.afterRelease(late)
	return r
}

// releaseAll is release for several holds of one client, whose calls go to each member in one group.
func (c *Client) releaseAll(holds []*hold, late bool) []*quorum.Round {
	questions := make([]quorum.Question, len(holds))
	buffers := make([]*[]byte, len(holds))
	for i, h := range holds {
		buffers[i] = c.buffer()
		h.releaseQuestion(&questions[i], h.owed(), late, buffers[i])
	}
	rounds := c.rounds.StartAll(c.members, questions)
	for i, h := range holds {
		c.buffers.Put(buffers[i])
		h.afterRelease(late)
	}
	return rounds
}

// gone is called when the release has been submitted.
func (h *hold) afterRelease(late bool) {
	h.mu.Lock()
	h.released = true
	again := h.behind
	h.mu.Unlock()
	if again != 0 {
		h.submitRelease(again, late).Free()
	}
	h.releaseFormer(late)
	h.c.holds.remove(h)
	h.terms.kind.left(h)
	h.leave()
}

// leave tells Close when nothing about the hold is left to be submitted.
func (h *hold) leave() {
	h.mu.Lock()
	first := !h.left
	h.left = true
	h.mu.Unlock()
	if first {
		h.c.inflight.leave()
	}
}

// overtaken is called after a call that may take a vote was submitted to member i. If the hold had
// ended by then, its release may stand before that call, and the member is released once more,
// behind it. That release never comes before the first one, whose answers tell whether the lease
// was held.
func (h *hold) overtaken(i int) {
	if !h.ended.Load() {
		return
	}
	h.mu.Lock()
	released, heir := h.released, h.heir
	if !released {
		h.behind = h.behind.With(i) // release sees to it
	}
	h.mu.Unlock()
	switch {
	case heir != nil:
		heir.owes(i)
	case released:
		h.submitRelease(memberset.Set(0).With(i), true).Free()
	}
}

// abandon is a release that nobody waits for.
func (h *hold) abandon() { h.release(false).Free() }

// owes books that member i may have something of the owner besides.
func (h *hold) owes(i int) {
	h.mu.Lock()
	h.b.Submitted(i)
	h.mu.Unlock()
	h.overtaken(i)
}
