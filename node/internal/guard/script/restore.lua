-- Makes a member that forgot whole again, unless it forgot once more since the counters were read: whatever deletes what fill.lua
-- wrote deletes the id, too, or changes the replication id.
--   ARGV[1] the id it was begun with   ARGV[2] '1' if order rests on the clocks from here   ARGV[3] the greatest q
--   that is known, ms
-- Where q is greater than what it was marked with, its quarantine was too short: it is prolonged instead. Where it is less, the
-- counters were read before it was raised: see fill.lua.
local r = look()
if not waits(r) then return r end
if raise(ARGV[3]) then return look() end
if r[3] + 0 ~= ARGV[3] + 0 then return r end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do -- of fill.lua and claim.lua
  if string.sub(field, 1, 5) == 'from ' or field == 'by' or field == 'till' or field == 'few' then redis.call('HDEL', KEYS[1], field) end
end
redis.call('HSET', KEYS[1], 'state', 'w', 'clk', ARGV[2])
return look()
