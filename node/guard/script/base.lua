-- Raises the base: the counter of every bucket that has no field. A grant in such a bucket draws what follows it.
--   ARGV[1] the id it read   ARGV[2] the base that other members have   ARGV[3] '1' if the marker is of an earlier process
--   that is believed: its snapshot may have an older base
-- Where there is none, buckets have begun at the server's time so far, and the base is not below that. Nobody raises it while the
-- counters are not restored. A server that refuses to write, which is no sign that it forgot, is looked at all the same.
local h = redis.call('HMGET', KEYS[1], 'id', 'state')
if h[1] == ARGV[1] and h[2] ~= 'g' then
  local old = redis.call('HGET', KEYS[3], 'base')
  local base = ARGV[2] + 0
  if not old or ARGV[3] == '1' then
    local t = redis.call('TIME')
    base = math.max(base, t[1] * 1000000 + t[2])
  end
  if not old or base > old + 0 then redis.pcall('HSET', KEYS[3], 'base', string.format('%.0f', base)) end
end
return look()
