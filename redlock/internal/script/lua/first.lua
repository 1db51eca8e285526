-- Who is served next, and for how long: the first in the queue that has missed no heartbeat, else the first live one (see
-- hand.lua). Nil if nobody is live. Entries that have run out are removed when met.
local function first()
  local place, late, lateTTL, next = 0, nil, nil, head()
  while next ~= '-' do
    local ttl, missed = live(next)
    if not ttl then
      drop(next)
    elseif not missed then
      return next, ttl
    else
      place = place + 1
      if not late then late, lateTTL = next, ttl end
    end
    next = head(place)
  end
  return late, lateTTL
end
