-- Asks for the lock and stays registered when it is another's. Repeated as a heartbeat.
--   ARGV[2] owner   ARGV[3] TTL of a grant, ms   ARGV[4] lifetime of the entry, ms
-- Returns {token or -PTTL, server time in µs, head of the queue or '-'}. Errors as acquire.
local owner, ttl, entry = ARGV[2], ARGV[3], tonumber(ARGV[4])
local left = redis.call('PTTL', KEYS[1])
if left == -1 then return redis.error_reply('FOREIGN no ttl') end
if left == -2 then
  local n = grant(owner, ttl)
  if not n then return forgot() end
  drop(owner)
  return {n, now, head()}
end
local held = redis.call('HGETALL', KEYS[1])
for i = 1, #held, 2 do
  if held[i] == owner then
    lengthen(KEYS[1], ttl)
    drop(owner)
    return {tonumber(held[i + 1]), now, head()}
  end
end
if register(owner, ttl, entry) then
  local holder = held[1]
  if holder then push(holder, 'w ' .. holder .. ' ' .. owner) end
end
return {-math.max(left, 1), now, '-'}
