-- Makes a writer's vote a reader's, in one step, and lets in all readers that wait. Whoever holds the lock besides is a reader:
-- those that wish for the vote (wish.lua) have it, too.
--   ARGV[2] owner   ARGV[3] TTL, ms
-- Returns {token of the phase, or 0: the vote is not the owner's, server time in µs, the writer
-- that is next, or '-'}.
--include rw.lua
--include mine.lua
local owner, ttl = ARGV[2], ARGV[3]
drop(owner)
local had = redis.call('HMGET', KEYS[1], 'r', owner)
if not had[2] then return {0, now, '-'} end
if had[1] then -- it is a reader's already; or the writer's release was interrupted
  return {had[2] + 0 < 1e14 and (told(had[1]) or 1) + 0 or 0, now, writer()}
end
if not mine(KEYS[1], owner) then return {0, now, '-'} end
local n, why = count()
if not n then return why end
local longest = text(math.max(ttl + 0, redis.call('PTTL', KEYS[1]))) -- a validity that rests on a longer grant may still be trusted
begin(text(n), longest, owner, over(longest))
if tag ~= '!' then
  for _, other in ipairs(ask('ZRANGE', KEYS[4], '0.25', '0.25', 'BYSCORE') or {}) do
    local left = live(other)
    drop(other)
    if left then
      redis.call('HSET', KEYS[1], other, over(left))
      lengthen(KEYS[1], left)
      push(other, 'g ' .. other .. ' ' .. text(n) .. ' ' .. stamp .. ' - ' .. left)
    end
  end
  admit(false)
end
return {n, now, writer()}
