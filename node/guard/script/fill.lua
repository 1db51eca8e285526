-- Writes a page of counters to a member that forgot, for the client that has the claim, and notes how far it came.
--   ARGV[1] the id it was begun with   ARGV[2] the client's word   ARGV[3] for how long its claim goes on, ms
--   ARGV[4] the q of the member that the page was read under, ms   ARGV[5] the least that a counter is restored to
--   ARGV[6] '1' if order rests on the clocks from here: nor is it restored to less than the time
--   ARGV[7] the source, as a field of the marker   ARGV[8] how far it came   ARGV[9..] field, counter
-- A page that was read before q was raised may lack what was granted until the quarantine ended that the raise brought.
-- Returns what look does and, if it was written, 1 behind it.
local r = look()
local h = redis.call('HMGET', KEYS[1], 'by', 'till')
if not waits(r) or r[3] + 0 ~= ARGV[4] + 0 then return r end
if h[1] and h[1] ~= ARGV[2] and h[2] - r[6] > 0 then return r end
local floor = ARGV[5] + 0
if ARGV[6] == '1' then floor = math.max(floor, r[6]) end
raiseTo(KEYS[3], 9, floor)
redis.call('HSET', KEYS[1], 'by', ARGV[2], 'till', string.format('%.0f', r[6] + ARGV[3] * 1000), ARGV[7], ARGV[8])
r[#r + 1] = 1
return r
