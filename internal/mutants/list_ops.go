package main

// operators are the guards of what people and their scripts use: the command, and what it stands on.
var operators = []mutant{
	{
		name: "force takes the lock from whoever has it, although another was looked at: the next holder loses it",
		file: "redlock/script/force.lua",
		old:  `if ARGV[2] ~= '' and redis.sha1hex(redis.call('HKEYS', KEYS[1])[1]) ~= ARGV[2] then return 0 end`, new: ``,
		tests: script("^force"),
	}, {
		name: "with interop, force takes the lock from whoever has it: the next holder loses it",
		file: "redlock/script/interop_force.lua",
		old:  `if ARGV[2] ~= '' and redis.sha1hex(redis.call('HKEYS', KEYS[1])[1]) ~= ARGV[2] then return 0 end`, new: ``,
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
	},
}
