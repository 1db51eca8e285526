-- The marker and all counters, read in one step. Returns what look does, and a flat array of buckets
-- and counters.
local r = look()
r[8] = redis.call('HGETALL', KEYS[3])
return r
