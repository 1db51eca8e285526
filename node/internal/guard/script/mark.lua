-- Marks this member as the process ARGV[1], unless another client has meanwhile.
--   ARGV[1] run_id   ARGV[2] q, ms   ARGV[3] quarantine, ms
--   ARGV[4] state: 'n' never forgot, 'g' forgot   ARGV[5] replication id
-- A member that forgot loses its counters in the same step: a bucket without a counter is noticed by
-- the next grant, a counter from a snapshot is not.
local id = redis.call('HGET', KEYS[1], 'id')
if id and string.sub(id, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' and redis.call('HGET', KEYS[1], 'repl') == ARGV[5] then
  return look()
end
local t = redis.call('TIME')
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'id', ARGV[1] .. ' ' .. string.format('%.0f', t[1] * 1000000 + t[2]), 'q', ARGV[2], 'state', ARGV[4],
  'repl', ARGV[5])
if tonumber(ARGV[3]) > 0 then redis.call('SET', KEYS[2], '1', 'PX', ARGV[3]) else redis.call('DEL', KEYS[2]) end
if ARGV[4] == 'g' then redis.call('DEL', KEYS[3]) end
return look()
