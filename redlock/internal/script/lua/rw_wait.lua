-- A writer's standing request: as wait, and in a read phase it looks whether there still are
-- readers.
--include base.lua
local owner, ttl, entry = ARGV[2], ARGV[3], ARGV[4] + 0
local phase = redis.pcall('HGET', KEYS[1], 'r')
if type(phase) == 'string' and string.find(phase, '^%d+ %d+ ') then -- else it is other data, and stand.lua says so
  --include rw.lua
  local readers, last = sweep()
  if readers == 0 then
    local n, why = count()
    if not n then return why end
    redis.call('HDEL', KEYS[1], 'r') -- see rw.lua
    own(owner, text(n), ttl)
    drop(owner)
    return {n, now, writer()}
  end
  local before = writer()
  if register(owner, ttl, entry) and before == '-' then -- the phase is closed by it: its readers are told, once
    local pushed = 0
    for _, holder in ipairs(redis.call('HKEYS', KEYS[1])) do
      if holder ~= 'r' and pushed < 64 then
        push(holder, 'w ' .. holder .. ' ' .. owner)
        pushed = pushed + 1
      end
    end
  end
  return {-math.max(last - 1 - nowms, 1), now, '-'}
end
--include stand.lua
