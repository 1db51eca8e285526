-- acquire, with Config.Interop: refuses also while the lock is left to others.
--   ARGV[2] owner   ARGV[3] TTL, ms
--include lib.lua
--include interop.lua
local owner, ttl = ARGV[2], ARGV[3]
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  local wait = turn()
  if wait then return -wait end
  local n, why = count()
  if not n then return why end
  own(owner, text(n), ttl)
  return n
end
if left == -1 and type(redis.pcall('HGET', KEYS[1], owner)) ~= 'string' then return redis.error_reply('FOREIGN no ttl') end
local token = redis.call('HGET', KEYS[1], owner)
if token then
  --include mine.lua
  if not mine(KEYS[1], owner) then return -math.max(left, 1) end
  keep(KEYS[1], ttl)
  return tonumber(token)
end
--include foreign.lua
if foreign(KEYS[1]) then return redis.error_reply('FOREIGN no lock') end
return -math.max(left, 1)
