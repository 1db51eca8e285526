-- Makes a member that forgot whole again, unless it forgot once more since the counters were read.
--   ARGV[1] the id it was begun with   ARGV[2] '1' if order rests on the clocks from here   ARGV[3] the greatest q
--   that is known, ms   ARGV[4..] bucket, counter
-- Where q is greater than what it was marked with, its quarantine was too short: it is prolonged instead.
local r = look()
if r[1] ~= ARGV[1] or r[2] ~= 'g' or r[4] > 0 then return r end
if raise(ARGV[3]) then return look() end
for i = 4, #ARGV, 2 do
  local n = tonumber(redis.call('HGET', KEYS[3], ARGV[i]) or 0)
  if n < tonumber(ARGV[i + 1]) then redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
end
redis.call('HSET', KEYS[1], 'state', 'w', 'clk', ARGV[2])
return look()
