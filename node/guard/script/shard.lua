-- Put behind look.lua at a master that a replica may replace. look() tells also, as elements 9 to 11: the
-- replication id that the marker was made for, INFO replication, and in a Redis Cluster what the slot is
-- stamped with.
local plain = look
look = function()
  local r = plain()
  r[9] = redis.call('HGET', KEYS[1], 'repl') or ''
  r[10] = redis.call('INFO', 'replication')
  r[11] = redis.call('HGET', KEYS[3], 'id') or ''
  return r
end
