-- The first token of a bucket that has no counter here: what follows the base of the counters (node/guard/script/base.lua), so
-- that members that began together stay in step; else the server's time.
local function begun(tokens)
  local base = redis.call('HGET', tokens, 'base')
  return base and base + 1 or time[1] * 1000000 + time[2]
end
