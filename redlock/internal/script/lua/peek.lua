-- What one member knows of a lock. Changes nothing.
--   ARGV[1] bucket   ARGV[2] 'holders': who waits is left out
-- Returns {server time in µs, PTTL of the lock, its counter or '0', state of the marker, owner or '',
-- the owner's token, then four per waiter in order: owner, time of registration in µs, deadline in ms, TTL in ms}.
local time = redis.call('TIME')
local lock = redis.call('HGETALL', KEYS[1])
local all = lock
--include alien.lua
if alien then return redis.error_reply('FOREIGN no lock') end
local out = {time[1] * 1000000 + time[2], redis.call('PTTL', KEYS[1]), redis.call('HGET', KEYS[2], ARGV[1]) or '0',
  redis.call('HGET', KEYS[3], 'state') or '', lock[1] or '', lock[2] or '0'}
if ARGV[2] == 'holders' then return out end
local queue = redis.call('ZRANGE', KEYS[4], '1', '+inf', 'BYSCORE', 'WITHSCORES') -- without holders: see wish.lua
for i = 1, #queue, 2 do
  local deadline, ttl = string.match(redis.call('HGET', KEYS[5], queue[i]) or '', '^(%d+) (%d+)$')
  out[#out + 1] = queue[i]
  out[#out + 1] = string.format('%.0f', tonumber(queue[i + 1]))
  out[#out + 1] = deadline or '0'
  out[#out + 1] = ttl or '0'
end
return out
