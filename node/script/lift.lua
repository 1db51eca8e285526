-- Raises q: a client with a greater MaxTTL has come. Others with the same must wait as it does, and are
-- told when it was.   ARGV[1] the id it read   ARGV[2] its q, ms
if redis.call('HGET', KEYS[1], 'id') == ARGV[1] and tonumber(redis.call('HGET', KEYS[1], 'q') or 0) < tonumber(ARGV[2]) then
  local t = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'q', ARGV[2], 'lifted', string.format('%.0f', t[1] * 1000000 + t[2]))
end
return look()
