-- Renews many leases in one call. Never shortens: an older, longer validity may still be believed.
--   KEYS[i] lock   ARGV[2i-1] its owner   ARGV[2i] TTL, ms   last: marker id (unused)
-- Returns an array, per lease 1 = renewed, 0 = not the owner's, -1 = not a lock at all.
local out = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('HEXISTS', key, ARGV[2 * i - 1])
  if held == 1 then
    if redis.call('PTTL', key) < tonumber(ARGV[2 * i]) then redis.call('PEXPIRE', key, ARGV[2 * i]) end
    out[i] = 1
  elseif held == 0 then
    out[i] = 0
  else
    out[i] = -1
  end
end
return out
