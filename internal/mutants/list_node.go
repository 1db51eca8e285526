package main

var members = []mutant{
	{
		name: "the former connection is not killed: what is on its way is executed behind the clean-up",
		file: "node/handshake.go",
		old:  `old.id != 0 && runID != "" && runID == old.runID && id != old.id {`, new: `old.id < 0 && runID != "" && runID == old.runID && id != old.id {`,
		tests: by("node", "TestPredecessors"),
	}, {
		name: "INFO of Valkey is not understood: a wrong scheme is not named",
		file: "node/scheme.go",
		old:  `return field(info, "server_mode:")`, new: `return ""`,
		tests: by("node", "TestServerOfAnotherKindIsNamed"),
	}, {
		name: "an id of an earlier process is killed: it is a stranger's",
		file: "node/handshake.go",
		old:  `runID != "" && runID == old.runID && id != old.id`, new: `runID != "" && id != old.id`,
		tests: by("node", "TestPredecessors"),
	}, {
		name: "a kill without an answer counts as done",
		file: "node/handshake.go",
		old:  "if err := n.kill(ctx, s, old.id); err != nil {", new: "if err := n.kill(ctx, s, old.id); err != nil && ctx == nil {",
		tests: by("node", "TestUnknownKill"),
	}, {
		name: "a server that is loading its data counts as up",
		file: "node/handshake.go",
		old:  `if c := &calls[2]; !n.permitted(c, "PING") {`, new: `if c := &calls[2]; c == nil {`,
		tests: by("node", "TestLoadingServer"),
	}, {
		name: "another process behind an address is the same generation: votes of before count",
		file: "node/handshake.go",
		old:  `(st.RunID != runID || before != standing.marker.id)`, new: `(before != standing.marker.id)`,
		tests: by("node", "TestPredecessors"),
	}, {
		name: "a member marked anew in the same process is the same generation: flushed, and its old votes count",
		file: "node/handshake.go",
		old:  `(st.RunID != runID || before != standing.marker.id)`, new: `(st.RunID != runID || before == runID)`,
		tests: by("redlock", "TestFlushWhileNobodyLooks"),
	}, {
		name: "debts are not paid before the connection is used: an owed release frees a later vote's key too late",
		file: "node/handshake.go",
		old:  "n.pay(s, true)\n", new: "",
		tests: by("node", "TestNoNewCallOvertakes|TestOwedReleaseComesFirst"),
	}, {
		name: "debts are paid under the standing of before: a restored queue is served",
		file: "node/handshake.go",
		old:  "n.stands(standing)\n	}\n	n.pay(s, true)", new: "defer n.stands(standing)\n	}\n	n.pay(s, true)",
		tests: by("redlock", "TestDebtsCarryTheNewStanding"),
	}, {
		name: "a release that may not have arrived is not owed",
		file: "node/node.go",
		old:  `if !c.OweUntil.IsZero() && c.Undelivered() && err != n.errEnded`, new: `if c.Outcome == member.Refused && !c.OweUntil.IsZero() && c.Undelivered() && err != n.errEnded`,
		tests: by("node", "TestOwedRelease"),
	}, {
		name: "a release that was refused for a while is forgotten",
		file: "node/owed.go",
		old:  `case !c.Undelivered():`, new: `case !c.Undelivered() || c.Outcome == member.Refused:`,
		tests: by("node", "TestRefusalThatPasses"),
	}, {
		name: "a release that the server cannot execute at the moment is forgotten: its lock stays for its whole TTL",
		file: "node/node.go",
		old:  `c.Undelivered() && err != n.errEnded`, new: `c.Undelivered() && c.Outcome != member.Refused && err != n.errEnded`,
		tests: by("node", "TestReleaseRefusedForAPassingReason|TestReleaseThatIsRefusedDuringClose"),
	}, {
		name: "a server that misses its replicas is taken for one that forbids: the release is forgotten",
		file: "member/error.go",
		old:  `case KindNoScript, KindReadOnly, KindLoading`, new: `case KindNoScript, KindLoading`,
		tests: by("node", "TestReleaseRefusedForAPassingReason"),
	}, {
		name: "a refused release is sent again at once: a burst of them hammers a server that can do nothing",
		file: "node/owed.go",
		old:  "	if c.Outcome == member.Refused {\n		d.refused()\n	}\n", new: "",
		tests: by("node", "TestReleaseRefusedForAPassingReason"),
	}, {
		name: "the pause after a refusal never grows: all releases hammer a server that can do nothing for long",
		file: "node/owed.go",
		old:  `max(2*d.pause, d.owed.pauseMin)`, new: `max(0, d.owed.pauseMin)`,
		tests: by("node", "TestReleaseRefusedForAPassingReason"),
	}, {
		name: "the pause after a refusal ends without anybody looking: the release waits for a ping",
		file: "node/owed.go",
		old:  "		d.refused()\n		o.wakeLocked(d)\n", new: "		d.refused()\n",
		tests: by("node", "TestReleaseRefusedForAPassingReason"),
	}, {
		name: "what a demoted master refused waits out its pause at its successor",
		file: "node/owed.go",
		old:  `case wait > 0 && !all:`, new: `case wait > 0:`,
		tests: by("node", "TestRefusedReleaseIsFirst"),
	}, {
		name: "there is too little room for what is owed: of many leases that end at once some keep their keys",
		file: "node/owed.go",
		old:  `maxDebtBytes = 64 << 20`, new: `maxDebtBytes = 16 << 20`,
		tests: by("node", "TestReleasesOfAHundredThousand"),
	}, {
		name: "Close gives up what is owed when the connection ends once more",
		file: "node/node.go",
		old:  `last && (!there || !n.rest(err))`, new: `last && (!there || !n.rest(err) || n != nil)`,
		tests: by("node", "TestClosePaysDebtsHoweverOften"),
	}, {
		name: "Close does not wait for its subscriptions: a server finds a listener that is none",
		file: "node/inbox.go",
		old:  "			in.leave(l)\n", new: "",
		tests: by("node", "TestServerHasEndedTheInbox"),
	}, {
		name: "Close pays under the standing of before: a restored queue is served",
		file: "node/handshake.go",
		old:  "	p.admission, p.admitted = a, a.marker.id != \"\"\n", new: "	if n.isClosing() {\n		n.mu.Unlock()\n		return\n	}\n	p.admission, p.admitted = a, a.marker.id != \"\"\n",
		tests: by("redlock", "TestDebtsCarryTheNewStanding"),
	}, {
		name: "Close drops what is owed to a member that waits for a standing",
		file: "node/handshake.go",
		old:  `if err == n.errClosed {`, new: `if err == nil {`,
		tests: by("node", "TestClosePaysAMemberWithoutAStanding"),
	}, {
		name: "debts are sent for ever, also when their locks have ended",
		file: "node/owed.go",
		old:  "case !now.Before(d.until):\n			o.removeLocked(d)", new: "case d.gone:\n			o.removeLocked(d)",
		tests: by("node", "TestOwedReleaseComesFirst"),
	}, {
		name: "a silent connection is kept: calls hang",
		file: "node/node.go",
		old:  `case busy && silence >= n.cfg.StallTimeout:`, new: `case busy && silence < 0:`,
		tests: by("node", "TestStallEndsTheConnection"),
	}, {
		name: "what was sent on a connection that broke counts as not sent: what it took is not released",
		file: "node/session.go",
		old:  `if position < sent {`, new: `if position > sent {`,
		tests: by("node", "TestOwedReleaseComesFirst"),
	}, {
		name: "a call is repeated although its release has begun: a key that nobody owns",
		file: "node/session.go",
		old:  `if c.Over() || c.Tagged`, new: `if c.Tagged`,
		tests: by("node", "TestEndedAttempt"),
	}, {
		name: "a call is repeated in another generation",
		file: "node/session.go",
		old:  `c.Over() || c.Tagged && !c.Always && c.State.Gen != now.state.Gen {`, new: `c.Over() {`,
		tests: by("node", "TestCallOfAnEndedGenerationIsNotRepaired"),
	}, {
		name: "a repaired call carries the tag of before: a flush goes unseen",
		file: "node/session.go",
		old:  "	if c.Tagged {\n		s.wbuf = resp.AppendBulk(s.wbuf, now.tag)", new: "	if c.Tagged {\n		s.wbuf = resp.AppendBulk(s.wbuf, \"\")",
		tests: by("node", "TestTagIsRead"),
	}, {
		name: "a member in quarantine is asked for votes",
		file: "node/session.go",
		old:  `if now.barred != nil && c.Tagged && !c.Always && !own {`, new: `if now.barred != nil && c.Tagged && !c.Always && own {`,
		tests: by("redlock", "TestMemberInQuarantineIsAskedForNothing"),
	}, {
		name: "the inbox does not compare the server process: pushes of the old one count",
		file: "node/inbox.go",
		old:  `return p.state.RunID == in.runID && `, new: `return `,
		tests: by("node", "TestPushOfAnotherProcess"),
	}, {
		name: "the inbox does not compare the generation: pushes of the ended one count",
		file: "node/inbox.go",
		old:  ` && p.state.Gen == in.gen && `, new: ` && `,
		tests: by("node", "TestPushOfAnotherMemory"),
	}, {
		name: "the inbox does not compare the marker: pushes from before a flush count",
		file: "node/inbox.go",
		old:  ` && p.admission.marker.id == in.id`, new: ``,
		tests: by("node", "TestPushOfAnotherMemory"),
	}, {
		name: "the inbox stays at a process that the commands have left",
		file: "node/inbox.go",
		old:  `p.state.Up && !in.same(p) {`, new: `!p.state.Up && !in.same(p) {`,
		tests: by("node", "TestInboxFollows"),
	}, {
		name: "an inbox counts as confirmed although the server never said so: grants that nobody hears of",
		file: "node/inbox.go",
		old:  `return false, fmt.Errorf("SUBSCRIBE: %w", ctx.Err())`, new: `_ = ctx`,
		tests: by("node", "TestInboxIsNotConfirmed"),
	},
}

