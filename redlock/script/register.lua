-- least: where that much is left, nothing is done; ttl itself if it is not given.
local function lengthen(key, ttl, least)
  if redis.call('PTTL', key) < tonumber(least or ttl) then redis.call('PEXPIRE', key, ttl) end
end

-- ttl is text. The keys live half as long again as the entry, at least.
local function register(owner, ttl, entry)
  local first = redis.call('ZADD', KEYS[4], 'NX', stamp, owner)
  redis.call('HSET', KEYS[5], owner, (now - now % 1000) / 1000 + entry .. ' ' .. ttl) -- printed in full below 10^14
  lengthen(KEYS[4], 2 * entry, 1.5 * entry)
  lengthen(KEYS[5], 2 * entry, 1.5 * entry)
  return first == 1
end
