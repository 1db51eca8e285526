-- Raises counters that were forgotten.   KEYS[1] the slot's counters
--   ARGV[1] marker id that the slot must be stamped with   ARGV[2] '1' if order rests on the clocks
--   from here: no counter is restored to less than the time   ARGV[3..] field, counter
-- Returns 1, or 0 where the slot has another stamp.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 0 end
local floor = 0
if ARGV[2] == '1' then
  local t = redis.call('TIME')
  floor = t[1] * 1000000 + t[2]
end
raiseTo(KEYS[1], 3, floor)
return 1
