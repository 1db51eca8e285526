package main

var leases = []mutant{
	{
		name: "a minority renews: two holders",
		file: "redlock/keeper.go",
		old:  `case it.yes.Len() >= need:`, new: `case it.yes.Len() >= 1:`,
		tests: by("redlock", "TestRenewalWithoutAMajority|TestRenewalRefusedByAMajority"),
	}, {
		name: "a majority of refusals does not end the lease: two holders until its validity is over",
		file: "redlock/keeper.go",
		old:  `case it.refused.Len() >= need:`, new: `case it.refused.Len() < 0:`,
		tests: by("redlock", "TestRenewalRefusedByAMajority"),
	}, {
		name: "one refusal ends the lease",
		file: "redlock/keeper.go",
		old:  `case it.refused.Len() >= need:`, new: `case it.refused.Len() >= 1:`,
		tests: by("redlock", "TestRenewalRefusedByAMinority"),
	}, {
		name: "a renewal counts from its answers and not from before the request: trusted beyond the key",
		file: "redlock/keeper.go",
		old:  `return n.sent.Add(clock.Validity(ttl, n.k.c.cfg.Drift))`, new: `return time.Now().Add(clock.Validity(ttl, n.k.c.cfg.Drift))`,
		tests: by("redlock", "TestValidityOfARenewalCounts|TestExtend"),
	}, {
		name: "no renewal",
		file: "redlock/keeper.go",
		old:  `if held && clock.Validity(ttl, k.c.cfg.Drift) > 0 {`, new: `if held && ttl < 0 {`,
		tests: by("redlock", "TestFirstComeFirstServedInFakeTime"),
	}, {
		name: "a renewal that was not confirmed is not asked for again",
		file: "redlock/keeper.go",
		old:  `l.renewAt = now.Add(l.retryLocked(now))`, new: `l.renewAt = now.Add(l.ttl)`,
		tests: by("redlock", "TestRenewalsBeyondAMembersQueue"),
	}, {
		name: "an answer of an ended generation renews: the member has forgotten the lease since",
		file: "redlock/keeper.go",
		old:  ` || c.State.Gen != n.k.c.state(c.Index).Gen {`, new: ` {`,
		tests: by("redlock", "TestRenewalByAnEndedGeneration"),
	}, {
		name: "a rejoin answered by an ended generation renews",
		file: "redlock/keeper.go",
		old:  ` && c.State.Gen == r.n.k.c.state(c.Index).Gen`, new: ``,
		tests: by("redlock", "TestRejoinByAnEndedGeneration"),
	}, {
		name: "a lease is not given back to members that lost it: one after the other they all do",
		file: "redlock/keeper.go",
		old:  `.Int == 0 && !n.adopt {`, new: `.Int == 0 && n.adopt {`,
		tests: by("redlock", "TestRenewalGivesTheLeaseBack"),
	}, {
		name: "a handed-off lease is taken from nobody: members that do not have it are given it before a majority confirms",
		file: "redlock/keeper.go",
		old:  `.Int == 0 && !n.adopt {`, new: `.Int == 0 && n != nil {`,
		tests: by("redlock", "TestAdoptionNeedsAMajority"),
	}, {
		name: "a late renewal revives a lease that was over: another held the lock in between",
		file: "redlock/lease.go",
		old:  `if l.err != nil || clock.Until(l.until, now) <= 0 {`, new: `if l.err != nil && clock.Until(l.until, now) <= 0 {`,
		tests: by("redlock", "TestLostLeaseIsNotRevived|TestRenewalLooksAtTheClock"),
	}, {
		name: "a lease does not look at the clock: alive after a suspend",
		file: "redlock/lease.go",
		old:  `if err == nil && past {`, new: `if err != nil && past {`,
		tests: by("redlock", "TestLeaseContextLooks|TestRenewalLooksAtTheClock|TestLeaseEndsExactly"),
	}, {
		name: "a lease that was given back still tells the validity it had",
		file: "redlock/lease.go",
		old:  `return sooner(l.until, l.ended)`, new: `return l.until`,
		tests: by("redlock", "TestPeersFaults/V3"),
	}, {
		name: "the context of a lease does not look at the clock",
		file: "redlock/lease.go",
		old:  `func (c leaseContext) Err() error {`, new: `func (c leaseContext) Err() error { if c.l != nil { return c.Context.Err() }`,
		tests: by("redlock", "TestLeaseContextLooks"),
	}, {
		name: "renewals go beyond the limit of the lease",
		file: "redlock/lease.go",
		old:  "if !l.limit.IsZero() {\n		until = sooner(until, l.limit)", new: "if l.limit.IsZero() {\n		until = sooner(until, until)",
		tests: by("redlock", "TestMaxHoldCaps|TestFixedLeaseGranted"),
	}, {
		name: "a lost lease is not released: the rest of its votes block the lock",
		file: "redlock/lease.go",
		old:  "l.a.release(true).Free()\n", new: "l.a.ended.Store(true)\n",
		tests: by("redlock", "TestLostLeaseLeavesNothing"),
	}, {
		name: "an unlock that a majority disowned says that all was well",
		file: "redlock/lease.go",
		old:  `case disowned > len(l.c.members)-l.c.need:`, new: `case disowned > len(l.c.members):`,
		tests: by("redlock", "TestUnlockOfALease"),
	}, {
		name: "an extension to less shortens at the members",
		file: "redlock/lease.go",
		old:  `shorter := clock.Until(until, l.until) < 0`, new: `shorter := clock.Until(until, l.until) < -time.Hour`,
		tests: by("redlock", "TestExtendNeverShortens"),
	}, {
		name: "a lease is adopted without a majority that has it: two holders",
		file: "redlock/handoff.go",
		old:  `if v == quorum.Won && l.Err() == nil {`, new: `if v != quorum.Lost && l.Err() == nil {`,
		tests: by("redlock", "TestAdoptionNeedsAMajority"),
	}, {
		name: "an adopted lease is released nowhere",
		file: "redlock/handoff.go",
		old:  `a.b.m[i].sent = 1`, new: `a.b.m[i].sent = 0`,
		tests: by("redlock", "TestHandedOffLease"),
	}, {
		name: "one Redis listed twice votes twice: two holders",
		file: "redlock/client.go",
		old:  `bar |= 1 << i`, new: `bar |= 0 << i`,
		tests: by("redlock", "TestMemberThatIsListedTwice"),
	},
}
