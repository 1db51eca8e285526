-- A reader's standing request. Repeated as a heartbeat.
--   KEYS, ARGV[1], ARGV[#ARGV] as in lib.lua   ARGV[2] owner   ARGV[3] TTL of a grant, ms   ARGV[4] lifetime of the entry, ms
-- Returns {token or -PTTL, server time in µs, the writer that is next, or '-'}. Errors as acquire.
--include rw.lua
local owner, ttl, entry = ARGV[2], ARGV[3], ARGV[4] + 0
local left = redis.call('PTTL', KEYS[1])
local mine = redis.call('HMGET', KEYS[1], 'r', owner)
if left == -1 and not mine[2] then return redis.error_reply('FOREIGN no ttl') end
local all = {}
if left > 0 and not mine[2] then
  all = mine[1] and {'r', mine[1]} or redis.call('HGETALL', KEYS[1])
  --include alien.lua
  if alien then return redis.error_reply('FOREIGN no lock') end
end
local next = writer()
if left == -2 and next ~= '-' then -- free, and a writer waits: a reader that took it would be before it
  if hand('') == nil then return redis.error_reply('FORGOT marker') end
  left, next = redis.call('PTTL', KEYS[1]), writer()
elseif left == -2 or told(mine[1]) and (mine[2] or next == '-') then
  local t = told(mine[1])
  if left == -2 then
    local n, why = count()
    if not n then return why end
    t = text(n)
    begin(t, ttl, owner, over(ttl))
  else
    if not mine[2] or mine[2] + 0 < over(ttl) + 0 then mine[2] = over(ttl) end
    redis.call('PEXPIRE', KEYS[1], left < ttl + 0 and ttl or text(left)) -- see keep in mine.lua
    redis.call('HSET', KEYS[1], owner, mine[2])
  end
  ask('HDEL', KEYS[5], owner)
  if next == '-' then admit(false) end -- the writer that they waited behind is gone
  return {t + 0, now, next}
end
redis.call('HSET', KEYS[5], owner, nowms + entry .. ' ' .. ttl .. ' r') -- printed in full below 10^14
local lives = redis.call('PTTL', KEYS[5])
if lives < 1.5 * entry then
  lives = 2 * entry + 1
  redis.call('PEXPIRE', KEYS[5], lives)
end
if redis.call('EXISTS', KEYS[4]) == 1 then lengthen(KEYS[4], text(lives)) end -- see register.lua
-- The owner of a mutex has readers served by its release only if it knows of them. If the one that has the vote has sent
-- its release by now, the next one knows.
if not mine[1] then
  local holder = all[1] or redis.call('HKEYS', KEYS[1])[1]
  if holder then push(holder, 'r ' .. holder) end
  if next ~= '-' then push(next, 'r ' .. next) end
end
return {-math.max(left, 1), now, next}
