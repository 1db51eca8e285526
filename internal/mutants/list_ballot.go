package main

var ballots = []mutant{
	{
		name: "a vote counts past its end: two holders",
		file: "redlock/ballot.go",
		old:  `m.voteOf == states[i].Gen && clock.Until(m.end, now) > 0`, new: `m.voteOf == states[i].Gen`,
		tests: by("redlock", "TestVoteCounts|TestAttemptIsTrusted"),
	}, {
		name: "a vote of an ended generation counts: the member has forgotten it",
		file: "redlock/ballot.go",
		old:  `states[i].Votes && m.voteOf == states[i].Gen && `, new: `states[i].Votes && `,
		tests: by("redlock", "TestWhatAnEndedGeneration"),
	}, {
		name: "a vote of a member in quarantine counts",
		file: "redlock/ballot.go",
		old:  `m.token > 0 && states[i].Votes && m.voteOf`, new: `m.token > 0 && m.voteOf`,
		tests: by("redlock", "TestMemberThatMayNotVote"),
	}, {
		name: "an answer to a question of an earlier generation counts in this one",
		file: "redlock/ballot.go",
		old:  `(a.from.Gen != a.now.Gen || !a.now.Votes)`, new: `!a.now.Votes`,
		tests: by("redlock", "TestWhatAnEndedGeneration|TestAnswerOfAnEndedGeneration"),
	}, {
		name: "a member that is back waits for the next heartbeat, where a split is yielded first",
		file: "redlock/ballot.go",
		old:  `if to := b.woken | room; to != 0 {`, new: `if to := woken | room; to != 0 {`,
		tests: by("redlock", "TestMemberThatIsBackIsAskedAlso"),
	}, {
		name: "an answer of a member in quarantine counts",
		file: "redlock/ballot.go",
		old:  `(a.from.Gen != a.now.Gen || !a.now.Votes)`, new: `a.from.Gen != a.now.Gen`,
		tests: by("redlock", "TestMemberThatMayNotVote"),
	}, {
		name: "what was yielded is remembered beyond the generation: restored counters below it never count",
		file: "redlock/ballot.go",
		old:  `m.gen, m.yielded, m.again, m.anchor, m.distrust, m.first = gen, 0,`, new: `m.gen, m.yielded, m.again, m.anchor, m.distrust, m.first = gen, m.yielded,`,
		tests: by("redlock", "TestWhatAnEndedGeneration"),
	}, {
		name: "a reply counts although its vote was yielded: two holders",
		file: "redlock/ballot.go",
		old:  `if a.n <= m.yielded || a.n < m.token {`, new: `if a.n < m.token {`,
		tests: by("redlock", "TestLatePushAfterAYield"),
	}, {
		name: "a push counts although its vote was yielded: two holders in 10 steps",
		file: "redlock/ballot.go",
		old:  `if p.token <= m.yielded || p.token <= m.token {`, new: `if p.token <= m.token {`,
		tests: by("redlock", "TestLatePushAfterAYield"),
	}, {
		name: "a vote whose yield was lost stays: nobody ever has that member",
		file: "redlock/ballot.go",
		old:  `m.again = a.n == m.yielded && m.token == 0 && !m.yielding`, new: `m.again = false`,
		tests: by("redlock", "TestVoteWhoseYieldWasLost|TestSplitEndsAlthough"),
	}, {
		name: "a vote is offered again while its yield is under way",
		file: "redlock/ballot.go",
		old:  `m.again = a.n == m.yielded && m.token == 0 && !m.yielding`, new: `m.again = a.n == m.yielded && m.token == 0`,
		tests: by("redlock", "TestVoteWhoseYieldWasLost"),
	}, {
		name: "a push of an ended generation counts",
		file: "redlock/ballot.go",
		old:  `if !st.Votes || st.Gen < m.gen {`, new: `if !st.Votes {`,
		tests: by("redlock", "TestPushOfAnEndedGeneration"),
	}, {
		name: "a push of a member in quarantine counts",
		file: "redlock/ballot.go",
		old:  `if !st.Votes || st.Gen < m.gen {`, new: `if st.Gen < m.gen {`,
		tests: by("redlock", "TestWhatAnEndedGeneration|TestPushOfAnEndedGeneration"),
	}, {
		name: "a refusal takes a vote that is younger: an attempt gives up what it has",
		file: "redlock/ballot.go",
		old:  `if m.token > 0 && a.server > m.server {`, new: `if m.token > 0 {`,
		tests: by("redlock", "TestRefusalTakesAVote"),
	}, {
		name: "a refusal takes no vote: one that is gone counts, two holders",
		file: "redlock/ballot.go",
		old:  `if m.token > 0 && a.server > m.server {`, new: `if m.token < 0 {`,
		tests: by("redlock", "TestRefusalTakesAVote"),
	}, {
		name: "validity counts from the answer and not from before the request: trusted beyond the key",
		file: "redlock/ballot.go",
		old:  `end := a.sent.Add(clock.Validity(lease, b.factor))`, new: `end := a.at.Add(clock.Validity(lease, b.factor))`,
		tests: by("redlock", "TestVoteCounts|TestAttemptIsTrusted"),
	}, {
		name: "a push is dated by its arrival: trusted beyond the key, by as long as it travelled",
		file: "redlock/ballot.go",
		old:  `end := start.Add(clock.Validity(min(p.ttl, b.part), b.factor))`, new: `end := at.Add(clock.Validity(min(p.ttl, b.part), b.factor))`,
		tests: by("redlock", "TestPushIsDated|TestPushBeforeAnyAnswer"),
	}, {
		name: "a push is believed for what was asked for, and not for what the member granted: trusted beyond the key",
		file: "redlock/ballot.go",
		old:  `end := start.Add(clock.Validity(min(p.ttl, b.part), b.factor))`, new: `end := start.Add(clock.Validity(b.part, b.factor))`,
		tests: by("redlock", "TestPushIsBelieved"),
	}, {
		name: "a push is believed for more than was asked for",
		file: "redlock/ballot.go",
		old:  `end := start.Add(clock.Validity(min(p.ttl, b.part), b.factor))`, new: `end := start.Add(clock.Validity(p.ttl, b.factor))`,
		tests: by("redlock", "TestPushIsBelieved"),
	}, {
		name: "the holder names a waiter that has given up: members choose different successors",
		file: "redlock/ballot.go",
		old:  `named := func(n named) bool { return n.owner == waiter }`, new: `named := func(n named) bool { return n.owner == "" }`,
		tests: by("redlock", "TestHintIsOfNobodyWhoHasGivenUp"),
	}, {
		name: "what a holder has heard of waiters has no limit: others fill its memory",
		file: "redlock/ballot.go",
		old:  `if len(*list) == hearMost {`, new: `if len(*list) < 0 {`,
		tests: by("redlock", "TestWaitersRememberedAreFew"),
	}, {
		name: "a push is dated by a clock that stepped",
		file: "redlock/ballot.go",
		old:  `!ok || m.distrust || m.anchor.Epoch != epoch`, new: `!ok || m.anchor.Epoch != epoch`,
		tests: by("redlock", "TestPushThatProvesNothing"),
	}, {
		name: "a push is dated by the anchor of an earlier connection",
		file: "redlock/ballot.go",
		old:  `!ok || m.distrust || m.anchor.Epoch != epoch`, new: `!ok || m.distrust`,
		tests: by("redlock", "TestPushThatProvesNothing"),
	}, {
		name: "a push past its own end counts",
		file: "redlock/ballot.go",
		old:  `return end, clock.Until(end, at) > 0`, new: `return end, true`,
		tests: by("redlock", "TestPushThatProvesNothing"),
	}, {
		name: "the vote of a yield counts from its answer: trusted beyond the key",
		file: "redlock/ballot.go",
		old:  `end: a.sent.Add(clock.Validity(b.part, b.factor)), server: a.server, voteOf: m.gen}`, new: `end: a.at.Add(clock.Validity(b.part, b.factor)), server: a.server, voteOf: m.gen}`,
		tests: by("redlock", "TestVoteThatAYieldKept"),
	}, {
		name: "a vote that a yield kept is offered again at once: a loop of yields",
		file: "redlock/ballot.go",
		old:  `m.kept = true`, new: `m.kept = false`,
		tests: by("redlock", "TestVoteThatAYieldKept"),
	}, {
		name: "the hint is taken from announcements first: a newcomer starves older waiters",
		file: "redlock/ballot.go",
		old:  "list := b.next\n	if len(list) == 0 {\n		list = b.heard", new: "list := b.heard\n	if len(list) == 0 {\n		list = b.next",
		tests: by("redlock", "TestHintPrefers"),
	}, {
		name: "a split waits for a hung member: nobody gets the lock while one is stopped",
		file: "redlock/ballot.go",
		old:  `if (m.pending > 0 || m.yielding) && !late {`, new: `if m.pending > 0 || m.yielding {`,
		tests: by("redlock", "TestSilentMemberDoesNot"),
	}, {
		name: "no yield: a split is a deadlock",
		file: "redlock/ballot.go",
		old:  `case settled && b.split.IsZero():`, new: `case settled && false:`,
		tests: by("redlock", "TestSplitIsYielded"),
	}, {
		name: "a yield before all have answered: votes are given up that would have made the majority",
		file: "redlock/ballot.go",
		old:  `case settled && b.split.IsZero():`, new: `case b.split.IsZero() && (settled || !settled):`,
		tests: by("redlock", "TestSplitIsYielded"),
	}, {
		name: "no heartbeat: a lost push is never healed",
		file: "redlock/ballot.go",
		old:  `due := clock.Until(beat, now) <= 0`, new: `due := b.asked.IsZero()`,
		tests: by("redlock", "TestWaitIsRepeated"),
	}, {
		name: "the lease is trusted until the last of its votes ends, not until a majority is left",
		file: "redlock/ballot.go",
		old:  `return in, token, exact, nthLatest(ends, b.need)`, new: `return in, token, exact, nthLatest(ends, 1)`,
		tests: by("redlock", "TestAttemptIsTrusted"),
	}, {
		name: "the smallest token of the votes is the lease's: tokens fall",
		file: "redlock/ballot.go",
		old:  `token = max(token, b.m[i].token)`, new: `token = b.m[i].token`,
		tests: by("redlock", "TestSecondRoundHappens"),
	}, {
		name: "votes that no raise has confirmed make a grant: the counter there may be lower",
		file: "redlock/ballot.go",
		old:  `if b.m[i].raised && b.m[i].token <= token && b.valid(i, now, states) {`, new: `if b.m[i].token <= token && b.valid(i, now, states) {`,
		tests: by("redlock", "TestOnlyConfirmedVotes"),
	}, {
		name: "a vote that came after the one that a raise confirmed counts: another drew as much in between",
		file: "redlock/ballot.go",
		old:  `if b.m[i].raised && b.m[i].token <= token && b.valid(i, now, states) {`, new: `if b.m[i].raised && b.valid(i, now, states) {`,
		tests: by("redlock", "TestOnlyConfirmedVotes"),
	}, {
		name: "a raise asks only the votes that decided: one that hangs holds it up though others could confirm",
		file: "redlock/attempt.go",
		old:  `in = a.b.mayHaveVoted(in)`, new: `in = in.With(0)`,
		tests: by("redlock", "TestRaiseIsConfirmedByMembersThatVotedLater"),
	}, {
		name: "a refused raise counts as confirmed",
		file: "redlock/ballot.go",
		old:  `ok := b.settled(i, a, false) && a.n == 1`, new: `ok := b.settled(i, a, false)`,
		tests: by("redlock", "TestOnlyConfirmedVotes"),
	}, {
		name: "votes below the token that come late are not raised: a later majority counts on from below",
		file: "redlock/ballot.go",
		old:  `return b.token > 0 && b.m[i].token > 0 && b.m[i].token < b.token`, new: `return b.token > 0 && b.m[i].token > b.token`,
		tests: by("redlock", "TestVoteBelowTheToken"),
	}, {
		name: "the release goes only to members that are known to hold: what an unknown acquire took stays",
		file: "redlock/ballot.go",
		old:  `if b.m[i].sent > 0 {`, new: `if b.m[i].token > 0 {`,
		tests: by("redlock", "TestReleaseIsOwed"),
	}, {
		name: "a renewed vote keeps its old end: Votes and Margin fall to 0",
		file: "redlock/ballot.go",
		old:  `if m.end.IsZero() || clock.Until(end, m.end) > 0 {`, new: `if m.end.IsZero() {`,
		tests: by("redlock", "TestRenewedVotesAreCounted"),
	},
}

