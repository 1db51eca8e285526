package main

// Calls that travel together.
var batches = []mutant{
	{
		name: "the items of a batch read the clock anew: a grant is believed from a moment after its TTL has begun to count",
		file: "redlock/script/base.lua",
		old:  `--include time.lua`, new: `local time = redis.call('TIME')`,
		tests: by("redlock", "TestEverythingThatABatchGrants"),
	}, {
		name: "what fails in a batch ends it: calls that were executed are told that they were not",
		file: "redlock/script/batch.lua",
		old:  `ok, said = pcall(acquires)`, new: `ok, said = true, acquires()`,
		tests: by("redlock", "TestBatch"),
	}, {
		name: "a release that fails in a batch ends it",
		file: "redlock/script/batch.lua",
		old:  `ok, said = pcall(releases)`, new: `ok, said = true, releases()`,
		tests: by("redlock", "TestBatch"),
	}, {
		name: "a release in a batch hands nothing over: waiters wait for a heartbeat",
		file: "redlock/script/batch.lua",
		old:  `if redis.call('EXISTS', queue) == 0 then`, new: `if true then`,
		tests: by("redlock", "TestBatch"),
	}, {
		name: "a release in a batch does not say whether it freed the lock: an unlock succeeds that was too late",
		file: "redlock/script/batch.lua",
		old:  `return redis.call('HDEL', name, owner) end`, new: `redis.call('HDEL', name, owner) return 1 end`,
		tests: by("redlock", "TestBatch"),
	}, {
		name: "the items of a batch at a master have the counters of the first: tokens of one slot in another's",
		file: "redlock/script/batch.lua",
		old:  `if more == 1 then`, new: `if more == 1 and i == 1 then`,
		tests: by("cluster", "TestCallsTravelTogether|TestBatchAt"),
	}, {
		name: "a slot that is not served counts as an interruption: an unlock that did nothing succeeds",
		file: "redlock/script/batch.lua",
		old:  `if string.find(said, 'non local key', 1, true) then`, new: `if false then`,
		tests: by("cluster", "TestBatchAt"),
	}, {
		name: "a batch takes calls of different tags: a vote at a member in quarantine hands over",
		file: "node/join.go",
		old:  `n == joinMost || tag != s.itemsTag ||`, new: `n == joinMost ||`,
		tests: by("node", "TestBatchHasTheTag"),
	}, {
		name: "a batch has no limit: a server does nothing else",
		file: "node/join.go",
		old:  `n == joinMost || tag`, new: `n == 2*joinMost || tag`,
		tests: by("node", "TestCallsThatTravelApart"),
	}, {
		name: "a call behind a batch is written before it",
		file: "node/session.go",
		old:  "	} else {\n		s.joinLocked()\n", new: "	} else {\n",
		tests: by("node", "TestCallsThatTravelApart"),
	}, {
		name: "a vote that replicas must acknowledge travels in a batch, and nobody waits for them",
		file: "node/join.go",
		old:  `c.Tagged && n.waits == nil && !c.Asking()`, new: `c.Tagged && !c.Asking()`,
		tests: by("node", "TestCallsThatTravelApart"),
	}, {
		name: "a call that is to be asked of another master travels in a batch without it",
		file: "node/join.go",
		old:  `c.Tagged && n.waits == nil && !c.Asking()`, new: `c.Tagged && n.waits == nil`,
		tests: by("node", "TestCallsThatTravelApart"),
	}, {
		name: "the answers of a batch are given to its calls in another number",
		file: "node/join.go",
		old:  `case all.Kind == '*' && len(all.Elems) == n:`, new: `case all.Kind == '*' && len(all.Elems) >= n:`,
		tests: by("node", "TestBatchAnsweredInAnotherNumber"),
	}, {
		name: "a call that was repaired counts as a batch still: it takes the answers of others",
		file: "node/session.go",
		old:  `repaired: repaired, acked: entry.acked})`, new: `repaired: repaired, acked: entry.acked, together: entry.together})`,
		tests: by("node", "TestCallsThatWaitTravelTogether|TestBatchWithoutItsScript"),
	}, {
		name: "the reader takes over calls that are not written yet: nobody knows which of them are one command",
		file: "node/session.go",
		old:  `encoded := len(s.queue) - len(s.items)`, new: `encoded := len(s.queue)`,
		tests: by("node", "TestItemsThatAreNotWrittenYet"),
	}, {
		name: "a server that takes no batches gets them again and again",
		file: "node/session.go",
		old:  `if !s.apart && s.node.joins(c) {`, new: `if s.node.joins(c) {`,
		tests: by("node", "TestServerThatRefusesABatch"),
	}, {
		name: "a batch that is refused for one of its calls fails for all of them",
		file: "node/join.go",
		old:  `if refused = kind == member.KindCluster || kind == member.KindAuth; refused {`, new: `if refused = kind == member.KindOther; refused {`,
		tests: by("node", "TestServerThatRefusesABatch|TestKeyThatIsNot"),
	}, {
		name: "a call that was refused with others is repeated behind its release: a key that nobody owns",
		file: "node/session.go",
		old:  "c.Over() || c.Tagged && !c.Always", new: "c.Tagged && !c.Always",
		tests: by("node", "TestRefusedBatchIsNotRepeated"),
	}, {
		name: "a repair goes in front of what waits in line: calls get the answers of others",
		file: "node/session.go",
		old:  "	s.joinLocked() // what waits in line is written before\n", new: "",
		tests: by("node", "TestRepairGoesBehind"),
	}, {
		name: "the scripts are loaded in front of what waits in line: calls get the answers of others",
		file: "node/session.go",
		old:  "	s.joinLocked() // what waits in line is written before\n	first()\n", new: "	first()\n	s.joinLocked()\n",
		tests: by("node", "TestRepairGoesBehind"),
	}, {
		name: "batches go on where scripts cannot be loaded: each call is sent in full, for ever",
		file: "node/session.go",
		old:  "if refused != nil && notPermitted(refused) {", new: "if refused != nil && refused == nil {",
		tests: by("node", "TestServerThatMayNotLoad"),
	}, {
		name: "a call that comes during a write is written by nobody",
		file: "node/session.go",
		old:  `more := !s.emptyLocked()`, new: `more := len(s.wbuf) > 0`,
		tests: by("node", "TestItemThatComesDuringAWrite"),
	}, {
		name: "calls that are refused together share the memory of the refusal",
		file: "node/join.go",
		old:  `append(r.Str[:0], all.Str...), r.Elems[:0]`, new: `all.Str, r.Elems[:0]`,
		tests: by("node", "TestCallsThatWereRefusedTogether"),
	}, {
		name: "a null among the answers of a batch cuts off the rest",
		file: "redlock/script/batch.lua",
		old:  `out[i] = said or false else`, new: `out[i] = said else`,
		tests: by("redlock", "TestBatchIsOneAfterTheOther"),
	}, {
		name: "a call that came back travels in a batch again: it is never told where it belongs",
		file: "cluster/cluster.go",
		old:  "		c.Item = member.Item{} // by itself: then it is told where it belongs\n", new: "",
		tests: by("cluster", "TestCallThatComesBackTravelsAlone"),
	}, {
		name: "calls of another script's keys travel in a batch",
		file: "redlock/encode.go",
		old:  "	if k.shared != nil {\n		return member.Item{}\n	}\n", new: "",
		tests: by("redlock", "TestScriptsBesideTheReferenceSystem|TestBatchesAreNotForInterop"),
	}, {
		name: "calls that were to be written by who gathers are written by nobody",
		file: "node/session.go",
		old:  "	s.flushing, s.gathering = true, false\n", new: "	s.flushing = true\n",
		tests: by("node", "TestEveryItem|TestEveryAnswer"),
	},
}
