-- Keeps for a while what a client tells of itself.
--   KEYS[1] its key   ARGV[1] what it tells   ARGV[2] for how long, ms
redis.call('HSET', KEYS[1], 'who', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
