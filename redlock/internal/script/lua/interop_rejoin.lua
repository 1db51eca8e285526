-- rejoin, with Config.Interop.   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] the lease's token
--include lib.lua
--include interop.lua
local owner, ttl, token = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then return redis.error_reply('FORGOT marker') end
--include mine.lua
local within = redis.call('HEXISTS', KEYS[1], owner) == 1
local has = within and mine(KEYS[1], owner)
if has then keep(KEYS[1], ttl) end
lift(token)
if has then drop(owner) end
if within then return has and 1 or 0 end
--include buried.lua
if redis.call('EXISTS', KEYS[1]) == 0 then
  if buried(owner) then return 0 end
  own(owner, ARGV[4], ARGV[3])
  drop(owner)
  return 1
end
--include wish.lua
if not buried(owner) then wish(owner, ARGV[3], '0.5') end
return 0
