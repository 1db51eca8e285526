-- A reader's raise: lifts the counter, and what newcomers of the phase are told, so that they need
-- no second round. A phase that drew a greater token is a later one than the one that was counted.
--   KEYS, ARGV as raise
-- Returns 1, or 0 if the vote is not the owner's, or is of a later phase.
local v = redis.call('HMGET', KEYS[1], 'r', ARGV[2])
local drawn, told, marking = string.match(v[1] or '', '^(%d+) (%d+) (.*)$')
if not v[2] or not drawn or tonumber(drawn) > tonumber(ARGV[3]) then return 0 end
local n = redis.call('HGET', KEYS[2], ARGV[1]) or '0' -- it writes in any case: see keep in mine.lua
redis.call('HSET', KEYS[2], ARGV[1], tonumber(n) < tonumber(ARGV[3]) and ARGV[3] or n)
if tonumber(told) < tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], 'r', drawn .. ' ' .. ARGV[3] .. ' ' .. marking)
end
return 1
