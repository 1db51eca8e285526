-- Resolves a split of a fair lock: all members give to the same owner, the one whose ticket is the smallest. (Not to a waiter
-- that has missed a heartbeat, as in first.lua.) Where somebody waits whose client does not know tickets, they give to the one
-- whose name hashes lowest, as that client's yield does: the two orders could keep a split for ever. But who holds the lock comes first.
--   ARGV[2] owner   ARGV[3] the token of the vote it yields   ARGV[4] TTL of a grant, ms
--   ARGV[5] lifetime of the entry, ms   ARGV[6] the owner's ticket, or its place here before one is agreed; '0': not known
-- Returns {new token if the owner keeps the vote, else 0, server time in µs}. Error FORGOT marker.
--include base.lua
--include push.lua
--include grant.lua
--include line.lua
--include live.lua
--include give.lua
--include lengthen.lua
--include fair.lua
--include first.lua
--include wisher.lua
local owner, ttl, entry = ARGV[2], ARGV[4], tonumber(ARGV[5])
if redis.call('HGET', KEYS[1], owner) ~= ARGV[3] then return {0, now} end
stand(owner, ARGV[6], ttl, entry)
if redis.call('HLEN', KEYS[1]) > 1 then -- this one was interrupted: another has the vote
  redis.call('HDEL', KEYS[1], owner)
  return {0, now}
end
local heir, heirTTL = first()
local all, mixed = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'), false
for i = 2, #all, 2 do mixed = mixed or all[i] % 1 == 0 end
if mixed and heir ~= wisher() then
  local lowest = redis.sha1hex(owner)
  heir = owner
  for i = 1, #all, 2 do
    local hash = redis.sha1hex(all[i])
    if hash < lowest then
      local l, missed = live(all[i])
      if l and not missed then heir, lowest, heirTTL = all[i], hash, l end
    end
  end
end
local n, why = count()
if heir == owner then
  drop(owner)
  if not n then return why end
  redis.call('HSET', KEYS[1], owner, string.format('%.0f', n))
  lengthen(KEYS[1], ttl)
  return {n, now}
end
if n then give(heir, n, heirTTL) end
redis.call('HDEL', KEYS[1], owner)
if not n then return why end
return {0, now}
