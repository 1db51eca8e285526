-- Raises a counter that was forgotten.   KEYS[1] the slot's counters
--   ARGV[1] marker id that the slot must be stamped with   ARGV[2] bucket   ARGV[3] counter
-- Returns 1, or 0 where the slot has another stamp.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 0 end
if tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or 0) < tonumber(ARGV[3]) then redis.call('HSET', KEYS[1], ARGV[2], ARGV[3]) end
return 1
