-- Lifts the counter to a token that a majority is about to hand out, where the owner still holds.
--   KEYS[1] lock   KEYS[2] token counters
--   ARGV[1] bucket   ARGV[2] owner   ARGV[3] token   ARGV[4] marker id (unused)
-- Returns 1, or 0 if the vote is not the owner's.
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
local n = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0)
if n < tonumber(ARGV[3]) then redis.call('HSET', KEYS[2], ARGV[1], ARGV[3]) end
return 1
