-- Asks for the lock once. The steady case costs PTTL, HINCRBY, HSET and PEXPIRE.
--   KEYS[1] lock   KEYS[2] token counters   KEYS[3] marker
--   ARGV[1] bucket   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] marker id, perhaps with a / and more; '' = not checked
-- Returns the token (> 0) if the owner has the vote now or had it before, else minus the PTTL of the
-- lock (at most -1). Errors: FOREIGN no ttl, FORGOT marker; nothing is written then.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  local n = redis.call('HINCRBY', KEYS[2], ARGV[1], '1') -- a string: Redis writes a number as a double, in twice the time
  if n == 1 then
    if ARGV[4] ~= '' and redis.call('HGET', KEYS[3], 'id') ~= string.match(ARGV[4], '^[^/]*') then
      redis.call('HDEL', KEYS[2], ARGV[1])
      return redis.error_reply('FORGOT marker')
    end
    local t = redis.call('TIME')
    n = t[1] * 1000000 + t[2]
    redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f', n))
  end
  redis.call('HSET', KEYS[1], ARGV[2], string.format('%.0f', n))
  if type(redis.pcall('PEXPIRE', KEYS[1], ARGV[3])) == 'table' then -- see own in lib.lua
    redis.call('HDEL', KEYS[1], ARGV[2])
    return redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  return n
end
if left == -1 then return redis.error_reply('FOREIGN no ttl') end
local mine = redis.call('HGET', KEYS[1], ARGV[2])
if mine then
  if left < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
  return tonumber(mine)
end
return -math.max(left, 1)
