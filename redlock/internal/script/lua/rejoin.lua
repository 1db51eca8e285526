-- Gives a lease that is held and valid a further vote, at a member that lost it or joined late.
--   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] the token of its vote   ARGV[5] the greatest that it may give to leases
-- The counter first: a vote below it could let a later token fall behind.
-- Returns 1 if the vote is the owner's now, 0 if it was taken from the owner by force, or is another's, which is told that the
-- owner wishes for it. Error FORGOT marker.
--include lib.lua
local owner, ttl, most = ARGV[2], ARGV[3], tonumber(ARGV[5])
local n = tonumber(redis.call('HGET', KEYS[2], bucket) or 0)
if n == 0 then
  if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then return redis.error_reply('FORGOT marker') end
  redis.call('HSET', KEYS[2], bucket, string.format('%.0f', math.max(now, most)))
elseif n < most then
  redis.call('HSET', KEYS[2], bucket, ARGV[5])
end
--include buried.lua
if redis.call('EXISTS', KEYS[1]) == 0 then
  if buried(owner) then return 0 end
  own(owner, ARGV[4], ttl)
  drop(owner)
  return 1
end
if redis.call('HEXISTS', KEYS[1], owner) == 1 then
  --include mine.lua
  if not mine(KEYS[1], owner) then return 0 end
  keep(KEYS[1], ttl)
  drop(owner)
  return 1
end
--include wish.lua
if not buried(owner) then wish(owner, ARGV[3], '0.5') end
return 0
