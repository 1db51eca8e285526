-- Gives up the vote and the place in the queue of a fair lock, and executes the request of the first in line in the same step.
-- Where nobody waits or has waited, that costs HDEL and EXISTS.
--   KEYS, ARGV[1], ARGV[#ARGV] as in lib.lua   ARGV[2] owner
-- Replies as release.
local owner, hint = ARGV[2], ''
if redis.call('EXISTS', KEYS[5]) == 0 then return redis.call('HDEL', KEYS[1], owner) end
local function pass()
  --include pass.lua
end
local said = pass()
-- Nobody has a ticket here any more. The last one is removed, or else ends with waiters.
if redis.pcall('EXISTS', KEYS[1]) == 0 and redis.pcall('EXISTS', KEYS[4]) == 0 then redis.pcall('HDEL', KEYS[5], '#') end
return said
