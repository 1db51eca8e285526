local left = redis.call('PTTL', KEYS[1])
if left == -1 and type(redis.pcall('HGET', KEYS[1], owner)) ~= 'string' then return redis.error_reply('FOREIGN no ttl') end
if left == -2 then
  --include grant.lua
  --include line.lua
  local n, why = count()
  if not n then return why end
  own(owner, string.format('%.0f', n), ttl)
  drop(owner)
  return {n, now, head()}
end
local held = redis.call('HGETALL', KEYS[1])
for i = 1, #held, 2 do
  if held[i] == owner then
    --include mine.lua
    if not mine(KEYS[1], owner) then return {-math.max(left, 1), now, '-'} end
    --include line.lua
    keep(KEYS[1], ttl)
    drop(owner)
    return {tonumber(held[i + 1]), now, head()}
  end
end
local all = held
--include alien.lua
if alien then return redis.error_reply('FOREIGN no lock') end
--include stay.lua
