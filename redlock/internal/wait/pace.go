package wait

import "time"

// In a long line a member lets entries live longer, so that waiters may send heartbeats less often: docs/protocol.md,
// "Long lines". The attempt keeps to what each member has said last.

// pace is the time from one heartbeat to the next. It leaves one Terms.Entry of the entry at every member that keeps the
// attempt waiting. What a member has said that fails does not matter: it is asked as soon as it can be.
func (b *Ballot) pace() (pace time.Duration) {
	for i := range b.m {
		if b.m[i].lastAnswer == refused {
			if left := max(b.again[i].lives-b.terms.Entry, b.terms.Entry/3); pace == 0 || left < pace {
				pace = left
			}
		}
	}
	if pace == 0 {
		return b.terms.Entry / 3
	}
	return pace
}

// moveHeartbeat moves the heartbeat if an answer has changed the pace.
func (b *Ballot) moveHeartbeat() {
	if b.besides == nil || b.asked.IsZero() {
		return
	}
	if pace := b.pace(); pace != b.heartbeatEvery {
		b.heartbeatEvery, b.heartbeat = pace, b.asked.Add(pace)
	}
}

// entryTold books the lifetime that a refusal tells. A member with a long line is not asked when its lock should have ended: of
// so many waiters, those whose heartbeat is next find that out.
func (m *again) entryTold(a *Answer) {
	if m.lives = a.Lives; m.lives > 0 {
		m.retry = time.Time{}
	}
}

// entryShortened books that a vote is given up. The entry that the attempt gets for it lives for Terms.Entry.
func (b *Ballot) entryShortened(i int, now time.Time) {
	m := &b.again[i]
	if m.lives == 0 {
		return
	}
	m.lives, b.heartbeatEvery = 0, b.terms.Entry/3
	b.heartbeat = earliest(b.heartbeat, now.Add(b.heartbeatEvery))
}
