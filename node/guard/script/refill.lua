-- Raises counters that were forgotten.   KEYS[1] the slot's counters
--   ARGV[1] marker id that the slot must be stamped with   ARGV[2] the least that a counter is restored to   ARGV[3] '1' if order
--   rests on the clocks from here: nor is it restored to less than the time   ARGV[4..] field, counter
-- Returns 1, or 0 where the slot has another stamp.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 0 end
local floor = ARGV[2] + 0
if ARGV[3] == '1' then
  local t = redis.call('TIME')
  floor = math.max(floor, t[1] * 1000000 + t[2])
end
raiseTo(KEYS[1], 4, floor)
return 1
