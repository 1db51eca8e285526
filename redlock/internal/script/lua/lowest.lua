-- Whom a yield prefers, and for how long it gets the vote: who holds the lock elsewhere, else the lowest hash of the owner and of
-- the waiters that have missed no heartbeat.
--include wisher.lua
local heir, heirTTL = wisher()
if not heir then
  local lowest = redis.sha1hex(owner)
  heir = owner
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    local hash = redis.sha1hex(waiter)
    if hash < lowest then
      local l, missed = live(waiter)
      if not l then
        drop(waiter)
      elseif not missed then
        heir, lowest, heirTTL = waiter, hash, l
      end
    end
  end
end
