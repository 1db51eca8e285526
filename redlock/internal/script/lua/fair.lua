-- The queue of a fair lock. Its places are tickets: an owner with the ticket T stands at T + 0.5. The half tells it from a
-- waiter of the lock that is not fair, which stands at the µs of its arrival. The field '#' of waiters is the greatest
-- ticket here. It lives as long as waiters, and a release removes it when nobody holds the lock or waits for it.

-- The owner's ticket here. One that is agreed comes from its client; before, it is the place that it has, or the next
-- ticket. A new one begins with the second of the server's time, so that the counters of most members agree.
local function ticketOf(owner, agreed)
  local last = tonumber(redis.call('HGET', KEYS[5], '#') or 0)
  local place = redis.call('ZSCORE', KEYS[4], owner)
  place = place and math.floor(tonumber(place))
  local ticket = tonumber(agreed)
  if ticket == 0 then ticket = place or math.max(last + 1, now - now % 1000000) end
  if last < ticket then redis.call('HSET', KEYS[5], '#', string.format('%.0f', ticket)) end
  return ticket, place
end

-- Queue and waiters live half as long again as an entry, at least, and the queue as long as waiters: see register.lua.
local function lasting(entry, first)
  local lives = redis.call('PTTL', KEYS[5])
  if lives < 1.5 * entry then
    lives = 2 * entry + 1
    redis.call('PEXPIRE', KEYS[5], lives)
  elseif not first then
    return
  end
  lengthen(KEYS[4], string.format('%.0f', lives))
end

-- Puts the owner at its ticket. Returns the ticket, and whether the owner stands before others that it did not stand before.
local function stand(owner, agreed, ttl, entry)
  local ticket, place = ticketOf(owner, agreed)
  if ticket ~= place then redis.call('ZADD', KEYS[4], string.format('%.1f', ticket + 0.5), owner) end
  redis.call('HSET', KEYS[5], owner, (now - now % 1000) / 1000 + entry .. ' ' .. ttl)
  lasting(entry, not place)
  return ticket, not place or ticket < place
end
