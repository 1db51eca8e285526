-- The next token, or nil where this member lost its counters since the session began.
local function count()
  local n = redis.call('HINCRBY', KEYS[2], bucket, '1')
  if n == 1 then
    if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then
      redis.call('HDEL', KEYS[2], bucket)
      return nil
    end
    n = now
    redis.call('HSET', KEYS[2], bucket, n)
  end
  return n
end

-- A vote that cannot be given an end (PEXPIRE is not permitted) must not stay: it would be there for ever, and be
-- no lock to others. Asked again, the command ends the script and is named by the error.
local function own(owner, token, ttl)
  redis.call('HSET', KEYS[1], owner, token)
  if type(redis.pcall('PEXPIRE', KEYS[1], ttl)) == 'table' then
    redis.call('HDEL', KEYS[1], owner)
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end