var rounds = []mutant{
	{
		name: "the majority is one too few: two holders",
		file: "member/majority.go",
		old:  `func Majority(n int) int { return n/2 + 1 }`, new: `func Majority(n int) int { return max(1, n/2) }`,
		tests: by("member", "TestMajorities"),
	}, {
		name: "half of an even number is a majority: a tie is won twice",
		file: "member/majority.go",
		old:  `func Majority(n int) int { return n/2 + 1 }`, new: `func Majority(n int) int { return (n + 1) / 2 }`,
		tests: by("member", "TestMajorities"),
	}, {
		name: "a round is won by one vote less than asked for",
		file: "quorum/tally.go",
		old:  `case yes >= need:`, new: `case yes+1 >= need:`,
		tests: by("quorum", "TestTally"),
	}, {
		name: "a round that cannot be won any more is waited for",
		file: "quorum/tally.go",
		old:  `case yes+open < need:`, new: `case yes+open+1 < need:`,
		tests: by("quorum", "TestTally"),
	}, {
		name: "an unknown outcome counts as a vote",
		file: "redlock/attempt.go",
		old:  "case o == member.Unknown:\n		return quorum.Unsure", new: "case o == member.Unknown:\n		return quorum.Yes",
		tests: by("redlock", "TestUnknownIsNeverAYes"),
	}, {
		name: "no second round where the counters disagree: equal or falling tokens",
		file: "redlock/attempt.go",
		old:  `if exact >= a.b.need {`, new: `if exact >= 1 {`,
		tests: by("redlock", "TestSecondRoundHappens"),
	}, {
		name: "a majority that has ended meanwhile is a lease",
		file: "redlock/attempt.go",
		old:  `if in.Len() < a.b.need {`, new: `if in.Len() < 0 {`,
		tests: by("redlock", "TestSpecSafetyMajorityTooLate|TestSpecStep3"),
	}, {
		name: "who fails leaves what it got: locks that nobody has, until their TTL",
		file: "redlock/attempt.go",
		old:  `func (a *attempt) abandon() { a.release(false).Free() }`, new: `func (a *attempt) abandon() { a.ended.Store(true) }`,
		tests: by("redlock", "TestSpecStep5|TestCancelAtAnyMoment"),
	}, {
		name: "late votes below the token are not raised when the attempt has won",
		file: "redlock/attempt.go",
		old:  `if behind != 0 {`, new: `if behind != 0 && token < 0 {`,
		tests: by("redlock", "TestVoteThatComesBeforeTheGrantIsRaised"),
	}, {
		name: "late votes below the token are not raised when they come as answers",
		file: "redlock/attempt.go",
		old:  `if late && !a.ended.Load() {`, new: `if late && token < 0 {`,
		tests: by("redlock", "TestSecondRoundHappens"),
	}, {
		name: "a release that found no connection is forgotten: the lock lasts until its TTL",
		file: "redlock/attempt.go",
		old:  `OweUntil: now.Add(longest + time.Second)}`, new: `OweUntil: time.Time{}.Add(0 * longest)}`,
		tests: by("redlock", "TestReleaseIsRepeatedOnTheNextConnection"),
	}, {
		name: "a release does not go to members in quarantine at once: an unlock is in doubt",
		file: "redlock/attempt.go",
		old:  `Always: true, Late: late,`, new: `Late: late,`,
		tests: by("redlock", "TestUnlockIsDoneByMembersInQuarantine"),
	}, {
		name: "a release names no successor: members choose different ones",
		file: "redlock/attempt.go",
		old:  `hint, longest := a.b.hint(), `, new: `hint, longest := "", `,
		tests: by("redlock", "TestReleaseNamesOneSuccessor"),
	}, {
		name:  "a call of an attempt may be repeated behind its release: a key that nobody owns",
		file:  "redlock/attempt.go",
		old:   `acquireItem), Delivery: member.Delivery{Ended: &a.ended},`,
		new:   `acquireItem),`,
		tests: by("redlock", "TestNothingIsRepeatedBehindItsRelease"),
	}, {
		name: "what overtook its release is not released again: a key that nobody owns",
		file: "redlock/attempt.go",
		old:  "if !a.ended.Load() {\n		return\n	}\n	a.mu.Lock()\n	released", new: "if a != nil {\n		return\n	}\n	a.mu.Lock()\n	released",
		tests: by("redlock", "TestLeaseThatEndsWhileItIsGivenBack"),
	}, {
		name: "who waits registers where it cannot be told: granted without hearing of it",
		file: "redlock/attempt.go",
		old:  `if to.Has(i) && st.Votes && st.Inbox {`, new: `if to.Has(i) && st.Votes {`,
		tests: by("redlock", "TestNobodyRegistersWithoutAnInbox"),
	},
}

