-- A holder wants a vote that is another's here: a re-join takes it from nobody. Its place in the queue is before all times and
-- tickets, so who gives the vote up gives it to the holder. It lasts as long as the vote would that was asked for.
--include foreign.lua
local function wish(owner, ttl, place)
  if foreign(KEYS[1]) then return end
  register(owner, ttl, ttl + 0)
  redis.call('ZADD', KEYS[4], place, owner)
  local pushed = 0
  for _, other in ipairs(redis.call('HKEYS', KEYS[1])) do
    if other ~= 'r' and pushed < 64 then
      push(other, 'w ' .. other .. ' ' .. owner .. ' ') -- the blank at the end says that it is a wish: see push.go
      pushed = pushed + 1
    end
  end
end
