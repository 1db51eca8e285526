-- What acquire does, alone and in a batch.
local left = redis.call('PTTL', name)
if left == -2 then
  local n = redis.call('HINCRBY', tokens, bucket, '1') -- a string: Redis writes a number as a double, in twice the time
  if n == 1 then
    if id ~= '' and redis.call('HGET', marker, 'id') ~= string.match(id, '^[^/]*') then
      redis.call('HDEL', tokens, bucket)
      return redis.error_reply('FORGOT marker')
    end
    local t = redis.call('TIME')
    n = t[1] * 1000000 + t[2]
    redis.call('HSET', tokens, bucket, n)
  end
  redis.call('HSET', name, owner, n) -- which Redis writes in full
  if type(redis.pcall('PEXPIRE', name, ttl)) == 'table' then -- see own in grant.lua
    redis.call('HDEL', name, owner)
    return redis.call('PEXPIRE', name, ttl)
  end
  return n
end
if left == -1 then return redis.error_reply('FOREIGN no ttl') end
local mine = redis.call('HGET', name, owner)
if mine then
  if left < tonumber(ttl) then redis.call('PEXPIRE', name, ttl) end
  return tonumber(mine)
end
return -math.max(left, 1)
