-- The TTL that a registered owner asked for, as text, or nil if its entry has run out.
local function live(owner)
  local entry = redis.call('HGET', KEYS[5], owner)
  if not entry then return nil end
  local deadline, ttl = string.match(entry, '^(%d+) (%d+)$')
  if not deadline or deadline * 1000 < now then return nil end
  return ttl
end

-- Executes the request of a waiter that has left the queue, and tells it, and who comes after it.
local function give(owner, n, ttl)
  local token = string.format('%.0f', n) -- an argument of redis.call needs no such thing: whole numbers are written in full
  own(owner, token, ttl)
  push(owner, 'g ' .. owner .. ' ' .. token .. ' ' .. stamp .. ' ' .. head())
end

-- Hands a vote that is given up to the hint if it waits and is live, else to the first live one in line, if there
-- is any. Entries that have run out are removed when met; where one cannot be, the script has ended, and does not
-- meet it for ever. Returns whether it did; nil where it may not count, and nobody has left the queue then.
local function hand(hint)
  local next, n = hint
  if hint == '' then next = head() end
  while next ~= '-' do
    local ttl = live(next)
    if ttl then
      n = n or count()
      if not n then return nil end
    end
    if drop(next) and ttl then -- a hint that does not wait here may have left an entry
      give(next, n, ttl)
      return true
    end
    next = head()
  end
  return false
end
