-- Put behind look.lua where q is raised. While the member is in quarantine, or forgot and is not restored yet, who
-- had the greater q may have counted its old votes: the quarantine grows by the difference. It counts from now, so
-- that it never ends before the marking and the greater q; no date is compared.   Reports whether q was raised.
local function raise(q)
  q = tonumber(q)
  local h = redis.call('HMGET', KEYS[1], 'q', 'state')
  local old = tonumber(h[1] or 0)
  if q <= old then return false end
  local t = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'q', string.format('%.0f', q), 'lifted', string.format('%.0f', t[1] * 1000000 + t[2]))
  local left = redis.call('PTTL', KEYS[2])
  if left > 0 or h[2] == 'g' then
    redis.call('SET', KEYS[2], '1', 'PX', string.format('%.0f', math.max(left, 0) + q - old))
  end
  return true
end