var guards = []mutant{
	{
		name: "who may not ask for the process marks anew: it and those who may put all members into quarantine for ever",
		file: "node/marker.go",
		old:  `(runID == unknownRun || strings.HasPrefix(m.id, runID+" "))`, new: `strings.HasPrefix(m.id, runID+" ")`,
		tests: by("redlock", "TestUserWithoutInfo"),
	}, {
		name: "a marker of an earlier process is believed: a member that forgot votes at once",
		file: "node/guard.go",
		old:  `case m.id != "" && v.mode == GuardOff && (`, new: `case m.id != "" && (`,
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "quarantine skipped: a member that forgot votes under a living holder",
		file: "node/guard.go",
		old:  "case m.id != \"\":\n		return markLost, v.q", new: "case m.id != \"\":\n		return markLost, 0",
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "a member that had a marker is taken for new",
		file: "node/guard.go",
		old:  `case v.known:`, new: `case v.known && v.saw:`,
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "a majority without markers is a new deployment: two holders in 11 steps",
		file: "node/guard.go",
		old:  `case !v.saw && v.unmarked == v.members:`, new: `case !v.saw && 2*v.unmarked > v.members:`,
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "a new deployment on young servers votes at once: all may have lost everything",
		file: "node/guard.go",
		old:  `return markNew, max(0, v.q+v.lag-max(0, v.uptime-time.Second))`, new: `return markNew, 0`,
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "uptime is believed to the second: it runs up to a second ahead, two holders for 662 ms",
		file: "node/guard.go",
		old:  `max(0, v.uptime-time.Second)`, new: `max(0, v.uptime)`,
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "an unmarked member does not wait for somebody else's first marking",
		file: "node/guard.go",
		old:  `case v.young && v.waited < lookAgain:`, new: `case v.young && v.waited < 0:`,
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "nobody is seen to be marking: a member of a first deployment is quarantined",
		file: "node/guard.go",
		old:  `m.age+time.Since(at) < youngMarker`, new: `m.age+time.Since(at) < 0`,
		tests: by("node", "TestSomebodyElseIsMarking"),
	}, {
		name: "a first deployment never ends: a member met long after is taken for new",
		file: "node/guard.go",
		old:  `!g.first.IsZero() && clock.Elapsed(g.first, time.Now()) < youngMarker`, new: `!g.first.IsZero() && clock.Elapsed(g.first, time.Now()) < 24*time.Hour`,
		tests: by("redlock", "TestFirstDeploymentIsOver"),
	}, {
		name: "a greater q is not adopted: a quarantine that is too short for the longest leases",
		file: "node/guard.go",
		old:  `g.q = max(g.q, m.q)`, new: `g.q = max(g.q, 0)`,
		tests: by("redlock", "TestGreaterMaxTTL"),
	}, {
		name: "a marker that was seen is not remembered: a flushed member is taken for new",
		file: "node/guard.go",
		old:  `g.known[seat] = true`, new: `g.known[seat] = false`,
		tests: by("redlock", "TestFlushIsSeenByTheNextPing|TestSingleMember"),
	}, {
		name: "counters are merged without taking the greatest: tokens fall",
		file: "node/guard.go",
		old:  `table[bucket] = max(table[bucket], n)`, new: `table[bucket] = n`,
		tests: by("node", "TestCountersAreRestored"),
	}, {
		name: "a source whose order rests on the clocks lends absence: tokens fall",
		file: "node/guard.go",
		old:  `if _, ok := s.counters[bucket]; !ok {`, new: `if _, ok := s.counters[bucket]; !ok && s.counters == nil {`,
		tests: by("node", "TestCountersAreRestored"),
	}, {
		name: "too few sources are merged: the greatest counter may be missing",
		file: "node/guard.go",
		old:  `if len(sources) < enough {`, new: `if len(sources) == 0 {`,
		tests: by("node", "TestCountersAreRestored"),
	}, {
		name: "one source too few restores: the greatest counter may be missing",
		file: "node/guard.go",
		old:  `return g.cfg.Members - member.Majority(g.cfg.Members) + 1 }`, new: `return g.cfg.Members - member.Majority(g.cfg.Members) }`,
		tests: by("redlock", "TestStrictKeeps"),
	}, {
		name: "strict goes on from the clocks",
		file: "node/admit.go",
		old:  `(patient || g.cfg.Mode == GuardStrict)`, new: `patient`,
		tests: by("redlock", "TestStrictKeeps"),
	}, {
		name: "counters of a member that has forgotten since are lent",
		file: "node/admit.go",
		old:  `if err != nil || m.id != p.admission.marker.id || m.state == forgot || m.left > 0 || !m.known() {`, new: `if err != nil {`,
		tests: by("redlock", "TestCountersOfAMemberThatForgotSinceAreNotLent"),
	}, {
		name: "a state of g votes: before its counters are restored",
		file: "node/admit.go",
		old:  `p.admitted && m.state != forgot && m`, new: `p.admitted && m`,
		tests: by("redlock", "TestStrictKeeps|TestCountersAreRestoredBefore"),
	}, {
		name: "the end of the quarantine is not awaited",
		file: "node/admit.go",
		old:  `m.left == 0 && now.Sub(p.admission.votesFrom) >= 0`, new: `true`,
		tests: by("redlock", "TestFirstStartWaits"),
	}, {
		name: "a new generation keeps the number of the old one: votes of before a flush count",
		file: "node/admit.go",
		old:  "p.state.Gen++\n		p.admitted = false", new: "p.admitted = false",
		tests: by("redlock", "TestFlushIsSeenByTheFirstGrant"),
	}, {
		name: "a member votes while it is looked at anew",
		file: "node/admit.go",
		old:  "p.state.Gen++\n		p.admitted = false", new: "p.state.Gen++",
		tests: by("redlock", "TestMemberDoesNotVoteWhileItIsLookedAt"),
	}, {
		name: "a ping does not compare the marker: a flush goes unseen",
		file: "node/admit.go",
		old:  `if err != nil || m.id != p.admission.marker.id {`, new: `if err != nil || m.id == p.state.RunID {`,
		tests: by("redlock", "TestFlushIsSeenByTheNextPing"),
	}, {
		name: "a member goes back from whole to forgotten by a look that was under way",
		file: "node/admit.go",
		old:  ` && !(old.state == whole && m.state == forgot) {`, new: ` {`,
		tests: by("node", "TestLookFromBeforeTheRestoringIsNotTaken"),
	}, {
		name: "a look at another marker is taken for this one",
		file: "node/admit.go",
		old:  `if p.admitted && old.id == m.id && `, new: `if p.admitted && `,
		tests: by("node", "TestLookFromBeforeTheRestoringIsNotTaken"),
	}, {
		name: "FORGOT is ignored: a flushed member is believed until the next ping",
		file: "node/admit.go",
		old:  `e.Kind == member.KindForgot || `, new: ``,
		tests: by("redlock", "TestFlushIsSeenByTheFirstGrant"),
	}, {
		name: "LOADING does not end the generation: the server has restarted",
		file: "node/admit.go",
		old:  ` || e.Kind == member.KindLoading || `, new: ` || `,
		tests: by("redlock", "TestRefusalThatMayMeanAnotherMemory"),
	}, {
		name: "READONLY does not end the generation: the server was demoted",
		file: "node/admit.go",
		old:  ` || strings.HasPrefix(e.Text, "READONLY")`, new: ` || strings.HasPrefix(e.Text, "READONLY!")`,
		tests: by("redlock", "TestRefusalThatMayMeanAnotherMemory"),
	}, {
		name: "a client with longer leases does not raise q: quarantines are too short for them",
		file: "node/admit.go",
		old:  "if m.q < g.cfg.MaxTTL {\n\t\tlifted", new: "if m.q < 0 {\n\t\tlifted",
		tests: by("redlock", "TestGreaterMaxTTL"),
	}, {
		name: "longer leases are granted before all have learnt of them",
		file: "node/admit.go",
		old:  `r >= 0 && r < n.cfg.PingInterval {`, new: `r < 0 && r > n.cfg.PingInterval {`,
		tests: by("redlock", "TestGreaterMaxTTL|TestSecondClientWithAGreater"),
	}, {
		name: "a member is restored by the q of whoever does it alone: two holders, where a majority knew of longer leases than who marked it",
		file: "node/admit.go",
		old:  `q := longestOf(g.longest(), sources)`, new: `q := longestOf(g.cfg.MaxTTL, nil)`,
		tests: by("redlock", "TestQuarantineLastsForTheLongest|TestClientThatWasStopped"),
	}, {
		name: "sources do not tell their q: a quarantine that is too short stays so",
		file: "node/admit.go",
		old:  `source{clk: m.clk, q: m.q, `, new: `source{clk: m.clk, `,
		tests: by("redlock", "TestSourcesTellOfLonger"),
	}, {
		name: "the longest lease is that of the last source",
		file: "node/guard.go",
		old:  `known = max(known, s.q)`, new: `known = s.q`,
		tests: by("node", "TestAnySourceTellsOf"),
	}, {
		name: "a quarantine ends by our count alone: longer leases that the member was told of meanwhile are not waited for",
		file: "node/admit.go",
		old:  `m.left == 0 && now.Sub(`, new: `now.Sub(`,
		tests: by("node", "TestQuarantineDoesNotEnd"),
	}, {
		name: "a quarantine ends by the member's word alone: a server whose clock was set forward votes under a living holder",
		file: "node/admit.go",
		old:  `m.left == 0 && now.Sub(p.admission.votesFrom) >= 0`, new: `m.left == 0`,
		tests: by("node", "TestMemberThatOthersRestored"),
	}, {
		name: "a quarantine ends by the client's wall clock: set forward, it lets a member vote under a living holder",
		file: "node/admit.go",
		old:  `now.Sub(p.admission.votesFrom) >= 0`, new: `clock.Until(p.admission.votesFrom, now) <= 0`,
		tests: by("node", "TestQuarantineDoesNotEnd"),
	}, {
		name: "a later look shortens a quarantine: a server's clock that was set forward ends it",
		file: "node/admit.go",
		old:  `m.left > 0 && until.After(a.votesFrom) {`, new: `m.left > 0 {`,
		tests: by("node", "TestLaterLookNeverShortens"),
	}, {
		name: "votes are used before a majority knows of our MaxTTL: two holders in 15 steps",
		file: "node/node.go",
		old:  `may := fit && n.cfg.Guard.met.Load()`, new: `may := fit`,
		tests: by("redlock", "TestNoVoteIsUsedBefore"),
	}, {
		name: "a member that does not vote alone is said to be down, and not why",
		file: "redlock/members.go",
		old:  `out[i].Err = errUnmet`, new: `out[i].Err = nil`,
		tests: by("redlock", "TestMemberThatDoesNotVoteAlone"),
	}, {
		name: "a quarantine that a member's clock ends a moment later is told as one that was too short",
		file: "node/admit.go",
		old:  ` && m.left > 0 && m.q > known {`, new: ` && m.left > 0 && m.q >= known {`,
		tests: by("redlock", "TestQuarantineThatEndsLater"),
	}, {
		name: "a master that is found to be down keeps the others of its cluster from voting until the next ping",
		file: "node/node.go",
		old:  "			n.cfg.Guard.meet()\n", new: "",
		tests: by("cluster", "TestMastersVoteAsSoonAsTheLastOne"),
	}, {
		name: "one member that knows of our MaxTTL is a majority: two holders in 15 steps",
		file: "node/guard.go",
		old:  `return told >= member.Majority(members) }`, new: `return told >= 1 }`,
		tests: by("redlock", "TestNoVoteIsUsedBefore"),
	}, {
		name: "a member that another client marked meanwhile is not told of our MaxTTL",
		file: "node/admit.go",
		old:  "if m.q < g.cfg.MaxTTL { // marked meanwhile", new: "if m.q < 0 { // marked meanwhile",
		tests: by("redlock", "TestClientThatFindsAMemberMarkedMeanwhile"),
	}, {
		name: "a run_id that begins like another is the same process",
		file: "node/marker.go",
		old:  `strings.HasPrefix(m.id, runID+" ")`, new: `strings.HasPrefix(m.id, runID)`,
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "a release in quarantine hands over: a restored queue is served",
		file: "node/node.go",
		old: `		case !may:
			p.tag = noHandOver
`, new: ``,
		tests: by("redlock", "TestReleaseInQuarantineHandsOverToNobody"),
	}, {
		name: "the guard gives no vote away but still says who votes: members in quarantine count as voting",
		file: "node/node.go",
		old:  `p.state.Votes = p.state.Up && may`, new: `p.state.Votes = p.state.Up || may`,
		tests: by("redlock", "TestFirstStartWaits"),
	},
}
