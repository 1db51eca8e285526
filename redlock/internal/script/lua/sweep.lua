-- Removes the readers whose time is over. Returns how many are left, and until when the last of
-- them (ms). A token in the place of an end is that of a writer whose release was interrupted: it
-- has given the vote up (rw.lua).
local function sweep()
  local all, left, last = redis.call('HGETALL', KEYS[1]), 0, 0
  for i = 1, #all, 2 do
    if all[i] ~= 'r' then
      local till = all[i + 1] + 0
      if till <= nowms or till > 1e14 then
        redis.call('HDEL', KEYS[1], all[i])
      else
        left = left + 1
        last = math.max(last, till)
      end
    end
  end
  return left, last
end

-- The key lives no longer than the last reader that is left: who asks for a writer's vote once, or
-- for a mutex, looks at the key alone.
local function shorten(last)
  local left = string.format('%.0f', math.max(last - nowms, 1))
  if redis.call('PTTL', KEYS[1]) > left + 0 then redis.call('PEXPIRE', KEYS[1], left) end
end
