package main

// operators are the guards of what people and their scripts use: the command, and what it stands on.
var operators = []mutant{
	{
		name: "the clock of a cluster is that of its first master",
		file: "cluster/look.go",
		old:  `known && (!ok || a.Abs() > ahead.Abs())`, new: `known && !ok`,
		tests: by("cluster", "TestClockOfAClusterIsTheFarthest"),
	}, {
		name: "a clock that is behind is never the farthest of a cluster",
		file: "cluster/look.go",
		old:  `a.Abs() > ahead.Abs()`, new: `a > ahead`,
		tests: by("cluster", "TestClockOfAClusterIsTheFarthest"),
	}, {
		name: "a round of renewals is told before a member that took the lease back decides it",
		file: "redlock/keeper.go",
		old:  "\t\tn.trace.left++\n", new: "",
		tests: by("redlock", "TestRoundOfRenewalsIsToldOnce"),
	}, {
		name: "the part of a cluster that does not vote is not told",
		file: "cluster/look.go",
		old:  "if st.Votes {\n\t\t\tcontinue", new: "if true {\n\t\t\tcontinue",
		tests: by("redlock", "TestPartOfAClusterThatDoesNotVoteIsTold"),
	}, {
		name: "a server of another kind than its URL says is not named",
		file: "node/scheme.go",
		old:  `if kind == want {`, new: `if true {`,
		tests: by("node", "TestServerOfAnotherKindIsNamed"),
	}, {
		name: "a server that speaks TLS, behind a URL without, is a connection that breaks",
		file: "node/scheme.go",
		old:  `if failed == nil || errors.As(failed, &alert) && alert.Op == "remote error" {`, new: `if errors.As(failed, &alert) && alert == nil {`,
		tests: by("node", "TestTLSOnOneSideAloneIsNamed"),
	}, {
		name: "a server without TLS that says nothing to TLS is not asked without",
		file: "node/scheme.go",
		old:  `if plain = n.plainly(ctx, addr); plain {`, new: `if false {`,
		tests: by("node", "TestTLSOnOneSideAloneIsNamed"),
	}, {
		name: "the doctor takes what a script could not try for permitted",
		file: "cmd/redlock/internal/doctor/facts.go",
		old:  `case err != nil || len(r.Elems) != len(inScript):`, new: `case false:`,
		tests: by("cmd/redlock/internal/doctor", "TestPermissionsThatCannotBeTried"),
	}, {
		name: "the doctor says nothing of a version that no test runs on",
		file: "cmd/redlock/internal/doctor/version.go",
		old:  `case !s.Tested():`, new: `case false:`,
		tests: by("cmd/redlock/internal/doctor", "TestJudge$"),
	}, {
		name: "a fork is taken for the version of Redis that it is like",
		file: "cmd/redlock/internal/doctor/version.go",
		old:  `strings.ToLower(brand)+"_version"`, new: `"no"+"_version"`,
		tests: by("cmd/redlock/internal/doctor", "TestJudge$|TestSummaryNames"),
	}, {
		name: "a fault of one master is not told while the first one has it not",
		file: "cmd/redlock/internal/doctor/version.go",
		old:  `range f.Parts {`, new: `range f.Parts[:1] {`,
		tests: by("cmd/redlock/internal/doctor", "TestKnownFaultIsToldOnce"),
	}, {
		name: "a name that nobody chose, and that the user may not use on Redis 6.2, is critical",
		file: "cmd/redlock/internal/doctor/judge.go",
		old:  `if f.ACLErr != nil && !slices`, new: `if false && !slices`,
		tests: by("cmd/redlock/internal/doctor", "TestJudge$"),
	}, {
		name: "a version of one server is taken for tested where that of another is",
		file: "internal/tested/tested.go",
		old:  `s.Name() == known.Name()`, new: `s.Line() == known.Line()`,
		tests: by("internal/tested", "TestServerIsTested"),
	},
	{
		name: "force takes the lock from whoever has it, although another was looked at: the next holder loses it",
		file: "redlock/script/rob.lua",
		old:  `if redis.sha1hex(owner) == ARGV[2] then from = owner end`, new: `from = owner`,
		tests: script("^force"),
	}, {
		name: "with interop, force takes the lock from whoever has it: the next holder loses it",
		file: "redlock/script/rob.lua",
		old:  `if redis.sha1hex(owner) == ARGV[2] then from = owner end`, new: `from = owner`,
		tests: by("redlock", "TestScriptsBesideTheReferenceSystem"),
	}, {
		name: "the holder that was looked at is not told to the members",
		file: "redlock/admin.go",
		old:  `return c.force(ctx, seen.Key, seen.holder)`, new: `return c.force(ctx, seen.Key, "")`,
		tests: by("redlock", "TestForceUnlockOfTheHolder"),
	}, {
		name: "Extend does not carry out what another goroutine has decided: it says that a lost lease stands",
		file: "redlock/keeper.go",
		old:  "	n.settle()\n", new: "",
		tests: by("redlock", "TestExtendThatAMajority"),
	}, {
		name: "what a waiter obtained is not extended before the command starts: it starts under a lease of 3 s, or one that is lost",
		file: "cmd/redlock/run.go",
		old:  `if clock.Until(lease.ValidUntil(), time.Now()) < ttl*2/3 {`, new: `if clock.Until(lease.ValidUntil(), time.Now()) < 0 {`,
		tests: by("cmd/redlock", "TestWhatIsObtained|TestCommandDoesNotStart"),
	}, {
		name: "the command starts although the extension failed",
		file: "cmd/redlock/run.go",
		old:  `return nil, errors.Join(err, lease.Unlock(context.WithoutCancel(ctx)))`, new: `return lease, nil`,
		tests: by("cmd/redlock", "TestCommandDoesNotStart"),
	}, {
		name: "a command that Ctrl-Z has stopped stays stopped, and the terminal is nobody's",
		file: "cmd/redlock/internal/child/supervise.go",
		old:  "			p.Continue()\n", new: "",
		tests: by("cmd/redlock/internal/child", "TestSuperviseUndoesAStop"),
	}, {
		name: "the command is given a patience with members that are gone which the user did not give",
		file: "cmd/redlock/connect.go",
		old:  "		patience = noQuorumAfter\n", new: "",
		tests: by("cmd/redlock", "TestRetryLastsAsLong"),
	}, {
		name: "where a password is to be found is taken for one",
		file: "cmd/redlock/internal/settings/settings.go",
		old:  `at >= 0 && strings.Contains(auth[:at], ":")`, new: `at >= 0`,
		tests: by("cmd/redlock/internal/settings", "TestUsersMayBe"),
	},
}
