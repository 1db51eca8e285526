-- Raises counters of a member that forgot, and makes it whole with the last of them, unless it forgot once more since they were
-- read: whatever deletes what was written deletes the id, too, or changes the replication id.
--   ARGV[1] the id it was begun with   ARGV[2] '1' if order rests on the clocks from here: no counter is restored to less than
--   the time   ARGV[3] the greatest q that is known, ms   ARGV[4] '1' if these are the last   ARGV[5..] field, counter
-- Where q is greater than what it was marked with, its quarantine was too short: it is prolonged instead. Where it is less, the
-- counters were read before it was raised: they may lack what was granted until the quarantine ended that the raise brought.
local r = look()
if not waits(r) then return r end
if raise(ARGV[3]) then return look() end
if r[3] + 0 ~= ARGV[3] + 0 then return r end
raiseTo(KEYS[3], 5, ARGV[2] == '1' and r[6] or 0)
if ARGV[4] == '1' then
  redis.call('HDEL', KEYS[1], 'by', 'till', 'few') -- of claim.lua
  redis.call('HSET', KEYS[1], 'state', 'w', 'clk', ARGV[2])
end
return look()
