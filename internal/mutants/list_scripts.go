package main

// script names cases of the table that ties the scripts' text to the protocol.
func script(cases string) []tests {
	return by("redlock", "TestScriptsDoWhatTheProtocolSays/embedded/"+cases)
}

// stopped names cases of the scripts that end in the middle and are repeated.
func stopped(cases string) []tests {
	return by("redlock", "TestScriptThatEndsInTheMiddleAndIsRepeatedGivesOneVote/"+cases)
}

var scripts = []mutant{
	{
		name: "acquire grants from 2^53 on: two holders with one token",
		file: "redlock/script/vote.lua",
		old:  `if n >= 9007199254740992 then`, new: `if false then`,
		tests: script("^no_token_is"),
	}, {
		name: "a grant while waiting, or by a yield, may be from 2^53 on: two holders with one token",
		file: "redlock/script/grant.lua",
		old:  `if n >= 9007199254740992 then`, new: `if false then`,
		tests: script("^no_token_is"),
	}, {
		name: "with interop tokens go on from 2^53 on: two holders with one token",
		file: "redlock/script/interop.lua",
		old:  `if n >= 9007199254740992 then`, new: `if false then`,
		tests: by("redlock", "TestScriptsBesideTheReferenceSystem/embedded/no_token_is"),
	}, {
		name: "who waits for a lock without a token is not told: it waits for ever",
		file: "redlock/ballot.go",
		old:  `case kindOf(m.err) == member.KindExhausted, `, new: `case `,
		tests: by("redlock", "TestTokensAreNeverEqual"),
	}, {
		name: "acquire by the holder sets the TTL whatever is left: an older, longer validity outlives its key",
		file: "redlock/script/mine.lua",
		old:  `left < tonumber(ttl) and ttl or string.format('%.0f', left)`, new: `ttl`,
		tests: script("^acquire"),
	}, {
		name: "acquire does not compare the marker in a new bucket: a flushed member grants beside the holder",
		file: "redlock/script/vote.lua",
		old:  `if id ~= '' and redis.call('HGET', marker, 'id') ~= string.match(id, '^[^/]*') then`, new: `if false then`,
		tests: script("^acquire"),
	}, {
		name: "acquire takes a key without TTL for a lock: a lock that never ends",
		file: "redlock/script/vote.lua",
		old:  `if left == -1 and type(redis.pcall('HGET', name, owner)) ~= 'string' then`, new: `if false then`,
		tests: script("^acquire"),
	}, {
		name: "a new bucket starts at 1 and not at the server's time: tokens fall after a flush",
		file: "redlock/script/vote.lua",
		old:  `n = time[1] * 1000000 + time[2]`, new: `n = 1`,
		tests: script("^acquire"),
	}, {
		name: "acquire does not count on: two holders with one token",
		file: "redlock/script/vote.lua",
		old:  `local n = redis.call('HINCRBY', tokens, bucket, '1')`,
		new:  `local n = redis.call('HINCRBY', tokens, bucket, redis.call('HEXISTS', tokens, bucket) == 1 and '0' or '1')`,

		tests: script("^acquire"),
	}, {
		name: "acquire gives the vote whoever has it: two holders",
		file: "redlock/script/vote.lua",
		old:  `if left == -2 then`, new: `if left ~= -1 then`,
		tests: script("^acquire"),
	}, {
		name: "a script goes on where the server refuses to write: it meets the same entry for ever, and nobody can use that server",
		file: "redlock/script/base.lua",
		old:  `local ask = redis.call`, new: `local ask = redis.pcall`,
		tests: by("redlock", "TestScriptEndsWhereTheServerRefuses"),
	}, {
		name: "a grant writes the vote before its token: FORGOT leaves a vote behind",
		file: "redlock/script/wait.lua",
		old:  "  local n, why = count()\n", new: "  own(owner, '1', ttl)\n  local n, why = count()\n",
		tests: script("^wait"),
	}, {
		name: "wait and hand-over do not compare the marker in a new bucket: a flushed member grants",
		file: "redlock/script/grant.lua",
		old:  `if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then`, new: `if false then`,
		tests: script("^wait"),
	}, {
		name: "entries that have run out count: the vote goes to a waiter that is gone",
		file: "redlock/script/hand.lua",
		old:  `if left < 1 then return nil end`, new: `left = math.max(left, 1)`,
		tests: script("^release"),
	}, {
		name: "lengthen shortens: an older, longer validity outlives its key",
		file: "redlock/script/register.lua",
		old:  `if redis.call('PTTL', key) < tonumber(least or ttl) then`, new: `if true then`,
		tests: script("^(wait|rejoin)"),
	}, {
		name: "a queue lives no longer than half an entry: a waiter is forgotten before its time",
		file: "redlock/script/register.lua",
		old:  `lengthen(KEYS[4], 2 * entry + 1, 1.5 * entry)`, new: `lengthen(KEYS[4], 2 * entry, entry / 2)`,
		tests: by("redlock", "TestScriptsDoWhatTheProtocolSays/embedded/^wait|TestSchedulesModel"),
	}, {
		name: "who leaves the queue stays among the waiters: keys are left behind",
		file: "redlock/script/line.lua",
		old:  `if queued then ask('HDEL', KEYS[5], owner) end`, new: ``,
		tests: script("^(wait|release)"),
	}, {
		name: "the time is told without its zeros: a registration of the first tenth of a second is in front of all",
		file: "redlock/script/base.lua",
		old:  `(#time[2] == 6 and time[2] or string.sub('000000' .. time[2], -6))`, new: `time[2]`,
		tests: by("redlock", "TestSchedulesModel"),
	}, {
		name: "what a waiter is handed outlives its entry: dead waiters hold up members one after the other",
		file: "redlock/script/hand.lua",
		old:  `if left < ttl + 0 then`, new: `if false then`,
		tests: by("redlock", "TestNextHolderComesWithinOneEntry|TestScriptsDoWhatTheProtocolSays/embedded/^release"),
	}, {
		name: "a waiter that has missed a heartbeat comes before one that has not: its short grants end unheard",
		file: "redlock/script/hand.lua",
		old:  `local missed = left < ttl / 2`, new: `local missed = false`,
		tests: by("redlock", "TestNextHolderComesWithinOneEntry|TestScriptsDoWhatTheProtocolSays/embedded/^release"),
	}, {
		name: "who has missed a heartbeat is never handed anything, nor who waits behind it",
		file: "redlock/script/hand.lua",
		old:  `if not late then return false end`, new: `if true then return false end`,
		tests: script("^release"),
	}, {
		name: "a hint that has missed a heartbeat moves everybody on by one",
		file: "redlock/script/hand.lua",
		old:  `elseif not hinted then`, new: `else`,
		tests: script("^release"),
	}, {
		name: "yield gives to a waiter that has missed a heartbeat",
		file: "redlock/script/yield.lua",
		old:  `elseif not missed then`, new: `else`,
		tests: script("^yield"),
	}, {
		name: "a waiter that gives up tells nobody: the holder names it as its successor",
		file: "redlock/script/withdraw.lua",
		old:  `if waited and tag ~= '!' then`, new: `if false then`,
		tests: by("redlock", "TestHolderForgetsWaitersThatGaveUp|TestScriptsDoWhatTheProtocolSays/embedded/^release"),
	}, {
		name: "who did not wait tells the holder that it has given up",
		file: "redlock/script/withdraw.lua",
		old:  `if waited and tag`, new: `if tag`,
		tests: script("^release"),
	}, {
		name: "entries of dead waiters stay while the lock is held: each yield looks at all of them",
		file: "redlock/script/tidy.lua",
		old:  `or 0) * 1000 < now`, new: `or 0) < 0`,
		tests: by("redlock", "TestEntriesOfDeadWaiters|TestScriptsDoWhatTheProtocolSays/embedded/^wait_removes"),
	}, {
		name: "a registration removes the entries of living waiters",
		file: "redlock/script/tidy.lua",
		old:  `or 0) * 1000 < now`, new: `or 0) > 0`,
		tests: script("^wait_removes"),
	}, {
		name: "a holder that was forced out stays in the queue of a member, and is served there",
		file: "redlock/script/bury.lua",
		old:  `== ARGV[2] then drop(waiter)`, new: `== '' then drop(waiter)`,
		tests: script("^force"),
	}, {
		name: "what is over of a force and of a queue that has ended stays for ever at a lock that is never idle",
		file: "redlock/script/tidy.lua",
		old:  `if first == 0 and head`, new: `if false and head`,
		tests: script("^wait_removes"),
	}, {
		name: "the hint is ignored: members choose different successors",
		file: "redlock/script/hand.lua",
		old:  `if not hinted then next = head() end`, new: `next, hinted = head(), false`,
		tests: script("^release"),
	}, {
		name: "who was served stays in the queue: it is served again",
		file: "redlock/script/hand.lua",
		old:  `if not drop(owner) then`, new: `if false then`,
		tests: script("^release"),
	}, {
		name: "a hint that does not wait gets the vote: nobody has the lock until its TTL ends",
		file: "redlock/script/hand.lua",
		old:  `if not drop(owner) then`, new: `if not drop(owner) and false then`,
		tests: script("^release"),
	}, {
		name: "where nothing can be counted the first in line loses its place",
		file: "redlock/script/hand.lua",
		old:  `if not n then return n end`, new: `if not n then return drop(next) and nil end`,
		tests: script("^release"),
	}, {
		name: "who does not wait is passed over, and has a vote beside the next one's",
		file: "redlock/script/hand.lua",
		old:  `redis.call('HDEL', KEYS[1], owner)`, new: ``,
		tests: script("^release"),
	}, {
		name: "a token that ends in eight zeros is given to Redis as a number: 7.2.0 writes 1.7e+15, and the holder's word is not believed",
		file: "redlock/script/vote.lua",
		old:  `n % 100000000 == 0 and string.format('%.0f', n) or n`, new: `n`,
		tests: by("redlock", "TestNumbersThatRedisWritesShort"),
	}, {
		name: "a counter that ends in eight zeros is given to Redis as a number: 7.2.0 writes 1.7e+15, and never counts on",
		file: "redlock/script/grant.lua",
		old:  `redis.call('HSET', KEYS[2], bucket, string.format('%.0f', n))`, new: `redis.call('HSET', KEYS[2], bucket, n)`,
		tests: by("redlock", "TestNumbersThatRedisWritesShort"),
	}, {
		name: "wait shortens: an older, longer validity outlives its key",
		file: "redlock/script/wait.lua",
		old:  `keep(KEYS[1], ttl)`, new: `redis.call('PEXPIRE', KEYS[1], ttl)`,
		tests: script("^wait"),
	}, {
		name: "at a master of a cluster a script goes on where the server refuses to write",
		file: "redlock/script/base.lua",
		old:  `if not string.find(answer.err, 'non local key', 1, true) then`, new: `if false then`,
		tests: by("redlock", "TestScriptEndsWhereTheServerRefuses"),
	}, {
		name: "a heartbeat loses its place: waiters overtake each other for ever",
		file: "redlock/script/register.lua",
		old:  `redis.call('ZADD', KEYS[4], 'NX', stamp, owner)`, new: `redis.call('ZADD', KEYS[4], stamp, owner)`,
		tests: script("^wait"),
	}, {
		name: "wait takes a key without TTL for a lock",
		file: "redlock/script/wait.lua",
		old:  `if left == -1 and type(redis.pcall('HGET', KEYS[1], owner)) ~= 'string' then`, new: `if false then`,
		tests: script("^wait"),
	}, {
		name: "a waiter that was granted stays in the queue: it is served twice",
		file: "redlock/script/wait.lua",
		old:  "    drop(owner)\n", new: "",
		tests: script("^wait"),
	}, {
		name: "extend shortens: an older, longer validity outlives its key",
		file: "redlock/script/extend.lua",
		old:  `left < tonumber(ttl) and ttl or string.format('%.0f', left)`, new: `ttl`,
		tests: script("^extend"),
	}, {
		name: "extend renews another's lock and says yes: two holders",
		file: "redlock/script/extend.lua",
		old:  `if held == 1 then`, new: `if held == 1 or held == 0 then`,
		tests: script("^extend"),
	}, {
		name: "extend takes what a server refuses for a lock of another's: leases end that are held",
		file: "redlock/script/extend.lua",
		old:  `if not string.find(held.err, 'WRONGTYPE', 1, true) then redis.call('HEXISTS', key, ARGV[2 * i - 1]) end`, new: ``,
		tests: by("redlock", "TestScriptsDoWhatTheProtocolSays/real/extend_that_may_not_ask"),
	}, {
		name: "a vote that cannot be given an end stays: the name is taken for ever",
		file: "redlock/script/grant.lua",
		old:  "    redis.call('HDEL', KEYS[1], owner)\n    redis.call('PEXPIRE', KEYS[1], ttl)", new: "    redis.call('PEXPIRE', KEYS[1], ttl)",
		tests: by("redlock", "TestScriptsDoWhatTheProtocolSays/real/a_vote_that_may_not"),
	}, {
		name: "raise without the owner check: a counter is lifted where nothing is held",
		file: "redlock/script/raise.lua",
		old:  `not vote or tonumber(vote) > tonumber(ARGV[3])`, new: `vote and tonumber(vote) > tonumber(ARGV[3])`,
		tests: script("^raise"),
	}, {
		name: "raise confirms a vote above the token: another holder may have drawn the same",
		file: "redlock/script/raise.lua",
		old:  `not vote or tonumber(vote) > tonumber(ARGV[3])`, new: `not vote`,
		tests: script("^raise"),
	}, {
		name: "raise does nothing: the next token is lower",
		file: "redlock/script/raise.lua",
		old:  `tonumber(n) < tonumber(ARGV[3]) and ARGV[3] or n`, new: `n`,
		tests: script("^raise"),
	}, {
		name: "raise lowers a counter: the next token is one that was given out",
		file: "redlock/script/raise.lua",
		old:  `tonumber(n) < tonumber(ARGV[3]) and ARGV[3] or n`, new: `ARGV[3]`,
		tests: script("^raise"),
	}, {
		name: "rejoin does not compare the marker in a new bucket: a stale client makes the counter that the guard misses",
		file: "redlock/script/rejoin.lua",
		old:  `if n == 0 and tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then return redis.error_reply('FORGOT marker') end`, new: ``,
		tests: script("^rejoin"),
	}, {
		name: "rejoin without lifting the counter: the next token is lower",
		file: "redlock/script/rejoin.lua",
		old:  `if n < token then`, new: `if false then`,
		tests: script("^rejoin"),
	}, {
		name: "rejoin takes another's vote: two holders",
		file: "redlock/script/rejoin.lua",
		old:  `if redis.call('EXISTS', KEYS[1]) == 0 then`, new: `if true then`,
		tests: script("^rejoin"),
	}, {
		name: "release without the owner check: it frees another's lock",
		file: "redlock/script/release.lua",
		old:  `return redis.call('HDEL', KEYS[1], owner) end`, new: `return redis.call('DEL', KEYS[1]) end`,
		tests: script("^release"),
	}, {
		name: "release by somebody else hands over: two holders",
		file: "redlock/script/pass.lua",
		old:  "if had == 0 then\n", new: "if had == 0 and false then\n",
		tests: script("^release"),
	}, {
		name: "release hands over although told not to: a restored queue is served in quarantine",
		file: "redlock/script/pass.lua",
		old:  `tag ~= '!' and redis.call('HLEN', KEYS[1]) == 1 and hand(hint)`, new: `redis.call('HLEN', KEYS[1]) == 1 and hand(hint)`,
		tests: script("^release"),
	}, {
		name: "release keeps the place in the queue: a waiter that gave up gets the lock",
		file: "redlock/script/pass.lua",
		old:  "local waited = drop(owner)\n", new: "local waited = false\n",
		tests: script("^release"),
	}, {
		name: "yield does not look at the token: a late one gives up a later vote, two holders",
		file: "redlock/script/yield.lua",
		old:  `if redis.call('HGET', KEYS[1], owner) ~= ARGV[3] then`, new: `if not redis.call('HGET', KEYS[1], owner) then`,
		tests: script("^yield"),
	}, {
		name: "yield keeps the vote under the old token: pushes and replies of before count again",
		file: "redlock/script/yield.lua",
		old:  "  local n, why = count()\n", new: "  local n, why = tonumber(ARGV[3]), ''\n",
		tests: script("^yield"),
	}, {
		name: "a release that is repeated hands over once more: two holders",
		file: "redlock/script/pass.lua",
		old:  `redis.call('HLEN', KEYS[1]) == 1 and `, new: ``,
		tests: stopped("release_that_hands_over$"),
	}, {
		name: "a yield that is repeated gives or keeps the vote once more: two holders",
		file: "redlock/script/yield.lua",
		old:  `if redis.call('HLEN', KEYS[1]) > 1 then`, new: `if false then`,
		tests: stopped("yield_that"),
	}, {
		name: "with interop a release hands over what a yield has given already: two holders",
		file: "redlock/script/interop_release.lua",
		old:  `if redis.call('HLEN', KEYS[1]) > 1 then`, new: `if false then`,
		tests: stopped("release.*with_interop"),
	}, {
		name: "a lock is forced open, and with it the vote of the next holder: two holders",
		file: "redlock/script/rob.lua",
		old:  `if #owners > 1 then return`, new: `if false then return`,
		tests: stopped("force_of_one_owner_in_the_middle"),
	}, {
		name: "who has given its vote up is told that it has it, beside the next holder",
		file: "redlock/script/mine.lua",
		old:  `return heir == owner`, new: `return true`,
		tests: stopped(""),
	}, {
		name: "a waiter is told of a vote that could not be given an end, and is deleted",
		file: "redlock/script/grant.lua",
		old:  `error('ERR a vote could not be given an end', 0)`, new: ``,
		tests: stopped("release_that_hands_over"),
	}, {
		name: "an acquire that was ended before it gave its vote an end is refused for ever",
		file: "redlock/script/vote.lua",
		old:  `type(redis.pcall('HGET', name, owner)) ~= 'string'`, new: `true`,
		tests: stopped("acquire"),
	}, {
		name: "a bucket that was counted up and is not begun goes on from 1, without a look at the marker",
		file: "redlock/script/vote.lua",
		old:  `redis.call('HDEL', tokens, bucket) --`, new: `--`,
		tests: stopped("acquire"),
	}, {
		name: "a grant while waiting begins a bucket at 2, without a look at the marker",
		file: "redlock/script/grant.lua",
		old:  `redis.call('HDEL', KEYS[2], bucket) --`, new: `--`,
		tests: stopped("wait"),
	}, {
		name: "a vote is repeated without a write: it counts though no replica has it",
		file: "redlock/script/mine.lua",
		old:  `redis.call('PEXPIRE', key, left < tonumber(ttl) and ttl or string.format('%.0f', left))`, new: `if left < tonumber(ttl) then redis.call('PEXPIRE', key, ttl) end`,
		tests: by("redlock", "TestWhoIsToldThatALockIsItsHasWritten"),
	}, {
		name: "a lease is renewed without a write: it counts though no replica has it",
		file: "redlock/script/extend.lua",
		old:  `redis.call('PEXPIRE', key, left < tonumber(ttl) and ttl or string.format('%.0f', left))`, new: `if left < tonumber(ttl) then redis.call('PEXPIRE', key, ttl) end`,
		tests: by("redlock", "TestWhoIsToldThatALockIsItsHasWritten"),
	}, {
		name: "a counter is raised without a write: it counts though no replica has it",
		file: "redlock/script/raise.lua",
		old:  `redis.call('HSET', KEYS[2], ARGV[1], tonumber(n)`, new: `if tonumber(n) < tonumber(ARGV[3]) then redis.call('HSET', KEYS[2], ARGV[1], ARGV[3]) end --`,
		tests: by("redlock", "TestWhoIsToldThatALockIsItsHasWritten"),
	}, {
		name: "force is undone by a re-join: a forced lease is renewed, beside the next one",
		file: "redlock/script/rejoin.lua",
		old:  `if buried(owner) then return 0 end`, new: ``,
		tests: script("^force"),
	}, {
		name: "with interop force is undone by a re-join",
		file: "redlock/script/interop_rejoin.lua",
		old:  `if buried(owner) then return 0 end`, new: ``,
		tests: by("redlock", "TestScriptsBesideTheReferenceSystem/embedded/a_lock_of_ours_that_was_taken"),
	}, {
		name: "a force that names an owner keeps others from being re-joined",
		file: "redlock/script/bury.lua",
		old:  `'!' .. ARGV[2]`, new: `'!'`,
		tests: script("^force"),
	}, {
		name: "a second force shortens the first: a long lease is re-joined after it",
		file: "redlock/script/bury.lua",
		old:  `if tonumber(redis.call('HGET', KEYS[5], field) or 0) < least then`, new: `if true then`,
		tests: script("^force"),
	}, {
		name: "force does not look how long leases may be: one of a client with longer ones is re-joined",
		file: "redlock/script/bury.lua",
		old:  `tonumber(redis.call('HGET', KEYS[3], 'q') or 0)`, new: `0`,
		tests: script("^force"),
	}, {
		name: "force deletes what is no lock",
		file: "redlock/script/force.lua",
		old:  `if redis.call('PTTL', KEYS[1]) == -1 then return redis.error_reply('FOREIGN no ttl') end`, new: ``,
		tests: script("^force"),
	}, {
		name: "force hands over although told not to",
		file: "redlock/script/force.lua",
		old:  `if tag == '!' then return 1 end`, new: ``,
		tests: script("^force"),
	},
}