var clocks = []mutant{
	{
		name: "drift is not taken off: trusted longer than a slow clock allows",
		file: "clock/validity.go",
		old:  `return max(ttl, 0) - share(ttl, factor) - Delta`, new: `return max(ttl, 0) - Delta`,
		tests: by("clock", "TestValidity"),
	}, {
		name: "the millisecond that Redis rounds by is not taken off",
		file: "clock/validity.go",
		old:  `return max(ttl, 0) - share(ttl, factor) - Delta`, new: `return max(ttl, 0) - share(ttl, factor)`,
		tests: by("clock", "TestValidity"),
	}, {
		name: "time that passed in a suspend is not counted",
		file: "clock/elapsed.go",
		old:  `return min(deadline.Sub(now), between(now, deadline))`, new: `return deadline.Sub(now)`,
		tests: by("clock", "TestUntil"),
	}, {
		name: "elapsed time is what the slower clock says",
		file: "clock/elapsed.go",
		old:  `return max(now.Sub(since), between(since, now))`, new: `return min(now.Sub(since), between(since, now))`,
		tests: by("clock", "TestElapsed"),
	}, {
		name: "a pushed grant is dated without drift: a slow server's grant is trusted for too long",
		file: "clock/anchor.go",
		old:  `after := passed - share(passed, factor)`, new: `after := passed`,
		tests: by("clock", "TestStart"),
	}, {
		name: "a pushed grant from before its anchor is dated",
		file: "clock/anchor.go",
		old:  "if server < a.Server {\n		return time.Time{}, false\n	}", new: "server = max(server, a.Server)",
		tests: by("clock", "TestStart"),
	}, {
		name: "a server's clock that was set is not noticed",
		file: "clock/anchor.go",
		old:  `return moved > saturatingAdd(`, new: `return moved < 0 && moved > saturatingAdd(`,
		tests: by("clock", "TestStepped"),
	},
}

