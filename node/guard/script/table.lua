-- The marker and all counters, read in one step. Returns what look does, and behind it a flat
-- array of buckets and counters.
local r = look()
r[#r + 1] = redis.call('HGETALL', KEYS[3])
return r
