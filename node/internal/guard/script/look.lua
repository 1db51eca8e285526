-- What this member knows of its own memory, read in one step; put in front of the other scripts here.
--   KEYS[1] marker   KEYS[2] quarantine   KEYS[3] token counters
-- look() returns {id, state, q in ms, PTTL of the quarantine, clk, server time in µs, when q was
-- raised last in µs, or ''}.
local function look()
  local h = redis.call('HMGET', KEYS[1], 'id', 'state', 'q', 'clk', 'lifted')
  local t = redis.call('TIME')
  return {h[1] or '', h[2] or '', h[3] or '0', redis.call('PTTL', KEYS[2]), h[4] or '', t[1] * 1000000 + t[2], h[5] or ''}
end
