package main

// clusters are the guards of members that are more than one server.
var clusters = []mutant{
	{
		name: "a call is passed to a slot's new master while earlier ones are at the former: they may overtake each other",
		file: "cluster/cluster.go",
		old:  "if t.detour != nil || t.calls > 0 && t.owner != want {", new: "if t.detour != nil {",
		tests: by("cluster", "TestCallIsNotPassedOn"),
	}, {
		name: "a shard whose master was replaced is left out: no master is found for its slots",
		file: "cluster/topology.go",
		old:  `if replaced(nodes) {`, new: `if false {`,
		tests: by("cluster", "TestTopologyIsRead"),
	}, {
		name: "a call that came back alone goes behind those that wait: their order is lost",
		file: "cluster/cluster.go",
		old:  "if t.detour.alone {", new: "if t.calls < 0 {",
		tests: by("cluster", "TestSlotThatNobodyServesForAMoment"),
	}, {
		name: "a release does not follow its slot: its caller is told that it is in doubt",
		file: "cluster/cluster.go",
		old:  "	if st.do != deliver && st.do != giveUp {", new: "	if !c.OweUntil.IsZero() && st.do != deliver {\n		st = step{}\n	}\n	if st.do != deliver && st.do != giveUp {",
		tests: by("cluster", "TestSlotIsMovedBackAndForthUnderItsContenders/^sharded"),
	}, {
		name: "nobody is pushed to in a cluster: each hand-over takes a heartbeat",
		file: "redlock/script/push.lua",
		old:  "  if not client then return end", new: "  if not client or KEYS[2] == KEYS[3] then return end",
		tests: by("cluster", "TestSlotIsMovedBackAndForthUnderItsContenders/^sharded"),
	}, {
		name: "a push that a slot's new master sends, and that nothing dates, makes nobody ask: the hand-over takes a heartbeat",
		file: "redlock/ballot.go",
		old:  "		m.retry = at\n		return false", new: "		return false",
		tests: by("cluster", "TestSlotIsMovedBackAndForthUnderItsContenders/^sharded"),
	}, {
		name: "who came last is served first: one waiter waits for ever while all others have their turns",
		file: "redlock/script/line.lua",
		old:  "ask('ZRANGE', KEYS[4], others or '0', others or '0')", new: "ask('ZRANGE', KEYS[4], '-1', '-1')",
		tests: by("cluster", "TestSlotIsMovedBackAndForthUnderItsContenders/^sharded"),
	}, {
		name: "servers that agree while a slot moves are taken for ones that send a call round in circles: its caller gets an error",
		file: "cluster/cluster.go",
		old:  "		r.hops = 0\n", new: "",
		tests: by("cluster", "TestSlotIsMovedBackAndForthUnderItsContenders/^sharded"),
	}, {
		name: "a call begins where the one before that had its route has ended",
		file: "cluster/route.go",
		old:  `*r = route{cl: cl, gen: cl.group.Era()}`, new: `r.cl, r.gen = cl, cl.group.Era()`,
		tests: by("cluster", "TestRoutesAreRecycledClean"),
	}, {
		name: "redirects are followed for ever",
		file: "cluster/redirect.go",
		old:  "case r.hops >= maxHops:", new: "case r.hops > 250:",
		tests: by("cluster", "TestMastersThatSend|TestRedirectIsDecided"),
	}, {
		name: "a redirect that speaks of another slot is followed",
		file: "cluster/redirect.go",
		old:  "err != nil || uint16(n) != slot", new: "err != nil || uint16(n) > 16383",
		tests: by("cluster", "TestRedirectIsDecided"),
	}, {
		name: "a topology with two masters for a slot is believed",
		file: "cluster/topology.go",
		old:  "if taken[s] {", new: "if taken[s] && len(masters) == 0 {",
		tests: by("cluster", "TestTopologyIsRead"),
	}, {
		name: "a release that a topology refused is forgotten",
		file: "cluster/cluster.go",
		old:  "err != cl.errEnded && c.Undelivered()", new: "err != cl.errEnded && c == nil",
		tests: by("cluster", "TestReleaseThatWasNotDelivered"),
	}, {
		name: "Close drops the releases whose slot moves meanwhile",
		file: "cluster/cluster.go",
		old:  "unsettled := cl.settle(ctx)", new: "var unsettled error",
		tests: by("cluster", "TestEveryCallBeforeClose|TestCloseSendsWhatWaits"),
	}, {
		name: "Close does not wait for releases that are owed to a cluster",
		file: "cluster/cluster.go",
		old:  "return cl.owed.none()", new: "return true",
		tests: by("cluster", "TestEveryCallBeforeClose|TestReleaseThatIsRefused"),
	}, {
		name: "calls are taken in while a cluster is being closed: Close never ends under load",
		file: "cluster/cluster.go",
		old:  "cl.submit(c, &cl.closing)", new: "cl.submit(c, &cl.closed)",
		tests: by("cluster", "TestEveryCallBeforeClose"),
	}, {
		name: "what is owed is refused while a cluster is being closed",
		file: "cluster/owed.go",
		old:  "cl.submit(&d.call, &cl.closed)", new: "cl.submit(&d.call, &cl.closing)",
		tests: by("cluster", "TestEveryCallBeforeClose|TestReleaseThatIsRefused"),
	}, {
		name: "a marker that nobody carried along is not looked for: a reshard silences a master",
		file: "node/admit.go",
		old:  `m.id == "" && runID != unknownRun && !searched {`, new: `m.id == "" && runID == unknownRun && !searched {`,
		tests: by("cluster", "TestMarkerThatNobody"),
	}, {
		name: "a marker is believed beside the stamp of a later one: a master that forgot votes",
		file: "node/shard.go",
		old:  `id == "" || stamped > made {`, new: `id == "" {`,
		tests: by("cluster", "TestMarkerThatNobody"),
	}, {
		name: "ASKING is not sent",
		file: "node/session.go",
		old:  "		if c.Asking() {\n			s.askingLocked()\n		}\n", new: "",
		tests: by("cluster", "TestAskIsOneCalls"),
	}, {
		name: "a master that was demoted and promoted again is what it was: its replica's memory counts as its own",
		file: "node/shard.go",
		old:  "return m.repl == m.now }", new: "return true }",
		tests: by("cluster", "TestMasterThatComesBack|TestMasterThatSentinelsBringBack"),
	}, {
		name: "a replica that took over before the marker reached it is as old as its process: it votes at once",
		file: "node/guard.go",
		old:  "if m.promoted() { // perhaps", new: "if v.fresh { // perhaps",
		tests: by("cluster", "TestMasterThatSentinelsBringBack"),
	}, {
		name: "a replica that took over counts as new in the cluster: it votes at once",
		file: "node/admit.go",
		old:  `m.id == "" && !m.promoted() && n.inherited(s)`, new: `m.id == ""`,
		tests: by("cluster", "TestReplicaThatTakesOver"),
	}, {
		name: "a replica that took over sits out no quarantine: what its master granted last is granted again",
		file: "node/admit.go",
		old:  "if do == markLost || quarantine > 0 && m.promoted() {", new: "if m.promoted() {\n			quarantine = 0\n		} else if do == markLost {",
		tests: by("cluster", "TestReplicaThatTakesOver/the_master_is_killed|TestLockThatTheReplicaNeverGot"),
	}, {
		name: "a master without a marker counts as new in the cluster, whoever stamped its slots: a take-over that its server has forgotten is not seen",
		file: "node/shard.go",
		old:  "c.Outcome == member.Answered && good[string(c.Reply.Str)] })", new: "c.Outcome == member.Answered })",
		tests: by("cluster", "TestMasterThatHasForgottenThatItTookOver"),
	}, {
		name: "a slot of a master that does not vote yet is used by the one that gets it",
		file: "node/shard.go",
		old:  "if m.state == forgot || m.left > 0 {", new: "if m.state == forgot {",
		tests: by("cluster", "TestFirstStartAtAMaster"),
	}, {
		name: "a master that is new in the cluster counts as one that forgot",
		file: "node/admit.go",
		old:  `m.id == "" && !m.promoted() && n.inherited(s)`, new: `m.id == "" && n.isClosing()`,
		tests: by("cluster", "TestMasterThatIsNew"),
	}, {
		name: "the former master may go on granting while its successor votes",
		file: "node/admit.go",
		old:  "quarantine += n.cfg.FailoverLag", new: "quarantine += 0",
		tests: by("cluster", "TestFlushOfOneMaster"),
	}, {
		name: "who is not heard in the sharded inbox is not told elsewhere: a push is lost while its slot is given away",
		file: "redlock/script/push.lua",
		old:  "if type(heard) == 'number' and heard > 0 then return end", new: "do return end",
		tests: by("cluster", "TestShardedInboxIsInASlot"),
	}, {
		name: "a young server in a replicated deployment is waited for no longer than its own leases: the master it replaced may still grant",
		file: "node/guard.go",
		old:  "v.q+v.lag-max", new: "v.q-max",
		tests: by("node", "TestWhatAMarkerMeans"),
	}, {
		name: "who listens anew does not ask again where nobody looked meanwhile: a heartbeat is lost",
		file: "redlock/ballot.go",
		old:  "if m.off || m.ear != 0 && m.ear != states[i].Ear {", new: "if m.off {",
		tests: by("redlock", "TestMemberIsAskedAtOnceWhenItIsListened"),
	}, {
		name: "a flushed master is stamped again, and its slot used",
		file: "node/shard.go",
		old:  "if err != nil || m.id != id || !m.known() {\n		select", new: "if err != nil || m.id == \"x\" {\n		select",
		tests: by("cluster", "TestFlushOfOneMaster"),
	}, {
		name: "the switch that Sentinels announce is not heard: the client stays with a master that hangs",
		file: "node/watch.go",
		old:  "if !still {", new: "if !still && w.n == nil {",
		tests: by("cluster", "TestMasterThatSentinelsReplace"),
	}, {
		name: "WAIT's answer does not matter",
		file: "node/session.go",
		old:  "w.Reply.Int >= int64(s.node.cfg.MinReplicasAck)", new: "w.Reply.Int >= 0",
		tests: by("cluster", "TestVoteThatNoReplica"),
	}, {
		name: "a pushed grant that no replica has counts",
		file: "node/inbox.go",
		old:  "if in.node.waits != nil {", new: "if in.node.waits != nil && in.node == nil {",
		tests: by("cluster", "TestVoteThatNoReplica"),
	}, {
		name: "WAIT is sent without being asked for",
		file: "node/node.go",
		old:  "if c.MinReplicasAck > 0 {", new: "if c.MinReplicasAck >= 0 {",
		tests: by("cluster", "TestNoWaitIsSent"),
	}, {
		name: "the reason why a certificate of ours was refused is lost",
		file: "node/link.go",
		old:  `said.Op == "remote error"`, new: `said.Op == ""`,
		tests: by("node", "TestWriteThatFails"),
	},
}
