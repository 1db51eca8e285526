-- Who wishes for the vote, because it holds the lock at other members (wish.lua), and for how long it gets it. Nil: nobody.
local function wisher()
  local first = redis.call('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')
  if not first[1] or first[2] + 0 >= 1 then return nil end
  local ttl, missed = live(first[1])
  if not missed and ttl then return first[1], ttl end
end
