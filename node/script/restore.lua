-- Makes a member that forgot whole again, unless it forgot once more since the counters were read.
--   ARGV[1] the id it was begun with   ARGV[2] '1' if order rests on the clocks from here   ARGV[3..] bucket, counter
local r = look()
if r[1] ~= ARGV[1] or r[2] ~= 'g' or r[4] > 0 then return r end
for i = 3, #ARGV, 2 do
  local n = tonumber(redis.call('HGET', KEYS[3], ARGV[i]) or 0)
  if n < tonumber(ARGV[i + 1]) then redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
end
redis.call('HSET', KEYS[1], 'state', 'w', 'clk', ARGV[2])
return look()
