-- Takes over a reader's lease that was handed off, as adopt does.
-- Returns {1} or {2}, as rw_extend, and where its downgrade has not come, what adopt does.
--include base.lua
local owner, ttl, former = ARGV[2], ARGV[3], ARGV[4]
local v = redis.pcall('HMGET', KEYS[1], owner, former, 'r')
if v[3] then
  --include line.lua
  --include mine.lua
  if not drop(former) then ask('HDEL', KEYS[5], former) end -- what it may wait for here is nobody's
  local vote, gone = v[1] or v[2], {}
  if not vote or vote + 0 > 1e14 then return {0} end -- as in rw_extend
  if v[2] then gone = {former, '999999999999999'} end -- in one command, as in adopt
  keep(KEYS[1], ttl)
  redis.call('HSET', KEYS[1], owner, string.format('%.0f', math.max((now - now % 1000) / 1000 + 1 + ttl, vote + 0)), unpack(gone))
  redis.call('HDEL', KEYS[1], former)
  return {1 + redis.call('EXISTS', KEYS[4])}
end
--include adopt.lua
