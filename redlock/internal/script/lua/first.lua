-- Who is served next, and for how long: the hint if it waits, is live and has missed no heartbeat, else the first in line that
-- has not, else the first live one. (A grant to who has missed one is short, and ends between the others' heartbeats, which
-- would hear of that late.) Nil if nobody is live. Entries that have run out are removed when met; where one cannot be, the
-- script has ended, and does not meet it for ever.
local function first(hint)
  local next, place, hinted, late, lateTTL = hint, 0, (hint or '') ~= '', nil, nil
  if not hinted then next = head() end
  while next ~= '-' do
    local ttl, missed = live(next)
    if not ttl then
      drop(next)
    elseif not missed then
      return next, ttl
    elseif not hinted then
      place = place + 1
      if not late then late, lateTTL = next, ttl end
    end
    next, hinted = head(place), false
  end
  return late, lateTTL
end
