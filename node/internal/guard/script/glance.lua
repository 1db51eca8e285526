-- What of a look is judged: id and q, while the server is a master and its memory is the one that the marker was made for.
--   KEYS[1] marker
-- Returns {id, q}, and behind them the replication id of the marker and INFO replication where that has changed. A server
-- that does not permit INFO has not changed.
local h = redis.call('HMGET', KEYS[1], 'id', 'q', 'repl')
local r = {h[1] or '', h[2] or ''}
local info = redis.pcall('INFO', 'replication')
if type(info) == 'string' and not (h[3] and string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. h[3], 1, true)) then
  r[3], r[4] = h[3] or '', info
end
return r
