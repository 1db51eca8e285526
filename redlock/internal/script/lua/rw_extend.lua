-- Renews many readers' leases in one call. Never shortens.
--   KEYS[2i-1] lock   KEYS[2i] its queue   ARGV as extend
-- Returns an array, per lease 1 = renewed, 2 = renewed, and nobody joins the phase: a writer waits, or the phase is of
-- another marking (see told in rw.lua), 3 = renewed, but as a writer's: its downgrade has not come here, 0 = not the
-- owner's, -1 = not a lock at all.
--include time.lua
local nowms = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local marking = string.match(ARGV[#ARGV], '^[^/]*') -- see base.lua
local out = {}
for at = 1, #KEYS, 2 do
  local i, key, owner, ttl = (at + 1) / 2, KEYS[at], ARGV[at], ARGV[at + 1]
  local v = redis.pcall('HMGET', key, 'r', owner)
  if v.err then
    if not string.find(v.err, 'WRONGTYPE', 1, true) then redis.call('HMGET', key, 'r', owner) end
    out[i] = -1
  elseif not v[2] then
    out[i] = 0
  else
    --include mine.lua
    if v[1] then
      local over = math.max(nowms + 1 + ttl, v[2] + 0)
      out[i] = v[2] + 0 > 1e14 and 0 or 1 -- a token: a release was interrupted
      if out[i] == 1 then
        keep(key, ttl) -- the key first: see keep
        redis.call('HSET', key, owner, string.format('%.0f', over))
      end
    elseif mine(key, owner) then
      keep(key, ttl)
      out[i] = 3
    else
      out[i] = 0
    end
    if out[i] == 1 and (string.match(v[1], '^%d+ %d+ (.*)$') ~= marking or redis.call('EXISTS', KEYS[at + 1]) == 1) then out[i] = 2 end
  end
end
return out
