package main

// Of what ends, and of what is owed for it.
var ends = []mutant{
	{
		name: "Close does not wait for callers: what they have stays for its whole TTL",
		file: "redlock/client.go",
		old:  `case <-c.alive.none:`, new: `case <-c.closed:`,
		tests: by("redlock", "TestNothingOfAClientIsLeft"),
	}, {
		name: "Close leaves the votes of a call that waits for members that hang",
		file: "redlock/client.go",
		old:  `c.attempts.each(func(a *attempt) { a.release(true).Free() })`, new: ``,
		tests: by("redlock", "TestCloseReleasesUnderACallThatWaits"),
	}, {
		name: "Close from a callback waits for who called it",
		file: "redlock/client.go",
		old:  `if calledBack() {`, new: `if false {`,
		tests: by("redlock", "TestCloseFromACallback"),
	}, {
		name: "a closed client takes leases in",
		file: "redlock/handoff.go",
		old:  "if !c.alive.enter() {\n		return nil, &keyError{op: \"adopt\", key: h.key, err: ErrClosed}", new: "if h.key == \"\" {\n		return nil, &keyError{op: \"adopt\", key: h.key, err: ErrClosed}",
		tests: by("redlock", "TestClosedClientSaysSo"),
	}, {
		name: "many leases that are over end one after the other's release: contexts outlive the validity",
		file: "redlock/keeper.go",
		old:  `over, owed = append(over, err), append(owed, l.a)`, new: `over = append(over, err); l.a.release(true).Free()`,
		tests: by("redlock", "TestManyLeasesThatEndAtOnce"),
	}, {
		name: "a Tracer that blocks holds up the ends of other leases",
		file: "redlock/keeper.go",
		old:  `k.c.teller.tell(over...)`, new: `if t := k.c.trace.lost; t != nil { for _, e := range over { t.Lost(e) } }`,
		tests: by("redlock", "TestContextsEndOnTime|TestCloseEndsEveryLease"),
	}, {
		name: "after a suspend younger leases hide those that are over",
		file: "redlock/keeper.go",
		old:  `gained <= apart`, new: `gained <= 1000*time.Hour`,
		tests: by("redlock", "TestLeaseThatASuspendEnded|TestContextEndsSoonAfterASuspend"),
	}, {
		name: "a lease that was waited for is renewed when its votes are over",
		file: "redlock/lease.go",
		old:  "l.until = sooner(l.until, l.limit)\n		}\n		l.renewAt = now.Add(min(asked/3, clock.Until(l.until, now)/2))", new: "l.until = sooner(l.until, l.limit)\n		}\n		l.renewAt = now.Add(asked / 3)",
		tests: by("redlock", "TestRenewalComesBefore"),
	}, {
		name: "a renewal that was lost is asked for again when the votes are over",
		file: "redlock/keeper.go",
		old:  `return min(retryAfter(l.ttl), max(clock.Until(l.until, now)/3, time.Millisecond))`, new: `return retryAfter(l.ttl)`,
		tests: by("redlock", "TestRenewalComesBefore"),
	}, {
		name: "heartbeats come more seldom than votes end: a waiter sleeps while the lock is free",
		file: "redlock/ballot.go",
		old:  `beat = earlier(beat, b.asked.Add(b.part/3))`, new: `beat = earlier(beat, b.asked.Add(b.entry/3))`,
		tests: by("redlock", "TestWaiterWithAShortTTL"),
	}, {
		name: "a vote that ends while it waits for more moves nobody",
		file: "redlock/ballot.go",
		old:  `m.retry = now // it may be free`, new: `m.retry = time.Time{}`,
		tests: by("redlock", "TestVoteThatEndsWhileWaiting"),
	}, {
		name: "a waiter that cannot have a majority keeps its vote from who can",
		file: "redlock/ballot.go",
		old:  `return step{deed: deedStandBack, in: vain}`, new: `b.lame = now`,
		tests: by("redlock", "TestWaiterWithoutAMajority"),
	}, {
		name: "who stood back comes back at once, again and again",
		file: "redlock/ballot.go",
		old:  `if clock.Until(b.notYet, now) > 0 {`, new: `if clock.Until(b.notYet, now) > time.Hour {`,
		tests: by("redlock", "TestWaiterWithoutAMajority"),
	}, {
		name: "the patience of who stood back begins anew: it never gives up",
		file: "redlock/ballot.go",
		old:  `if !b.doubt.Has(i) && !(m.pending > 0 && late) {`, new: `if !(m.pending > 0 && late) {`,
		tests: by("redlock", "TestWaiterGivesUpInTime"),
	}, {
		name: "a full line of the client's own is waited for as a member is",
		file: "redlock/ballot.go",
		old:  `m.retry = a.sent.Add(b.patience(m.crowded))`, new: ``,
		tests: by("redlock", "TestFullLineIsNotADeadMember"),
	}, {
		name: "callers that do not fit into a line wait as those who were refused do",
		file: "redlock/mutex.go",
		old:  `err != nil && a.crowdedOut(ctx); {`, new: `err != nil && a == nil; {`,
		tests: by("redlock", "TestCallersThatDoNotFit"),
	}, {
		name: "a full line of the client's own is a member that cannot be asked",
		file: "redlock/ballot.go",
		old:  `m.err != nil && m.crowded == 0 {`, new: `m.err != nil {`,
		tests: by("redlock", "TestFullLineIsNotADeadMember"),
	}, {
		name: "an unlock in an inner Do frees the outer one",
		file: "redlock/mutex.go",
		old:  `if m.as != "" {`, new: `if m.as == "-" {`,
		tests: by("redlock", "TestUnlockInAnInnerDo"),
	}, {
		name: "a Do whose lease was handed off fails",
		file: "redlock/mutex.go",
		old:  ` || errors.Is(end, ErrHandedOff)`, new: ``,
		tests: by("redlock", "TestDoThatHandsItsLeaseOff"),
	}, {
		name: "a release is owed for the lock's own TTL, and not for what Extend asked for",
		file: "redlock/attempt.go",
		old:  `a.longest = max(a.longest, ttl)`, new: `a.longest = max(a.longest, 0)`,
		tests: by("redlock", "TestReleaseIsOwedUntil"),
	}, {
		name: "JSON of a handoff is the authority to release",
		file: "redlock/handoff.go",
		old:  `return []byte(h.String()), nil`, new: `return []byte(h.Secret()), nil`,
		tests: by("redlock", "TestHandoffIsShownByNo"),
	}, {
		name: "fmt prints the fields of a handoff",
		file: "redlock/handoff.go",
		old:  `_, _ = io.WriteString(f, h.String())`, new: `_, _ = io.WriteString(f, h.Secret())`,
		tests: by("redlock", "TestHandoffIsShownByNo|TestHandedOffLeaseGoesOn"),
	}, {
		name: "a lease of fixed TTL that was waited for is handed off for what its votes have",
		file: "redlock/handoff.go",
		old:  `t.ttl = max(time.Millisecond, min(t.ttl, clock.Until(l.limit, now)))`, new: `t.ttl = max(time.Millisecond, min(t.ttl, left))`,
		tests: by("redlock", "TestHandedOffLeaseHasTheTerms"),
	}, {
		name: "MaxHold begins anew with each adoption",
		file: "redlock/handoff.go",
		old:  `t.maxHold = max(time.Millisecond, clock.Until(l.limit, now))`, new: `t.maxHold = max(t.maxHold, left)`,
		tests: by("redlock", "TestHandedOffLeaseHasTheTerms"),
	}, {
		name: "a late vote of a lease that was handed off and unlocked is nobody's",
		file: "redlock/attempt.go",
		old:  `orphaned := a.handed && mayHaveLeft(r.Op, ans)`, new: `orphaned := false`,
		tests: by("redlock", "TestCallsOfALeaseThatWasHandedOff"),
	}, {
		name: "a lease that was handed off and unlocked is given back to a member, and is nobody's there",
		file: "redlock/attempt.go",
		old:  "a.taking--\n\torphaned := a.handed && mayHave", new: "a.taking--\n\torphaned := false && mayHave",
		tests: by("redlock", "TestRejoinOfALeaseThatWasHandedOff"),
	}, {
		name: "a late place in a queue of a lease that was handed off and unlocked is nobody's",
		file: "redlock/attempt.go",
		old:  `return op == opWait || ans.n > 0`, new: `return ans.n > 0`,
		tests: by("redlock", "TestWaitOfALeaseThatWasHandedOff"),
	}, {
		name: "what a broken connection has left of a lease that was handed off and unlocked is nobody's",
		file: "redlock/attempt.go",
		old:  `return ans.outcome == member.Unknown`, new: `return false`,
		tests: by("redlock", "TestWaitOfALeaseThatWasHandedOff"),
	}, {
		name: "a late vote of a lease that was handed off is taken from its adopter",
		file: "redlock/attempt.go",
		old:  `release, last := gone && o.gone == o.a.b.need, o.open == 0`, new: `release, last := o.open == 0, o.open == 0`,
		tests: by("redlock", "TestCallsOfALeaseThatWasHandedOff"),
	}, {
		name: "a Tracer that blocks the reader of a member blocks Close for ever",
		file: "redlock/client.go",
		old:  "case <-cut:\n\tcase <-last.Done():", new: `case <-cut:`,
		tests: by("redlock", "TestCloseReturnsInTime"),
	}, {
		name: "an Adopt that Close interrupts blames the members",
		file: "redlock/handoff.go",
		old:  `if c.isClosed() { // perhaps under the round`, new: `if false { // perhaps under the round`,
		tests: by("redlock", "TestAdoptThatCloseInterrupts"),
	}, {
		name: "an Unlock under the context of an inner Do is in doubt: that context ends with it",
		file: "redlock/lease.go",
		old:  `if ctx.Value(ownLease{l}) != nil {`, new: `if x, ok := ctx.(leaseContext); ok && x.l == l {`,
		tests: by("redlock", "TestUnlockIsDecidedByTheMembersAlso"),
	}, {
		name: "a Logger that is told of dropped releases holds up the ends of leases",
		file: "node/node.go",
		old:  `func() { n.dropped.Store(true) }`, new: `func() { n.dropped.Store(true); n.tellDropped() }`,
		tests: by("redlock", "TestContextsEndOnTimeAlthoughALoggerBlocksThat"),
	}, {
		name: "a hold that was unlocked hands the outer one off",
		file: "redlock/handoff.go",
		old:  `if l.spent.Load() {`, new: `if false {`,
		tests: by("redlock", "TestUnlockInAnInnerDo"),
	}, {
		name: "a hold that was unlocked shortens the outer one",
		file: "redlock/lease.go",
		old:  `if l.spent.Load() {`, new: `if false {`,
		tests: by("redlock", "TestUnlockInAnInnerDo"),
	}, {
		name: "a lease that ends while it is made is kept for its owner for ever",
		file: "redlock/lease.go",
		old:  `if l.Err() != nil { // perhaps before`, new: `if false { // perhaps before`,
		tests: by("redlock", "TestLeaseThatEndsWhileItIsMade"),
	}, {
		name: "a snapshot of a machine that runs twice is one owner twice: two holders with one token",
		file: "redlock/client.go",
		old:  `return c.seq.Add(1)<<24 | uint64(binary.BigEndian.Uint32(b[:])>>8)`, new: `return c.seq.Add(1) + uint64(binary.BigEndian.Uint32(b[:]))>>32`,
		tests: by("redlock", "TestCopyOfAProcess"),
	},
}
