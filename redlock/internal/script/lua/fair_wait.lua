-- Asks for a fair lock and stays registered under a ticket. Repeated as a heartbeat, and when the ticket is agreed.
--   KEYS, ARGV[1], ARGV[#ARGV] as in lib.lua
--   ARGV[2] owner   ARGV[3] TTL of a grant, ms   ARGV[4] lifetime of the entry, ms   ARGV[5] the ticket, '0' before one is agreed
-- Returns {token or -PTTL, server time in µs, head of the queue or '-', the owner's ticket here; 0: it has none}.
-- A lock that is free goes to the first in line, who may be another. Errors as acquire.
--include base.lua
--include line.lua
--include lengthen.lua
--include fair.lua
local owner, ttl, entry, agreed = ARGV[2], ARGV[3], ARGV[4] + 0, ARGV[5]
local left = redis.call('PTTL', KEYS[1])
if left == -1 and type(redis.pcall('HGET', KEYS[1], owner)) ~= 'string' then return redis.error_reply('FOREIGN no ttl') end
if left == -2 then
  --include push.lua
  --include grant.lua
  --include live.lua
  --include give.lua
  --include first.lua
  local n, why = count()
  if not n then return why end
  local ticket = stand(owner, agreed, ttl, entry)
  local heir, heirTTL = first()
  if heir == owner then
    own(owner, string.format('%.0f', n), ttl)
    drop(owner)
    return {n, now, head(), ticket}
  end
  give(heir, n, heirTTL)
  push(heir, 'w ' .. heir .. ' ' .. owner)
  return {-math.max(redis.call('PTTL', KEYS[1]), 1), now, '-', ticket}
end
local held = redis.call('HGETALL', KEYS[1])
for i = 1, #held, 2 do
  if held[i] == owner then
    --include mine.lua
    if not mine(KEYS[1], owner) then return {-math.max(left, 1), now, '-', 0} end
    keep(KEYS[1], ttl)
    local ticket = ticketOf(owner, agreed)
    lasting(entry)
    drop(owner)
    return {tonumber(held[i + 1]), now, head(), ticket}
  end
end
local all = held
--include alien.lua
if alien then return redis.error_reply('FOREIGN no lock') end
local ticket, ahead = stand(owner, agreed, ttl, entry)
if ahead then
  --include push.lua
  for i = 1, math.min(#held, 127), 2 do push(held[i], 'w ' .. held[i] .. ' ' .. owner) end -- see stay.lua
end
if now % 7 == 0 then
  --include tidy.lua
end
return {-math.max(left, 1), now, '-', ticket}