// The scripts of the restart guard.
func guardScript(cases string) []tests {
	return by("node", "TestGuardScriptsDoWhatTheProtocolSays/embedded/"+cases)
}

var guardScripts = []mutant{
	{
		name: "mark does not look whether another client has meanwhile: a second quarantine, a second generation",
		file: "node/script/mark.lua",
		old:  `if id and string.sub(id, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' and`, new: `if id and false and`,
		tests: guardScript("^mark"),
	}, {
		name: "a member that forgot keeps counters of a snapshot: tokens fall",
		file: "node/script/mark.lua",
		old:  `if ARGV[4] == 'g' then redis.call('DEL', KEYS[3]) end`, new: ``,
		tests: guardScript("^mark"),
	}, {
		name: "mark writes no quarantine: other clients let the member vote at once",
		file: "node/script/mark.lua",
		old:  `redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])`, new: `redis.call('DEL', KEYS[2])`,
		tests: guardScript("^mark"),
	}, {
		name: "restore does not compare the id: counters read before the member forgot once more make it whole",
		file: "node/script/restore.lua",
		old:  `r[1] ~= ARGV[1] or `, new: ``,
		tests: guardScript("^restore"),
	}, {
		name: "restore does not look at the state: a second client's late restore",
		file: "node/script/restore.lua",
		old:  `r[2] ~= 'g' or `, new: ``,
		tests: guardScript("^restore"),
	}, {
		name: "restore does not look at the quarantine: the member votes under a living holder",
		file: "node/script/restore.lua",
		old:  ` or r[4] > 0 then`, new: ` then`,
		tests: guardScript("^restore"),
	}, {
		name: "restore lowers a counter",
		file: "node/script/restore.lua",
		old:  `if n < tonumber(ARGV[i + 1]) then`, new: `if true then`,
		tests: guardScript("^restore"),
	}, {
		name: "restore does not prolong: a quarantine that was too short for the longest leases ends",
		file: "node/script/restore.lua",
		old:  `if raise(ARGV[3]) then return look() end`, new: ``,
		tests: guardScript("^restore"),
	}, {
		name: "lift does not compare the id: a member marked anew is told a q that nobody waited for",
		file: "node/script/lift.lua",
		old:  `if redis.call('HGET', KEYS[1], 'id') == ARGV[1] then raise(ARGV[2]) end`, new: `raise(ARGV[2])`,
		tests: guardScript("^lift"),
	}, {
		name: "q is lowered: a quarantine that is too short for the longest leases",
		file: "node/script/raise.lua",
		old:  `if q <= old then return false end`, new: ``,
		tests: guardScript("^lift"),
	}, {
		name: "a greater q does not say when: a second client with longer leases does not wait until all know",
		file: "node/script/raise.lua",
		old:  `, 'lifted', string.format('%.0f', t[1] * 1000000 + t[2]))`, new: `)`,
		tests: guardScript("^(lift|restore)"),
	}, {
		name: "a greater q does not prolong a quarantine: who tells of it may hold there",
		file: "node/script/raise.lua",
		old:  `if left > 0 or h[2] == 'g' then`, new: `if left < 0 and h[2] == 'g' then`,
		tests: guardScript("^lift"),
	}, {
		name: "a greater q does not prolong the quarantine of a member that waits to be restored",
		file: "node/script/raise.lua",
		old:  `if left > 0 or h[2] == 'g' then`, new: `if left > 0 then`,
		tests: guardScript("^lift|^restore"),
	}, {
		name: "a greater q is all of a new quarantine, and not the difference: each client prolongs it by its whole MaxTTL",
		file: "node/script/raise.lua",
		old:  `+ q - old))`, new: `+ q))`,
		tests: guardScript("^lift|^restore"),
	}, {
		name: "a slot that moved is stamped without asking how long leases may be: it rests too short a time",
		file: "node/script/stamp.lua",
		old:  `if ARGV[3] ~= '1' then return -1 end`, new: ``,
		tests: guardScript("^stamp"),
	}, {
		name: "a marker that another client carried keeps the smaller q",
		file: "node/script/carry.lua",
		old:  `if repl == ARGV[5] and id == ARGV[1] then raise(ARGV[3]) end`, new: ``,
		tests: by("node", "TestGuardScriptsDoWhatTheProtocolSays/real/^carry"),
	},
}
