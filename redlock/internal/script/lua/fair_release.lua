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
--include spent.lua
return said
