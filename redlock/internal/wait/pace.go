package wait

import "time"

// In a long line a member lets entries live longer, so that waiters may send heartbeats less often: docs/protocol.md,
// "Long lines". The attempt keeps to what each member has said last.

// pace is the time from one heartbeat to the next. It leaves one Terms.Entry of the entry at every member that keeps the
// attempt waiting. What a member has said that fails does not matter: it is asked as soon as it can be.
func (b *Ballot) pace() (pace time.Duration) {
	for i := range b.m {
		if m := &b.m[i]; m.word == refused {
			if left := max(m.lives-b.terms.Entry, b.terms.Entry/3); pace == 0 || left < pace {
				pace = left
			}
		}
	}
	if pace == 0 {
		return b.terms.Entry / 3
	}
	return pace
}

// repace moves the heartbeat if an answer has changed the pace.
func (b *Ballot) repace() {
	if pace := b.pace(); pace != b.every && !b.asked.IsZero() {
		b.every, b.beat = pace, b.asked.Add(pace)
	}
}

// paced books the lifetime that a refusal tells. A member with a long line is not asked when its lock should have ended: of
// so many waiters, those whose heartbeat is next find that out.
func (m *Voter) paced(a *Answer) {
	if m.lives = a.Lives; m.lives > 0 {
		m.retry = time.Time{}
	}
}

// hurried books that a vote is given up. The entry that the attempt gets for it lives for Terms.Entry.
func (b *Ballot) hurried(m *Voter, now time.Time) {
	if m.lives == 0 {
		return
	}
	m.lives, b.every = 0, b.terms.Entry/3
	b.beat = earliest(b.beat, now.Add(b.every))
}