var tokens = []mutant{
	{
		name: "the storage accepts a stale token: a paused holder overwrites its successor",
		file: "fence/guard.go",
		old:  `case token < highest:`, new: `case token+1 < highest:`,
		tests: by("fence", "TestAdmit"),
	}, {
		name: "the storage accepts writes without a token",
		file: "fence/guard.go",
		old:  `case token == 0:`, new: `case token == 0 && highest > 0:`,
		tests: by("fence", "TestAdmit"),
	}, {
		name: "a token is not checked again after waiting for a write: it was overtaken meanwhile",
		file: "fence/memory.go",
		old:  "defer leave()\n\n	m.mu.Lock()\n	err = m.admitLocked(resource, token)\n", new: "defer leave()\n\n	m.mu.Lock()\n	m.raiseLocked(resource, token)\n",
		tests: by("fence", "TestNobodyIsAccepted|TestMemoryIsAGuard"),
	}, {
		name: "restored tokens replace greater ones",
		file: "fence/memory.go",
		old:  `if token <= m.highest[resource] {`, new: `if token == m.highest[resource] {`,
		tests: by("fence", "TestRestoreOnlyRaises"),
	}, {
		name: "hash tags are ignored: the keys of one lock are in different slots",
		file: "slot/slot.go",
		old:  `return sum(Tag(key)) % Count`, new: `return sum(key) % Count`,
		tests: by("slot", "TestSlotFollows"),
	}, {
		name: "an empty hash tag counts",
		file: "slot/slot.go",
		old:  `return start, start + length, length > 0`, new: `return start, start + length, length >= 0`,
		tests: by("slot", "TestSlotFollows"),
	}, {
		name: "two locks share a queue",
		file: "slot/sibling.go",
		old:  `case ok && !mistakable(key, start, end):`, new: `case ok && (start > 0 || mistakable(key, start, end)):`,
		tests: by("slot", "TestSibling|TestNoTwoShortKeys"),
	},
}
