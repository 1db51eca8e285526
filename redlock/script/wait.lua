-- Asks for the lock and stays registered when it is another's. Repeated as a heartbeat.
--   KEYS, ARGV[1], ARGV[#ARGV] as in lib.lua
--   ARGV[2] owner   ARGV[3] TTL of a grant, ms   ARGV[4] lifetime of the entry, ms
-- Returns {token or -PTTL, server time in µs, head of the queue or '-'}. Errors as acquire.
--include base.lua
local owner, ttl, entry = ARGV[2], ARGV[3], ARGV[4] + 0
local left = redis.call('PTTL', KEYS[1])
if left == -1 then return redis.error_reply('FOREIGN no ttl') end
if left == -2 then
  --include grant.lua
  --include line.lua
  local n = count()
  if not n then return redis.error_reply('FORGOT marker') end
  own(owner, n, ttl)
  drop(owner)
  return {n, now, head()}
end
local held = redis.call('HGETALL', KEYS[1])
for i = 1, #held, 2 do
  if held[i] == owner then
    --include line.lua
    if left < ttl + 0 then redis.call('PEXPIRE', KEYS[1], ttl) end
    drop(owner)
    return {tonumber(held[i + 1]), now, head()}
  end
end
--include register.lua
if register(owner, ttl, entry) then
  --include push.lua
  local holder = held[1]
  if holder then push(holder, 'w ' .. holder .. ' ' .. owner) end
end
return {-math.max(left, 1), now, '-'}
