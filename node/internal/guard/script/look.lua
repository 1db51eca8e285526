-- What this member knows of its own memory, read in one step; put in front of the other scripts here.
--   KEYS[1] marker   KEYS[2] quarantine   KEYS[3] token counters
-- look() returns {id, state, q in ms, PTTL of the quarantine, clk, server time in µs, when q was raised last in µs, or '', the
-- replication id that the marker was made for, INFO replication, or '' where that is not permitted, and in a Redis Cluster what
-- the slot is stamped with}.
local function look()
  local h = redis.call('HMGET', KEYS[1], 'id', 'state', 'q', 'clk', 'lifted', 'repl')
  local t, info = redis.call('TIME'), redis.pcall('INFO', 'replication')
  return {h[1] or '', h[2] or '', h[3] or '0', redis.call('PTTL', KEYS[2]), h[4] or '', t[1] * 1000000 + t[2], h[5] or '',
    h[6] or '', type(info) == 'string' and info or '', redis.call('HGET', KEYS[3], 'id') or ''}
end
