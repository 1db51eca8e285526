-- Put behind look.lua where the server tells of its replication. look() tells also, as elements 8 to 10: the
-- replication id that the marker was made for, INFO replication, or '' where that is not permitted, and in a Redis Cluster
-- what the slot is stamped with.
local plain = look
look = function()
  local r = plain()
  local info = redis.pcall('INFO', 'replication')
  r[8] = redis.call('HGET', KEYS[1], 'repl') or ''
  r[9] = type(info) == 'string' and info or ''
  r[10] = redis.call('HGET', KEYS[3], 'id') or ''
  return r
end
