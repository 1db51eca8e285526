-- Raises q: a client with a greater MaxTTL has come.   ARGV[1] the id it read   ARGV[2] its q, ms
if redis.call('HGET', KEYS[1], 'id') == ARGV[1] and tonumber(redis.call('HGET', KEYS[1], 'q') or 0) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'q', ARGV[2])
end
return look()
