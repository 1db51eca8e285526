-- Asks whether a latch is open, and registers who is to be told when it opens. Repeated as a heartbeat.
--   KEYS, ARGV[1..4], reply as in latch.lua   ARGV[5] watch   ARGV[6] lifetime of its entry, ms; 0: it is withdrawn
--include latch.lua
local watch, entry = ARGV[5], ARGV[6] + 0
if entry == 0 or refused() then
  ask('HDEL', KEYS[4], watch)
  return reply()
end
turn()
if write({}) then tell() end
if new then tidy() end
if open then return reply() end
redis.call('HSET', KEYS[4], watch, whole((now - now % 1000) / 1000 + entry))
if redis.call('PTTL', KEYS[4]) < 1.5 * entry then redis.call('PEXPIRE', KEYS[4], whole(2 * entry + 1)) end
if now % math.max(16, redis.call('HLEN', KEYS[4])) == 0 then -- watches of clients that died: who waits reads one in a heartbeat
  local all = redis.call('HGETALL', KEYS[4])
  for i = 1, #all, 2 do
    if all[i + 1] * 1000 < now then redis.call('HDEL', KEYS[4], all[i]) end
  end
end
return reply()
