-- Resolves a split: all members give to the same owner, the one whose name hashes lowest.
--   ARGV[2] owner   ARGV[3] the token of the vote it yields   ARGV[4] TTL of a grant, ms
--   ARGV[5] lifetime of the entry, ms
-- Returns {new token if the owner keeps the vote, else 0, server time in µs}. Error FORGOT marker.
--include lib.lua
local owner, ttl, entry = ARGV[2], ARGV[4], tonumber(ARGV[5])
if redis.call('HGET', KEYS[1], owner) ~= ARGV[3] then return {0, now} end
local heir, lowest, heirTTL = owner, redis.sha1hex(owner), nil
for _, waiter in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  local hash = redis.sha1hex(waiter)
  if hash < lowest then
    local l = live(waiter)
    if l then heir, lowest, heirTTL = waiter, hash, l else drop(waiter) end
  end
end
if heir == owner then
  local n = count()
  if not n then return redis.error_reply('FORGOT marker') end
  redis.call('HSET', KEYS[1], owner, n)
  lengthen(KEYS[1], ttl)
  return {n, now}
end
register(owner, ttl, entry)
local n = count()
if n then
  drop(heir)
  give(heir, n, heirTTL)
end
redis.call('HDEL', KEYS[1], owner)
if not n then return redis.error_reply('FORGOT marker') end
return {0, now}
