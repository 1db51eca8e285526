-- Registers who was refused, and tells who has the lock if it is new: the owner, or readers, 64 at most. (To r, push says nothing.
-- Where it stands among them differs from server to server.)
--include pace.lua
--include register.lua
if register(owner, ttl, entry) then
  --include push.lua
  for i = 1, math.min(#held, 127), 2 do push(held[i], 'w ' .. held[i] .. ' ' .. owner) end
end
if now % 7 == 0 then
  --include tidy.lua
end
return {-math.max(left, 1), now, lives}
