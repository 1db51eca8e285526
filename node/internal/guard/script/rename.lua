-- Notes a replication id that changed without a promotion, or was not noted.   ARGV[1] id   ARGV[2] replication id
if redis.call('HGET', KEYS[1], 'id') == ARGV[1] then redis.call('HSET', KEYS[1], 'repl', ARGV[2]) end
return look()
