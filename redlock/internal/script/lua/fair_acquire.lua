-- Asks for a fair lock once, as acquire does, but not before those who wait for it.
--   KEYS[4] queue   KEYS[5] waiters   everything else, and the reply, as in acquire
local name, tokens, marker = KEYS[1], KEYS[2], KEYS[3]
local bucket, owner, ttl, id, call, try, time = ARGV[1], ARGV[2], ARGV[3], ARGV[4], redis.call, redis.pcall
if redis.call('EXISTS', KEYS[4]) == 1 and redis.call('EXISTS', name) == 0 then
  --include base.lua
  --include line.lua
  --include live.lua
  --include first.lua
  if first() then return -1 end
end
--include vote.lua
