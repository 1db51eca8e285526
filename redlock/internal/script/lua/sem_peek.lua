-- What one member knows of a semaphore. Changes nothing.
--   ARGV[1] bucket   ARGV[2] 'holders': who waits is left out
-- Returns {server time in µs, the stored limit or '0', {owner, its record, …}, {waiter, time of its registration in µs, its entry, …}}.
local time = redis.call('TIME')
local all, owners, line = redis.call('HGETALL', KEYS[1]), {}, {}
for i = 1, #all, 2 do
  if string.find(all[i], ':', 1, true) then
    owners[#owners + 1] = all[i]
    owners[#owners + 1] = all[i + 1]
  end
end
local queue = ARGV[2] == 'holders' and {} or redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES')
for i = 1, #queue, 2 do
  line[#line + 1] = queue[i]
  line[#line + 1] = string.format('%.0f', queue[i + 1] + 0)
  line[#line + 1] = redis.call('HGET', KEYS[5], queue[i]) or ''
end
return {time[1] * 1000000 + time[2], redis.call('HGET', KEYS[2], 'limit:' .. KEYS[1]) or '0', owners, line}
