-- Makes a member that forgot whole again, unless it forgot once more since the counters were read: whatever deletes what fill.lua
-- wrote deletes the id, too, or changes the replication id.
--   ARGV[1] the id it was begun with   ARGV[2] '1' if order rests on the clocks from here   ARGV[3] the greatest q
--   that is known, ms   ARGV[4] the greatest base that is known, '' at a master of a cluster
-- Where q is greater than what it was marked with, its quarantine was too short: it is prolonged instead. Where it is less, the
-- counters were read before it was raised: see fill.lua.
local r = look()
if not waits(r) then return r end
if raise(ARGV[3]) then return look() end
if r[3] + 0 ~= ARGV[3] + 0 then return r end
-- Where order rests on the clocks, every bucket without a counter is beyond what was forgotten, by this member's clock.
local base = tonumber(ARGV[4])
if base and ARGV[2] == '1' then
  local t = redis.call('TIME')
  base = math.max(base, t[1] * 1000000 + t[2])
end
if base and base > 0 then redis.call('HSET', KEYS[3], 'base', string.format('%.0f', base)) end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do -- of fill.lua and claim.lua
  if string.sub(field, 1, 5) == 'from ' or field == 'by' or field == 'till' or field == 'few' then redis.call('HDEL', KEYS[1], field) end
end
redis.call('HSET', KEYS[1], 'state', 'w', 'clk', ARGV[2])
return look()
