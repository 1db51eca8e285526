-- Where nobody holds the lock or waits with a ticket any more, the last one is removed. Otherwise it ends with waiters.
if redis.pcall('EXISTS', KEYS[1]) == 0 and redis.pcall('EXISTS', KEYS[4]) == 0 then redis.pcall('HDEL', KEYS[5], '#') end
