-- Tells the holder that the owner waits no more, as its registration was told: the holder would name it as its successor.
if waited and tag ~= '!' then
  local holder = redis.call('HKEYS', KEYS[1])[1]
  if holder then push(holder, 'x ' .. holder .. ' ' .. owner) end
end
