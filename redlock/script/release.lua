-- Gives up the vote and the place in the queue, and executes the successor's request in the same step.
-- In front of lib.lua and pass.lua, which are of no use where nobody waits: that costs HDEL and EXISTS.
--   KEYS, ARGV[1], ARGV[#ARGV] as in lib.lua   ARGV[2] owner   ARGV[3] hint: the waiter to prefer, or ''
-- Returns 1 if the vote was the owner's (freed or handed over), 0 if not.
-- Error FORGOT marker: the vote is freed, but nothing could be handed over.
local owner, hint = ARGV[2], ARGV[3]
if redis.call('EXISTS', KEYS[4]) == 0 then return redis.call('HDEL', KEYS[1], owner) end
