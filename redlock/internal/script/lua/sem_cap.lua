-- The limit that is stored, version * 2^13 + limit: the greatest one that was heard of is in force, in place of what callers
-- ask for. 2^13 - 1 in the place of the limit: none is. told is what the client does not know yet.
local cap, told
do
  local stored = redis.call('HGET', KEYS[2], 'limit:' .. KEYS[1])
  if stored or known ~= '0' then
    local most = math.max(tonumber(stored or 0), known + 0)
    if not stored or stored + 0 < most then redis.call('HSET', KEYS[2], 'limit:' .. KEYS[1], text(most)) end
    if most > known + 0 then told = most end
    cap = most % 8192
    if cap == 8191 then cap = nil end
  end
end
