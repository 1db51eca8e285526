-- Writes a page of counters to a member that forgot, for the client that has the claim, and notes how far it came.
--   ARGV[1] the id it was begun with   ARGV[2] the client's word   ARGV[3] for how long its claim goes on, ms
--   ARGV[4] the q of the member that the page was read under, ms
--   ARGV[5] '1' if order rests on the clocks from here: no counter is restored to less than the time
--   ARGV[6] the source, as a field of the marker   ARGV[7] how far it came   ARGV[8..] field, counter
-- A page that was read before q was raised may lack what was granted until the quarantine ended that the raise brought.
-- Returns what look does and, if it was written, 1 behind it.
local r = look()
local h = redis.call('HMGET', KEYS[1], 'by', 'till')
if not waits(r) or r[3] + 0 ~= ARGV[4] + 0 then return r end
if h[1] and h[1] ~= ARGV[2] and h[2] - r[6] > 0 then return r end
raiseTo(KEYS[3], 8, ARGV[5] == '1' and r[6] or 0)
redis.call('HSET', KEYS[1], 'by', ARGV[2], 'till', string.format('%.0f', r[6] + ARGV[3] * 1000), ARGV[6], ARGV[7])
r[#r + 1] = 1
return r
