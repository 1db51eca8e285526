-- Raises q: a client with a greater MaxTTL has come. Others with the same must wait as it does, and are
-- told when it was.   ARGV[1] the id it read   ARGV[2] its q, ms
if redis.call('HGET', KEYS[1], 'id') == ARGV[1] then raise(ARGV[2]) end
return look()
