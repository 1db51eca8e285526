-- What a registered owner is granted, as text: the TTL that it asked for, or what remains of its entry if that is less. So
-- all that a waiter is handed after it died has ended when its entry would have, whoever handed it over and when. Nil if
-- its entry has run out. And whether it missed a heartbeat: they come every third of the TTL at least.
local function live(owner)
  local entry = redis.call('HGET', KEYS[5], owner)
  if not entry then return nil end
  local deadline, ttl = string.match(entry, '^(%d+) (%d+)$')
  if not deadline then return nil end
  local left = deadline - (now - now % 1000) / 1000
  if left < 1 then return nil end
  local missed = left < ttl / 2
  if left < ttl + 0 then ttl = left .. '' end -- printed in full below 10^14
  return ttl, missed
end
