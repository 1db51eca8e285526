-- Raises counters that were forgotten.   KEYS[1] the slot's counters
--   ARGV[1] marker id that the slot must be stamped with   ARGV[2..] field, counter
-- Returns 1, or 0 where the slot has another stamp.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 2 do
  if tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or 0) < tonumber(ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return 1
