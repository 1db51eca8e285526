-- Executes the request of a waiter, and tells it, and who comes after it. False: it is not in the queue.
local function give(owner, n, ttl)
  local token = string.format('%.0f', n)
  own(owner, token, ttl)
  if not drop(owner) then
    redis.call('HDEL', KEYS[1], owner)
    return false
  end
  push(owner, 'g ' .. owner .. ' ' .. token .. ' ' .. stamp .. ' ' .. head() .. ' ' .. ttl)
  return true
end
