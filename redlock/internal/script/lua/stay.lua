-- Registers who was refused, and tells the holder if it is new.
--include pace.lua
--include register.lua
if register(owner, ttl, entry) then
  --include push.lua
  local holder = held[1]
  if holder then push(holder, 'w ' .. holder .. ' ' .. owner) end
end
if now % 7 == 0 then
  --include tidy.lua
end
return {-math.max(left, 1), now, lives}
