-- rejoin, with Config.Interop.   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] the lease's token
--include lib.lua
--include interop.lua
local owner, ttl, token = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then return redis.error_reply('FORGOT marker') end
--include mine.lua
local has = redis.call('HEXISTS', KEYS[1], owner) == 1 and mine(KEYS[1], owner)
if has then keep(KEYS[1], ttl) end
lift(token)
if has then return 1 end
if redis.call('EXISTS', KEYS[1]) == 0 then
  --include buried.lua
  if buried(owner) then return 0 end
  own(owner, ARGV[4], ARGV[3])
  drop(owner)
  return 1
end
return 0
